package controller

import (
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/calendar"
	"github.com/rolewright/rolewright/internal/watches"
)

// timetable is when an object runs that nothing asks for. The zero value says nothing.
type timetable struct {
	cron    *calendar.Cron
	windows []calendar.Window
	zone    *time.Location
	// delay is that of the object, after cron.
	delay time.Duration
}

// timetableOf is the timetable of the object with a UID. Its delay is in whole seconds,
// so that no run starts before it by the time that a status has.
func timetableOf(s watches.Schedule, uid types.UID) timetable {
	t := timetable{cron: s.Cron, windows: s.Windows, zone: s.Location()}
	if spread := uint64(s.Jitter / time.Second); spread > 0 { // it is not negative
		h := fnv.New64a()
		h.Write([]byte(uid))                                      // a hash never fails
		t.delay = time.Duration(h.Sum64()%spread+1) * time.Second // it is at most the jitter
	}
	return t
}

// firing is when the first run after one that started at t is due; zero for never.
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

// opens is when runs may start that wait for a maintenance window; now if they may.
func (t timetable) opens(now time.Time) time.Time {
	if len(t.windows) == 0 {
		return now
	}
	return calendar.Opens(t.windows, now, t.zone)
}

// waitsForWindow reports whether a run for a cause starts only in a maintenance window:
// what the operator does of itself, with objects whose users have changed nothing. What
// such a run has begun is not held back: its retry, what it asked for, and the corrections
// of what a check has found.
func (s situation) waitsForWindow(c cause) bool {
	switch c {
	case causePeriod, causeSchedule, causeEnvironment, causeRestart:
		return true
	case causeContent:
		return !s.ofObject
	}
	return false
}

// inWindow is p, or what there is to do until a window opens in which it may start.
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
