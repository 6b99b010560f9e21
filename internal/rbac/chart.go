package rbac

import (
	"fmt"
	"path/filepath"

	"github.com/rolewright/rolewright/internal/chartdir"
	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/internal/watches"
)

// chart adds what the releases of a chart need: permissions for its objects, whatever the values are, and for Helm's
// records, which are Secrets.
func (g *generator) chart(i int, w watches.Watch, of *watches.Chart) error {
	c, err := chartdir.Read(of.Dir)
	if err != nil {
		return fmt.Errorf("the watch of %s: %w", w.GVK, err)
	}
	report, err := tasks.OfChart(c, of.Dir, of.Test)
	if err != nil {
		return fmt.Errorf("the watch of %s: %w", w.GVK, err)
	}
	own, err := ReadDefinitions(filepath.Join(of.Dir, "crds"))
	if err != nil {
		return fmt.Errorf("the watch of %s: %w", w.GVK, err)
	}
	g.out.Needs.Add(Need{Resource: "secrets", Namespaced: true}, "get", "list", "create", "update", "delete")
	for _, gap := range report.Gaps {
		g.gap(gap.Place, "%s", gap.What)
	}
	find := g.Find
	g.Find = func(apiVersion, kind string) (Resource, bool) {
		if r, ok := own.Find(apiVersion, kind); ok {
			return r, true
		}
		return find(apiVersion, kind)
	}
	defer func() { g.Find = find }()
	g.used(i, w, report.Uses)
	g.listed(report.Directs)
	return nil
}

// known leaves out unknown alternatives if another one is known: they are for other versions of Kubernetes.
func (g *generator) known(uses []tasks.Use) (left []tasks.Use) {
	type alternatives struct {
		tasks.Place
		kind string
	}
	found := map[alternatives]bool{}
	for _, u := range uses {
		_, ok := g.Find(u.APIVersion, u.Kind)
		at := alternatives{u.Place, u.Kind}
		found[at] = found[at] || ok
	}
	for _, u := range uses {
		if _, ok := g.Find(u.APIVersion, u.Kind); ok || !found[alternatives{u.Place, u.Kind}] {
			left = append(left, u)
		}
	}
	return left
}
