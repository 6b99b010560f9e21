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

// checkPeriod is how old the answer to a readiness probe may be. Probes come every
// few seconds, but looking for versions starts one or two Python processes.
const checkPeriod = 30 * time.Second

// checkTimeout is far longer than the check usually takes, about a second. A busy
// machine is no reason to be unready, and starting the check again would make it busier.
const checkTimeout = 2 * time.Minute

// checkAgain is the pause after an error. It doubles with each further error, up to the period. It is short because
// no run begins before the versions are known.
const checkAgain = 2 * time.Second

// errNotChecked is the state before the first answer.
var errNotChecked = errors.New("ansible-runner has not been checked yet")

// RunnerCheck is a readiness check that answers from memory. Its Start keeps the
// answer fresh, on every replica, whether or not it leads.
type RunnerCheck struct {
	// look finds out whether runs are possible. It may take seconds.
	look   func(context.Context) (runner.Versions, error)
	period time.Duration
	log    logr.Logger

	mu  sync.Mutex
	err error
	// first are the first versions that were found; nil before. looked is closed after the first look.
	first  *runner.Versions
	looked chan struct{}
}

// NewRunnerCheck returns a check that has not looked yet. Once started, it looks after each period, or sooner after an error.
func NewRunnerCheck(look func(context.Context) (runner.Versions, error), period time.Duration, log logr.Logger) *RunnerCheck {
	return &RunnerCheck{look: look, period: period, log: log, err: errNotChecked, looked: make(chan struct{})}
}

// Start looks again and again until ctx is done. It logs only changes of the
// answer.
func (c *RunnerCheck) Start(ctx context.Context) error {
	for again := checkAgain; ctx.Err() == nil; {
		versions, err := c.lookOnce(ctx)
		if ctx.Err() != nil {
			break // the look was cut short, so its answer means nothing
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

// whileUnchanged returns a function that repeats the last successful answer of look as
// long as installed returns the same: two Python processes every half minute cost more
// CPU than an idle operator.
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

// needed returns a function that calls look only if a watch runs Ansible: commands do not need it.
func needed(watched func() []watches.Watch, look func(context.Context) (runner.Versions, error)) func(context.Context) (runner.Versions, error) {
	return func(ctx context.Context) (runner.Versions, error) {
		if OnlyCommands(watched()) {
			return runner.Versions{}, nil
		}
		return look(ctx)
	}
}

// OnlyCommands reports whether there are watches and none of them runs Ansible.
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

// Versions returns the versions that were found first, with which the process began. It waits
// for the first look. While none were found, it returns the error of the last look; if no watch
// runs Ansible, it returns no versions and no error.
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

// set stores an answer, and returns the previous error.
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
