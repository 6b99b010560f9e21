package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// What may be a call in progress at another replica stays.
func TestRemoveLeft_KeepsNewCalls(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"new": 0, "old": time.Hour} {
		must.Do(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		at := time.Now().Add(-age)
		must.Do(t, os.Chtimes(filepath.Join(dir, name), at, at))
	}
	must.Do(t, removeLeft(dir))
	left := must.Get(os.ReadDir(dir))(t)
	must.Be(t, "left", 1, len(left))
	must.Be(t, "left", "new", left[0].Name())
}
