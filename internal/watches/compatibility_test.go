package watches

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
)

// alias has the same shape as ansible-operator's type.
type alias struct {
	Group, Version, Kind, Playbook, Role string
	Vars                                 map[string]any
	MaxRunnerArtifacts                   int
	ReconcilePeriod                      *metav1.Duration
	ManageStatus                         *bool
	Blacklist                            []schema.GroupVersionKind
	Finalizer                            *struct {
		Name, Playbook, Role string
		Vars                 map[string]any
	}
	Selector metav1.LabelSelector
}

// TestLoad_TakesWhatAnsibleOperatorTakes gives keys values of wrong types: ansible-operator and Load refuse the same ones.
func TestLoad_TakesWhatAnsibleOperatorTakes(t *testing.T) {
	dir := project(t)
	for _, key := range []string{"group", "version", "kind", "vars", "maxRunnerArtifacts", "reconcilePeriod", "manageStatus", "blacklist", "selector"} {
		for _, value := range []string{"text", "''", "5", "1.5", "1e3", "1e30", "-1", "yes", "'no'", "~", "", "[a]", "{a: b}", "[]", "{}", "{}", "10s", "'5'"} {
			text := "- {version: v1, kind: A, role: memcached}\n- " + key + ": " + value + "\n"
			var as []alias
			err := sigsyaml.Unmarshal([]byte(text), &as)
			got := loadText(t, dir, text, Options{})
			var wrong string // the message about this key, if it concerns a type
			for _, p := range got.raw {
				if p.Path == "[1]."+key && p.Severity == Error && !strings.Contains(p.Message, "must not be empty") && !strings.Contains(p.Message, "negative") {
					wrong = p.Message
				}
			}
			switch {
			case key == "reconcilePeriod" && (value == "''" || value == "-1"):
				// both refuse it, in different words
			case err == nil && wrong != "":
				t.Errorf("%q is refused: %s", text, wrong)
			case err != nil && key == "blacklist" && value == "[a]":
				// the problem is that of the element
			case err != nil && wrong == "":
				t.Errorf("%q is taken, ansible-operator says %v", text, err)
			}
		}
	}
}

// TestLoad_KeysMatchInAnyCase checks that Load reads keys in any case like ansible-operator, also if a key comes twice.
func TestLoad_KeysMatchInAnyCase(t *testing.T) {
	dir := project(t)
	for _, text := range []string{
		"- {VERSION: v1, KIND: A, Role: memcached, MANAGESTATUS: no, VARS: {A: 1}, finaliZer: {NAME: example.com/x, VARS: {a: 1}}}",
		"- {version: v1, kind: A, KIND: B, role: memcached}",
		"- {version: v1, KIND: B, kind: A, role: memcached}",
		"- {version: v1, Kind: B, KIND: A, kind: C, kind: D, role: memcached}",
		"- {version: v1, \u212aind: B, role: memcached}", // the Kelvin sign folds to k
		"- {version: 1, kind: yes, group: 1.10, role: memcached}",
		"- {version: v1, kind: 0x10, role: memcached, blacklist: [{KIND: a, version: 2}], selector: {MATCHLABELS: {a: 1, b: yes, c: }}}",
		"- {version: v1, kind: 2001-01-01, role: memcached, selector: {matchexpressions: [{KEY: a, Operator: In, VALUES: [1, no, x]}]}}",
	} {
		var want []alias
		must.Do(t, sigsyaml.Unmarshal([]byte(text), &want))
		got := loadText(t, dir, text, Options{})
		if got.err != nil {
			t.Errorf("%q: %q", text, got.problems)
			continue
		}
		w := got.watches[0]
		if diff := cmp.Diff(schema.GroupVersionKind{Group: want[0].Group, Version: want[0].Version, Kind: want[0].Kind}, w.GVK); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		if diff := cmp.Diff(want[0].Selector, w.Selector); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		if diff := cmp.Diff(want[0].Blacklist, w.Blacklist); diff != "" {
			t.Errorf("%q: %s", text, diff)
		}
		if want[0].Finalizer != nil && want[0].Finalizer.Name != w.Finalizer.Name {
			t.Errorf("%q: finalizer %v", text, w.Finalizer)
		}
	}
}

// TestFields_DescribeWhatLoadKnows: the table is complete, and all its defaults are those that Load applies.
func TestFields_DescribeWhatLoadKnows(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Fields() {
		if f.Key == "" || f.Type == "" || f.Description == "" || seen[f.Key] || f.Required && f.Default != "" {
			t.Errorf("incomplete or repeated: %+v", f)
		}
		seen[f.Key] = true
	}
	got := loadText(t, project(t), watch(), Options{})
	if got.err != nil {
		t.Fatal(got.err)
	}
	var w map[string]any
	data, err := yaml.Marshal(map[string]any{
		"maxRunnerArtifacts": got.watches[0].MaxRunnerArtifacts, "manageStatus": got.watches[0].ManageStatus,
		"watchDependentResources": got.watches[0].WatchDependentResources, "watchClusterScopedResources": got.watches[0].WatchClusterScopedResources,
		"snakeCaseParameters": got.watches[0].SnakeCaseParameters, "watchAnnotationsChanges": got.watches[0].WatchAnnotationsChanges,
		"markUnsafe": got.watches[0].MarkUnsafe, "allowReservedVariables": got.watches[0].AllowReservedVariables,
		"watchDependentStatus": got.watches[0].WatchDependentStatus, "pruneOnDelete": got.watches[0].PruneOnDelete,
		"adopt": string(got.watches[0].Adopt),
	})
	if err == nil {
		err = yaml.Unmarshal(data, &w)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Fields() {
		value, set := w[f.Key]
		if !set {
			continue
		}
		text, _ := yaml.Marshal(value)
		if strings.TrimSpace(string(text)) != f.Default {
			t.Errorf("%s: the table says %s, but %s holds", f.Key, f.Default, text)
		}
		delete(w, f.Key)
	}
	if len(w) > 0 {
		t.Errorf("not in the table: %v", w)
	}
}
