// Package calendar says when the clock of a time zone matches cron expressions, and when
// windows that begin at these times are open. Everything in it is a pure function of its arguments.
package calendar

import (
	"errors"
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // the zones, in case the image has none

	"github.com/netresearch/go-cron"
)

// searchYears is within how many years an expression has to fire: between 2096 and 2104
// there is no 29 February.
const searchYears = 10

// Zone returns the time zone with a name from the IANA database, such as Europe/Berlin.
func Zone(name string) (*time.Location, error) {
	if name == "" || name == "Local" { // time.LoadLocation accepts them, with another meaning
		return nil, fmt.Errorf("%q is not a time zone", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is not a time zone of the IANA database", name)
	}
	return loc, nil
}

// Cron is a cron expression: minute, hour, day of the month, month, day of the week. If
// neither of the two day fields begins with *, it fires on days that match one of them;
// otherwise on days that match both.
type Cron struct {
	text string
	spec cron.Schedule
	// hourly is true if the expression does not restrict the hours.
	hourly bool
}

// Parse reads an expression. An expression that never fires is an error.
func Parse(text string) (*Cron, error) {
	if strings.Contains(text, "=") {
		return nil, errors.New("a cron expression cannot contain a time zone")
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
		return nil, errors.New("it never fires: none of its months has such a day")
	}
	hour := strings.Fields(text)[1]
	return &Cron{text: text, spec: spec, hourly: strings.HasPrefix(hour, "*") || hour == "?"}, nil
}

// String returns the expression.
func (c *Cron) String() string { return c.text }

// MarshalText returns the expression.
func (c *Cron) MarshalText() ([]byte, error) { return []byte(c.text), nil }

// maxOffsets limits how many changes of the clock a search goes through.
const maxOffsets = 100

// Next returns the first time after t at which the expression fires by the clock of loc. Times
// that the clock skips fire at the moment of the skip. Times that it shows twice fire the first
// time only, unless the expression does not restrict the hours.
func (c *Cron) Next(t time.Time, loc *time.Location) time.Time {
	local, included := t.In(loc), false
	for range maxOffsets {
		// The library assumes a clock that is never changed; so use it only up to the next change.
		start, end := local.ZoneBounds()
		if !end.IsZero() && !end.After(local) {
			end = local.AddDate(0, 0, 1) // on the last day of a leap year, the bound may be wrong
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

// clock returns what the clock shows at t, as a time in UTC.
func clock(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// repeated returns until when a clock that is changed at start shows times that it has shown before.
// It returns start if the clock was put forward, or was never changed.
func repeated(start time.Time) time.Time {
	if start.IsZero() {
		return start
	}
	_, before := start.Add(-time.Nanosecond).Zone()
	_, after := start.Zone()
	return start.Add(time.Duration(max(before-after, 0)) * time.Second)
}

// Window is open for Duration each time that Start fires.
type Window struct {
	Start    *Cron
	Duration time.Duration
}

// Opens returns the first time from t on at which one of the windows is open by the clock of
// loc; t itself if one is open at t.
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
