package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/runner/jobevent"
)

// lastRun is what status.ansible.lastRun says.
type lastRun struct {
	id, cause, result, reason, message, duration string
	generation, ok, changed                      int64
}

// follow shows the tasks of the run that starts for cause while it lasts, and
// returns when the status tells its end. A deleted object takes its last words
// with it: then the events tell them. generation 0 stands for any.
func (d *demo) follow(ctx context.Context, cause string, generation int64) error {
	began := time.Now()
	var id string
	var uid string
	var ranFor int64
	err := poll(ctx, "the run to start", func() (bool, error) {
		obj, err := d.read(ctx)
		if err != nil {
			return false, err
		}
		uid = string(obj.GetUID())
		active, _, _ := unstructured.NestedMap(obj.Object, "status", "ansible", "activeRun")
		if active["cause"] != cause || generation > 0 && active["generation"] != generation {
			return false, nil
		}
		ranFor, _ = active["generation"].(int64)
		id, _ = active["id"].(string)
		return id != "", nil
	})
	if err != nil {
		return err
	}
	d.screen.line("  run %s starts, %s after the request", id[:8], time.Since(began).Round(10*time.Millisecond))
	done := make(chan struct{})
	finished := make(chan lastRun, 1)
	failed := make(chan error, 1)
	go func() {
		defer close(done)
		run, err := d.awaitEnd(ctx, id)
		finished <- run
		failed <- err
	}()
	var sum jobevent.Summary
	events := filepath.Join(d.operator.root, ".runs", uid, id, "artifacts", id, "job_events")
	for e, err := range jobevent.Follow(ctx, events, done) {
		if err == nil && sum.Observe(e) {
			d.screen.event(e, began)
		}
	}
	run := <-finished
	if err := <-failed; err != nil {
		return err
	}
	if run.id == "" { // the object is gone, and with it its status
		run = lastRun{id: id, cause: cause, generation: ranFor, result: "Succeeded", ok: int64(sum.OK), changed: int64(sum.Changed),
			duration: time.Since(began).Round(time.Millisecond).String()}
	}
	d.runs = append(d.runs, run)
	if run.result != "Succeeded" {
		return fmt.Errorf("the run failed: %s: %s\n%s", run.reason, run.message, d.operator.tail())
	}
	d.screen.line("  %s in %s: %d ok, %d changed", run.result, run.duration, run.ok, run.changed)
	return nil
}

// awaitEnd waits until the status tells the end of the run, or the object is gone.
func (d *demo) awaitEnd(ctx context.Context, id string) (lastRun, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 3*time.Minute, fmt.Errorf("run %s did not end in 3 minutes", id))
	defer cancel()
	for {
		obj, err := d.read(ctx)
		if apierrors.IsNotFound(err) {
			return lastRun{}, nil
		}
		if err == nil {
			if run := readRun(obj); run.id == id {
				return run, nil
			}
		}
		select {
		case <-ctx.Done():
			return lastRun{}, context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func readRun(obj *unstructured.Unstructured) lastRun {
	m, _, _ := unstructured.NestedMap(obj.Object, "status", "ansible", "lastRun")
	counts, _ := m["counts"].(map[string]any)
	text := func(key string) string { s, _ := m[key].(string); return s }
	number := func(m map[string]any, key string) int64 { n, _ := m[key].(int64); return n }
	return lastRun{
		id: text("id"), cause: text("cause"), result: text("result"), reason: text("reason"), message: text("message"),
		duration: text("duration"), generation: number(m, "generation"), ok: number(counts, "ok"), changed: number(counts, "changed"),
	}
}
