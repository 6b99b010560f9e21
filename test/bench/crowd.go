package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the operator logs when its runs are forked, and when they are not.
const (
	forkedMessage = "Runs are forked"
	plainMessage  = "Runs are not forked, each starts a new Python"
)

// manyAtOnce creates many objects at once, for an operator with each executor.
func (b *bench) manyAtOnce(ctx context.Context) error {
	for _, w := range b.workloads("reference", "thirty", "local") {
		name := w.name
		var seen comparison
		for range b.opts.rounds {
			plain, err := b.crowd(ctx, name, "runner")
			if err != nil {
				return fmt.Errorf("workload %s, --executor=runner: %w", name, err)
			}
			warm, err := b.crowd(ctx, name, "warm")
			if err != nil {
				return fmt.Errorf("workload %s, --executor=warm: %w", name, err)
			}
			seen.plain, seen.warm = append(seen.plain, plain), append(seen.warm, warm)
		}
		title := fmt.Sprintf("%s, %d objects at once on %d cores, %d pairs", name, b.opts.objects, runtime.NumCPU(), b.opts.rounds)
		seen.print(title, "8, 12", "")
		for i := range seen.plain {
			fmt.Printf("%-50s %9.1f %9.1f\n", "objects per minute, plain, warm", b.perMinute(seen.plain[i]), b.perMinute(seen.warm[i]))
		}
	}
	return nil
}

func (b *bench) perMinute(c cost) float64 { return 60 * float64(b.opts.objects) / c.wall }

// crowd starts an operator and creates the objects. It measures until all are
// ready, including everything below the operator.
func (b *bench) crowd(ctx context.Context, name, executor string) (c cost, err error) {
	if err := b.startWorkload(ctx, name, executor); err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, b.operator.stop()); b.operator = nil }()
	pid := b.operator.cmd.Process.Pid
	before, err := usedBy(pid)
	if err != nil {
		return c, err
	}
	began := time.Now()
	for i := range b.opts.objects {
		if err := b.create(ctx, metav1.NamespaceDefault, fmt.Sprintf("crowd-%d", i)); err != nil {
			return c, err
		}
	}
	if err := b.awaitReady(ctx); err != nil {
		return c, err
	}
	c.wall = time.Since(began).Seconds()
	after, err := usedBy(pid)
	c.used = after.less(before)
	if b.logged(plainMessage) {
		err = errors.Join(err, errors.New("the fork server was not there all the time: the machine is too busy to measure"))
	}
	return c, err
}

// startWorkload starts an operator without objects, whose runs execute a workload.
func (b *bench) startWorkload(ctx context.Context, name, executor string, args ...string) error {
	watches := filepath.Join(b.dir, name+".yaml")
	g, content := thing(), b.of(name)
	what := fmt.Sprintf("playbook: %q", content.Playbook)
	if content.Role != "" {
		what = fmt.Sprintf("role: %q", content.Role)
	}
	text := fmt.Sprintf("- {group: %s, version: %s, kind: %s, %s, reconcilePeriod: 0s}\n", g.Group, g.Version, g.Kind, what)
	if err := os.WriteFile(watches, []byte(text), 0o600); err != nil {
		return err
	}
	if err := b.removeThings(ctx); err != nil {
		return err
	}
	if err := b.startReal(ctx, append([]string{"--watches-file", watches, "--executor", executor}, args...)...); err != nil || executor == "runner" {
		return err
	}
	return wait(ctx, "the fork server", func() bool { return b.logged(forkedMessage) })
}

// logged tells whether the operator has logged a text.
func (b *bench) logged(text string) bool {
	log, err := os.ReadFile(b.operatorLog())
	return err == nil && bytes.Contains(log, []byte(text))
}

// removeThings stops the operator and removes all objects.
func (b *bench) removeThings(ctx context.Context) error {
	if b.operator != nil {
		if err := b.operator.stop(); err != nil {
			return err
		}
		b.operator = nil
	}
	list, err := b.things(ctx)
	if err != nil {
		return fmt.Errorf("list the objects of the last part: %w", err)
	}
	for i := range list {
		if err := client.IgnoreNotFound(b.client.Delete(ctx, &list[i])); err != nil {
			return fmt.Errorf("delete the objects of the last part: %w", err)
		}
	}
	return nil
}
