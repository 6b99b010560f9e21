package warm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rolewright/rolewright/runner/internal/lockeddir"
	"github.com/rolewright/rolewright/runner/supervise"
)

// ErrNotReady is returned by [Pool.Acquire] while there is no server: it is
// being started, or was found unfit. The error says why.
var ErrNotReady = errors.New("no warm interpreter")

// ErrIdle is wrapped, beside it, where nothing is wrong: the server has ended
// since there was no run, and the next run has another started.
var ErrIdle = errors.New("there was no run")

// ErrReplaced is wrapped, beside it, where nothing is wrong either: the server has made
// many runs, or what it has imported has changed, and another is started.
var ErrReplaced = errors.New("it is replaced")

// Options configure a [Pool].
type Options struct {
	// Dir is where the pool makes a directory for its servers, and removes what
	// pools have left whose process is gone: absolute, short enough for a socket
	// (68 bytes). Others may use it as well; empty means [os.TempDir].
	Dir string
	// Environ is the environment of the runs: that of the server, too.
	Environ []string
	// Without names means of forked runs that are turned off, with commas between
	// them: what [WithoutVariable] is to the server. It does not start with an unknown one.
	Without string
	// Content has directories with roles and playbooks of the runs, whose templates a server compiles when it starts.
	// A template that changes later, or lies elsewhere, is compiled by the runs that use it.
	Content []string
	// Runner and Playbook are the executables ansible-runner and
	// ansible-playbook, a name without a slash being looked up in PATH; both must
	// be Python scripts of one interpreter.
	Runner, Playbook string
	// MaxRuns is how many runs a server makes before it is replaced; 0 means
	// 1000.
	MaxRuns int
	// MaxMemory is the resident memory of a server, in bytes, beyond which it is
	// replaced; 0 means 400 MiB.
	MaxMemory int64
	// Idle is how long a server is kept without a run; 0 means for as long as the pool.
	Idle time.Duration
	// TrustLine has runs forked with a line of Ansible that is not tested, and in
	// which something that they rely on is another than in those that are.
	TrustLine bool
	// Check makes a run from the server with that socket, and returns an error
	// if it is not what it would be without; then the server is not used. It may
	// use the directory. nil checks nothing.
	Check func(ctx context.Context, dir, socket string) error `json:"-"`
	// Trace is a file to which is appended what of the runs is forked and what
	// executed after all, and what their processes have taken; empty for none.
	Trace string
	// OnChange is called when there is a server (nil, or a [LineError] with Workers), or none any more, with the
	// reason: one call after the other. It must not call the pool. It may be nil.
	OnChange func(error) `json:"-"`
}

// Defaults of [Options]. A server only forks, so that it grows by what Python
// keeps for that: next to nothing. The limits are there for leaks that are not known.
const (
	defaultMaxRuns         = 1000
	defaultMaxMemory int64 = 400 << 20
)

// retryAfter is how long a pool waits after a server that did not become ready,
// and after the second of those in a row that were and could not start a run;
// retryMost is what that doubles to: a broken installation costs no core.
const (
	retryAfter = time.Minute
	retryMost  = time.Hour
)

// Pool has one fork server from the first run on, replaces it when it is worn,
// changed or broken, and ends those that are replaced when their last runs have,
// and one for which there was no run for a while. It is safe for concurrent use.
type Pool struct {
	opts Options

	mu       sync.Mutex
	closed   bool
	current  *server
	starting bool
	awaiting int // runs, in Await
	// dir is made with the first server; made counts the servers. known are the
	// files on which the last one depended. One at a time is started, which has them.
	dir   lockeddir.Dir
	made  int
	known map[string]version
	// reason is why there is no server; failures is how many there were since a
	// server has made a run, and again the time before which none is started.
	reason   error
	failures int
	again    time.Time

	ctx  context.Context // the pool's life
	stop context.CancelFunc
	wg   sync.WaitGroup
	// looks are those at files, which may hang; identity looks at one.
	looks    sync.WaitGroup
	identity func(name string) version
}

// New returns a Pool. It starts no server: [Pool.Wait] and [Pool.Acquire] do.
func New(opts Options) *Pool {
	if opts.MaxRuns <= 0 {
		opts.MaxRuns = defaultMaxRuns
	}
	if opts.MaxMemory <= 0 {
		opts.MaxMemory = defaultMaxMemory
	}
	if opts.Dir == "" {
		opts.Dir = os.TempDir()
	}
	p := &Pool{opts: opts, identity: identity, reason: fmt.Errorf("%w: it is being started", ErrNotReady)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	return p
}

// Close ends the servers, and returns when nothing is left of them. No run may be
// in progress. A look at files that hangs is left to itself after two seconds: it
// cannot be ended.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	if p.current != nil {
		p.current.busy()
	}
	p.mu.Unlock()
	p.stop()
	p.wg.Wait()
	p.awaitLooks()
	if p.dir.File != nil {
		_ = p.dir.Remove() // the next pool does
	}
}

