package rbac

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/rbac/tasks"
	"github.com/rolewright/rolewright/internal/watches"
)

// Input is the input from which permissions are generated.
type Input struct {
	// WatchesFile is the file in which gaps of the watches themselves are reported.
	WatchesFile string
	Watches     []watches.Watch
	// RolesPath and CollectionsPath are the directories in which roles that the content
	// names are searched for.
	RolesPath, CollectionsPath []string
	// Calls are the recorded calls of runs.
	Calls []Call
	// Find returns the resource of a kind. It is called once for each kind in a
	// file.
	Find func(apiVersion, kind string) (Resource, bool)
	// InjectOwnerRef is the operator's flag: without it, only the kinds of the
	// watches are watched.
	InjectOwnerRef bool
	// Scan says whether to read the content.
	Scan bool
	// Events says whether to include the permission to report failed runs as Events.
	Events bool
}

// Output lists what an operator needs, and the gaps in that list.
type Output struct {
	Needs Needs
	// Gaps are in the order of the watches and tasks, each once.
	Gaps []tasks.Gap
}

// generator is the state of one Generate.
type generator struct {
	Input
	out Output
	// makes are the resources that the runs of a watch may create, with an empty verb.
	makes map[int]map[Need]bool
}

// Generate adds up the permissions that the operator needs for its watches, for
// the tasks of their content and for the recorded calls of their runs. An error
// means that content cannot be read.
func Generate(in Input) (Output, error) {
	g := generator{Input: in, out: Output{Needs: Needs{}}, makes: map[int]map[Need]bool{}}
	for i, w := range in.Watches {
		g.own(w)
		g.refers(w)
		if in.Scan {
			if err := g.scan(i, w); err != nil {
				return Output{}, err
			}
		}
	}
	for _, call := range in.Calls {
		g.called(call)
	}
	for i, w := range in.Watches {
		for made := range g.makes[i] {
			g.dependent(w, made)
		}
	}
	return g.out, nil
}

func (g *generator) gap(place tasks.Place, format string, args ...any) {
	g.add(tasks.Gap{Place: place, What: fmt.Sprintf(format, args...)})
}

// ownGap reports what the operator itself cannot request.
func (g *generator) ownGap(w watches.Watch, format string, args ...any) {
	g.add(tasks.Gap{Place: tasks.Place{File: g.WatchesFile, Line: w.Pos.Line}, What: fmt.Sprintf(format, args...), Own: true})
}

func (g *generator) add(gap tasks.Gap) {
	if !slices.Contains(g.out.Gaps, gap) {
		g.out.Gaps = append(g.out.Gaps, gap)
	}
}

// own adds what the operator itself does with the objects of a watch: it watches
// them, reads them before and after each run, writes their status, adds finalizers to
// them, and reports Events about them.
func (g *generator) own(w watches.Watch) {
	r, ok := g.Find(w.GVK.GroupVersion().String(), w.GVK.Kind)
	if !ok {
		g.ownGap(w, "the resource name of the watched kind %s", w.GVK)
		return
	}
	n := Need{Group: r.Group, Resource: r.Name, Namespaced: r.Namespaced}
	g.out.Needs.Add(n, "get", "list", "watch")
	if w.Finalizer != nil || w.PruneOnDelete {
		g.out.Needs.Add(n, "patch")
	}
	if g.Events {
		// Events about cluster-scoped objects are in the namespace default.
		g.out.Needs.Add(events(r.Namespaced), "create", "patch")
	}
	if w.ManageStatus {
		n.Subresource = "status"
		g.out.Needs.Add(n, "patch")
	}
}

// events returns the resource of Events about objects.
func events(namespaced bool) Need {
	return Need{Group: "events.k8s.io", Resource: "events", Namespaced: namespaced}
}

// Events lists the permissions to report Events about objects in namespaces.
func Events() Needs {
	needs := Needs{}
	needs.Add(events(true), "create", "patch")
	return needs
}

