package assembly

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// checkPeriod is how old the answer of a readiness probe may be. Probes
// come every few seconds, and looking for versions starts a Python, or two.
const checkPeriod = 30 * time.Second

// checkTimeout is far above what the question takes, about a second: a
// busy machine is no reason to be unready, and to ask again from the start makes it busier.
const checkTimeout = 2 * time.Minute

// checkAgain is when it is looked again after an error, and twice as long after each further one, up to the
// period: no run begins before the versions are known.
const checkAgain = 2 * time.Second

// errNotChecked is the state before the first answer.
var errNotChecked = errors.New("ansible-runner has not been checked yet")

// RunnerCheck is a readiness check that is answered from memory. Its Start keeps
// the answer fresh, on every replica whether it leads or not.
type RunnerCheck struct {
	// look finds out whether runs are possible. It may take seconds.
	look   func(context.Context) (runner.Versions, error)
	period time.Duration
	log    logr.Logger

	mu  sync.Mutex
	err error
	// first is the first answer that is no error; looked is closed after the first look.
	first  *runner.Versions
	looked chan struct{}
}

// NewRunnerCheck returns a check that has not looked yet, and looks again after each period, or sooner after an error.
func NewRunnerCheck(look func(context.Context) (runner.Versions, error), period time.Duration, log logr.Logger) *RunnerCheck {
	return &RunnerCheck{look: look, period: period, log: log, err: errNotChecked, looked: make(chan struct{})}
}

// Start looks until ctx is done. It logs when the answer changes, not each
// time.
func (c *RunnerCheck) Start(ctx context.Context) error {
	for again := checkAgain; ctx.Err() == nil; {
		versions, err := c.lookOnce(ctx)
		if ctx.Err() != nil {
			break // the look was cut short; its answer means nothing
		}
		before := c.set(versions, err)
		switch {
		case err != nil && (before == nil || before.Error() != err.Error()):
			c.log.Error(err, "not ready: Ansible cannot be run; install ansible-runner and ansible-core, or see --ansible-runner")
		case err == nil && before != nil && versions.Runner != "":
			c.log.Info("ansible-runner is ready", "runner", versions.Runner, "core", versions.Core)
		}
		pause := c.period
		if err == nil {
			again = checkAgain
		} else {
			pause, again = again, min(2*again, c.period)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	return nil //nolint:nilerr // Check returns the errors
}

// whileUnchanged answers with the last success of look as long as installed
// returns the same: two Pythons every half minute cost more CPU than an idle
// operator.
func whileUnchanged(installed func() (string, error), look func(context.Context) (runner.Versions, error)) func(context.Context) (runner.Versions, error) {
	var known string
	var versions runner.Versions
	return func(ctx context.Context) (runner.Versions, error) {
		now, err := installed()
		if err == nil && now == known {
			return versions, nil
		}
		v, lookErr := look(ctx)
		known = ""
		if err == nil && lookErr == nil {
			known, versions = now, v
		}
		return v, lookErr
	}
}

// needed looks only where a watch runs Ansible: commands do without.
func needed(watched func() []watches.Watch, look func(context.Context) (runner.Versions, error)) func(context.Context) (runner.Versions, error) {
	return func(ctx context.Context) (runner.Versions, error) {
		if OnlyCommands(watched()) {
			return runner.Versions{}, nil
		}
		return look(ctx)
	}
}

// OnlyCommands is true if there are watches, and none runs Ansible.
func OnlyCommands(watched []watches.Watch) bool {
	return len(watched) > 0 && !slices.ContainsFunc(watched, func(w watches.Watch) bool { return w.Content.Ansible() })
}

func (c *RunnerCheck) lookOnce(ctx context.Context) (runner.Versions, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return c.look(ctx)
}

// Check is a [healthz.Checker]; it never blocks.
func (c *RunnerCheck) Check(*http.Request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Versions are those that were found first: what the process has begun with. It waits
// for the first look, and returns its error, or that of the last one, as long as none
// were found. They are empty where no watch runs Ansible.
func (c *RunnerCheck) Versions(ctx context.Context) (runner.Versions, error) {
	select {
	case <-c.looked:
	case <-ctx.Done():
		return runner.Versions{}, context.Cause(ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		return runner.Versions{}, c.err
	}
	return *c.first, nil
}

// set returns the answer that err replaces.
func (c *RunnerCheck) set(versions runner.Versions, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.err
	c.err = err
	if err == nil && c.first == nil && versions.Runner != "" {
		c.first = &versions
	}
	if errors.Is(before, errNotChecked) {
		close(c.looked)
	}
	return before
}
