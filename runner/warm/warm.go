package warm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// ErrNotReady is returned by [Pool.Acquire] while there is no server: it is
// being started, or was found unfit. The error says why.
var ErrNotReady = errors.New("no warm interpreter")

// Options configure a [Pool].
type Options struct {
	// Dir is where the servers have their directories: absolute, of mode 0700,
	// short enough for a socket (80 bytes), and used by nobody else.
	Dir string
	// Environ is the environment of the runs: that of the server, too.
	Environ []string
	// Runner and Playbook are the executables ansible-runner and
	// ansible-playbook; both must be Python scripts of one interpreter.
	Runner, Playbook string
	// Supervisor is the command line that calls supervise.Main.
	Supervisor []string
	// MaxRuns is how many runs a server makes before it is replaced; 0 means
	// [DefaultMaxRuns].
	MaxRuns int
	// MaxMemory is the resident memory of a server, in bytes, beyond which it is
	// replaced; 0 means [DefaultMaxMemory].
	MaxMemory int64
	// Trace is a file to which the servers append what they fork and what they
	// execute after all; empty for none.
	Trace string
	// OnChange is called, from a goroutine of the pool, when there is a server
	// (nil), or none any more, with the reason. It may be nil.
	OnChange func(error) `json:"-"`
}

// Defaults of [Options]. A server only forks, so that it grows by what Python
// keeps for that: next to nothing. The limits are there for what nobody knows of.
const (
	DefaultMaxRuns         = 1000
	DefaultMaxMemory int64 = 400 << 20
)

// retryAfter is how long a pool waits after a server that did not become
// ready, so that a broken installation does not cost a core.
const retryAfter = time.Minute

// Pool keeps one fork server running, replaces it when it is worn, changed or
// broken, and ends those that are replaced when their last runs have. It is safe
// for concurrent use.
type Pool struct {
	opts Options

	mu       sync.Mutex
	closed   bool
	current  *server
	starting bool
	// reason is why there is no server, since the time when.
	reason error
	when   time.Time

	ctx  context.Context //nolint:containedctx // the pool's life
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// New returns a Pool and starts its first server, for which it does not wait.
func New(opts Options) *Pool {
	if opts.MaxRuns <= 0 {
		opts.MaxRuns = DefaultMaxRuns
	}
	if opts.MaxMemory <= 0 {
		opts.MaxMemory = DefaultMaxMemory
	}
	p := &Pool{opts: opts, reason: fmt.Errorf("%w: it is being started", ErrNotReady)}
	p.ctx, p.stop = context.WithCancel(context.Background())
	p.mu.Lock()
	p.startLocked()
	p.mu.Unlock()
	return p
}

// Close ends the servers, and returns when nothing is left of them. No run may be
// under way.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	p.wg.Wait()
}

// Wait returns when there is a server, when it is known that there will be
// none, or when ctx ends.
func (p *Pool) Wait(ctx context.Context) error {
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
	// Socket is the path of the server's socket, for supervise.Command.
	Socket string

	pool   *Pool
	server *server
}

// Acquire returns a lease on the server, or [ErrNotReady]; it waits for nothing.
// The lease must be released when the run has ended.
func (p *Pool) Acquire() (*Lease, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, fmt.Errorf("%w: the pool is closed", ErrNotReady)
	}
	if s := p.current; s != nil {
		if reason := s.worn(p.opts); reason != nil {
			p.retireLocked(s, reason)
		}
	}
	if p.current == nil {
		p.startLocked()
		return nil, p.reason
	}
	s := p.current
	s.runs++
	s.inFlight++
	return &Lease{Socket: s.socket, pool: p, server: s}, nil
}

// Release gives the lease back. An error means that the server could not start
// the run: it is replaced.
func (l *Lease) Release(err error) {
	p := l.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	l.server.inFlight--
	if err != nil && p.current == l.server {
		p.retireLocked(l.server, fmt.Errorf("%w: %w", ErrNotReady, err))
		p.startLocked()
	}
	l.server.endWhenIdle()
}

// retireLocked takes a server out of use.
func (p *Pool) retireLocked(s *server, reason error) {
	p.current, p.reason, p.when = nil, reason, time.Time{}
	s.retired = true
	s.endWhenIdle()
	p.changed(reason)
}

func (p *Pool) changed(reason error) {
	if p.opts.OnChange != nil {
		p.wg.Go(func() { p.opts.OnChange(reason) })
	}
}

// startLocked starts a server unless one is being started, or was found unfit a
// moment ago.
func (p *Pool) startLocked() {
	if p.starting || p.closed || !p.when.IsZero() && time.Since(p.when) < retryAfter {
		return
	}
	p.starting = true
	p.wg.Go(func() {
		s, err := p.start()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.starting = false
		if err != nil {
			p.reason, p.when = fmt.Errorf("%w: %w", ErrNotReady, err), time.Now()
			p.changed(p.reason)
			return
		}
		p.current = s
		p.changed(nil)
		p.wg.Go(func() { p.watch(s) })
	})
}

// watch takes a server out of use that has ended, and removes its directory when
// nothing is left of it.
func (p *Pool) watch(s *server) {
	<-s.ended
	p.mu.Lock()
	if p.current == s && !p.closed {
		p.retireLocked(s, fmt.Errorf("%w: the server has ended: %w", ErrNotReady, s.err))
		p.startLocked()
	}
	p.mu.Unlock()
	_ = os.RemoveAll(s.dir)
}
