package rbac

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Need is a permission. It never contains names of objects.
type Need struct {
	Group, Resource string
	// Subresource is empty for the object itself.
	Subresource string
	Verb        string
	Namespaced  bool
}

// path returns the resource as it is written in rules.
func (n Need) path() string {
	if n.Subresource == "" {
		return n.Resource
	}
	return n.Resource + "/" + n.Subresource
}

// Needs is a set of permissions. The zero value is empty, and nothing can be added to it.
type Needs map[Need]struct{}

// Add adds verbs on a resource to the set.
func (s Needs) Add(like Need, verbs ...string) {
	for _, verb := range verbs {
		like.Verb = verb
		s[like] = struct{}{}
	}
}

// split separates namespaced resources from cluster-scoped ones.
func (s Needs) split() (namespaced, cluster Needs) {
	namespaced, cluster = Needs{}, Needs{}
	for n := range s {
		if n.Namespaced {
			namespaced[n] = struct{}{}
		} else {
			cluster[n] = struct{}{}
		}
	}
	return namespaced, cluster
}

// Rules returns the fewest rules that allow exactly the permissions in the set, in a
// stable order. Resources of one group with the same verbs share a rule.
func (s Needs) Rules() []rbacv1.PolicyRule {
	type at struct{ group, path string }
	verbs := map[at][]string{}
	for n := range s {
		key := at{n.Group, n.path()}
		if !slices.Contains(verbs[key], n.Verb) {
			verbs[key] = append(verbs[key], n.Verb)
		}
	}
	type shared struct{ group, verbs string }
	paths := map[shared][]string{}
	for key, list := range verbs {
		slices.SortFunc(list, byCustom)
		k := shared{key.group, strings.Join(list, " ")}
		paths[k] = append(paths[k], key.path)
	}
	var rules []rbacv1.PolicyRule
	for _, key := range slices.Collect(maps.Keys(paths)) {
		slices.Sort(paths[key])
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{key.group}, Resources: paths[key], Verbs: strings.Fields(key.verbs),
		})
	}
	slices.SortFunc(rules, func(a, b rbacv1.PolicyRule) int {
		return cmp.Or(cmp.Compare(a.APIGroups[0], b.APIGroups[0]), slices.Compare(a.Resources, b.Resources))
	})
	return rules
}

// byCustom compares verbs by their customary order.
func byCustom(a, b string) int {
	order := []string{"get", "list", "watch", "create", "patch", "update", "delete", "deletecollection"}
	rank := func(verb string) int {
		if i := slices.Index(order, verb); i >= 0 {
			return i
		}
		return len(order)
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b))
}
