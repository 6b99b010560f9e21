package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
)

// changes returns how the current inputs differ from those of the last run; nil if that cannot
// be told.
func (s *scope) changes() []fingerprint.Change {
	last := s.memory.last
	if last == nil || last.Fingerprint == s.fingerprint || last.Inputs == "" {
		return nil
	}
	return fingerprint.Since(last.Inputs, s.parts)
}

// only reports whether a group of inputs is the only one that has changed.
func only(changes []fingerprint.Change, group fingerprint.Group) bool {
	return len(changes) == 1 && changes[0].Group == group
}

// others returns the cause of a run if only other objects have changed; else empty.
func others(changes []fingerprint.Change) cause {
	var found cause
	for _, c := range changes {
		switch {
		case c.Group == fingerprint.OfReferences:
			found = causeReference
		case c.Group == fingerprint.OfTriggers:
			found = cmp.Or(found, causeTrigger)
		default:
			return ""
		}
	}
	return found
}

// among reports whether one of the groups of inputs has changed, possibly among others.
func among(changes []fingerprint.Change, groups ...fingerprint.Group) bool {
	return slices.ContainsFunc(changes, func(c fingerprint.Change) bool { return slices.Contains(groups, c.Group) })
}

// itself reports whether someone has changed the object, or may have, though its generation is the same. If it has one, that
// can only be an annotation. With a change of the content it is not known: a new default in the CRD, or the key watchAnnotationsChanges,
// changes all objects, which must wait with the rollout of the content that came with it.
func (r *reconciler) itself(changes []fingerprint.Change, generation int64) bool {
	if generation == 0 {
		return changes == nil || among(changes, fingerprint.OfObject)
	}
	others := []fingerprint.Group{fingerprint.OfObject, fingerprint.OfReferences, fingerprint.OfTriggers} // they wait for no rollout either
	return r.watch.WatchAnnotationsChanges && among(changes, fingerprint.OfObject) &&
		!slices.ContainsFunc(changes, func(c fingerprint.Change) bool { return !slices.Contains(others, c.Group) })
}

// trigger returns a text about what started the run of s, if the cause has an object or inputs
// that can be named; else empty. The status, the log and the role get this text.
func (r *reconciler) trigger(s *scope) string {
	says := ""
	switch s.plan.cause {
	case causeDependent:
		known := r.objects.get(s.key)
		says = cmp.Or(known.dependentChanged, known.changedInOtherNamespace)
	case causeReference, causeTrigger:
		says = r.othersTrigger(s)
	case causeChanged, causeContent, causeEnvironment:
		var all []string
		if r.moved(s) {
			all = append(all, "watch: "+r.watchers.claims[r.claimIndex].String())
		}
		for _, c := range s.changes() {
			if c.Group == fingerprint.OfObject {
				c.Names, c.More = s.previous.fields, s.previous.more
			}
			all = append(all, c.String())
		}
		says = strings.Join(all, "; ")
	}
	return text.Clip(says, status.MaxTrigger)
}

// othersTrigger returns a text about which references and triggers have changed.
func (r *reconciler) othersTrigger(s *scope) string {
	const most = 5
	var all, groups []string
	for _, c := range s.changes() {
		groups = append(groups, c.String())
		if c.Group == fingerprint.OfTriggers {
			all = append(all, r.triggersTrigger(s, c)...)
			continue
		}
		for _, name := range c.Names {
			what := "was changed"
			if fingerprint.Had(s.memory.last.Inputs)(fingerprint.Part{Group: fingerprint.OfReferences, Name: name, Value: missing}) {
				what = "was created"
			}
			if slices.ContainsFunc(s.referred, func(r referred) bool { return r.String() == name && r.version == missing }) {
				what = "was deleted"
			}
			all = append(all, name+" "+what)
		}
	}
	if more := len(all) - most; more > 0 {
		all = append(all[:most], fmt.Sprintf("%d more", more))
	}
	if len(all) == 0 {
		return strings.Join(groups, "; ") // it is not known which objects changed
	}
	return strings.Join(all, "; ")
}

// triggersTrigger returns which members of the changed triggers have changed, or the trigger
// itself if that was not seen.
func (r *reconciler) triggersTrigger(s *scope, c fingerprint.Change) []string {
	var all []string
	for _, is := range s.triggered {
		if !slices.Contains(c.Names, is.name()) {
			continue
		}
		says := r.referring.triggeredSince(is, s.key, s.memory.last.Inputs)
		if len(says) == 0 {
			says = []string{fingerprint.Change{Group: c.Group, Names: []string{is.name()}}.String()}
		}
		for _, one := range says {
			if !slices.Contains(all, one) {
				all = append(all, one)
			}
		}
	}
	return all
}
