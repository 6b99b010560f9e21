package watches

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Claim says which objects of its kind a watch runs.
type Claim struct {
	// Version is the version in which the watch sees the objects.
	Version  string
	Selector labels.Selector
	// Finalizers are the name of the watch's finalizer, and its former name if there is one.
	Finalizers []string
}

// ClaimOf returns the claim of a watch.
func ClaimOf(w Watch) (Claim, error) {
	selector, err := metav1.LabelSelectorAsSelector(&w.Selector)
	if err != nil {
		return Claim{}, fmt.Errorf("selector of watch %s: %w", w.GVK, err)
	}
	c := Claim{Version: w.GVK.Version, Selector: selector}
	if w.Finalizer != nil {
		c.Finalizers = append(c.Finalizers, w.Finalizer.Name)
		if w.Finalizer.Former != "" {
			c.Finalizers = append(c.Finalizers, w.Finalizer.Former)
		}
	}
	return c, nil
}

// String tells the claim apart from others for the same kind.
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

// finalizes is true if the object has the finalizer of the watch, also under its former name.
func (c Claim) finalizes(obj metav1.Object) bool {
	return slices.ContainsFunc(c.Finalizers, func(name string) bool { return slices.Contains(obj.GetFinalizers(), name) })
}

// Responsible returns the index of the watch that runs an object, among watches of one kind, in
// any version and in the order of the file: the first whose selector matches, or -1 if none does.
// If an object is deleted before that watch has put its finalizer on it, the watch whose finalizer
// it has runs it, because that watch ran it last.
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

// For returns the watch that runs an object, among at least one watch of one kind. If no selector
// matches an object that is being deleted, it is the watch whose finalizer the object has, because
// that watch may still run it. The error says that none matches.
func For(all []Watch, obj metav1.Object) (Watch, error) {
	claims := make([]Claim, len(all))
	for i, w := range all {
		var err error
		if claims[i], err = ClaimOf(w); err != nil {
			return Watch{}, err
		}
	}
	at := Responsible(claims, obj)
	if at < 0 && obj.GetDeletionTimestamp() != nil {
		at = slices.IndexFunc(claims, func(c Claim) bool { return c.finalizes(obj) })
	}
	if at < 0 {
		var selectors []string
		for _, c := range claims {
			selectors = append(selectors, c.Selector.String())
		}
		return Watch{}, fmt.Errorf("no watch runs %s %s: its labels match none of the selectors: %s",
			all[0].GVK.GroupKind(), obj.GetName(), strings.Join(selectors, "; "))
	}
	return all[at], nil
}
