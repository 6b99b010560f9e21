package runstore

import (
	"errors"
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

// A run that begins while another one tidies gets its root.
func TestOnceRoot_WhileAnotherOneTidies(t *testing.T) {
	t.Parallel()
	runnerRoot := t.TempDir()
	own, lock, err := OnceRoot(runnerRoot)
	must.Do(t, err)
	defer lock.Close()
	must.Do(t, os.MkdirAll(filepath.Join(own, runsDir, "object"), 0o700))
	done, tidied := make(chan struct{}), make(chan error)
	go func() {
		var all error
		for {
			select {
			case <-done:
				tidied <- all
				return
			default:
				all = errors.Join(all, TidyOnce(own))
			}
		}
	}()
	for range 300 {
		root, lock, err := OnceRoot(runnerRoot)
		if err != nil {
			t.Error(err)
			break
		}
		must.Do(t, lock.Close())
		must.Do(t, os.Remove(root))
	}
	close(done)
	must.Do(t, <-tidied)
}
