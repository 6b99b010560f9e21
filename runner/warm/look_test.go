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

// looked returns a pool with a server. The server has one run in progress, which has the lease, and one file, whose version
// identity returns. stopped counts how often the server was told to end.
func looked(identity func(string) version) (p *Pool, lease *Lease, stopped *atomic.Int32) {
	stopped = &atomic.Int32{}
	s := &server{files: map[string]version{"ansible.cfg": {}}, inFlight: 1, stop: func() { stopped.Add(1) }}
	p = New(Options{})
	p.identity, p.current = identity, s
	p.again = time.Now().Add(time.Hour) // no other server is started
	return p, &Lease{pool: p, server: s}, stopped
}

// LooksAt says whether the current server is replaced if a file changes.
func (p *Pool) LooksAt(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.current.files[name]
	return ok
}

// Installers that make reproducible results replace files like that.
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

// If a file system does not answer, a run waits until its context ends. Meanwhile other runs can end, and so can the pool.
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
	for range 2 { // they share one look
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

// When a pool is closed, runs stop waiting for a look.
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

// A run needs another look if the last one began long before it: a file may have changed after it was looked at.
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
