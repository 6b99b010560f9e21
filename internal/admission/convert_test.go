package admission

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// converting returns a watch of v1 that converts from other versions.
func converting(moves ...watches.Move) watches.Watch {
	return watches.Watch{
		GVK:      schema.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Jar"},
		Webhooks: watches.Webhooks{Conversion: []watches.Conversion{{From: "v1alpha1", Moves: moves}, {From: "v1beta1", Moves: []watches.Move{{From: "spec.count", To: "spec.size"}}}}},
	}
}

func jar(version, spec string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(`{"apiVersion":"g.example.com/` + version + `","kind":"Jar","metadata":{"name":"a"},"spec":` + spec + `}`)); err != nil {
		panic(err)
	}
	return o
}

// anything is a schema that accepts every value.
func anything(string, string, any) (bool, error) { return true, nil }

func specOf(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	return string(must.Get(json.Marshal(o.Object["spec"]))(t))
}

func TestConvert(t *testing.T) {
	t.Parallel()
	type list = []watches.Move
	for name, tt := range map[string]struct {
		moves                   list
		from, spec, to, becomes string
		kept                    string
	}{
		"a field with another name": {list{{From: "spec.replicas", To: "spec.size"}}, "v1alpha1", `{"replicas":9007199254740993,"x":1}`, "v1", `{"size":9007199254740993,"x":1}`, ""},
		"and back":                  {list{{From: "spec.replicas", To: "spec.size"}}, "v1", `{"size":3}`, "v1alpha1", `{"replicas":3}`, ""},
		"a field that becomes part": {list{{From: "spec.storage", To: "spec.storage.size"}}, "v1alpha1", `{"storage":"1Gi"}`, "v1", `{"storage":{"size":"1Gi"}}`, ""},
		"two that change places":    {list{{From: "spec.a", To: "spec.b"}, {From: "spec.b", To: "spec.a"}}, "v1alpha1", `{"a":1,"b":{"c":2}}`, "v1", `{"a":{"c":2},"b":1}`, ""},
		"one without a place":       {list{{From: "spec.old"}, {To: "spec.new"}}, "v1alpha1", `{"old":[1.5,null],"x":1}`, "v1", `{"x":1}`, `{"v1alpha1":{"spec.old":[1.5,null]}}`},
		"one whose place is taken":  {list{{From: "spec.a", To: "spec.b"}}, "v1alpha1", `{"a":1,"b":2}`, "v1", `{"b":1}`, `{"v1alpha1":{"spec.b":2}}`},
		"one whose way is barred":   {list{{From: "spec.a", To: "spec.b.c"}}, "v1alpha1", `{"a":1,"b":2}`, "v1", `{"b":2}`, `{"v1alpha1":{"spec.a":1}}`},
		"by way of the watch":       {list{{From: "spec.replicas", To: "spec.size"}}, "v1alpha1", `{"replicas":3}`, "v1beta1", `{"count":3}`, ""},
		"a version without moves":   {list{{From: "spec.replicas", To: "spec.size"}}, "v2", `{"size":3}`, "v1alpha1", `{"replicas":3}`, ""},
		"no spec":                   {list{{From: "spec.replicas", To: "spec.size"}}, "v1alpha1", `null`, "v1", `null`, ""},
		"a spec of another form":    {list{{From: "spec.replicas", To: "spec.size"}}, "v1alpha1", `[1]`, "v1", `[1]`, ""},
	} {
		w, o := converting(tt.moves...), jar(tt.from, tt.spec)
		before := o.DeepCopy()
		must.Do(t, Convert(o, tt.to, w, anything))
		if got := specOf(t, o); got != tt.becomes || o.GetAnnotations()[Kept] != tt.kept || o.GetAPIVersion() != "g.example.com/"+tt.to {
			t.Errorf("%s: %s %s, kept %s; want %s, kept %s", name, o.GetAPIVersion(), got, o.GetAnnotations()[Kept], tt.becomes, tt.kept)
		}
		must.Do(t, Convert(o, tt.from, w, anything))
		if diff := cmp.Diff(before.Object, o.Object); diff != "" {
			t.Errorf("%s: there and back:\n%s", name, diff)
		}
	}
}

