// Package leaktest runs the tests of a package and sees that nothing is left of
// what they began: goroutines, open files, children. It knows nothing of what
// is tested.
package leaktest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"
)

// patience is how long what ends by itself may take to do so.
const patience = 2 * time.Minute

// Main is the TestMain of a package: it runs its tests, and exits. Each
// function of while runs as long as the tests do.
func Main(m goleak.TestingM, while ...func(context.Context) error) {
	code := run(m, while)
	if code == 0 {
		if err := Goroutines(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code) //nolint:forbidigo // TestMain is the main of a test program
}

// Goroutines waits until no goroutine is left but those of the options, and
// returns an error where some do not end.
func Goroutines(options ...goleak.Option) error {
	for deadline := time.Now().Add(patience); ; {
		late := time.Now().After(deadline) // before the look: this process may be stopped for long
		if err := goleak.Find(options...); err == nil || late {
			return err
		}
	}
}

// run runs the tests, and returns the exit code.
func run(m goleak.TestingM, while []func(context.Context) error) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error)
	for _, do := range while {
		go func() { ended <- do(ctx) }()
	}
	// What the runtime opens for itself is open from here on.
	if r, w, err := os.Pipe(); err == nil {
		_, _ = r.Close(), w.Close()
	}
	before := opened()
	code := m.Run()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		late := time.Now().After(deadline) // before the look: this process may be stopped for long
		left := opened()
		maps.DeleteFunc(left, func(file string, _ string) bool { _, ok := before[file]; return ok })
		families := children()
		if len(left)+len(families) == 0 {
			break
		}
		if late {
			fmt.Fprintf(os.Stderr, "left open: %v; children left: %q\n", left, families)
			code = max(code, 1)
			break
		}
	}
	cancel()
	for range while {
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}

// opened are the open files of this process: descriptor → what it is of.
func opened() map[string]string {
	found := map[string]string{}
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, file := range files {
		// The listing's own is closed by now.
		if target, err := os.Readlink(file); err == nil {
			found[file] = target
		}
	}
	return found
}

// children are the children of this process, the dead ones included.
func children() []string {
	var found []string
	all, _ := procfs.AllProcs()
	for _, p := range all {
		if s, err := p.Stat(); err == nil && s.PPID == os.Getpid() {
			found = append(found, fmt.Sprintf("%d (%s) %s", s.PID, s.Comm, s.State))
		}
	}
	return slices.Clip(found)
}
