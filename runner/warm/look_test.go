package warm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/test/must"
)

// looked is a pool with a server of which one run is in progress and one file is
// looked at by a function; stopped is how often the server was told to end.
func looked(identity func(string) version) (p *Pool, lease *Lease, stopped *atomic.Int32) {
	stopped = &atomic.Int32{}
	s := &server{files: map[string]version{"ansible.cfg": {}}, inFlight: 1, stop: func() { stopped.Add(1) }}
	p = New(Options{})
	p.identity, p.current = identity, s
	p.again = time.Now().Add(time.Hour) // none is started
	return p, &Lease{pool: p, server: s}, stopped
}

// LooksAt says whether the current server is replaced if a file changes.
func (p *Pool) LooksAt(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.current.files[name]
	return ok
}

// So do installers whose results are to be the same each time.
func TestIdentity_OfAFileThatIsReplacedByOneOfItsSizeAndTime(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "requests.py")
	must.Do(t, os.WriteFile(path, []byte("A = 1\n"), 0o600))
	before, info := identity(path), must.Get(os.Stat(path))(t)
	must.Do(t, os.WriteFile(path+".new", []byte("A = 2\n"), 0o600))
	must.Do(t, errors.Join(os.Chtimes(path+".new", info.ModTime(), info.ModTime()), os.Rename(path+".new", path)))
	now := identity(path)
	if now.size != before.size || now.mtime != before.mtime || now == before {
		t.Errorf("%+v, before %+v", now, before)
	}
}

// Where a file system does not answer, a run waits for as long as it may: others end,
// and so does the pool.
func TestPool_IsNotHeldUpByAFileSystemThatHangs(t *testing.T) {
	t.Parallel()
	looks, answers := make(chan struct{}), make(chan struct{})
	p, other, stopped := looked(func(string) version {
		close(looks)
		<-answers
		return version{}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the run is not wanted any more")
	var acquired sync.WaitGroup
	for range 2 { // one look is enough
		acquired.Go(func() {
			if lease, err := p.Await(ctx); lease != nil || !errors.Is(err, gone) || !errors.Is(err, ErrNotReady) {
				t.Errorf("lease %+v, error %v", lease, err)
			}
		})
	}
	<-looks
	other.Release(supervise.Exit{}, nil)
	if other.server.inFlight != 0 || stopped.Load() != 0 {
		t.Errorf("%d runs; stopped %d times", other.server.inFlight, stopped.Load())
	}
	cancel(gone)
	acquired.Wait()
	p.Close()
	close(answers)
	p.looks.Wait()
}

// A pool that is closed ends those who wait for a look.
func TestPool_CloseEndsTheWaitForALook(t *testing.T) {
	t.Parallel()
	looks, answers := make(chan struct{}), make(chan struct{})
	p, _, _ := looked(func(string) version {
		close(looks)
		<-answers
		return version{}
	})
	var acquired sync.WaitGroup
	acquired.Go(func() {
		if lease, err := p.Acquire(t.Context()); lease != nil || !errors.Is(err, ErrNotReady) {
			t.Errorf("lease %+v, error %v", lease, err)
		}
	})
	<-looks
	p.Close()
	acquired.Wait()
	close(answers)
	p.looks.Wait()
}

// No run is content with a look that began long before it: what has changed since
// may be behind it.
func TestPool_ALookThatBeganLongBeforeTheRunIsNotEnough(t *testing.T) {
	t.Parallel()
	var changed atomic.Bool
	looks, answers := make(chan struct{}, 2), make(chan struct{})
	p, lease, stopped := looked(func(string) version {
		v := version{}
		if changed.Load() {
			v.size = 1
		}
		looks <- struct{}{}
		<-answers
		return v
	})
	defer p.Close()
	_, first, _ := p.acquire(time.Now())
	<-looks
	changed.Store(true)
	later := time.Now().Add(lookAgain)
	if _, joined, err := p.acquire(later); joined == nil || joined != first {
		t.Fatalf("error %v, another look %v", err, joined != first)
	}
	close(answers)
	<-first
	_, second, err := p.acquire(later)
	if second == nil {
		t.Fatalf("no other look; error %v", err)
	}
	<-second
	if l, _, err := p.acquire(later); l != nil || !errors.Is(err, ErrReplaced) {
		t.Errorf("lease %+v, error %v", l, err)
	}
	lease.Release(supervise.Exit{}, nil)
	if stopped.Load() == 0 {
		t.Error("the server that is replaced is not stopped")
	}
}
