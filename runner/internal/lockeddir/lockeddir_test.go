package lockeddir

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/rolewright/rolewright/runner/plainfile"
	"github.com/rolewright/rolewright/test/must"
)

// If an operator was killed, the supervisor of its fork server may still write its record into the directory.
func TestRemove_WhileAnotherProcessWritesItsLastFile(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	for i := range 300 {
		d := must.Get(Make(parent, "x"))(t)
		record := filepath.Join(d.Name(), "1", "end.json")
		must.Do(t, os.Mkdir(filepath.Dir(record), 0o700))
		for n := range 20 {
			must.Do(t, os.WriteFile(filepath.Join(d.Name(), "1", strconv.Itoa(n)), nil, 0o600))
		}
		must.Do(t, plainfile.Reserve(record, 1<<10))
		var wg sync.WaitGroup
		wg.Go(func() {
			for range i {
				_, _ = os.Lstat(parent)
			}
			_ = plainfile.Replace(record, []byte("{}")) // the directory may be gone
		})
		err := d.Remove()
		wg.Wait()
		must.Do(t, err)
	}
}

// A cleaner of temporary files may remove the directory of a living process.
func TestEnsure_LocksWhatItMakesAgain(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	must.Do(t, os.Chmod(parent, 0o700|os.ModeSetgid)) // as fsGroup of a Pod does
	d := must.Get(Make(parent, "x"))(t)
	must.Do(t, os.Remove(d.Name()))
	must.Do(t, d.Ensure())
	must.Do(t, must.Get(Make(parent, "x"))(t).Remove())
	if _, err := os.Lstat(d.Name()); err != nil {
		t.Errorf("another process has removed it: %v", err)
	}
	must.Do(t, os.Chmod(d.Name(), 0o755))
	if d.Ensure() == nil {
		t.Error("it may be another user's")
	}
	must.Do(t, d.Remove())
}
