package controller

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Prefixes of the annotations on a watched object. Where both are set, ours wins.
const (
	ownPrefix       = "rolewright.dev/"
	incumbentPrefix = "ansible.sdk.operatorframework.io/"
)

// settings are what a watch and the annotations of one object say together.
type settings struct {
	period    time.Duration
	artifacts int
	// failedArtifacts and artifactsAge are what else says which runs are kept.
	failedArtifacts int
	artifactsAge    time.Duration
	// timeout and idleTimeout are the limits of a run; 0 is none.
	timeout, idleTimeout time.Duration
	verbosity            int
	// verbose is true if the verbosity was asked for by annotation.
	verbose bool
	// paused is until when no run may start; zero is no pause.
	paused time.Time
}

// forEver is the end of a pause that has none.
func forEver() time.Time { return time.Unix(1<<40, 0) }

func (s settings) retention() retention {
	return retention{runs: s.artifacts, failed: s.failedArtifacts, age: s.artifactsAge}
}

const maxVerbosity = 7

// annotated applies the annotations of obj to the settings of its watch. A
// value that cannot be used is left out and reported: an object keeps running
// on a typing error in its metadata.
func annotated(obj *unstructured.Unstructured, s settings) (settings, []string) {
	var warnings []string
	annotations := obj.GetAnnotations()
	read := func(name string, use func(string) error) {
		for _, prefix := range []string{ownPrefix, incumbentPrefix} {
			value, ok := annotations[prefix+name]
			if !ok {
				continue
			}
			if err := use(value); errors.Is(err, errPausedAnyway) {
				warnings = append(warnings, fmt.Sprintf("annotation %s%s: %v", prefix, name, err))
			} else if err != nil {
				warnings = append(warnings, fmt.Sprintf("annotation %s%s: %v; it is ignored", prefix, name, err))
			}
			return
		}
	}
	read("reconcile-period", func(value string) error {
		d, err := parsePeriod(value)
		if err == nil {
			s.period = d
		}
		return err
	})
	limit := func(into *time.Duration) func(string) error {
		return func(value string) error {
			d, err := parseSeconds(value)
			if err == nil {
				*into = max(d, 0)
			}
			return err
		}
	}
	read("timeout", limit(&s.timeout))
	read("idle-timeout", limit(&s.idleTimeout))
	read("max-runner-artifacts", func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a number; write for example \"5\"", clip(value))
		}
		s.artifacts = n
		if n <= 0 {
			s.artifacts = -1 // as documented by the incumbent: 0 keeps all
		}
		return nil
	})
	read("verbosity", func(value string) error {
		n, err := strconv.Atoi(value)
		if err != nil {
			return fmt.Errorf("%q is not a number from 0 to %d", clip(value), maxVerbosity)
		}
		s.verbosity = min(max(n, 0), maxVerbosity)
		s.verbose = n > 0
		return nil
	})
	read("paused", func(value string) error {
		until, err := parsePause(value)
		s.paused = until
		return err
	})
	return s, warnings
}

// errPausedAnyway is of a value that cannot be read: who writes one wants
// anything but a run.
var errPausedAnyway = errors.New("the object is paused until it is mended")

// parsePause reads until when an object is paused: a truth, or a time.
func parsePause(value string) (time.Time, error) {
	if paused, err := strconv.ParseBool(value); err == nil {
		if paused {
			return forEver(), nil
		}
		return time.Time{}, nil
	}
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return forEver(), fmt.Errorf("%q is neither \"true\" nor a time, write for example \"2026-05-06T18:00:00Z\"; %w", clip(value), errPausedAnyway)
	}
	return until, nil
}

// parsePeriod reads the period of an annotation: a duration, or a whole number
// of seconds as the incumbent documents. Zero and less disable; less than
// minPeriod is minPeriod.
func parsePeriod(value string) (time.Duration, error) {
	d, err := parseSeconds(value)
	if err != nil || d <= 0 {
		return 0, err
	}
	return min(max(d, minPeriod), maxPeriod), nil
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

// clip bounds a text from outside for a message.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