// Wait has a server started if there is none. It returns when there is one, when
// it is known that there will be none, or when ctx ends.
func (p *Pool) Wait(ctx context.Context) error {
	p.mu.Lock()
	if p.current == nil {
		p.startLocked() //nolint:contextcheck // a server outlives who waits for it
	}
	p.mu.Unlock()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		p.mu.Lock()
		ready, starting, reason := p.current != nil, p.starting, p.reason
		p.mu.Unlock()
		switch {
		case ready:
			return nil
		case !starting:
			return reason
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Lease is the right to fork one run from a server.
type Lease struct {
	// Socket is the path of the server's socket, and Trace that of the file for
	// what becomes of the run's parts; for supervise.Command.
	Socket, Trace string

	pool   *Pool
	server *server
}

// Acquire returns a lease on the server, or [ErrNotReady]. It waits for a look at the
// files on which the server depends, if the last one is too old, until ctx ends.
// The lease must be released when the run has ended.
func (p *Pool) Acquire(ctx context.Context) (*Lease, error) {
	asked := time.Now()
	for {
		lease, looking, err := p.acquire(asked) //nolint:contextcheck // a server outlives the run
		if looking == nil {
			return lease, err
		}
		select {
		case <-looking:
		case <-p.ctx.Done():
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: look at the files on which it depends: %w", ErrNotReady, context.Cause(ctx))
		}
	}
}

// acquire is Acquire, but returns the look that is to be waited for.
func (p *Pool) acquire(asked time.Time) (_ *Lease, looking <-chan struct{}, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, fmt.Errorf("%w: the pool is closed", ErrNotReady)
	}
	if s := p.current; s != nil {
		if reason := s.worn(p.opts); reason != nil {
			p.retireLocked(s, reason)
		}
	}
	if p.current == nil {
		p.startLocked()
		return nil, nil, p.reason
	}
	s := p.current
	if asked.Sub(s.looked) >= lookAgain {
		return nil, p.lookLocked(s), nil
	}
	s.busy()
	s.runs++
	s.inFlight++
	return &Lease{Socket: s.socket, Trace: p.opts.Trace, pool: p, server: s}, nil, nil
}

// Await is as Acquire, but waits for a server that is being started, unless the
// last one has failed: else that costs a run less than a new Python.
func (p *Pool) Await(ctx context.Context) (*Lease, error) {
	p.await(1)
	defer p.await(-1)
	lease, err := p.Acquire(ctx)
	p.mu.Lock()
	failed := p.failures > 0
	p.mu.Unlock()
	if err == nil || failed || p.Wait(ctx) != nil {
		return lease, err
	}
	return p.Acquire(ctx)
}

// await counts runs that wait for a server.
func (p *Pool) await(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaiting += n
}

// Lost tells, of a run that was cut (supervise.Exit.Cut), whether the server has ended
// with it: its keeper or its supervising process was killed, and so were all runs of
// the server. It waits for half a minute at most, or until ctx ends. It is called before Release.
func (l *Lease) Lost(ctx context.Context) bool { return l.server.lost(ctx) }

// Release gives the lease back, with what supervise.Launcher.Run has returned
// of the run. A server that could not start it ([supervise.ErrServer]) is
// replaced; one is known to work when a run of it has ended by itself.
func (l *Lease) Release(exit supervise.Exit, err error) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.server.inFlight--
	switch {
	case p.current != l.server: // of the one there is now, it says nothing
	case errors.Is(err, supervise.ErrServer):
		p.replaceLocked(l.server, err)
	case err == nil && exit.Code >= 0:
		p.failures = 0
	}
	l.server.endWhenIdle()
	p.restLocked(l.server)
}

// restLocked ends a server that does nothing, unless a run comes within a while.
func (p *Pool) restLocked(s *server) {
	if p.opts.Idle <= 0 || p.closed || p.current != s || s.inFlight > 0 {
		return
	}
	runs := s.runs
	s.rest = time.AfterFunc(p.opts.Idle, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		switch {
		case p.current != s || s.inFlight > 0 || s.runs != runs || p.closed:
		case p.awaiting > 0: // on a busy machine a run can take longer than that to take what it waits for
			p.restLocked(s)
		default:
			p.failures = 0 // it was ready, and no run has found it broken
			p.retireLocked(s, fmt.Errorf("%w: %w for %s", ErrNotReady, ErrIdle, p.opts.Idle))
		}
	})
}

// replaceLocked takes a server out of use that does not work, and starts another.
func (p *Pool) replaceLocked(s *server, why error) {
	p.retireLocked(s, fmt.Errorf("%w: %w", ErrNotReady, why))
	if p.failures++; p.failures > 1 {
		p.pauseLocked()
	}
	p.startLocked()
}

// pauseLocked sets when the next server may be started.
func (p *Pool) pauseLocked() {
	const most = 10 // a longer shift would be beyond all bounds
	p.again = time.Now().Add(min(retryAfter<<min(p.failures-1, most), retryMost))
}

// retireLocked takes a server out of use.
func (p *Pool) retireLocked(s *server, reason error) {
	p.current, p.reason = nil, reason
	s.retired = true
	s.endWhenIdle()
	p.changed(reason)
}

// changed is called under the lock, so that the order is that of the changes.
func (p *Pool) changed(reason error) {
	if p.opts.OnChange != nil {
		p.opts.OnChange(reason)
	}
}

// startLocked starts a server unless one is being started, or it is too early.
func (p *Pool) startLocked() {
	if p.starting || p.closed || time.Now().Before(p.again) {
		return
	}
	p.starting = true
	p.wg.Go(func() {
		s, err := p.start()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.starting = false
		if err != nil {
			p.reason = fmt.Errorf("%w: %w", ErrNotReady, err)
			p.failures++
			p.pauseLocked()
			if !p.closed { // else that is why
				p.changed(p.reason)
			}
			return
		}
		p.current = s
		p.changed(s.slower())
		p.restLocked(s)
		p.wg.Go(func() { p.watch(s) })
	})
}

// watch takes a server out of use that has ended, and removes its directory when
// nothing is left of it.
func (p *Pool) watch(s *server) {
	<-s.ended
	p.mu.Lock()
	if p.current == s && !p.closed {
		p.replaceLocked(s, fmt.Errorf("the server has ended: %w", s.err))
	}
	p.mu.Unlock()
	_ = os.RemoveAll(s.dir)
}
