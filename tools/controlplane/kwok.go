package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

const (
	nodeName       = "rolewright-0"
	nodeAnnotation = "kwok.x-k8s.io/node"
)

// newKwok returns kwok with its authors' stages for nodes and Pods; make puts them beside the programs.
func (l layout) newKwok() (*component, error) {
	stages := filepath.Join(l.assets, "kwok-stages.yaml")
	if _, err := os.Stat(stages); err != nil {
		return nil, fmt.Errorf("find the stages of kwok, which `make cluster-tools-kwok` writes: %w", err)
	}
	args := []string{
		"--config=" + stages,
		"--kubeconfig=" + l.pki("kwok.kubeconfig"),
		"--manage-nodes-with-annotation-selector=" + nodeAnnotation + "=fake",
		"--cidr=10.1.0.0/16",
		// The node's heartbeat. The controller manager treats a node as lost after 40 seconds without one.
		"--node-lease-duration-seconds=40",
	}
	if l.podsExec {
		args = append(args, l.kubeletArgs()...)
	}
	return l.component("kwok", args...)
}

// startNode adds what makes Pods run, or at least say so: a scheduler, kwok, and one node.
func (c *cluster) startNode(ctx context.Context) error {
	c.report("starting kube-scheduler and kwok with one node")
	if err := c.launch(c.layout.newScheduler); err != nil {
		return err
	}
	if err := c.launchKwok(ctx); err != nil {
		return err
	}
	if err := c.client.createNode(ctx, nodeName); err != nil {
		return err
	}
	return c.await(ctx, "the node", func(ctx context.Context) error { return c.client.nodeReady(ctx, nodeName) })
}
