package runstore

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A runner root belongs to the first cluster that used it, until its note is removed. Each other cluster has a directory
// in it, and its runs are found there.
func TestClaim_EachClusterHasARoot(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "runner")
	other := filepath.Join(root, clustersDir, "two")
	note := filepath.Join(root, runsDir, clusterFile)
	for range 2 {
		must.Be(t, "the root of the first", root, must.Get(Claim(root, "one"))(t))
		must.Be(t, "the root of another", other, must.Get(Claim(root, "two"))(t))
	}
	must.Be(t, "mode", fs.FileMode(0o600), must.Get(os.Lstat(note))(t).Mode())
	const id = "0f0f0f0f-0000-4000-8000-000000000002"
	run := filepath.Join(other, runsDir, "object", id)
	must.Do(t, os.MkdirAll(run, 0o700))
	must.Be(t, "a run of the other", run, must.Get(Find(root, id))(t))

	must.Do(t, os.WriteFile(note, []byte("one\n"+strings.Repeat(" ", clusterLimit)), 0o600))
	must.Be(t, "where the note is too long", filepath.Join(root, clustersDir, "one"), must.Get(Claim(root, "one"))(t))
	must.Do(t, os.Remove(note))
	must.Be(t, "without a note", root, must.Get(Claim(root, "two"))(t))
	if _, err := Claim(root, "../two"); err == nil {
		t.Error("a UID that is a path is taken")
	}
}
