package dependent

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/test/must"
)

// However much is changed in other namespaces during a run, changes in the owner's namespace are reported as such, and
// the other way round.
func TestRun_BoundsChangesOfOtherNamespacesApart(t *testing.T) {
	t.Parallel()
	const many, object = "many dependents were changed", "configmaps %s/object was deleted"
	near, far := fmt.Sprintf(object, "home"), fmt.Sprintf(object, "away")
	for name, tt := range map[string]struct {
		near, far int
		want      []string
	}{
		"few":             {1, 1, []string{near + " false", far + " true"}},
		"as many as kept": {maxKept, maxKept, []string{near + " false", far + " true"}},
		"many there":      {1, maxKept + 1, []string{near + " false", many + " true"}},
		"many here":       {maxKept + 1, 1, []string{far + " true", many + " false"}},
		"many of both":    {maxKept + 1, maxKept + 1, []string{many + " false", many + " true"}},
		"many there only": {0, maxKept + 1, []string{many + " true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var told []string
			r := New(Options{Lookup: lookup})
			k := r.Subscribe(OwnerKind{GVK: schema.GroupVersionKind{Kind: "Widget"}, Namespaced: true, Changed: func(_ types.NamespacedName, _ types.UID, why string, otherNamespace bool) {
				told = append(told, fmt.Sprint(why, " ", otherNamespace))
			}})
			owner := types.NamespacedName{Namespace: "home", Name: "owner"}
			run := k.Begin(owner, "uid")
			remembered := 0
			for namespace, n := range map[string]int{"away": tt.far, "home": tt.near} {
				if n <= maxKept {
					remembered += n
				}
				for range n {
					id := types.NamespacedName{Namespace: namespace, Name: "object"}
					k.owner(owner).keep(change{feed: &feed{resource: configMaps}, id: id, verdict: changed}, owner)
				}
			}
			must.Be(t, "remembered", remembered, len(k.owner(owner).kept))
			run.End()
			slices.Sort(told)
			slices.Sort(tt.want)
			must.Be(t, "told", tt.want, told)
		})
	}
}
