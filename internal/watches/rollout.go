package watches

import (
	"fmt"
	"time"
)

// Rollout says how changed content or environment, or a change that a trigger reports, reaches
// the objects of a watch. The zero value runs them as fast as there are places.
type Rollout struct {
	// MaxParallel is how many objects run for a rollout at a time; 0 for no limit of its own.
	MaxParallel int
	// Interval is the shortest time between the starts of two such runs.
	Interval time.Duration
	// StopOnFailures is how many objects may start to fail before no further object runs for the
	// rollout; 0 for no limit.
	StopOnFailures int
}

func rolloutFields() []field[Rollout] {
	return []field[Rollout]{
		{Field{"maxParallel", typeInt, "0", false, "How many objects run for such a change at a time; 0 for no limit except those for all runs."},
			count(func(r *Rollout) *int { return &r.MaxParallel })},
		{Field{"interval", typeDuration, "0s", false, `The shortest time between the starts of two such runs, such as "10s".`},
			limit(func(r *Rollout) *time.Duration { return &r.Interval })},
		{Field{"stopOnFailures", typeInt, "0", false,
			"After how many newly failed objects the rollout stops: no further object runs for it until there is another change. 0 for never."},
			count(func(r *Rollout) *int { return &r.StopOnFailures })},
	}
}

// count reads a number of at least 0.
func count[T any](where func(*T) *int) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		n, ok := integer(c, a)
		switch {
		case !ok:
		case n < 0:
			c.error(a, fmt.Sprintf("the number %d is negative", n), "write 0 for no limit")
		default:
			*where(into) = n
		}
	}
}
