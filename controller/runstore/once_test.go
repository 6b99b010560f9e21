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
	made := func(age int, files ...string) (root string) {
		root = must.Get(OnceRoot(runnerRoot))(t)
		for _, name := range files {
			path := filepath.Join(root, runsDir, "object", uuid.NewSHA1(uuid.Nil, []byte(root)).String(), name)
			must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
			must.Do(t, os.WriteFile(path, nil, 0o600))
		}
		at := first.Add(time.Duration(age) * time.Second)
		must.Do(t, os.Chtimes(root, at, at))
		return root
	}
	access := func(root string) bool {
		found := must.Get(filepath.Glob(filepath.Join(root, runsDir, "object", "*", "kubeconfig")))(t)
		return len(found) > 0
	}
	starting, inUse := made(0), made(1, "kubeconfig")
	var ended []string
	for i := range onceKept + 1 {
		ended = append(ended, made(2+i, outcomeFile))
	}
	killed, own := made(50, endFile, "kubeconfig"), made(60)
	must.Do(t, TidyOnce(own, "kubeconfig"))

	var there []bool
	for _, root := range append([]string{starting, inUse, killed, own}, ended[:3]...) {
		_, err := os.Stat(root)
		there = append(there, err == nil)
	}
	must.Be(t, "there", fmt.Sprint([]bool{true, true, true, false, false, false, true}), fmt.Sprint(there))
	must.Be(t, "kubeconfigs", []bool{true, false}, []bool{access(inUse), access(killed)})
}
