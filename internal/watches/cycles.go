package watches

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// start says that objects of a kind start runs of a watch.
type start struct {
	at      at
	kind    schema.GroupKind
	trigger bool
}

// checkCycles warns of watches that start runs of each other by a trigger. It does not warn
// of references alone: an object that names another one starts no runs of others, and a
// status that a run writes is ignored.
func (c *decoding) checkCycles(entries []*entry) {
	by := map[schema.GroupKind][]start{}
	for _, e := range entries {
		kind := e.watch.GVK.GroupKind()
		by[kind] = append(by[kind], e.starts...)
	}
	for _, e := range entries {
		home := e.watch.GVK.GroupKind()
		for _, s := range e.starts {
			way := wayTo(home, s.kind, by)
			if !s.trigger || s.kind == home || way == nil {
				continue
			}
			names := []string{home.Kind}
			for _, kind := range way {
				names = append(names, kind.Kind)
			}
			c.warn(s.at, "runs may start each other in an endless loop: "+strings.Join(names, " is started by "),
				"remove one of these triggers or references, or make sure that the roles write only what differs")
		}
	}
}

// wayTo returns a path from one kind to another along the starts; nil if there is none.
func wayTo(home, from schema.GroupKind, by map[schema.GroupKind][]start) []schema.GroupKind {
	seen := map[schema.GroupKind]bool{}
	var goOn func(way ...schema.GroupKind) []schema.GroupKind
	goOn = func(way ...schema.GroupKind) []schema.GroupKind {
		last := way[len(way)-1]
		if last == home {
			return way
		}
		if seen[last] {
			return nil
		}
		seen[last] = true
		for _, s := range by[last] {
			if found := goOn(append(slices.Clip(way), s.kind)...); found != nil {
				return found
			}
		}
		return nil
	}
	return goOn(from)
}
