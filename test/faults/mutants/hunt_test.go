package main

import (
	"slices"
	"testing"
)

func TestConfirm_WantsTheSameInvariantAgain(t *testing.T) {
	for name, test := range map[string]struct {
		first  []string
		passes [][]string
		want   []string
		taken  int
	}{
		"no violation":         {},
		"at once":              {first: []string{"I3", "I8"}, passes: [][]string{{"I8"}}, want: []string{"I8"}, taken: 1},
		"in the second":        {first: []string{"I3"}, passes: [][]string{nil, {"I3"}}, want: []string{"I3"}, taken: 2},
		"others":               {first: []string{"I3"}, passes: [][]string{{"I8"}, {"I1"}}, taken: 2},
		"not in two, but then": {first: []string{"I3"}, passes: [][]string{nil, nil, {"I3"}}, taken: 2},
	} {
		taken := 0
		got, err := confirm(test.first, func(n int) ([]string, error) {
			taken = n
			return test.passes[n-1], nil
		})
		if err != nil || !slices.Equal(got, test.want) || taken != test.taken {
			t.Errorf("%s: %v after %d passes, %v; want %v after %d", name, got, taken, err, test.want, test.taken)
		}
	}
}
