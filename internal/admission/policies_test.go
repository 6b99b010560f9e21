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
)

// The API server looks at an object that gets or loses a label of the selector, and at no other label.
func TestConditions_LabelsOfTheSelectorCount(t *testing.T) {
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
	object := func(labels map[string]string) *unstructured.Unstructured {
		o := jar("v1", `{"size":1}`)
		o.SetLabels(labels)
		return o
	}
	for name, tt := range map[string]struct {
		before, after map[string]string
		want          bool
	}{
		"nothing":            {nil, nil, false},
		"another label":      {map[string]string{"tier": "1"}, map[string]string{"tier": "1", "x": "y"}, false},
		"the first label":    {nil, map[string]string{"a.example.com/team": "x"}, true},
		"another value":      {map[string]string{"a.example.com/team": "y"}, map[string]string{"a.example.com/team": "x"}, true},
		"a label beside one": {map[string]string{"x": "y"}, map[string]string{"x": "y", "tier": ""}, true},
		"a label is gone":    {map[string]string{"tier": ""}, map[string]string{}, true},
	} {
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
