package watches

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Claim is what a watch says about which objects of its kind it runs.
type Claim struct {
	// Version is the one in which the watch sees them.
	Version  string
	Selector labels.Selector
	// Finalizer is the name of the watch's finalizer; empty for none.
	Finalizer string
}

// ClaimOf is the claim of a watch.
func ClaimOf(w Watch) (Claim, error) {
	selector, err := metav1.LabelSelectorAsSelector(&w.Selector)
	if err != nil {
		return Claim{}, fmt.Errorf("selector of watch %s: %w", w.GVK, err)
	}
	c := Claim{Version: w.GVK.Version, Selector: selector}
	if w.Finalizer != nil {
		c.Finalizer = w.Finalizer.Name
	}
	return c, nil
}

// String names the claim among those of its kind.
func (c Claim) String() string {
	if c.Selector.Empty() {
		return c.Version
	}
	return c.Version + ", " + c.Selector.String()
}

// Matches is true if the selector matches the labels of the object.
func (c Claim) Matches(obj metav1.Object) bool {
	return c.Selector.Matches(labels.Set(obj.GetLabels()))
}

// finalizes is true if the object bears the finalizer of the watch.
func (c Claim) finalizes(obj metav1.Object) bool {
	return c.Finalizer != "" && slices.Contains(obj.GetFinalizers(), c.Finalizer)
}

// Responsible is which of the watches of one kind, in any version and in the order of the
// file, runs an object: the first whose selector matches; -1 if there is none. An object that
// is deleted before that watch has put its finalizer on it is run by the one whose finalizer
// it bears, which has run it last.
func Responsible(claims []Claim, obj metav1.Object) int {
	at := slices.IndexFunc(claims, func(c Claim) bool { return c.Matches(obj) })
	if at < 0 || obj.GetDeletionTimestamp() == nil || claims[at].finalizes(obj) {
		return at
	}
	if by := slices.IndexFunc(claims, func(c Claim) bool { return c.finalizes(obj) }); by >= 0 {
		return by
	}
	return at
}

// For is the one of these watches of one kind, which are not none, that runs an object. A
// single one is so whatever its selector says. The error says that none matches.
func For(all []Watch, obj metav1.Object) (Watch, error) {
	if len(all) == 1 {
		return all[0], nil
	}
	claims := make([]Claim, len(all))
	for i, w := range all {
		var err error
		if claims[i], err = ClaimOf(w); err != nil {
			return Watch{}, err
		}
	}
	at := Responsible(claims, obj)
	if at < 0 {
		var selectors []string
		for _, c := range claims {
			selectors = append(selectors, c.Selector.String())
		}
		return Watch{}, fmt.Errorf("no watch runs %s %s: its labels match none of their selectors, which are %s",
			all[0].GVK.GroupKind(), obj.GetName(), strings.Join(selectors, "; "))
	}
	return all[at], nil
}
