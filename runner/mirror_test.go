package runner

import (
	"errors"
	"testing"
)

// What a Pod says about its end may come from its role, so it is no reason to run again without a pause.
func TestOutcome_OfAPodThatStoodStill(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{kindStopped, kindStoodStill} {
		if err := (Outcome{Error: "said so", Kinds: []string{kind}}).err(); !errors.Is(err, ErrCluster) || errors.Is(err, ErrStoodStill) {
			t.Errorf("%s is %v", kind, err)
		}
	}
}
