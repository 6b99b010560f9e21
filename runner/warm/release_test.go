package warm

import (
	"errors"
	"fmt"
	"testing"

	"github.com/rolewright/rolewright/runner/supervise"
)

// The end of a run counts for the server from which it was leased. A server is known to work only when one of its runs has
// ended by itself.
func TestLease_TellsOfItsServer(t *testing.T) {
	t.Parallel()
	broken := fmt.Errorf("%w: %w", supervise.ErrNotStarted, supervise.ErrServer)
	for name, tt := range map[string]struct {
		exit    supervise.Exit
		err     error
		retired bool

		failures int // there was one before
		replaced bool
	}{
		"it ended by itself":              {exit: supervise.Exit{Code: 2}},
		"it ended, of a retired server":   {exit: supervise.Exit{Code: 2}, retired: true, failures: 1},
		"it was killed":                   {exit: supervise.Exit{Code: -1, Signal: "SIGKILL"}, failures: 1},
		"it was cancelled before":         {exit: supervise.Exit{Code: -1}, err: supervise.ErrNotStarted, failures: 1},
		"it left processes":               {exit: supervise.Exit{Code: 0}, err: supervise.ErrSurvivors, failures: 1},
		"it could not be started":         {exit: supervise.Exit{Code: -1}, err: broken, failures: 2, replaced: true},
		"nor could, of a retired server":  {exit: supervise.Exit{Code: -1}, err: broken, retired: true, failures: 1},
		"it could not, and was cancelled": {exit: supervise.Exit{Code: -1}, err: errors.Join(broken, errors.New("cancelled")), failures: 2, replaced: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := 0
			newServer := func() *server { return &server{inFlight: 1, stop: func() { ended++ }} }
			leased := newServer()
			p := &Pool{current: leased, failures: 1, closed: true} // no other server is started
			if tt.retired {
				leased.retired, p.current = true, newServer()
			}
			now := p.current
			(&Lease{pool: p, server: leased}).Release(tt.exit, tt.err)
			if p.failures != tt.failures || (p.current != now) != tt.replaced || p.again.IsZero() != (tt.failures < 2) {
				t.Errorf("%d failures, again at %v, server %p, was %p", p.failures, p.again, p.current, now)
			}
			if want := tt.retired || tt.replaced; (ended > 0) != want || leased.inFlight != 0 {
				t.Errorf("ended %d times, %d runs", ended, leased.inFlight)
			}
		})
	}
}
