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

// modes returns the modes of a watch, beginning with the one that changes least.
func modes() []watches.Mode {
	return []watches.Mode{watches.ModeCheck, watches.ModeCheckThenApply, watches.ModeApply}
}

// parseMode reads the mode in an annotation. It may ask for less than own, and for more if
// trusted. If it returns an error, it also returns the mode that applies instead.
func parseMode(value string, own watches.Mode, trusted bool) (watches.Mode, error) {
	own = cmp.Or(own, watches.ModeApply)
	mode := watches.Mode(value)
	asked := slices.Index(modes(), mode)
	switch {
	case asked < 0:
		// The safe choice for an invalid value.
		return watches.ModeCheck, insteadError(fmt.Sprintf("%q is none of check, checkThenApply and apply; "+
			"the object is only checked until it is corrected", clip(value)))
	case !trusted && asked > slices.Index(modes(), own):
		return own, insteadError(fmt.Sprintf("%q asks for more than the watch allows; mode %s of the watch is used instead; "+
			"to allow more, set \"annotations: trusted\" in the watch", clip(value), own))
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
	repeats := c == causeInterrupted || c == causeRetry && blameless(s.last.Reason)
	return c == causePeriod || c == causeSchedule || repeats && s.last.Mode == status.ModeCheck && s.last.Fingerprint == s.fingerprint
}

// drifted reports whether the last run, with the same inputs, was a check that requires an
// applying run: it found changes, or it failed through the role's fault.
func (s situation) drifted() bool {
	last := s.last
	return s.mode == watches.ModeCheckThenApply && !s.deleting && last.Mode == status.ModeCheck &&
		(last.Drifted || last.Result == status.Failed && !blameless(last.Reason))
}

// mode returns the run's mode as the status records it; empty for an applying run.
func (p plan) mode() string {
	if p.check {
		return status.ModeCheck
	}
	return ""
}

// arguments returns the run's arguments for ansible-playbook; args are those of all runs.
func (p plan) arguments(args string) string {
	if p.check {
		return strings.TrimSpace(args + " --check --diff")
	}
	return args
}

// shownEvent returns an event as the log and the terminal show it. The text of a diff does not
// say which kind its object has, which may be a Secret. So diffs are shown only if someone asked
// for --diff, not because of a check. driftOf shows the parts that may be shown.
func (r *reconciler) shownEvent(s *scope, e jobevent.Event) jobevent.Event {
	if s.plan.check && e.Kind == jobevent.FileDiff && !slices.Contains(strings.Fields(r.opts.AnsibleArgs), "--diff") {
		e.Stdout = ""
	}
	return e
}

// driftOf returns a text about what the check of s would have changed: the tasks, and as much of
// their diffs as fits.
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
		said = runner.MaskAround(s.masker(s.mask), said, kept...) // the parts are masked already
	}
	return text.Clip(said, status.MaxDrift)
}
