package runstore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/test/must"
)

// Of the roots for one run, those in use and the newest others stay, and no ended run keeps its kubeconfig.
func TestTidyOnce_KeepsWhatIsInUse(t *testing.T) {
	t.Parallel()
	runnerRoot := t.TempDir()
	first := time.Now().Add(-time.Hour)
	made := func(age int, used bool, files ...string) (root string) {
		root, lock, err := OnceRoot(runnerRoot)
		must.Do(t, err)
		t.Cleanup(func() { _ = lock.Close() }) // of an ended process, an error
		for _, name := range files {
			path := filepath.Join(root, runsDir, "object", uuid.NewSHA1(uuid.Nil, []byte(root)).String(), name)
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.Do(t, os.WriteFile(path, nil, 0o600))
		}
		at := first.Add(time.Duration(age) * time.Second)
		must.Do(t, os.Chtimes(root, at, at))
		if !used {
			must.Do(t, lock.Close())
		}
		return root
	}
	access := func(root string) bool {
		found := must.Get(filepath.Glob(filepath.Join(root, runsDir, "object", "*", "kubeconfig")))(t)
		return len(found) > 0
	}
	const used, ended = true, false
	own, inUse := made(0, used, outcomeFile, "kubeconfig"), made(1, used, "kubeconfig")
	var old []string
	for i := range onceKept - 1 {
		old = append(old, made(2+i, ended, outcomeFile))
	}
	killed, empty := made(50, ended, "kubeconfig"), made(60, ended)
	must.Do(t, TidyOnce(own, "kubeconfig"))

	var there []bool
	for _, root := range append([]string{own, inUse, killed, empty}, old[:2]...) {
		_, err := os.Stat(root)
		there = append(there, err == nil)
	}
	must.Be(t, "there", fmt.Sprint([]bool{true, true, true, false, false, true}), fmt.Sprint(there))
	must.Be(t, "kubeconfigs", []bool{true, false}, []bool{access(inUse), access(killed)})
}
