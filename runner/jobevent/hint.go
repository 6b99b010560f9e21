package jobevent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// takeHints handles the notifications that have arrived.
func (f *follower) takeHints() {
	for range len(f.told) {
		f.file(<-f.told)
	}
	if f.watcher == nil {
		return
	}
	// The number is bounded, because they may arrive as fast as they are handled.
	for range 4096 {
		select {
		case ev := <-f.watcher.Events:
			f.hint(ev)
		case _ = <-f.watcher.Errors:
			f.stale = true
		default:
			return
		}
	}
}

// hint handles one notification.
func (f *follower) hint(ev fsnotify.Event) {
	if !ev.Has(fsnotify.Create) {
		return
	}
	if !f.directory.isOpen() {
		f.stale = f.stale || filepath.Clean(ev.Name) == f.directory.awaited
		return
	}
	if n, ok := parseName(filepath.Base(ev.Name)); ok && f.see(n) {
		f.window.add(n)
	}
}

// file handles the name of a file that this process has put there. If told was full, other names are missing.
func (f *follower) file(name string) {
	if len(f.told) >= cap(f.told)-1 || !f.directory.isOpen() {
		f.stale = true
		return
	}
	if n, ok := parseName(name); ok && f.see(n) {
		f.window.add(n)
	}
}

// wait returns when there may be something to do.
func (f *follower) wait(ctx context.Context, done <-chan struct{}) {
	var events chan fsnotify.Event
	var failures chan error
	if f.watcher != nil {
		events, failures = f.watcher.Events, f.watcher.Errors
	}
	interval := f.poll
	if f.ahead() {
		interval = min(interval, f.patience)
	}
	if f.stale {
		interval = min(interval, time.Until(f.mayScan()))
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-done:
	case ev := <-events:
		f.hint(ev)
	case _ = <-failures:
		f.stale = true // an overflow, mostly
	case name := <-f.told:
		f.file(name)
	case <-timer.C:
		f.stale = true
	}
}
