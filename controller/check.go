package controller

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// modes are those of a watch, from the one that changes the least.
func modes() []watches.Mode {
	return []watches.Mode{watches.ModeCheck, watches.ModeCheckThenApply, watches.ModeApply}
}

// parseMode reads the mode of an annotation, which may ask for less than own, and for more
// if it is trusted. With an error, the mode is the one that holds.
func parseMode(value string, own watches.Mode, trusted bool) (watches.Mode, error) {
	own = cmp.Or(own, watches.ModeApply)
	mode := watches.Mode(value)
	asked := slices.Index(modes(), mode)
	switch {
	case asked < 0:
		// The safe reading of what cannot be read.
		return watches.ModeCheck, insteadError(fmt.Sprintf("%q is none of check, checkThenApply and apply; "+
			"the object is only checked until it is corrected", clip(value)))
	case !trusted && asked > slices.Index(modes(), own):
		return own, insteadError(fmt.Sprintf("%q asks for more than the watch allows; its mode %s holds; "+
			"to obey it, write \"annotations: trusted\" into the watch", clip(value), own))
	}
	return mode, nil
}

// checks reports whether a run for a cause is a check.
func (s situation) checks(c cause) bool {
	switch {
	case c == "", s.deleting:
		return false
	case s.mode == watches.ModeCheck:
		return true
	case s.mode != watches.ModeCheckThenApply:
		return false
	}
	return c == causePeriod || c == causeSchedule ||
		c == causeInterrupted && s.last.Mode == status.ModeCheck && s.last.Fingerprint == s.fingerprint
}

// drifted reports whether the last run, of the same inputs, was a check after which the
// object is applied: it has found changes, or cannot tell.
func (s situation) drifted() bool {
	last := s.last
	return s.mode == watches.ModeCheckThenApply && !s.deleting && last.Mode == status.ModeCheck &&
		(last.Drifted || last.Result == status.Failed && last.Reason != status.ReasonCancelled)
}

// mode is that of the run, as it is recorded.
func (p plan) mode() string {
	if p.check {
		return status.ModeCheck
	}
	return ""
}

// arguments are those of ansible-playbook for the run, where args are those of all runs.
func (p plan) arguments(args string) string {
	if p.check {
		return strings.TrimSpace(args + " --check --diff")
	}
	return args
}

// shownEvent is an event as the log and the terminal show it. The text of a diff says
// nothing of the kind of its object, which may be a Secret: it is shown only where --diff
// was asked for, and not for a check alone. driftOf shows what may be shown.
func (r *reconciler) shownEvent(s *scope, e jobevent.Event) jobevent.Event {
	if s.plan.check && e.Kind == jobevent.FileDiff && !slices.Contains(strings.Fields(r.opts.AnsibleArgs), "--diff") {
		e.Stdout = ""
	}
	return e
}

// driftOf is what the check of s would have changed: the tasks, and as much of their
// diffs as there is room for.
func (r *reconciler) driftOf(s *scope) string {
	sum := s.result.Summary
	said := "1 task would change something"
	if sum.Changed > 1 {
		said = fmt.Sprintf("%d tasks would change something", sum.Changed)
	}
	var kept []string
	for _, c := range sum.Changes {
		named := fmt.Sprintf("\ntask %q", c.Task.Name)
		if c.Task.Role != "" {
			named += fmt.Sprintf(", role %q", c.Task.Role)
		}
		named += ", at " + c.Task.Path
		kept = append(kept, named)
		if said += named; c.Withheld {
			said += " (its diff is not shown)"
		}
	}
	if more := sum.Changed - len(sum.Changes); more > 0 && len(sum.Changes) > 0 {
		said += fmt.Sprintf("\nand %d more", more)
	}
	for _, c := range sum.Changes {
		if c.Diff != "" {
			said += fmt.Sprintf("\n\n%s:\n%s", c.Task.Path, c.Diff)
		}
	}
	if s.mask.Withheld() == "" {
		said = runner.MaskAround(s.masker(s.mask), said, kept...) // its parts are masked already
	}
	return text.Clip(said, status.MaxDrift)
}
