package controller

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
)

// Prefixes of the annotations on a watched object, in order of precedence.
const (
	ownPrefix       = "rolewright.dev/"
	incumbentPrefix = "ansible.sdk.operatorframework.io/"
	// chartPrefix is helm-operator's prefix.
	chartPrefix = "helm.sdk.operatorframework.io/"
)

// prefixes returns the prefixes of annotations. If an object has an annotation under several, the first wins.
func prefixes() []string { return []string{ownPrefix, incumbentPrefix, chartPrefix} }

// Annotations with which users ask for something.
const (
	AnnotationReconcileAt = ownPrefix + "reconcile-at"
	AnnotationPaused      = ownPrefix + "paused"
	AnnotationCancel      = ownPrefix + "cancel"
)

// PauseAnnotations returns the names of the annotations that pause an object.
func PauseAnnotations() (names []string) {
	for _, prefix := range prefixes() {
		names = append(names, prefix+"paused")
	}
	return names
}

// requestAnnotations returns the names of the annotations that ask the operator for something. They
// do not count as inputs: else an annotation that stops a run, or holds runs back, would start the next.
func requestAnnotations() (names []string) {
	for _, prefix := range prefixes() {
		for _, name := range []string{"reconcile-at", "paused", "pause-deletion", "cancel", "orphan"} {
			names = append(names, prefix+name)
		}
	}
	return names
}

// settings are the settings for one object, merged from its watch and its annotations.
type settings struct {
	period    time.Duration
	artifacts int
	// failedArtifacts and artifactsAge are the other limits that say which runs are kept.
	failedArtifacts int
	artifactsAge    time.Duration
	// timeout and idleTimeout are the limits of a run; 0 is none.
	timeout, idleTimeout time.Duration
	verbosity            int
	// verbose is true if the verbosity comes from a trusted annotation.
	verbose bool
	// paused is the time until which no run may start; zero is no pause.
	paused time.Time
	// pausesDeletion is true if a pause also holds back the finalizer run.
	pausesDeletion bool
	// requested names the run that was last requested by hand; empty if none was.
	requested string
	// mode says which runs are checks.
	mode watches.Mode
	// cancelled is the ID of a run to stop if it is in progress.
	cancelled string
	// orphan releases a deleted object without a finalizer run.
	orphan bool
}

// forEver stands for the end of a pause without an end.
func forEver() time.Time { return time.Unix(1<<40, 0) }

// holdsDeletion reports whether a pause holds back the object's deletion.
func (s settings) holdsDeletion(now time.Time) bool {
	return s.pausesDeletion && s.paused.After(now) && !s.orphan
}

func (s settings) retention() runstore.Retention {
	return runstore.Retention{Runs: s.artifacts, Failed: s.failedArtifacts, Age: s.artifactsAge}
}

const maxVerbosity = 7

// annotated applies the annotations of obj to the settings of its watch, and returns
// warnings. Annotations may ask for less than the watch allows, and for more only if the
// watch trusts annotations. An invalid value leads to a warning, and does not stop the
// object's runs.
func annotated(obj *unstructured.Unstructured, s settings, trusted bool) (settings, []string) {
	a := annotations{of: obj.GetAnnotations(), trusted: trusted}
	a.readLimits(&s)
	a.readPauses(&s)
	a.readRequests(&s)
	return s, a.warnings
}

// readLimits reads how often an object runs, for how long, and which artifacts are kept.
func (a *annotations) readLimits(s *settings) {
	a.read("reconcile-period", func(value string) (err error) {
		s.period, err = parsePeriod(value, s.period)
		return err
	})
	a.read("timeout", a.limit(&s.timeout))
	a.read("idle-timeout", a.limit(&s.idleTimeout))
	a.read("max-runner-artifacts", func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a number; write for example \"5\"", clip(value))
		}
		if n <= 0 {
			n = -1 // as ansible-operator documents it: 0 keeps all
		}
		if !a.trusted && s.artifacts >= 0 && (n < 0 || n > s.artifacts) {
			return tooMuch(value, s.artifacts)
		}
		s.artifacts = n
		return nil
	})
	a.read("verbosity", func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a number from 0 to %d", clip(value), maxVerbosity)
		}
		// No limit here: the additional output goes to the artifacts, whose bytes are limited.
		s.verbosity = min(max(n, 0), maxVerbosity)
		s.verbose = a.trusted && n > 0
		return nil
	})
}

