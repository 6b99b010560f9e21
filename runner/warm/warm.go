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

// ErrNotReady is returned by [Pool.Acquire] while there is no server: one is
// being started, or could not be used. The error says why.
var ErrNotReady = errors.New("no warm interpreter")

// ErrIdle is wrapped together with [ErrNotReady] if nothing is wrong: the server was
// ended because there was no run, and the next run starts another.
var ErrIdle = errors.New("there was no run")

// ErrReplaced is wrapped together with [ErrNotReady] if nothing is wrong either: the
// server has made many runs or grown too large, or what it has imported has changed,
// and another is started.
var ErrReplaced = errors.New("it is replaced")

// Options configure a [Pool].
type Options struct {
	// Dir is where the pool makes a directory for its servers, and removes the
	// directories of pools whose process is gone. It is absolute and short enough for
	// a socket (68 bytes), and may be shared; empty means [os.TempDir].
	Dir string
	// Environ is the environment of the runs and of the server.
	Environ []string
	// Without names the means of forked runs that are turned off, separated by commas;
	// it is the value of [WithoutVariable] for the server, which does not start if one
	// is unknown.
	Without string
	// Content has directories with roles and playbooks of the runs, whose templates a server compiles when it starts.
	// A template that changes later, or is elsewhere, is compiled by the runs that use it.
	Content []string
	// Runner and Playbook are the executables ansible-runner and ansible-playbook;
	// a name without a slash is looked up in PATH. Both must be Python scripts with
	// the same interpreter.
	Runner, Playbook string
	// MaxRuns is how many runs a server makes before it is replaced; 0 means
	// 1000.
	MaxRuns int
	// MaxMemory is the resident memory of a server, in bytes, beyond which it is
	// replaced; 0 means 400 MiB.
	MaxMemory int64
	// Idle is how long a server is kept without a run; 0 means until the pool is closed.
	Idle time.Duration
	// TrustLine allows forked runs with a line of Ansible that is not tested, and
	// differs from the tested lines in something that forked runs rely on.
	TrustLine bool
	// Check makes a run from the server with the socket. If the run differs from a
	// cold start, it returns an error, and the server is not used. It may use the
	// directory dir. kubernetes says whether modules of the collection kubernetes.core
	// are forked: it and the Kubernetes client are installed. nil checks nothing.
	Check func(ctx context.Context, dir, socket string, kubernetes bool) error `json:"-"`
	// Trace is a file to which the servers append which parts of the runs were forked
	// and which executed, and what their processes used; empty for none.
	Trace string
	// OnChange is called when a server becomes ready, with nil or a [LineError] with Workers, and when there is none any
	// more, with the reason. Calls do not overlap. It must not call the pool. It may be nil.
	OnChange func(error) `json:"-"`
}

// Defaults of [Options]. A server only forks, and hardly grows by that. The limits
// are for unknown leaks.
const (
	defaultMaxRuns         = 1000
	defaultMaxMemory int64 = 400 << 20
)

// retryAfter is how long a pool waits after a server that did not become ready, and
// after the second server in a row that was ready but could not start a run. The
// time doubles with each failure, up to retryMost, so that a broken installation
// does not take a whole CPU.
const (
	retryAfter = time.Minute
	retryMost  = time.Hour
)

// Pool has one fork server from the first run on. It replaces the server when it is
// worn, changed or broken, ends a replaced server when its last run has ended, and
// ends a server that was idle for a while. It is safe for concurrent use.
type Pool struct {
	opts Options

	mu       sync.Mutex
	closed   bool
	current  *server
	starting bool
	awaiting int // the number of runs in Await
	// dir is made for the first server; made counts the servers. known has the files
	// on which the last server depended. Only the goroutine that starts a server uses
	// these, and there is one at a time.
	dir   *lockeddir.Dir
	made  int
	known map[string]version
	// reason is why there is no server. failures counts the failures since a server
	// last made a run. No server is started before again.
	reason   error
	failures int
	again    time.Time

	ctx  context.Context // ends with the pool
	stop context.CancelFunc
	wg   sync.WaitGroup
	// looks are the checks of files in progress, which may hang; identity checks one file.
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
// in progress. It does not wait longer than two seconds for a check of files that
// hangs, which cannot be ended.
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
	if p.dir != nil {
		_ = p.dir.Remove() // else the next pool does
	}
}

