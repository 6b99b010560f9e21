package watches

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Selectors are disjoint only where one key proves it.
func TestDisjoint(t *testing.T) {
	is := func(key string, op metav1.LabelSelectorOperator, values ...string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
	}
	const in, notIn, exists, not = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
	label := metav1.LabelSelector{MatchLabels: map[string]string{"a": "x", "b": "y"}}
	for _, tt := range []struct {
		name string
		a, b metav1.LabelSelector
		want bool
	}{
		{"two values", label, is("a", in, "y", "z"), true},
		{"a common value", is("a", in, "x", "y"), is("a", in, "y", "z"), false},
		{"two keys", label, is("c", in, "x"), false},
		{"all values excluded", is("a", in, "x", "y"), is("a", notIn, "x", "y", "z"), true},
		{"not all", is("a", in, "x", "y"), is("a", notIn, "x"), false},
		{"there and not there", is("a", exists), is("a", not), true},
		{"a value and not there", label, is("a", not), true},
		{"excluded and not there", is("a", notIn, "x"), is("a", not), false},
		{"everything", metav1.LabelSelector{}, label, false},
		{"wrong", is("a", "Near", "x"), label, false},
	} {
		if disjoint(tt.a, tt.b) != tt.want || disjoint(tt.b, tt.a) != tt.want {
			t.Errorf("%s: want %v", tt.name, tt.want)
		}
	}
}
