package controller

import (
	"testing"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
)

// The annotation reconcile-at runs the object once per value, even if it is set while a run is in progress, and not again
// after a restart.
func TestManual_RunsOncePerRequest(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	release := make(chan struct{}, 1)
	exec := until(release)
	opts := Options{RunnerRoot: t.TempDir() + "/runner", Watches: []watches.Watch{watchOf(gvk)}}
	o := start(t, cfg, exec, opts)
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	ask := func(token string) {
		t.Helper()
		update(t, c, obj, func(is map[string]any) {
			is["metadata"].(map[string]any)["annotations"] = map[string]any{ownPrefix + "reconcile-at": token}
		})
	}
	handled := func(runs int, token, cause string) {
		t.Helper()
		eventually(t, "the request "+token+" is handled", func() bool {
			st, _ := get(t, c, obj).Object["status"].(map[string]any)
			last := status.Read(st).Last
			return last != nil && last.Handled == token && last.Cause == cause && exec.count() == runs
		})
	}
	eventually(t, "the first run is in progress", func() bool { return exec.count() == 1 })
	ask("a")
	release <- struct{}{}
	eventually(t, "the run that was asked for is in progress", func() bool { return exec.count() == 2 })
	release <- struct{}{}
	handled(2, "a", string(causeManual))

	o.stop()
	start(t, cfg, exec, opts)
	ask("a b") // refused, so it is not a request
	eventually(t, "the status says so", func() bool {
		settle()
		return exec.count() == 2
	})
	ask("2026-05-06T18:00:00Z")
	eventually(t, "the run is in progress", func() bool { return exec.count() == 3 })
	release <- struct{}{}
	handled(3, "2026-05-06T18:00:00Z", string(causeManual))
}
