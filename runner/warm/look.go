package warm

import (
	"context"
	"fmt"
	"time"
)

// lookAgain is how long a look at a server's files holds good: there are more
// than a thousand.
const lookAgain = time.Second

// hangs is how long [Pool.Close] waits for looks at files. A file system that does
// not answer, of a server that is gone for instance, keeps them from ending.
const hangs = 2 * time.Second

// lookLocked returns what is closed when the look at the server's files has ended
// that is in progress, or begins one. A server of which one has changed is out of
// use by then.
func (p *Pool) lookLocked(s *server) <-chan struct{} {
	if s.looking != nil {
		return s.looking
	}
	looking, began := make(chan struct{}), time.Now()
	s.looking = looking
	p.looks.Go(func() {
		defer close(looking)
		name, changed := p.changedOf(s)
		p.mu.Lock()
		defer p.mu.Unlock()
		s.looking, s.looked = nil, began
		if changed && p.current == s && !p.closed {
			p.retireLocked(s, fmt.Errorf("%w: %s has changed: %w", ErrNotReady, name, ErrReplaced))
		}
	})
	return looking
}

// changedOf returns a file of the server that has changed.
func (p *Pool) changedOf(s *server) (string, bool) {
	for name, was := range s.files {
		if p.ctx.Err() != nil {
			break
		}
		if p.identity(name) != was {
			return name, true
		}
	}
	return "", false
}

// lookLimit is how long a look at the files may take: milliseconds, unless a file system hangs.
const lookLimit = time.Minute

// identify tells the versions of files apart, for the start of a server.
func (p *Pool) identify(ctx context.Context, names []string) (map[string]version, error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	all := make(chan map[string]version, 1)
	p.looks.Go(func() {
		found := make(map[string]version, len(names))
		for _, name := range names {
			if ctx.Err() != nil {
				return
			}
			found[name] = p.identity(name)
		}
		all <- found
	})
	select {
	case found := <-all:
		return found, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("look at the files on which it depends: %w", context.Cause(ctx))
	}
}

// awaitLooks waits for the looks to end, unless they hang.
func (p *Pool) awaitLooks() {
	ended := make(chan struct{})
	go func() {
		p.looks.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(hangs):
	}
}
