package status

import (
	"math"
	"time"
)

// readTime reads a time from 2000 to 2199, so that the distance of two times fits
// a [time.Duration].
func readTime(v any) (time.Time, bool) {
	const longest = 40
	s, _ := v.(string)
	if len(s) > longest {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	return t.UTC(), err == nil && t.Year() >= 2000 && t.Year() < 2200
}

func readDuration(v any) (time.Duration, bool) {
	const longest = 40
	s, _ := v.(string)
	if len(s) > longest {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return min(d, maxRequeue), err == nil && d >= 0
}

// wholeNumber returns an integer from a decoded JSON number.
func wholeNumber(v any) (int64, bool) {
	switch n := v.(type) {
	case int64:
		return n, true
	case float64:
		const exact = 1 << 53
		return int64(n), n == math.Trunc(n) && math.Abs(n) <= exact
	}
	return 0, false
}

func mapAt(m map[string]any, key string) map[string]any {
	v, _ := m[key].(map[string]any)
	return v
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func integer(v any) int64 {
	n, _ := wholeNumber(v)
	return n
}
