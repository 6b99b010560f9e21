package watches

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
)

// checkOverlaps reports watches that see the same objects. Two groups are two kinds. Two
// versions are one kind with the same objects, and a kind in one version is watched once.
func (c *decoding) checkOverlaps(entries []*entry) {
	first := map[schema.GroupVersionKind]*entry{}
	versions := map[schema.GroupKind][]*entry{}
	for _, e := range entries {
		kind := e.watch.GVK
		if kind.Kind == "" || kind.Version == "" {
			continue // reported already
		}
		if other, twice := first[kind]; twice {
			e.ok = false
			hint := "merge the two watches into one"
			if disjoint(other.watch.Selector, e.watch.Selector) {
				hint += " without a selector, and let its playbook choose by the labels of the object"
			}
			c.error(e.at, fmt.Sprintf("duplicate GVK: %s; first watched at line %d", kind, other.watch.Pos.Line), hint)
			continue
		}
		first[kind] = e
		for _, other := range versions[kind.GroupKind()] {
			if disjoint(other.watch.Selector, e.watch.Selector) {
				continue
			}
			if other.watch.Prune || e.watch.Prune {
				c.error(e.at, fmt.Sprintf("prune would remove for one watch what the other one has created: %s is watched in version %s at line %d, too",
					kind.GroupKind(), other.watch.GVK.Version, other.watch.Pos.Line),
					"remove prune, or give each a selector so that no object matches both, such as matchLabels with two values of one key")
				break
			}
			c.warn(e.at, fmt.Sprintf("%s is watched in version %s at line %d, too: an object is the same in all versions, and both watches run it",
				kind.GroupKind(), other.watch.GVK.Version, other.watch.Pos.Line),
				"keep one of the two watches, or give each a selector so that no object matches both, such as matchLabels with two values of one key")
			break
		}
		versions[kind.GroupKind()] = append(versions[kind.GroupKind()], e)
	}
}

// disjoint reports whether no labels match both selectors, as far as one key of them tells.
func disjoint(a, b metav1.LabelSelector) bool {
	for _, x := range requirements(a) {
		for _, y := range requirements(b) {
			if x.Key() == y.Key() && (contradict(x, y) || contradict(y, x)) {
				return true
			}
		}
	}
	return false
}

// requirements are those of a selector; none if it is wrong, which is reported where it
// stands.
func requirements(s metav1.LabelSelector) []labels.Requirement {
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return nil
	}
	all, _ := selector.Requirements()
	return all
}

// contradict reports whether y excludes what x wants of the same key.
func contradict(x, y labels.Requirement) bool {
	switch x.Operator() {
	case selection.Exists:
		return y.Operator() == selection.DoesNotExist
	case selection.In, selection.Equals:
	default:
		return false
	}
	switch y.Operator() {
	case selection.DoesNotExist:
		return true
	case selection.In, selection.Equals:
		return !x.Values().HasAny(y.Values().UnsortedList()...)
	case selection.NotIn:
		return y.Values().IsSuperset(x.Values())
	}
	return false
}
