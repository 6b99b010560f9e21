package controller

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/shard"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// A shard is released only after the runs of a removed watch have ended, too. Its objects have no metrics then.
func TestRelease_WaitsForRunsOfAFormerWatch(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	end, reg := make(chan struct{}), prometheus.NewRegistry()
	exec := until(end)
	o := start(t, cfg, exec, Options{Sharded: true, Watches: []watches.Watch{watchOf(gvk)}, Metrics: must.Get(metrics.New(reg))(t)})
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
	must.Be(t, "series with a run in progress", 1, must.Get(testutil.GatherAndCount(reg, "resource_created_at_seconds"))(t))
	close(end)
	must.Do(t, left(t.Context()))
	must.Be(t, "series at the end", 0, must.Get(testutil.GatherAndCount(reg, "resource_created_at_seconds"))(t))
	if n := len(o.set.ending); n > 0 {
		t.Errorf("%d shards are remembered", n)
	}
}

// While a shard is being released, a run of it is stopped if its object is deleted.
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

// A replica gets only the objects of its shard if the API server can select them. Otherwise it gets all of them, and
// drops the rest.
func TestShard_KeepsItsObjectsOnly(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	const n, objects = 4, 24
	want := map[types.UID]bool{}
	s := &Shard{Has: func(uid types.UID) bool { return shard.Of(uid, n) == 1 }, Selector: shard.Selector(1, n)}
	for i := range objects {
		if uid := create(t, c, object(gvk, ns, fmt.Sprintf("it-%d", i), map[string]any{})).GetUID(); s.Has(uid) {
			want[uid] = true
		}
	}
	raw := dynamic.NewForConfigOrDie(cfg).Resource(gvk.GroupVersion().WithResource("widgets")).Namespace(ns)
	for name, server := range map[string]struct {
		takes func(*metav1.ListOptions) error
		sent  int64
	}{
		"with the feature":    {func(*metav1.ListOptions) error { return nil }, int64(len(want))},
		"without the feature": {func(o *metav1.ListOptions) error { o.ShardSelector = ""; return nil }, objects},
		"with another syntax": {func(o *metav1.ListOptions) error {
			if o.ShardSelector != "" {
				return apierrors.NewInternalError(errors.New("invalid shard selector"))
			}
			return nil
		}, objects},
	} {
		var sent atomic.Int64
		share := s.share(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				if err := server.takes(&o); err != nil {
					return nil, err
				}
				list, err := raw.List(ctx, o)
				if err == nil {
					sent.Add(int64(len(list.Items)))
				}
				return list, err
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if err := server.takes(&o); err != nil {
					return nil, err
				}
				w, err := raw.Watch(ctx, o)
				if err != nil {
					return nil, err
				}
				return watch.Filter(w, func(e watch.Event) (watch.Event, bool) { sent.Add(1); return e, true }), nil
			},
		})
		list := must.Get(share.ListWithContextFunc(t.Context(), metav1.ListOptions{}))(t).(*unstructured.UnstructuredList)
		has := map[types.UID]bool{}
		for _, is := range list.Items {
			has[is.GetUID()] = true
		}
		if !maps.Equal(has, want) || sent.Load() != server.sent {
			t.Errorf("%s: %d of %d objects are listed, %d were sent, want %d", name, len(has), len(want), sent.Load(), server.sent)
		}
		sent.Store(0)
		watching, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		all := true
		w := must.Get(share.WatchFuncWithContext(watching, metav1.ListOptions{
			SendInitialEvents: &all, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}))(t)
		seen := map[types.UID]bool{}
		for e := range w.ResultChan() {
			if e.Type == watch.Bookmark {
				break
			}
			seen[e.Object.(metav1.Object).GetUID()] = true
		}
		stop()
		w.Stop()
		if !maps.Equal(seen, want) || sent.Load() != server.sent+1 { // and the bookmark
			t.Errorf("%s: %d of %d objects are watched, %d events were sent, want %d", name, len(seen), len(want), sent.Load(), server.sent+1)
		}
	}
}

// When a shard is released, runs in their own Pods continue, and its next holder adopts them. It can do so only when the
// other runs have ended, because until then no other replica holds the shard.
func TestRelease_LeavesRunsInPods(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	_, _, other, _ := installed(t)
	_, _, unnamed, _ := installed(t)
	apart, nameless := watchOf(gvk), watchOf(unnamed) // runs are found by the status, but no status names those of nameless
	apart.Executor = watches.ExecutorJob
	nameless.Executor, nameless.ManageStatus, nameless.Job = watches.ExecutorJob, false, []byte("{}")
	dir := ""
	begun, end, last, handedOver := make(chan struct{}, 3), make(chan struct{}), make(chan struct{}), make(chan bool, 1)
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		begun <- struct{}{}
		if req.JobRun == nil {
			<-end
			return succeeded(), nil
		}
		if req.JobRun.Template != nil {
			<-last
			return succeeded(), nil
		}
		must.Do(t, os.MkdirAll(filepath.Join(req.Dir, "artifacts"), 0o700))
		dir = filepath.Dir(req.Dir)
		<-ctx.Done()
		handedOver <- closed(last) && req.JobRun.GoesOn(context.Cause(ctx))
		return runner.Result{ID: req.ID}, runner.ErrHandedOver
	}}
	o := start(t, cfg, exec, Options{Sharded: true, Watches: []watches.Watch{apart, nameless, watchOf(other)}})
	shard := &Shard{Name: "0/2", Has: func(types.UID) bool { return true }}
	must.Do(t, o.set.Hold(shard))
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	beside := create(t, c, object(other, ns, "one", map[string]any{}))
	create(t, c, object(unnamed, ns, "one", map[string]any{}))
	<-begun
	<-begun
	<-begun
	left := must.Get(o.set.Release(shard))(t)
	past, cancel := context.WithCancel(t.Context())
	cancel()
	if err := left(past); !errors.Is(err, context.Canceled) {
		t.Errorf("with a run in progress: %v, want to wait", err)
	}
	gone := make(chan error)
	go func() { gone <- left(t.Context()) }()
	close(end)
	awaitCondition(t, c, beside, status.Ready, "True")
	close(last)
	must.Do(t, <-gone)
	if !<-handedOver {
		t.Error("the run in a Pod is left before the other one has ended, or does not go on")
	}
	if _, ended := lastRun(get(t, c, obj).Object["status"].(map[string]any)); ended {
		t.Error("the end of the run that goes on is recorded")
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the run that goes on: %v, want none", err)
	}
}