// Wait starts a server if there is none. It returns nil when there is one, and an
// error when it is known that there will be none, or when ctx ends.
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
	// Socket and Trace are Server and Trace of a supervise.Command.
	Socket, Trace string

	pool   *Pool
	server *server
}

// Acquire returns a lease on the server, or [ErrNotReady]. If the last check of the
// files on which the server depends is too old, it waits for another, until ctx ends.
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

// acquire is Acquire, but does not wait: if a check of the files is needed, it returns only looking, which is
// closed when the check has ended.
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

// Await is like Acquire, but waits for a server that is being started, which takes
// less time than a cold start. It does not wait if the last server failed.
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

// await adds n to the number of runs that wait for a server.
func (p *Pool) await(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaiting += n
}

// Lost tells, for a run that was cut (supervise.Exit.Cut), whether the server has ended,
// too: then its keeper or its supervising process was killed, and with it all runs of the
// server. It waits for half a minute at most, or until ctx ends. It is called before Release.
func (l *Lease) Lost(ctx context.Context) bool { return l.server.lost(ctx) }

// Release gives the lease back. exit and err are what supervise.Launcher.Run has
// returned for the run. A server that could not start the run ([supervise.ErrServer])
// is replaced; a server is known to work once one of its runs has ended by itself.
func (l *Lease) Release(exit supervise.Exit, err error) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.server.inFlight--
	switch {
	case p.current != l.server: // that says nothing about the current server
	case errors.Is(err, supervise.ErrServer):
		p.replaceLocked(l.server, err)
	case err == nil && exit.Code >= 0:
		p.failures = 0
	}
	l.server.endWhenIdle()
	p.restLocked(l.server)
}

// restLocked makes an idle server end after Idle, unless a run comes before.
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
		case p.awaiting > 0: // on a busy machine, a run in Await may be slower than that
			p.restLocked(s)
		default:
			p.failures = 0 // the server was ready, and no run has found it broken
			p.retireLocked(s, fmt.Errorf("%w: %w for %s", ErrNotReady, ErrIdle, p.opts.Idle))
		}
	})
}

// replaceLocked takes a server that does not work out of use, and starts another.
func (p *Pool) replaceLocked(s *server, why error) {
	p.retireLocked(s, fmt.Errorf("%w: %w", ErrNotReady, why))
	if p.failures++; p.failures > 1 {
		p.pauseLocked()
	}
	p.startLocked()
}

// pauseLocked sets when the next server may be started.
func (p *Pool) pauseLocked() {
	const most = 10 // a longer shift would exceed retryMost anyway, and overflow
	p.again = time.Now().Add(min(retryAfter<<min(p.failures-1, most), retryMost))
}

// retireLocked takes a server out of use.
func (p *Pool) retireLocked(s *server, reason error) {
	p.current, p.reason = nil, reason
	s.retired = true
	s.endWhenIdle()
	p.changed(reason)
}

// changed calls OnChange. It is called under the lock, so that the calls are in the order of the changes.
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
			if !p.closed { // else the server failed because the pool was closed
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

// watch waits until the server has ended and nothing is left of it. Then it takes
// the server out of use, and removes its directory.
func (p *Pool) watch(s *server) {
	<-s.ended
	p.mu.Lock()
	if p.current == s && !p.closed {
		p.replaceLocked(s, fmt.Errorf("the server has ended: %w", s.err))
	}
	p.mu.Unlock()
	_ = os.RemoveAll(s.dir)
}
