package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// versioned returns a version of a role that writes its note, and then fails or succeeds.
func versioned(version string, fails bool) string {
	return strings.Replace(noteTask, "'main'", "'"+version+"'", 1) +
		fmt.Sprintf("- name: Fail\n  ansible.builtin.fail:\n    msg: as %s does\n  when: %t\n", version, fails)
}

// A changed role that fails reaches as many objects as may fail, and the next version reaches all. While the maintenance
// window is closed it reaches none, unless an edit changes the object.
func TestRollout_ABadRoleStops(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	note := s.notes()
	rolled, windowed := s.kind(testenv.WithKind("Rolled")), s.kind(testenv.WithKind("Windowed"))
	s.role("rolled", versioned("one", false))
	s.role("windowed", versioned("one", false))
	s.watch(rolled, "role: rolled", "rollout: {maxParallel: 1, stopOnFailures: 2}")
	closed := time.Now().UTC().AddDate(0, 6, 0)
	s.watch(windowed, "role: windowed",
		fmt.Sprintf(`schedule: {cron: "0 0 1 %d *", windows: [{start: "0 0 1 %[1]d *", duration: 1h}]}`, closed.Month()))
	o := s.start("--watch-content", "--retry-min=1h", "--retry-max=1h")
	const objects = 5
	for n := range objects {
		rolled.create(fmt.Sprint("it-", n), nil)
	}
	windowed.create("waits", nil)
	for n := range objects {
		rolled.awaitReady(fmt.Sprint("it-", n))
	}
	windowed.awaitReady("waits")
	ran := func(version string) (n int) {
		for i := range objects {
			if note(fmt.Sprint("it-", i)) == version {
				n++
			}
		}
		return n
	}

	s.role("windowed", versioned("two", false))
	s.role("rolled", versioned("two", true))
	testenv.Eventually(t, "the rollout to stop", func(ctx context.Context) error {
		n, err := o.metric(ctx, "rolewright_rollout_stopped", `kind="Rolled"`, `group="`+rolled.gvk.Group+`"`)
		if err == nil && n != 1 {
			err = fmt.Errorf("rolewright_rollout_stopped is %v", n)
		}
		return err
	})
	is := windowed.await("waits", "held back", func(o object) bool { return o.condition("Reconciling").Reason == "MaintenanceWindow" })
	if said := is.condition("Reconciling").Message; !strings.HasPrefix(said, "content: ") || is.condition("Ready").Status != "True" {
		t.Errorf("Reconciling says %q; Ready is %+v", said, is.condition("Ready"))
	}
	out := s.tool(0, "explain", "windowed/waits", "-n", s.namespace)
	for _, want := range []string{"fires in ", "is closed, and opens in ", fmt.Sprintf("-%02d-01T00:00:00Z)", closed.Month())} {
		if !strings.Contains(out, want) {
			t.Errorf("explain says\n%s\nwant %q in it", out, want)
		}
	}
	must.Be(t, "note of the object that waits", "one", note("waits"))
	windowed.patch("waits", `{"spec":{"a":"b"}}`)
	windowed.awaitReady("waits")
	must.Be(t, "note of the object that was edited", "two", note("waits"))

	must.Be(t, "objects that the bad role has run for", 2, ran("two"))
	s.role("rolled", versioned("three", false))
	for n := range objects {
		rolled.await(fmt.Sprint("it-", n), "run with the next version", func(o object) bool {
			return o.ready() && o.lastRun().Cause == "content" && note(o.GetName()) == "three"
		})
	}
}

// A watch is served as soon as the API is installed that enabledIf names. With onFailure: orphan an object is deleted
// although its finalizer run fails, and what that run has not removed stays.
func TestEnabledIf_AndOrphan_WithARole(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	note := s.notes()
	group := testenv.Random("late") + ".rolewright.test"
	enabled, orphaned := s.kind(testenv.WithKind("Enabled")), s.kind(testenv.WithKind("Orphaned"))
	s.role("main", noteTask)
	s.role("farewell", "- name: Clean up\n  ansible.builtin.fail:\n    msg: the bucket is not empty\n")
	s.watch(enabled, "role: main", "enabledIf: {apis: ["+group+"/v1alpha1/Late]}")
	s.watch(orphaned, "role: main", "retry: {initial: 1s, max: 1s, maxAttempts: 2}", "finalizer: {name: "+finalizerName+", role: farewell, onFailure: orphan}")
	o := s.start()
	o.awaitOutput("Waiting for an API to be installed that enabledIf of the watch names")
	enabled.create("later", nil)
	orphaned.create("it", nil)
	orphaned.awaitReady("it")
	ready, err := o.metric(t.Context(), "rolewright_kind_ready", `kind="Enabled"`, `group="`+enabled.gvk.Group+`"`)
	if err != nil || ready != 0 || note("later") != "" {
		t.Errorf("without the API: ready %v, %v; the note is %q", ready, err, note("later"))
	}
	testenv.CRD(t, s.cfg, testenv.WithGroup(group), testenv.WithKind("Late"))
	orphaned.delete("it")
	orphaned.awaitGone("it")
	o.awaitOutput("Finalizer run has failed too often: the finalizer is removed")
	must.Be(t, "what the role has made", "main", note("it"))
	enabled.awaitReady("later")
	must.Be(t, "the note", "main", note("later"))
}
