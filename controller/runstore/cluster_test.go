package runstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A runner root is of the cluster that was the first, until its note is removed.
func TestClaim_ARootIsOfOneCluster(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "runner")
	note := filepath.Join(root, runsDir, clusterFile)
	for range 2 {
		must.Do(t, Claim(root, "one"))
	}
	must.Be(t, "mode", fs.FileMode(0o600), must.Get(os.Lstat(note))(t).Mode())
	err := Claim(root, "two")
	if !errors.Is(err, ErrOtherCluster) || !strings.Contains(err.Error(), root) || !strings.Contains(err.Error(), "--runner-root of its own") {
		t.Errorf("another cluster: %v", err)
	}
	must.Do(t, os.WriteFile(note, []byte("one\n"+strings.Repeat(" ", clusterLimit)), 0o600))
	if err := Claim(root, "one"); !errors.Is(err, ErrOtherCluster) {
		t.Errorf("a note that is too long: %v", err)
	}
	must.Do(t, os.Remove(note))
	must.Do(t, Claim(root, "two"))
}