// Jobs lists the permissions that runs as Jobs need in the operator's namespace.
func Jobs() Needs {
	needs := Needs{}
	needs.Add(Need{Group: "batch", Resource: "jobs", Namespaced: true}, "get", "list", "watch", "create", "delete")
	needs.Add(Need{Resource: "pods", Namespaced: true}, "get", "list", "watch", "delete")
	needs.Add(Need{Resource: "events", Namespaced: true}, "list")
	needs.Add(Need{Resource: "secrets", Namespaced: true}, "get", "list", "create", "patch", "delete")
	return needs
}

// refers adds what the operator does with the objects that the objects of a watch refer to, or
// that start their runs: it watches them, and reads the sources of variables.
func (g *generator) refers(w watches.Watch) {
	add := func(kind schema.GroupVersionKind, verbs ...string) {
		r, ok := g.Find(kind.GroupVersion().String(), kind.Kind)
		if !ok {
			g.ownGap(w, "the resource name of %s, to which the watch of %s refers", kind, w.GVK)
			return
		}
		g.out.Needs.Add(Need{Group: r.Group, Resource: r.Name, Namespaced: r.Namespaced}, verbs...)
	}
	for _, ref := range w.References {
		add(ref.GVK, "list", "watch")
	}
	for _, t := range w.Triggers {
		add(t.GVK, "list", "watch")
		if t.OfNamespaces() {
			add(schema.GroupVersionKind{Version: "v1", Kind: "Namespace"}, "list", "watch")
		}
	}
	for _, from := range w.VarsFrom {
		add(from.Kind(), "get", "list", "watch")
	}
}

// dependent adds what the operator does with the dependents that the runs of a
// watch create: it watches them, and may have to delete them.
func (g *generator) dependent(w watches.Watch, made Need) {
	owner, found := g.Find(w.GVK.GroupVersion().String(), w.GVK.Kind)
	// Dependents of a cluster-scoped owner have owner references, which are followed in any case.
	watched := w.WatchDependentResources && (made.Namespaced || found && !owner.Namespaced || w.WatchClusterScopedResources)
	for _, listed := range w.Blacklist {
		if r, ok := g.Find(listed.GroupVersion().String(), listed.Kind); ok && r.Group == made.Group && r.Name == made.Resource {
			watched = false
		}
	}
	if !g.InjectOwnerRef {
		return
	}
	if watched {
		g.out.Needs.Add(made, "list", "watch")
	}
	if w.PruneOnDelete {
		g.out.Needs.Add(made, "list", "delete")
	}
	for _, kind := range w.Prunes() {
		if r, ok := g.Find(kind.GroupVersion().String(), kind.Kind); ok && r.Group == made.Group && r.Name == made.Resource {
			g.out.Needs.Add(made, "get", "delete")
		}
	}
}

// scan reads the content of a watch and of its finalizer.
func (g *generator) scan(i int, w watches.Watch) error {
	for _, c := range w.Contents() {
		if c.IsZero() {
			continue
		}
		if c.Handler != "" {
			g.gap(tasks.Place{File: g.WatchesFile, Line: w.Pos.Line},
				"the API requests of the handler %s of the watch of %s: add permissions for what its Go code requests, for instance with markers of controller-gen", c.Handler, w.GVK)
			continue
		}
		if c.Command != nil && c.Command.Chart != nil {
			if err := g.chart(i, w, c.Command.Chart); err != nil {
				return err
			}
			continue
		}
		if c.Command != nil {
			if err := g.command(w, c.Command); err != nil {
				return err
			}
			continue
		}
		report, err := tasks.Scan(content.Content{Playbook: c.Playbook, Role: c.Role}, content.Options{RolesPath: g.RolesPath, CollectionsPath: g.CollectionsPath})
		if err != nil {
			return fmt.Errorf("read the content of the watch of %s: %w", w.GVK, err)
		}
		for _, gap := range report.Gaps {
			g.gap(gap.Place, "%s", gap.What)
		}
		g.used(i, w, report.Uses)
		g.listed(report.Directs)
	}
	return nil
}

