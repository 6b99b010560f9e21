package main

import (
	"context"
	"fmt"
	"net"
	"os"
)

// The endpoints of a kubelet, which kwok plays: what exec, attach, logs and port-forward of a Pod reach.

// podsTemplate configures what kwok does for every Pod. There is no container, so a command runs on this machine, in the
// given directory. The log of every Pod is a file there, which commands may write to. A forwarded connection echoes what
// it gets. kwok never closes a command's input, so each command has to know where its input ends. tar does if it reads
// block by block, which kubectl cp needs.
const podsTemplate = `apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: pods}
spec: {execs: [{local: {workDir: %[1]q, envs: [{name: TAR_OPTIONS, value: --blocking-factor=1}]}}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: pods}
spec: {logs: [{logsFile: %[2]q, follow: true}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterAttach
metadata: {name: pods}
spec: {attaches: [{logsFile: %[2]q}]}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterPortForward
metadata: {name: pods}
spec: {forwards: [{command: [cat]}]}
`

func (l layout) podsConfig() string { return l.dir.join("pods.yaml") }

// preparePods writes the configuration of kwok for Pods.
func (c *cluster) preparePods() error {
	dir := c.dir.join("pods")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of the Pods: %w", err)
	}
	log := c.dir.join("pods/log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		return fmt.Errorf("write the log of the Pods: %w", err)
	}
	if err := os.WriteFile(c.layout.podsConfig(), fmt.Appendf(nil, podsTemplate, dir, log), 0o600); err != nil {
		return fmt.Errorf("write what Pods do: %w", err)
	}
	return nil
}

// kubeletArgs are the flags that make kwok act as a kubelet, too.
func (l layout) kubeletArgs() []string {
	return []string{
		"--config=" + l.podsConfig(),
		"--node-ip=127.0.0.1",
		fmt.Sprintf("--node-port=%d", l.kubelet.number),
		"--server-address=" + l.kubelet.address(),
		"--tls-cert-file=" + l.pki("server.crt"), "--tls-private-key-file=" + l.pki("server.key"),
	}
}

// launchKwok starts kwok. kwok cannot share a port, so the reservation of the kubelet's port ends right before. If another
// process takes the port in between, kwok ends, and so does this control plane, with a message.
func (c *cluster) launchKwok(ctx context.Context) error {
	if !c.layout.podsExec {
		return c.launch(c.layout.newKwok)
	}
	var err error
	if c.layout.kubelet, err = reservePort(); err != nil {
		return err
	}
	c.layout.kubelet.release()
	if err := c.launch(c.layout.newKwok); err != nil {
		return err
	}
	return c.await(ctx, "the endpoints of the node", func(ctx context.Context) error {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, "tcp", c.layout.kubelet.address())
		if err != nil {
			return err
		}
		return conn.Close()
	})
}
