package controller

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
)

// changes are what differs between the inputs of the last run and those of now, as far
// as that can be told.
func (s *scope) changes() []fingerprint.Change {
	last := s.memory.last
	if last == nil || last.Fingerprint == s.fingerprint || last.Inputs == "" {
		return nil
	}
	return fingerprint.Since(last.Inputs, s.parts)
}

// only is true if nothing but a group of inputs has changed.
func only(changes []fingerprint.Change, group fingerprint.Group) bool {
	return len(changes) == 1 && changes[0].Group == group
}

// trigger says what has started the run of s, where its cause has an object or inputs
// that can be named. It is the text in the status, in the log and for the role.
func (r *reconciler) trigger(s *scope) string {
	says := ""
	switch s.plan.cause {
	case causeDependent:
		says = r.objects.get(s.key).touched
	case causeReference:
		says = s.referenceTrigger()
	case causeChanged, causeContent, causeEnvironment:
		var all []string
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

// referenceTrigger says which of the objects that the object refers to have changed.
func (s *scope) referenceTrigger() string {
	const most = 5
	var all []string
	for _, c := range s.changes() {
		for _, name := range c.Names {
			what := "was changed"
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
		return string(fingerprint.OfReferences) // which, there is no telling
	}
	return strings.Join(all, "; ")
}
