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

// The API server calls the webhook if an object's spec changes, even while the object is being deleted, and if its labels
// match the selector.
func TestConditions(t *testing.T) {
	t.Parallel()
	selector := metav1.LabelSelector{
		MatchLabels: map[string]string{"a.example.com/team": "x"},
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "tier", Operator: metav1.LabelSelectorOpExists},
			{Key: "old", Operator: metav1.LabelSelectorOpDoesNotExist},
			{Key: "zone", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b", "c"}},
		},
	}
	var accessors []cel.ExpressionAccessor
	for _, c := range conditions(selector) {
		accessors = append(accessors, (*matchconditions.MatchCondition)(&c))
	}
	compiler := cel.NewConditionCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	evaluator := compiler.CompileCondition(accessors, cel.OptionalVariableDeclarations{}, environment.NewExpressions)
	fail := admissionv1.Fail
	matcher := matchconditions.NewMatcher(evaluator, &fail, "webhook", "validating", "it")
	labels := func(more string) string { return `"labels":{"a.example.com/team":"x","tier":"1"` + more + `}` }
	dying := func(finalizers string) string {
		return labels("") + `,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":[` + finalizers + `]`
	}
	for name, tt := range map[string]struct {
		before, was, after, is string // metadata, and the fields beside it
		want                   bool
	}{
		"nothing":                      {labels(""), `"spec":{"a":1}`, labels(""), `"spec":{"a":1}`, false},
		"the spec":                     {labels(""), `"spec":{"a":1}`, labels(""), `"spec":{"a":2}`, true},
		"another label":                {labels(""), `"spec":{}`, labels(`,"x":"y"`), `"spec":{}`, false},
		"the first labels":             {"", `"spec":{}`, labels(""), `"spec":{}`, true},
		"a label beside one":           {`"labels":{"a.example.com/team":"x"}`, `"spec":{}`, labels(""), `"spec":{}`, true},
		"another value":                {`"labels":{"a.example.com/team":"y","tier":"1"}`, `"spec":{}`, labels(""), `"spec":{}`, true},
		"another zone":                 {labels(`,"zone":"a"`), `"spec":{}`, labels(`,"zone":"d"`), `"spec":{}`, true},
		"it leaves":                    {labels(""), `"spec":{"a":1}`, `"labels":{"tier":"1"}`, `"spec":{"a":2}`, false},
		"it leaves without labels":     {labels(""), `"spec":{"a":1}`, "", `"spec":{"a":1}`, false},
		"it leaves for a zone":         {labels(""), `"spec":{"a":1}`, labels(`,"zone":"c"`), `"spec":{"a":1}`, false},
		"it gets old":                  {labels(""), `"spec":{"a":1}`, labels(`,"old":""`), `"spec":{"a":1}`, false},
		"a finalizer":                  {dying(`"x"`), `"spec":{"a":1}`, dying(""), `"spec":{"a":1}`, false},
		"a finalizer, without a spec":  {dying(`"x"`), `"data":{}`, dying(""), `"data":{}`, false},
		"data, without a spec":         {labels(""), `"data":{"a":"1"}`, labels(""), `"data":{"a":"2"}`, true},
		"the spec on its way out":      {dying(`"x"`), `"spec":{"a":1}`, dying(`"x"`), `"spec":{"a":2}`, true},
		"the spec goes on its way out": {dying(`"x"`), `"spec":{"a":1}`, dying(`"x"`), `"data":{}`, true},
	} {
		object := func(metadata, beside string) *unstructured.Unstructured {
			o := &unstructured.Unstructured{}
			must.Do(t, o.UnmarshalJSON([]byte(`{"apiVersion":"g.example.com/v1","kind":"Jar","metadata":{`+metadata+`},`+beside+`}`)))
			return o
		}
		before, after := object(tt.before, tt.was), object(tt.after, tt.is)
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
