package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

func TestMismatch(t *testing.T) {
	t.Parallel()
	have := decoded(t, `{a: 1, b: {c: x, d: ""}, list: [{n: one, v: 1}, {n: two, v: 2}], args: [p, q]}`)
	have["ports"] = []any{int64(80), int64(443)} // whole numbers of the API server
	for want, why := range map[string]string{
		`{}`:                                "",
		`{a: 1.0, b: {d: ""}}`:              "",
		`{list: [{n: two}]}`:                "",
		`{args: [p, q]}`:                    "",
		`{a: 0}`:                            ".a: wanted 0, it is 1",
		`{a: "1"}`:                          `.a: wanted "1", it is 1`,
		`{b: {e: z}}`:                       `.b.e: wanted "z", it is not there`,
		`{b: [x]}`:                          ".b: wanted [x], it is map[",
		`{list: [{n: two, v: 1}]}`:          ".list: no element is as wanted[0]",
		`{list: []}`:                        ".list: wanted []",
		`{args: [p]}`:                       ".args: wanted [p], it is [p q]",
		`{list: [{n: one}, {n: three}]}`:    ".list: no element is as wanted[1]",
		`{b: {c: x, d: null}}`:              `.b.d: wanted absent, it is ""`,
		`{c: null, b: {e: null}}`:           "",
		`{list: [{n: two, w: null}]}`:       "",
		`{list: [{n: two, v: null}]}`:       ".list: no element is as wanted[0]",
		`{list: [{n: one}, {n: [{x: 1}]}]}`: ".list: no element is as wanted[1]",
		`{ports: [80, 443]}`:                "",
		`{ports: [80]}`:                     ".ports: wanted [80], it is [80 443]",
		`{ports: [443, 80]}`:                ".ports: wanted [443 80], it is [80 443]",
	} {
		got := mismatch(decoded(t, want), have, "")
		if why == "" && got != "" || !strings.HasPrefix(got, why) {
			t.Errorf("want %s: got %q, want %q", want, got, why)
		}
	}
}

func decoded(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	must.Do(t, yaml.Unmarshal([]byte(text), &v))
	return v
}

// Wrong input is reported with file, step and field.
func TestRead_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"
	must.Do(t, os.WriteFile(filepath.Join(dir, "two.yaml"), []byte(object+"\n---\n"+object+"\n"), 0o600))
	for text, why := range map[string]string{
		"steps: [{apply: two.yaml, expect: [" + object + "]}]": "",
		"given: two.yaml":                                "it has no steps",
		"steps: [{aply: two.yaml}]":                      `:1: unknown key "aply": did you mean "apply"?`,
		"steps: [{apply: three.yaml}]":                   "step 1: apply: open ",
		"steps: [{apply: two.yaml}, {apply: {kind: A}}]": "step 2: apply: an object has no apiVersion, kind or metadata.name",
		"steps: [{apply: 3}]":                            ":1: apply: a path, an object, or a list of both expected",
		"steps: [{apply: }]":                             ":1: apply: a path, an object, or a list of both expected",
		"steps:\n- apply: two.yaml\n  changed: many":     ":3: changed: a number expected",
		"steps:\n- apply: two.yaml\n  timeout: soon":     ":3: timeout: a duration such as 2m expected",
		"steps:\n- apply: two.yaml\n  apply: x":          `:3: apply is there twice`,
		"stops: []":                                      `:1: unknown key "stops": did you mean "steps"?`,
		"steps: {}":                                      ":1: steps: a list of steps expected",
		"steps: [\n a: b: c":                             ": yaml: line ",
		"- a":                                            ":1: a scenario is a mapping with the keys given, steps",
		"steps: [{delete: two.yaml, fails: TaskFailed}]": "step 1: fails and changed are about the runs of apply",
		"steps: [{status: two.yaml}]":                    "step 1: status: ConfigMap/a has no field status",
		"steps: [{apply: two.yaml, message: x}]":         "step 1: message is about a run that fails",
		"steps: [{apply: two.yaml, timeout: -1s}]":       "step 1: timeout -1s",
	} {
		path := filepath.Join(dir, "scenario.yaml")
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		s, err := Read(path)
		if why == "" && (err != nil || len(s.Steps) != 1 || len(s.Steps[0].Apply.All) != 2) {
			t.Errorf("%s: %v, %v", text, s, err)
		}
		if why != "" && (err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s: got %v, want %q", text, err, why)
		}
	}
}