// readPauses reads the end of the object's pause, and whether the pause holds back its deletion.
func (a *annotations) readPauses(s *settings) {
	a.read("paused", func(value string) error {
		until, err := parsePause(value)
		s.paused = until
		return err
	})
	a.read("pause-deletion", func(value string) (err error) {
		if s.pausesDeletion, err = strconv.ParseBool(value); err != nil {
			s.pausesDeletion = true // the safe choice for an invalid value
			return insteadError(fmt.Sprintf("%q is neither \"true\" nor \"false\"; until the annotation is corrected, a paused object is not deleted", clip(value)))
		}
		return nil
	})
}

// readRequests reads requests: a run, another mode, the end of a run, a deletion without a finalizer run.
func (a *annotations) readRequests(s *settings) {
	a.read("reconcile-at", func(value string) error {
		if !status.IsToken(value) {
			return fmt.Errorf("%q is not 1 to %d printable characters without spaces; write for example the time: \"2026-05-06T18:00:00Z\"",
				clip(value), status.MaxToken)
		}
		s.requested = value
		return nil
	})
	a.read("mode", func(value string) (err error) {
		s.mode, err = parseMode(value, s.mode, a.trusted)
		return err
	})
	a.read("cancel", func(value string) error {
		value = strings.TrimPrefix(value, "run/") // as "rolewright get runs -o name" prints it
		if uuid.Validate(value) != nil {
			return fmt.Errorf("%q is not a run ID; write that of status.ansible.activeRun", clip(value))
		}
		s.cancelled = value
		return nil
	})
	a.read("orphan", func(value string) error {
		orphan, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("%q is neither \"true\" nor \"false\"", clip(value))
		}
		s.orphan = orphan
		return nil
	})
}

// annotations are the annotations of one object, with the warnings from reading them.
type annotations struct {
	of       map[string]string
	trusted  bool
	warnings []string
}

// read calls use with the value of an annotation, if the object has it, and turns its error into a warning.
func (a *annotations) read(name string, use func(value string) error) {
	for _, prefix := range prefixes() {
		value, ok := a.of[prefix+name]
		if !ok {
			continue
		}
		err := use(value)
		var instead insteadError
		switch {
		case errors.As(err, &instead):
			a.warnings = append(a.warnings, fmt.Sprintf("annotation %s%s: %v", prefix, name, err))
		case err != nil:
			a.warnings = append(a.warnings, fmt.Sprintf("annotation %s%s: %v; it is ignored", prefix, name, err))
		}
		return
	}
}

// limit returns a function that reads a time limit of a run into into; 0 and less mean no limit.
func (a *annotations) limit(into *time.Duration) func(string) error {
	return func(value string) error {
		d, err := parseSeconds(value)
		switch {
		case err != nil:
			return err
		case !a.trusted && *into > 0 && (d <= 0 || d > *into):
			return tooMuch(value, *into)
		}
		*into = max(d, 0)
		return nil
	}
}

// insteadError is an error about a value that is replaced by another one, which its text names.
type insteadError string

func (e insteadError) Error() string { return string(e) }

// tooMuch returns the error for a value that asks for more than own, the watch's limit, or for no limit.
func tooMuch(value string, own any) error {
	return insteadError(fmt.Sprintf("%q asks for more than the watch allows; the limit of the watch, %v, is used instead; to allow more, set \"annotations: trusted\" in the watch", clip(value), own))
}

// parsePause reads until when an object is paused. value is a boolean or a time.
func parsePause(value string) (time.Time, error) {
	if paused, err := strconv.ParseBool(value); err == nil {
		if paused {
			return forEver(), nil
		}
		return time.Time{}, nil
	}
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		// The safe choice for an invalid value.
		return forEver(), insteadError(fmt.Sprintf("%q is neither \"true\" nor a time, write for example \"2026-05-06T18:00:00Z\"; "+
			"the object is paused until it is corrected", clip(value)))
	}
	return until, nil
}

// parsePeriod reads a period: a duration, or a whole number of seconds as ansible-operator
// documents. Zero and less disable the period. A value below minPeriod is replaced by
// minPeriod, an invalid one by own.
func parsePeriod(value string, own time.Duration) (time.Duration, error) {
	d, err := parseSeconds(value)
	switch {
	case err != nil:
		return own, err
	case d <= 0:
		return 0, nil
	case d < minPeriod:
		return minPeriod, insteadError(fmt.Sprintf("%q is too short; the minimum, %v, is used instead", clip(value), minPeriod))
	}
	return min(d, maxPeriod), nil
}

// parseSeconds reads a duration, or a whole number of seconds.
func parseSeconds(value string) (time.Duration, error) {
	if d, err := time.ParseDuration(value); err == nil {
		return d, nil
	}
	seconds, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write for example \"30s\", \"10m\" or \"2h\"", clip(value))
	}
	return time.Duration(seconds) * time.Second, nil
}

// clip shortens a text from outside for use in a message.
func clip(s string) string {
	const most = 64
	return text.Clip(s, most)
}
