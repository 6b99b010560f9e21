package e2e

import (
	"fmt"
	"testing"
)

// The role learns which fields have changed since the last success, and their previous values, across a failure and a
// restart of the operator. Log and status name the fields too.
func TestPreviousSpec(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("one", `- rolewright.operator.trigger_info:
  register: why
- rolewright.operator.status: {fields: {told: {known: "{{ why.previous_spec is defined }}", size: "{{ (why.previous_spec | default({})).size | default(0) | int }}", fields: "{{ why.changed_fields | default([]) }}"}}}
- ansible.builtin.fail: {msg: no such size}
  when: size == 2
`)
	s.watch(k, "role: one", "retry: {maxAttempts: 1}")
	o := s.start()
	k.create("it", map[string]any{"size": 1, "image": map[string]any{"tag": "a"}})
	k.awaitReady("it")
	told := func(what, trigger string, want string) {
		t.Helper()
		is := k.get("it")
		if got := fmt.Sprint(is.Object["status"].(map[string]any)["told"]); got != want || is.lastRun().Trigger != trigger {
			t.Errorf("%s: the role was told %s, want %s; the status says %q, want %q", what, got, want, is.lastRun().Trigger, trigger)
		}
	}
	told("first run", "", "map[fields:[] known:false size:0]")

	k.patch("it", `{"spec": {"size": 2}}`)
	k.await("it", "failed", func(o object) bool { return o.lastRun().Result == "Failed" })
	told("a change", "object: spec.size", "map[fields:[spec.size] known:true size:1]")
	o.stop()

	o = s.start()
	k.patch("it", `{"spec": {"size": 3, "image": {"tag": "b"}}}`)
	k.awaitReady("it")
	told("another one after a failure and a restart", "object: spec.image.tag, spec.size", "map[fields:[spec.image.tag spec.size] known:true size:1]")
	o.stop()
}
