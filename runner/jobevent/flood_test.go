package jobevent

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestFollow_MoreThanTheWindowHolds shuffles far more events than the window
// has room for, before and while they are followed.
func TestFollow_MoreThanTheWindowHolds(t *testing.T) {
	const n = 600
	for name, set := range map[string]func(*follower){
		"by notification": func(f *follower) { f.window.size, f.poll, f.patience = 7, time.Millisecond, never },
		"by polling":      func(f *follower) { f.unwatch(); f.window.size, f.poll, f.patience = 7, time.Millisecond, never },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			order := rand.Perm(n)
			for _, i := range order[:n/2] {
				writeEvent(t, dir, i+1, "a")
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for _, i := range order[n/2:] {
					writeEvent(t, dir, i+1, "a")
				}
			}()
			next := 1
			for e, err := range follow(dir, done, set) {
				if err != nil || e.Counter != next {
					t.Fatalf("event %d, error %v; want event %d", e.Counter, err, next)
				}
				next++
			}
			if next != n+1 {
				t.Errorf("%d events, want %d", next-1, n)
			}
		})
	}
}

// TestFollow_SurvivesAnOverflow makes more notifications than the kernel queues while the consumer is busy. Only the
// overflow can tell the follower that there are more events, because it does not poll and the run does not end.
func TestFollow_SurvivesAnOverflow(t *testing.T) {
	const n = 20_000 // three notifications each; the kernel's default is 16,384
	dir := t.TempDir()
	writeEvent(t, dir, 1, "a")
	done := make(chan struct{})
	next := 1
	for e, err := range follow(dir, done, func(f *follower) { f.poll, f.patience = never, never }) {
		if err != nil || e.Counter != next {
			t.Fatalf("event %d, error %v; want event %d", e.Counter, err, next)
		}
		if e.Counter == 1 {
			for i := 2; i <= n; i++ {
				writeEvent(t, dir, i, "a")
			}
		}
		if e.Counter == n {
			close(done)
		}
		next++
	}
}

// TestFollow_ManyEvents follows a directory with many files, which exist already or are made as fast as possible, and
// watches the heap. With ROLEWRIGHT_TEST_EVERY_CASE, there are a million files.
func TestFollow_ManyEvents(t *testing.T) {
	n := 100_000
	if os.Getenv("ROLEWRIGHT_TEST_EVERY_CASE") != "" {
		n = 1_000_000
	}
	t.Run("that are there", func(t *testing.T) {
		dir := t.TempDir()
		linkEvents(t, dir, n)
		followMany(t, dir, closed(), n)
	})
	t.Run("that come while the run goes on", func(t *testing.T) {
		dir, done := t.TempDir(), make(chan struct{})
		go func() {
			defer close(done)
			linkEvents(t, dir, n)
		}()
		began := time.Now()
		followMany(t, dir, done, n)
		t.Logf("%.0f events a second", float64(n)/time.Since(began).Seconds())
	})
}

func followMany(t *testing.T, dir string, done <-chan struct{}, n int) {
	t.Helper()
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		var now runtime.MemStats
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				runtime.ReadMemStats(&now)
				peak.Store(max(peak.Load(), now.HeapAlloc))
			}
		}
	}()
	next := 1
	for e, err := range Follow(t.Context(), dir, done) {
		if err != nil || e.Counter != next {
			t.Fatalf("event %d, error %v; want event %d", e.Counter, err, next)
		}
		next++
	}
	close(stop)
	<-stopped
	if next != n+1 {
		t.Errorf("%d events, want %d", next-1, n)
	}
	grown := int64(peak.Load()) - int64(before.HeapAlloc)
	if t.Logf("the heap grew by at most %d KiB", grown>>10); grown > 32<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

// linkEvents makes n event files. To be quick, it makes most of them as hard links.
func linkEvents(t *testing.T, dir string, n int) {
	t.Helper()
	const each = 50_000 // ext4 allows 65,000 links
	var first string
	for i := range n {
		path := filepath.Join(dir, fmt.Sprintf("%d-%08x-0000-4000-8000-000000000000.json", i+1, i))
		var err error
		if i%each == 0 {
			first = filepath.Join(t.TempDir(), "event")
			if err = os.WriteFile(first, []byte(`{"event":"verbose"}`), 0o600); err == nil {
				err = os.Rename(first, path)
				first = path
			}
		} else {
			err = os.Link(first, path)
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}
