package controller

import (
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

// onlyEnvironment is true if nothing but the environment has changed.
func onlyEnvironment(changes []fingerprint.Change) bool {
	return len(changes) == 1 && changes[0].Group == fingerprint.OfEnvironment
}

// trigger says what has started the run of s, where its cause has an object or inputs
// that can be named. It is the text in the status, in the log and for the role.
func (r *reconciler) trigger(s *scope) string {
	says := ""
	switch s.plan.cause {
	case causeDependent:
		says = r.objects.get(s.key).touched
	case causeChanged, causeContent, causeEnvironment:
		var all []string
		for _, c := range s.changes() {
			all = append(all, c.String())
		}
		says = strings.Join(all, "; ")
	}
	return text.Clip(says, status.MaxTrigger)
}
