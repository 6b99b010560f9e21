package e2e

import (
	"os"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/test/must"
)

// requeueModule returns period as the module of operator_sdk.util does.
const requeueModule = `#!/usr/bin/python
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"time": {"type": "str", "required": True}})
module.exit_json(period=module.params["time"])
`

func TestRequeueAfter_IsObeyedAfterTheRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	note := s.notes()
	k := s.kind()
	// The run goes on after it has asked for the next one.
	s.role("collected", "- name: Come back\n  operator_sdk.util.requeue_after:\n    time: \"{{ after }}\"\n"+noteTask)
	s.write("content/ansible_collections/operator_sdk/util/plugins/modules/requeue_after.py", requeueModule)
	s.watch(k, "role: collected")
	s.start("--ansible-collections-path=" + s.dir + "/content")

	k.create("it", map[string]any{"after": "2s", "note": "first"})
	first := k.awaitReady("it")
	second := k.await("it", "second run", func(o object) bool { return o.ready() && o.lastRun().ID != first.lastRun().ID })
	if got := first.lastRun().RequeueAfter; got != "2s" {
		t.Errorf("recorded wish = %q", got)
	}
	if got := note("it"); got != "first" {
		t.Errorf("the run ended with its wish: note = %q", got)
	}
	if got := second.lastRun().Cause; got != "requeue_after" {
		t.Errorf("second run for %q", got)
	}
}

func TestStatus_RoleWritesItsOwn(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	module := must.Get(os.ReadFile(absolute(t, "roles/memcached/library/object_status.py")))(t)
	s.write("roles/one/library/object_status.py", string(module))
	// A merge patch replaces the list of conditions, so it removes what Rolewright wrote at the start.
	s.role("one", `- name: Report
  object_status:
    api_version: "{{ api }}"
    kind: Widget
    name: "{{ ansible_operator_meta.name }}"
    namespace: "{{ ansible_operator_meta.namespace }}"
    status:
      endpoint: "it:{{ port }}"
      load: 0.25
      nested: {list: [a, {b: 1}], empty: {}}
      conditions:
        - {type: Ready, status: "False", reason: WarmingUp, message: my own, odd: 1.5}
        - {type: Foreign, extra: {deep: [1]}, lastTransitionTime: yesterday}
`)
	s.watch(k, "role: one", "vars: {api: "+k.gvk.GroupVersion().String()+"}")
	s.start()

	own := []any{
		map[string]any{"type": "Ready", "status": "False", "reason": "WarmingUp", "message": "my own", "odd": 1.5},
		map[string]any{"type": "Foreign", "extra": map[string]any{"deep": []any{int64(1)}}, "lastTransitionTime": "yesterday"},
	}
	check := func(generation int64, endpoint string) {
		t.Helper()
		o := k.await("it", "Successful", func(o object) bool {
			return o.condition("Successful").Status == "True" && o.status.ObservedGeneration == generation
		})
		got, _, err := unstructured.NestedMap(o.Object, "status")
		if err != nil {
			t.Fatal(err)
		}
		conditions, _ := got["conditions"].([]any)
		var foreign []any
		for _, c := range conditions {
			if slices.Contains([]string{"Ready", "Foreign"}, c.(map[string]any)["type"].(string)) {
				foreign = append(foreign, c)
			}
		}
		must.Be(t, "the role's own conditions", own, foreign)
		for _, kind := range []string{"Running", "Failure", "Reconciling", "Stalled"} {
			if o.condition(kind).Status == "" {
				t.Errorf("there is no condition %s", kind)
			}
		}
		for _, ours := range []string{"conditions", "ansible", "observedGeneration"} {
			delete(got, ours)
		}
		want := map[string]any{
			"endpoint": endpoint, "load": 0.25,
			"nested": map[string]any{"list": []any{"a", map[string]any{"b": int64(1)}}, "empty": map[string]any{}},
		}
		must.Be(t, "the role's own status", want, got)
	}
	k.create("it", map[string]any{"port": int64(1)})
	check(1, "it:1")
	k.patch("it", `{"spec":{"port":2}}`)
	check(2, "it:2")
}
