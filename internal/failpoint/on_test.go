//go:build failpoint

package failpoint_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/internal/failpoint"
)

func TestHit_ActsAtTheOccurrenceThatWasAskedFor(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(failpoint.DirVariable, dir)
	t.Setenv(failpoint.Variable, "run.ended:sleep=1ms,lost.found#2:panic")
	hit := func(name string) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		failpoint.Hit(name)
		return false
	}
	for i, want := range []bool{false, true, false} {
		if got := hit("lost.found"); got != want {
			t.Errorf("time %d: panicked %v, want %v", i+1, got, want)
		}
	}
	if hit("run.ended") || hit("begin.before-read") {
		t.Error("panicked elsewhere")
	}
	passed, err := os.ReadFile(filepath.Join(dir, "lost.found#2"))
	if err != nil || strings.Count(string(passed), "\n") != 3 {
		t.Errorf("the mark's file has %q, %v", passed, err)
	}
}
