package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// A run that must fail again with the same inputs is not repeated, and neither is a cancelled run, until the role or the
// object changes.
func TestStall_UntilAnInputChanges(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	group := testenv.Random("stall") + ".rolewright.test"
	kinds := map[string]kind{}
	for i, name := range []string{"incomplete", "slow"} {
		kinds[name] = s.kind(testenv.WithGroup(group), testenv.WithKind("Kind"+string(rune('A'+i))))
		s.watch(kinds[name], "role: "+name)
	}
	const done = "- name: Say it\n  ansible.builtin.debug:\n    msg: done\n"
	s.role("incomplete", "- name: Use what is not there\n  ansible.builtin.import_role:\n    name: helper\n")
	s.role("slow", "- name: Take long\n  ansible.builtin.command: sleep 600\n  when: not (quick | default(false))\n")
	s.start("--retry-min=1s", "--retry-max=2s")
	stalled := func(name, reason string) object {
		t.Helper()
		return kinds[name].await("it", "stalled", func(o object) bool {
			c := o.condition("Stalled")
			return o.settled() && c.Status == "True" && c.Reason == reason && c.ObservedGeneration == o.GetGeneration()
		})
	}
	for _, k := range kinds {
		k.create("it", nil)
	}
	incomplete := stalled("incomplete", "RoleNotFound")

	running := kinds["slow"].await("it", "in its task", func(o object) bool {
		return o.status.Ansible.ActiveRun != nil && len(s.runs(o)) == 1
	})
	kinds["slow"].patch("it", `{"metadata":{"annotations":{"rolewright.dev/cancel":"`+running.status.Ansible.ActiveRun.ID+`"}}}`)
	slow := stalled("slow", "Cancelled")
	if last := slow.lastRun(); last.Result != "Failed" || last.Reason != "Cancelled" || !strings.Contains(last.Message, "rolewright.dev/cancel") {
		t.Errorf("cancelled run = %+v", last)
	}

	out := s.tool(0, "explain", strings.ToLower(kinds["incomplete"].gvk.Kind)+"/it", "-n", s.namespace)
	if !strings.Contains(out, "stalled after a failure (RoleNotFound)") || !strings.Contains(out, "created") {
		t.Errorf("explanation:\n%s", out)
	}

	var explained struct {
		LastRun struct{ ID, Cause, Result, Reason string }
		NextRun *time.Time
		Held    []string
	}
	must.Do(t, json.Unmarshal([]byte(s.tool(0, "explain", strings.ToLower(kinds["slow"].gvk.Kind)+"/it", "-n", s.namespace, "-o", "json")), &explained))
	if last := explained.LastRun; last.ID != slow.lastRun().ID || last.Cause != "created" || last.Result != "Failed" || last.Reason != "Cancelled" ||
		explained.NextRun != nil || len(explained.Held) != 1 || !strings.Contains(explained.Held[0], "stalled") {
		t.Errorf("explanation as JSON: %+v", explained)
	}

	// All this time there was no other run.
	for name, o := range map[string]object{"incomplete": incomplete, "slow": slow} {
		if ran := s.runs(o); len(ran) != 1 {
			t.Errorf("%s: %d runs, want 1", name, len(ran))
		}
	}
	s.role("helper", done)
	kinds["slow"].patch("it", `{"spec":{"quick":true}}`)
	for name, k := range kinds {
		if o := k.await("it", "ready", object.ready); o.condition("Stalled").Status != "False" {
			t.Errorf("%s: Stalled = %+v", name, o.condition("Stalled"))
		}
	}
}
