// Package calendar says when the clock of a time zone meets cron expressions, and when
// windows that begin then are open. Everything in it is a pure function of its arguments.
package calendar

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the zones, where the image has none

	"github.com/netresearch/go-cron"
)

// searchYears are the years in which an expression has to fire: between 2096 and 2104
// there is no 29 February.
const searchYears = 10

// Zone is the time zone of a name of the IANA database, such as Europe/Berlin.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "Local" { // which time.LoadLocation takes for something else
		return nil, fmt.Errorf("%q is not a time zone", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time zone of the IANA database", name)
	}
	return loc, nil
}

// Cron is a cron expression: minute, hour, day of the month, month, day of the week. It
// fires on the days that one of the two days says if neither begins with *, else on those
// that both say.
type Cron struct {
	text string
	spec cron.Schedule
	// hourly is true if the expression says no hours.
	hourly bool
}

// Parse reads an expression. One that never fires is an error.
func Parse(text string) (*Cron, error) {
	if strings.Contains(text, "=") {
		return nil, errors.New("a cron expression has no time zone in it")
	}
	parser, err := cron.TryNewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow | cron.DowOrDom)
	if err != nil {
		return nil, fmt.Errorf("parser of cron expressions: %w", err)
	}
	spec, err := parser.WithMaxSearchYears(searchYears).Parse(text)
	if err != nil {
		return nil, err
	}
	if spec.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).IsZero() {
		return nil, errors.New("it never fires: no month that it names has such a day")
	}
	hour := strings.Fields(text)[1]
	return &Cron{text: text, spec: spec, hourly: strings.HasPrefix(hour, "*") || hour == "?"}, nil
}

// String is the expression.
func (c *Cron) String() string { return c.text }

// MarshalText gives the expression.
func (c *Cron) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// maxOffsets bounds the changes of a clock that a search goes through.
const maxOffsets = 100

// Next is the first time after t at which the expression fires by the clock of loc. Times
// that the clock skips fire when it does; times that it shows twice fire the first time,
// unless the expression says no hours.
func (c *Cron) Next(t time.Time, loc *time.Location) time.Time {
	local, included := t.In(loc), false
	for range maxOffsets {
		// The library counts on a clock that is never changed; so does this until the next change.
		start, end := local.ZoneBounds()
		if !end.IsZero() && !end.After(local) {
			end = local.AddDate(0, 0, 1) // on the last day of a leap year the bound may be wrong
		}
		wall := clock(local)
		from := wall
		if included {
			from = from.Add(-time.Nanosecond)
		}
		next := c.spec.Next(from)
		if next.IsZero() {
			return time.Time{}
		}
		at := local.Add(next.Sub(wall))
		switch again := repeated(start); {
		case !end.IsZero() && !at.Before(end):
			if !c.hourly && next.Before(clock(end.In(loc))) {
				return end.In(loc)
			}
			local, included = end.In(loc), true
		case !c.hourly && at.Before(again):
			local, included = again.In(loc), true
		default:
			return at
		}
	}
	return time.Time{}
}

// clock is what the clock shows at t, as a time in UTC.
func clock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// repeated is until when a clock that is changed at start shows what it has shown before;
// start if it was put forward, or was never changed.
func repeated(start time.Time) time.Time {
	if start.IsZero() {
		return start
	}
	_, before := start.Add(-time.Nanosecond).Zone()
	_, after := start.Zone()
	return start.Add(time.Duration(max(before-after, 0)) * time.Second)
}

// Window is open for a time from each moment at which its start fires.
type Window struct {
	Start    *Cron
	Duration time.Duration
}

// Opens is the first time from t on at which one of the windows is open by the clock of
// loc: t itself if one is open then.
func Opens(windows []Window, t time.Time, loc *time.Location) time.Time {
	var first time.Time
	for _, w := range windows {
		start := w.Start.Next(t.Add(-w.Duration), loc)
		switch {
		case start.IsZero():
		case !start.After(t):
			return t
		case first.IsZero() || start.Before(first):
			first = start
		}
	}
	return first
}
