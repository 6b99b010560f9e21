package watches

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/test/must"
)

// Selectors only count as disjoint if a single key proves it.
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

// One watch runs an object: the watch that its labels select or, after its deletion, the watch of its finalizer.
func TestResponsible(t *testing.T) {
	claim := func(finalizer string, labels map[string]string) Claim {
		return must.Get(ClaimOf(Watch{Selector: metav1.LabelSelector{MatchLabels: labels}, Finalizer: &Finalizer{Name: finalizer}}))(t)
	}
	claims := []Claim{claim("gold", map[string]string{"tier": "gold"}), claim("silver", map[string]string{"tier": "silver"}), claim("", map[string]string{"tier": "none"})}
	for _, tt := range []struct {
		name, tier string
		deleted    bool
		finalizers []string
		want       int
	}{
		{"by its labels", "silver", false, nil, 1},
		{"by its labels, whatever it bears", "silver", false, []string{"gold"}, 1},
		{"by none", "iron", false, []string{"gold"}, -1},
		{"deleted, with its finalizer", "silver", true, []string{"gold", "silver"}, 1},
		{"deleted, with that of another watch", "silver", true, []string{"gold"}, 0},
		{"deleted, with that of another watch than one without", "none", true, []string{"other", "silver"}, 1},
		{"deleted, with those of others", "silver", true, []string{"other"}, 1},
		{"deleted, and matched by none", "iron", true, []string{"gold"}, -1},
	} {
		obj := &metav1.ObjectMeta{Labels: map[string]string{"tier": tt.tier}, Finalizers: tt.finalizers}
		if tt.deleted {
			obj.DeletionTimestamp = &metav1.Time{}
		}
		must.Be(t, tt.name, tt.want, Responsible(claims, obj))
	}
	versions := []Claim{claim("one", map[string]string{"tier": "gold"}), claim("two", nil)}
	must.Be(t, "what two versions match", 0, Responsible(versions, &metav1.ObjectMeta{Labels: map[string]string{"tier": "gold"}}))
	must.Be(t, "what the second one matches", 1, Responsible(versions, &metav1.ObjectMeta{}))
	one := []Claim{claim("end", map[string]string{"tier": "gold"}), claim("end", map[string]string{"tier": "silver"})}
	moved := &metav1.ObjectMeta{Labels: map[string]string{"tier": "silver"}, Finalizers: []string{"end"}, DeletionTimestamp: &metav1.Time{}}
	must.Be(t, "deleted, with a finalizer that both have: validate warns", 1, Responsible(one, moved))
}