// teaHouse is a client of an API server with one object, of generation 1, and with the operator, which runs the object
// when it is new or a run is requested.
type teaHouse struct {
	client.Client
	uid   types.UID // empty if the object does not exist
	runs  *Runs
	fails bool
	// changes are the tasks of each run that change something.
	changes []string
}

func (h *teaHouse) Get(_ context.Context, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if h.uid == "" {
		return errors.New("not found")
	}
	h.fill(obj)
	return nil
}

func (h *teaHouse) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	h.run(obj)
	return nil
}

func (h *teaHouse) apply(_ context.Context, u *unstructured.Unstructured, namespace string) error {
	u.SetNamespace(namespace)
	created := h.uid == ""
	if created {
		h.uid = types.UID(time.Now().String())
	}
	if h.fill(u); created {
		h.run(u)
	}
	return nil
}

func (h *teaHouse) fill(obj client.Object) {
	obj.SetUID(h.uid)
	obj.SetGeneration(1)
}

func (h *teaHouse) run(obj client.Object) {
	r := status.Run{Generation: 1, Started: time.Now(), Result: status.Succeeded, Reason: "Succeeded"}
	if h.fails {
		r.Result, r.Reason = status.Failed, "TaskFailed"
	}
	f := h.runs.Follow(schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Tea"}, client.ObjectKeyFromObject(obj), "")
	for _, task := range h.changes {
		f.Event(jobevent.Event{Kind: jobevent.RunnerOK, Data: jobevent.Data{Task: task, Res: json.RawMessage(`{"changed": true}`)}})
		r.Counts.Changed++
	}
	r.Finished = time.Now()
	f.End(r)
}

// The runs of earlier steps prove nothing about the objects that a step applies, whether unchanged or created again.
func TestStep_ARunOfItsOwn(t *testing.T) {
	t.Parallel()
	h := &teaHouse{runs: NewRuns()}
	p := &Player{Client: h, Apply: h.apply, Runs: h.runs, Watched: func(schema.GroupKind) bool { return true }, Timeout: time.Minute}
	tea := &unstructured.Unstructured{Object: decoded(t, "{apiVersion: g.test/v1, kind: Tea, metadata: {name: it}}")}
	one := Step{Apply: Objects{All: []*unstructured.Unstructured{tea}}}
	must.Do(t, p.step(t.Context(), one, "ns"))

	failing, counted, count := one, one, int64(1)
	failing.Fails, counted.Changed = "TaskFailed", &count
	h.changes = []string{"Always", "Write"}
	for want, step := range map[string]Step{
		"wanted a run that fails with TaskFailed, it ended with Succeeded": failing,
		"wanted 1 changed tasks, there were 2: Always, Write":              counted,
		"a second run changes something again: Always, Write":              one,
	} {
		if err := p.step(t.Context(), step, "ns"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error = %v, want %s", err, want)
		}
	}

	h.fails = true
	must.Do(t, p.step(t.Context(), failing, "ns"))

	paused := tea.DeepCopy()
	paused.SetAnnotations(map[string]string{controller.AnnotationPaused: "true"})
	held := Step{Apply: Objects{All: []*unstructured.Unstructured{paused}}}
	must.Do(t, p.step(t.Context(), held, "ns")) // it does not run, because the run would fail
	held.Fails = "TaskFailed"
	if err := p.step(t.Context(), held, "ns"); err == nil || !strings.Contains(err.Error(), "it is paused") {
		t.Errorf("error of a run that is wanted of a paused object = %v", err)
	}

	p.Watched = func(schema.GroupKind) bool { return false }
	if err := p.step(t.Context(), failing, "ns"); err == nil || !strings.Contains(err.Error(), "no watch has the kind") {
		t.Errorf("error of a run that is wanted of what is not watched = %v", err)
	}
	p.Watched = func(schema.GroupKind) bool { return true }

	h.uid = ""
	if err := p.step(t.Context(), one, "ns"); err == nil || !strings.Contains(err.Error(), "TaskFailed") {
		t.Errorf("error of an object that was created once more = %v, want that of its own run", err)
	}
}
