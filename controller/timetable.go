package controller

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/calendar"
	"github.com/rolewright/rolewright/internal/watches"
)

// timetable says when an object may run, and when it runs by the watch's schedule. The zero value has no schedule
// and no windows.
type timetable struct {
	cron    *calendar.Cron
	windows []calendar.Window
	zone    *time.Location
	// delay is the object's own delay after each time of cron.
	delay time.Duration
}

// timetableOf returns the timetable of the object with uid. The delay is in whole seconds, like
// times in a status, so that no run seems to start before it.
func timetableOf(s watches.Schedule, uid types.UID) timetable {
	t := timetable{cron: s.Cron, windows: s.Windows, zone: s.Location()}
	if spread := uint64(s.Jitter / time.Second); spread > 0 { // Jitter is not negative
		h := fnv.New64a()
		h.Write([]byte(uid))                                      // a hash never fails
		t.delay = time.Duration(h.Sum64()%spread+1) * time.Second // at most the jitter
	}
	return t
}

// firing returns when the next run after one that began at started is due; zero for never.
func (t timetable) firing(started time.Time) time.Time {
	if t.cron == nil {
		return time.Time{}
	}
	next := t.cron.Next(started.Add(-t.delay), t.zone)
	if next.IsZero() {
		return next
	}
	return next.Add(t.delay)
}

// opens returns when the next maintenance window opens; now if one is open, or if there are none.
func (t timetable) opens(now time.Time) time.Time {
	if len(t.windows) == 0 {
		return now
	}
	return calendar.Opens(t.windows, now, t.zone)
}

// waitsForWindow reports whether a run for a cause starts only in a maintenance window: a run
// that the operator starts by itself, without a change by the object's users. What follows from
// such a run is not held back: its retry, a requeue that it asked for, and the correction of
// drift.
func (s situation) waitsForWindow(c cause) bool {
	switch c {
	case causePeriod, causeSchedule, causeEnvironment, causeRestart:
		return true
	case causeContent:
		return !s.ofObject
	}
	return false
}

// inWindow returns p if its run may start now; else the plan until the window opens.
func (s situation) inWindow(now time.Time, p plan) plan {
	if !s.waitsForWindow(p.cause) {
		return p
	}
	opens := s.times.opens(now)
	if !opens.After(now) {
		return p
	}
	var other plan
	if s.last != nil {
		rest := s
		rest.period, rest.times = 0, timetable{}
		other = rest.timed(now)
	}
	if other.cause != "" {
		return other
	}
	held := plan{held: p.cause, until: opens, wait: min(opens.Sub(now), maxPeriod)}
	if other.wait > 0 {
		held.wait = min(held.wait, other.wait)
	}
	return held
}