// Users can change the annotation as they like. A conversion never restores a field from it that no move names, and never
// fails because of it.
func TestConvert_WhatUsersKeep(t *testing.T) {
	t.Parallel()
	w := converting(watches.Move{From: "spec.old"})
	for text, want := range map[string]string{
		`{"v1alpha1":{"spec.old":1,"metadata.finalizers":["x"],"spec.other":2}}`: `{"old":1,"x":1}`,
		`{"v1alpha1":{"spec.old":`:              `{"x":1}`,
		`{"v1alpha1":[1]}`:                      `{"x":1}`,
		`[]`:                                    `{"x":1}`,
		`null`:                                  `{"x":1}`,
		`{"v1alpha1":null}`:                     `{"x":1}`,
		`{"v1alpha1":{"spec.old":{}}} {}`:       `{"x":1}`,
		strings.Repeat(`{"v1alpha1":`, 100_000): `{"x":1}`,
		strings.Repeat(`{"a":`, 20_000):         `{"x":1}`,
		`{"v1alpha1":{"spec.old":{"a":{"b":null}}}}`: `{"old":{"a":{"b":null}},"x":1}`,
	} {
		o := jar("v1", `{"x":1}`)
		o.SetAnnotations(map[string]string{Kept: text})
		must.Do(t, Convert(o, "v1alpha1", w, anything))
		if got := specOf(t, o); got != want || o.GetFinalizers() != nil {
			t.Errorf("%.60s: %s, want %s", text, got, want)
		}
	}
	w = converting(watches.Move{From: "spec.old"}, watches.Move{To: "spec.x"})
	for _, kept := range []string{`{"v9":{"spec.x":"%s"}}`, `{"v1alpha1":{"spec.other":"%s"}}`, `{"v1alpha1":{"spec.old":"%s"}}`} {
		o := jar("v1", `{"x":"<"}`)
		o.SetAnnotations(map[string]string{Kept: fmt.Sprintf(kept, strings.Repeat("<", maxKept+len("%s")-len(kept)))})
		must.Do(t, Convert(o, "v1alpha1", w, func(_, _ string, value any) (bool, error) { return value == "<", nil }))
		if got := o.GetAnnotations()[Kept]; got != `{"v1":{"spec.x":"<"}}` {
			t.Errorf("%s: %.60s is kept", kept, got)
		}
	}
	large := jar("v1alpha1", `{"old":"`+strings.Repeat("x", maxKept)+`"}`)
	if err := Convert(large, "v1", w, anything); err == nil || !strings.Contains(err.Error(), "too large to be kept") {
		t.Errorf("a field that is too large: %v", err)
	}
}

// A value that the schema refuses stays in the annotation. Without a schema, the conversion fails.
func TestConvert_KeptFieldsFitTheSchema(t *testing.T) {
	t.Parallel()
	w := converting(watches.Move{From: "spec.old"}, watches.Move{From: "spec.size.old"})
	const kept = `{"v1alpha1":{"spec.old":{"a":"x"},"spec.size.old":3}}`
	o := jar("v1", `{"size":{"x":1}}`)
	o.SetAnnotations(map[string]string{Kept: kept})
	before := o.DeepCopy()
	var asked []string
	must.Do(t, Convert(o, "v1alpha1", w, func(version, path string, value any) (bool, error) {
		asked = append(asked, fmt.Sprint(version, " ", path, " ", value))
		return path == "spec.size.old", nil
	}))
	if diff := cmp.Diff([]string{"v1alpha1 spec.old map[a:x]", "v1alpha1 spec.size.old 3"}, asked); diff != "" {
		t.Errorf("asked of the schema:\n%s", diff)
	}
	if got, want := specOf(t, o), `{"size":{"old":3,"x":1}}`; got != want || o.GetAnnotations()[Kept] != `{"v1alpha1":{"spec.old":{"a":"x"}}}` {
		t.Errorf("%s, kept %s; want %s", got, o.GetAnnotations()[Kept], want)
	}
	unknown := errors.New("no schema")
	if err := Convert(before, "v1alpha1", w, func(string, string, any) (bool, error) { return false, unknown }); !errors.Is(err, unknown) {
		t.Errorf("without a schema: %v", err)
	}
}

// Whatever the moves and the object, an object that is converted there and back is unchanged. The test does not tell empty
// mappings from missing ones.
func FuzzConvert_ThereAndBack(f *testing.F) {
	for seed := range uint64(2000) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, seed))
		w := converting(someMoves(r)...)
		for _, way := range [][2]string{{"v1alpha1", "v1"}, {"v1", "v1alpha1"}, {"v1alpha1", "v1beta1"}} {
			o := jar(way[0], "{}")
			o.Object["spec"] = someFields(r, 3)
			before := o.DeepCopy()
			must.Do(t, Convert(o, way[1], w, anything))
			between := o.DeepCopy()
			must.Do(t, Convert(o, way[0], w, anything))
			if diff := cmp.Diff(before.Object, o.Object); diff != "" {
				t.Errorf("%v with %v by way of %v:\n%s", way, w.Webhooks.Conversion[0].Moves, between.Object, diff)
			}
		}
	})
}

// someMoves returns moves that Load would accept.
func someMoves(r *rand.Rand) (list []watches.Move) {
	within := func(a, b string) bool { return a != "" && b != "" && strings.HasPrefix(a+".", b+".") }
	path := func() string {
		if r.IntN(6) == 0 {
			return ""
		}
		keys := []string{"spec"}
		for range 1 + r.IntN(3) {
			keys = append(keys, string(rune('a'+r.IntN(3))))
		}
		return strings.Join(keys, ".")
	}
moves:
	for range 1 + r.IntN(4) {
		m := watches.Move{From: path(), To: path()}
		if m.From == m.To {
			continue
		}
		for _, o := range list {
			if within(m.From, o.From) || within(o.From, m.From) || within(m.To, o.To) || within(o.To, m.To) {
				continue moves
			}
		}
		list = append(list, m)
	}
	return list
}

// someFields returns fields without empty mappings below the top.
func someFields(r *rand.Rand, depth int) map[string]any {
	fields := map[string]any{}
	for _, key := range []string{"a", "b", "c"} {
		switch n := r.IntN(4); {
		case n == 0:
			fields[key] = r.Int64N(100)
		case n < 3 && depth > 1:
			if inner := someFields(r, depth-1); len(inner) > 0 {
				fields[key] = inner
			}
		}
	}
	return fields
}
