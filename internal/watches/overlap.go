package watches

import (
	"fmt"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
)

// checkOverlaps reports watches that match the same objects. The same kind in two groups is
// two kinds. Two versions of a kind have the same objects. [Responsible] says which of several
// watches runs an object.
func (c *decoding) checkOverlaps(entries []*entry) {
	before := map[schema.GroupKind][]*entry{}
	for _, e := range entries {
		gvk := e.watch.GVK
		if gvk.Kind == "" || gvk.Version == "" {
			continue // reported already
		}
		if other := overlapping(e, before[gvk.GroupKind()]); other != nil {
			c.overlap(e, other)
		}
		c.checkSharedFinalizer(e, before[gvk.GroupKind()])
		before[gvk.GroupKind()] = append(before[gvk.GroupKind()], e)
	}
}

// checkSharedFinalizer warns if an earlier watch of the kind has a finalizer of the same name
// that does something else: an object with that finalizer does not tell which of the two it needs. Charts have one
// finalizer by design, whose name cannot be changed.
func (c *decoding) checkSharedFinalizer(e *entry, before []*entry) {
	is := e.watch.Finalizer
	if _, chart := e.keys["chart"]; chart || is == nil || is.Name == "" {
		return
	}
	at := slices.IndexFunc(before, func(other *entry) bool {
		f := other.watch.Finalizer
		return f != nil && f.Name == is.Name && !(reflect.DeepEqual(f.Content, is.Content) && reflect.DeepEqual(f.Vars, is.Vars))
	})
	if at >= 0 {
		c.warn(e.finalizer.keys["name"], fmt.Sprintf("the watch at line %d has a finalizer of the same name that runs something else: "+
			"an object whose labels change while it is being deleted gets the wrong finalizer run", before[at].watch.Pos.Line),
			"use a different name for each finalizer")
	}
}

// overlapping returns the first of the entries in before that may match objects that e also
// matches, preferably one of the same version; nil if there is none.
func overlapping(e *entry, before []*entry) (found *entry) {
	for _, other := range before {
		if disjoint(other.watch.Selector, e.watch.Selector) {
			continue
		}
		if other.watch.GVK == e.watch.GVK {
			return other
		}
		if found == nil {
			found = other
		}
	}
	return found
}

// overlap reports that an entry may match the same objects as an earlier one.
func (c *decoding) overlap(e, other *entry) {
	gvk, line := e.watch.GVK, other.watch.Pos.Line
	if other.watch.GVK != gvk {
		c.warn(e.at, fmt.Sprintf("%s is also watched in version %s at line %d: each object exists in all versions, and only that watch runs objects that both match",
			gvk.GroupKind(), other.watch.GVK.Version, line),
			"keep one of the two watches, or put the one that should run the objects first")
		return
	}
	e.ok = false
	if selects(e) && selects(other) {
		c.error(e.at, fmt.Sprintf("duplicate GVK: %s; first watched at line %d: an object may match both selectors, %s and %s",
			gvk, line, excerpt(metav1.FormatLabelSelector(&other.watch.Selector)), excerpt(metav1.FormatLabelSelector(&e.watch.Selector))),
			"make the selectors mutually exclusive on one key, such as matchLabels with two values of it, or In and NotIn")
		return
	}
	c.error(e.at, fmt.Sprintf("duplicate GVK: %s; first watched at line %d", gvk, line),
		"merge the two watches into one, or give each a selector so that no object matches both, such as matchLabels with two values of one key")
}

// selects is true if the entry has a selector.
func selects(e *entry) bool {
	return len(e.watch.Selector.MatchLabels)+len(e.watch.Selector.MatchExpressions) > 0
}

// disjoint reports whether no object can match both selectors, as far as a single key shows that.
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

// requirements returns the requirements of a selector; none if the selector is wrong, which is
// reported elsewhere.
func requirements(s metav1.LabelSelector) []labels.Requirement {
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return nil
	}
	all, _ := selector.Requirements()
	return all
}

// contradict reports whether y excludes what x requires of the same key.
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
