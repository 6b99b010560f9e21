package watches

import (
	"fmt"
	"time"
)

// Retry is the policy for failed runs.
type Retry struct {
	// Initial is the time until the first retry, and Max the longest time until a retry; 0 for
	// the value of the flag. If both are set, Max is not below Initial.
	Initial, Max time.Duration
	// Factor, at least 1, is the factor by which the time grows with each failure in a row; 0
	// for the default, 2.
	Factor float64
	// MaxAttempts is how many runs in a row may fail before OnExhausted applies; 0 is no
	// limit.
	MaxAttempts int
	// OnExhausted says what happens after MaxAttempts failures.
	OnExhausted OnExhausted
}

// OnExhausted is what happens after the last attempt. Any value but
// [OnExhaustedContinue], the zero value included, stalls.
type OnExhausted string

// What happens after the last attempt.
const (
	// OnExhaustedStall: no run starts until something changes, or someone asks for one.
	OnExhaustedStall OnExhausted = "stall"
	// OnExhaustedContinue: the run is repeated at the longest interval.
	OnExhaustedContinue OnExhausted = "continue"
)

// maxFactor bounds Factor: with a larger one, the second retry would come after hours.
const maxFactor = 100

func retryFields() []field[Retry] {
	return []field[Retry]{
		{Field{"initial", typeDuration, "--retry-min", false, "The interval between the end of a failed run and its first retry; at least 1s."},
			setInterval(func(r *Retry) *time.Duration { return &r.Initial })},
		{Field{"max", typeDuration, "--retry-max", false, "The longest interval before a retry; at least 1s."},
			setInterval(func(r *Retry) *time.Duration { return &r.Max })},
		{Field{"factor", typeNumber, "2", false, "The factor by which the interval grows with each failure in a row, from 1 to 100."},
			setFactor},
		{Field{"maxAttempts", typeInt, "", false, "After how many failures in a row onExhausted applies. If missing, there is no limit."},
			setMaxAttempts},
		{Field{"onExhausted", typeString, "stall", false,
			"What happens after maxAttempts failures in a row. With stall, no run starts until an input or a dependent changes, or a run is " +
				"requested; with continue, the run is repeated at the interval max."},
			word("value of onExhausted", func(r *Retry) *OnExhausted { return &r.OnExhausted }, OnExhaustedStall, OnExhaustedContinue)},
	}
}

// retry reads a policy, and checks its keys in combination.
func (c *decoding) retry(a at) Retry {
	var r Retry
	keys := object(c, a, retryFields(), &r)
	if r.Initial > 0 && r.Max > 0 && r.Max < r.Initial {
		c.error(keys["max"], fmt.Sprintf("max (%s) is less than initial (%s)", r.Max, r.Initial), "set max to initial or more")
	}
	if where, said := keys["onExhausted"]; said && r.MaxAttempts == 0 {
		if _, tried := keys["maxAttempts"]; !tried {
			c.warn(where, "onExhausted has no effect without maxAttempts", `add "maxAttempts:", or remove it`)
		}
	}
	return r
}

func setInterval(of func(*Retry) *time.Duration) func(*decoding, *Retry, at) {
	return func(c *decoding, r *Retry, a at) {
		d, ok := duration(c, a)
		switch {
		case !ok:
			return
		case d <= 0:
			c.error(a, fmt.Sprintf("the interval %s is not positive", d), `write "1s" or more`)
			return
		case d < minPeriod:
			c.warn(a, fmt.Sprintf("the interval %s is below the minimum; %s is used", d, minPeriod), `write "1s" or more`)
			d = minPeriod
		}
		*of(r) = d
	}
}

func setFactor(c *decoding, r *Retry, a at) {
	f, ok := number(a.node)
	switch {
	case !ok:
		c.mismatch(a, typeNumber)
	case !(f >= 1 && f <= maxFactor): // nor is it .nan
		c.error(a, fmt.Sprintf("the factor %s is not between 1 and %d", a.node.Value, maxFactor), "write 1 for equal intervals, 2 to double them")
	default:
		r.Factor = f
	}
}

func setMaxAttempts(c *decoding, r *Retry, a at) {
	n, ok := integer(c, a)
	switch {
	case !ok:
	case n < 1:
		c.error(a, fmt.Sprintf("the number of attempts %d is not positive", n), "write 1 or more, or remove the key for no limit")
	default:
		r.MaxAttempts = n
	}
}
