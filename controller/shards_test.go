package controller

import (
	"context"
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// A shard is given up after the runs of a watch that was removed have ended, too.
func TestRelease_WaitsForRunsOfAFormerWatch(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	end := make(chan struct{})
	exec := until(end)
	o := start(t, cfg, exec, Options{Sharded: true, Watches: []watches.Watch{watchOf(gvk)}})
	shard := &Shard{Name: "0/2", Has: func(types.UID) bool { return true }}
	must.Do(t, o.set.Hold(shard))
	create(t, c, object(gvk, ns, "one", map[string]any{}))
	eventually(t, "the run is in progress", func() bool { return exec.count() == 1 })

	must.Do(t, o.set.Watch(nil, nil))
	left := must.Get(o.set.Release(shard))(t)
	past, cancel := context.WithCancel(t.Context())
	cancel()
	if err := left(past); !errors.Is(err, context.Canceled) {
		t.Errorf("with a run in progress: %v, want to wait", err)
	}
	close(end)
	must.Do(t, left(t.Context()))
	if n := len(o.set.ending); n > 0 {
		t.Errorf("%d shards are remembered", n)
	}
}

// A run of a shard that is given up is stopped when its object is deleted.
func TestRelease_RunsFollowTheirObjects(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		<-ctx.Done()
		return cutShort(ctx, req, jobevent.Task{})
	}}
	o := start(t, cfg, exec, Options{Sharded: true, Watches: []watches.Watch{watchOf(gvk)}})
	shard := &Shard{Name: "0/2", Has: func(types.UID) bool { return true }}
	must.Do(t, o.set.Hold(shard))
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	eventually(t, "the run is in progress", func() bool { return exec.count() == 1 })
	left := must.Get(o.set.Release(shard))(t)
	must.Do(t, c.Delete(t.Context(), obj))
	patience, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	must.Do(t, left(patience))
}