// command reads the comments of a command, or of the script that its first argument names.
func (g *generator) command(w watches.Watch, c *watches.Command) error {
	for _, file := range c.Files() {
		directs, known, err := tasks.OfProgram(file)
		if err != nil {
			return fmt.Errorf("read the command of the watch of %s: %w", w.GVK, err)
		}
		if known {
			g.listed(directs)
			return nil
		}
	}
	g.gap(tasks.Place{File: g.WatchesFile, Line: w.Pos.Line},
		"the API requests of the command %s of the watch of %s: list them in comments such as \"# rolewright:rbac apps deployments get,patch\", "+
			"or record them with \"run --record-api-calls\", and give the record with --api-calls",
		filepath.Base(c.Path), w.GVK)
	return nil
}

// listed adds the requests that comments list.
func (g *generator) listed(directs []tasks.Direct) {
	for _, d := range directs {
		resource, subresource, _ := strings.Cut(d.Resource, "/")
		n := Need{Group: d.Group, Resource: resource, Subresource: subresource, Namespaced: g.namespaced(d.Group, resource)}
		g.out.Needs.Add(n, d.Verbs...)
	}
}

// namespaced reports whether a resource is namespaced; true if that is not known.
func (g *generator) namespaced(group, resource string) bool {
	r, ok := g.Find(schema.GroupVersion{Group: group, Version: "v1"}.String(), resource)
	return !ok || r.Namespaced
}

// used adds the requests of tasks.
func (g *generator) used(i int, w watches.Watch, uses []tasks.Use) {
	for _, u := range g.known(uses) {
		r, ok := g.Find(u.APIVersion, u.Kind)
		switch {
		case !ok:
			g.gap(u.Place, "the resource name of %s %s, and whether it is namespaced: its CustomResourceDefinition was not found", u.APIVersion, u.Kind)
			continue
		case w.OwnNamespaceOnly && !r.Namespaced && r.Kind != w.GVK.Kind:
			g.gap(u.Place, "%s is cluster-scoped, and the watch says ownNamespaceOnly: the API proxy refuses it, and no permission is granted", r.Kind)
			continue
		}
		n := Need{Group: r.Group, Resource: r.Name, Namespaced: r.Namespaced}
		if u.Makes {
			g.made(i, n, u.Place)
		}
		n.Subresource = u.Subresource
		g.out.Needs.Add(n, u.Verbs...)
	}
}

func (g *generator) made(i int, n Need, place tasks.Place) {
	if g.makes[i] == nil {
		g.makes[i] = map[Need]bool{}
	}
	g.makes[i][n] = true
	if n.Group == "rbac.authorization.k8s.io" {
		g.gap(place, "%s are written: the operator must hold every permission that they grant, or the verbs bind and escalate", n.Resource)
	}
}

// called adds a recorded call of a run.
func (g *generator) called(c Call) {
	g.out.Needs.Add(Need{Group: c.Group, Resource: c.Resource, Subresource: c.Subresource, Namespaced: c.Namespaced || g.listedInAll(c)}, c.Verb)
	if !c.Owned {
		return
	}
	for i, w := range g.Watches {
		if c.Owner == w.GVK.GroupKind().String() {
			g.made(i, Need{Group: c.Group, Resource: c.Resource, Namespaced: c.Namespaced}, tasks.Place{File: "recorded calls"})
		}
	}
}

// listedInAll reports whether a call without a namespace is for all namespaces at
// once.
func (g *generator) listedInAll(c Call) bool {
	if c.Verb != "list" && c.Verb != "watch" && c.Verb != "deletecollection" {
		return false
	}
	r, ok := g.Find(schema.GroupVersion{Group: c.Group, Version: c.Version}.String(), c.Resource)
	return ok && r.Namespaced
}

// SortGaps orders gaps by file and line.
func SortGaps(gaps []tasks.Gap) []tasks.Gap {
	sorted := slices.Clone(gaps)
	slices.SortStableFunc(sorted, func(a, b tasks.Gap) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.What, b.What))
	})
	return sorted
}
