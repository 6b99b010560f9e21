package admission

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/rolewright/rolewright/test/must"
)

// dying is the metadata of an object on its way out.
func dying(finalizers string) string {
	return `"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[` + finalizers + `]}`
}

// The API server looks at what changes the spec of an object, also on its way out, and at the labels of the selector.
func TestConditions(t *testing.T) {
	t.Parallel()
	selector := metav1.LabelSelector{
		MatchLabels:      map[string]string{"a.example.com/team": "x"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}},
	}
	var accessors []cel.ExpressionAccessor
	for _, c := range conditions(selector) {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&c))
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	evaluator := compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	fail := admissionv1.Fail
	matcher := matchconditions.NewMatcher(evaluator, &fail, "webhook", "validating", "it")
	for name, tt := range map[string]struct {
		before, after string
		want          bool
	}{
		"nothing":                      {`"metadata":{},"spec":{"a":1}`, `"metadata":{},"spec":{"a":1}`, false},
		"the spec":                     {`"metadata":{},"spec":{"a":1}`, `"metadata":{},"spec":{"a":2}`, true},
		"another label":                {`"metadata":{"labels":{"tier":"1"}},"spec":{}`, `"metadata":{"labels":{"tier":"1","x":"y"}},"spec":{}`, false},
		"the first label":              {`"metadata":{},"spec":{}`, `"metadata":{"labels":{"a.example.com/team":"x"}},"spec":{}`, true},
		"another value":                {`"metadata":{"labels":{"a.example.com/team":"y"}},"spec":{}`, `"metadata":{"labels":{"a.example.com/team":"x"}},"spec":{}`, true},
		"a label beside one":           {`"metadata":{"labels":{"x":"y"}},"spec":{}`, `"metadata":{"labels":{"x":"y","tier":""}},"spec":{}`, true},
		"a label is gone":              {`"metadata":{"labels":{"tier":""}},"spec":{}`, `"metadata":{},"spec":{}`, true},
		"a finalizer":                  {dying(`"x"`) + `,"spec":{"a":1}`, dying("") + `,"spec":{"a":1}`, false},
		"a finalizer, without a spec":  {dying(`"x"`), dying(""), false},
		"data, without a spec":         {`"metadata":{},"data":{"a":"1"}`, `"metadata":{},"data":{"a":"2"}`, true},
		"the spec on its way out":      {dying(`"x"`) + `,"spec":{"a":1}`, dying(`"x"`) + `,"spec":{"a":2}`, true},
		"the spec goes on its way out": {dying(`"x"`) + `,"spec":{"a":1}`, dying(`"x"`), true},
	} {
		object := func(fields string) *unstructured.Unstructured {
			o := &unstructured.Unstructured{}
			must.Do(t, o.UnmarshalJSON([]byte(`{"apiVersion":"g.example.com/v1","kind":"Jar",`+fields+`}`)))
			return o
		}
		before, after := object(tt.before), object(tt.after)
		kind, resource := after.GroupVersionKind(), schema.GroupVersionResource{Group: "g.example.com", Version: "v1", Resource: "jars"}
		attributes := &admission.VersionedAttributes{
			Attributes:      admission.NewAttributesRecord(after, before, kind, "ns", "a", resource, "", admission.Update, &metav1.UpdateOptions{}, false, nil),
			VersionedObject: admission.NewLazyObject(after), VersionedOldObject: admission.NewLazyObject(before), VersionedKind: kind,
		}
		if got := matcher.Match(t.Context(), attributes, nil, nil); got.Error != nil || got.Matches != tt.want {
			t.Errorf("%s: looked at: %t (%v), want %t", name, got.Matches, got.Error, tt.want)
		}
	}
}
