package warm

import (
	"context"
	"fmt"
	"time"
)

// lookAgain is how long a check of a server's files stays valid: there are more
// than a thousand files.
const lookAgain = time.Second

// hangs is how long [Pool.Close] waits for checks of files. A file system that does
// not answer, such as a network file system without its server, keeps them from
// ending.
const hangs = 2 * time.Second

// lookLocked begins a check of the server's files, unless one is in progress. It
// returns a channel that is closed when the check has ended. If a file has changed,
// the server is out of use by then.
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

// changedOf returns a file of the server that has changed, and whether there is one.
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

// lookLimit is how long a check of the files may take: it takes milliseconds, unless a file system hangs.
const lookLimit = time.Minute

// identify returns the versions of files, for the start of a server.
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

// awaitLooks waits for the checks of files to end, unless they hang.
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
