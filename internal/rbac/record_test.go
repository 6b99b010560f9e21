package rbac

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	godiff "github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

func record(t *testing.T, path string, calls ...Call) {
	t.Helper()
	r := must.Get(OpenRecorder(path))(t)
	var wg sync.WaitGroup
	for _, c := range calls {
		wg.Go(func() {
			if err := r.Record(c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	must.Do(t, r.Close())
}

func TestRecorder_WritesEachCallOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "calls.jsonl")
	get := Call{Verb: "get", Version: "v1", Resource: "pods", Namespaced: true, Owner: "Widget.example.com"}
	list := Call{Verb: "list", Group: "apps", Version: "v1", Resource: "deployments", Subresource: "scale", Owned: true}
	record(t, path, get, get, get)
	record(t, path, get, list)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("the file is %v, %v; want mode 0600", info, err)
	}
	file := must.Get(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0))(t)
	if _, err := file.WriteString(`{"verb":"ge`); err != nil { // as if the process had been killed
		t.Fatal(err)
	}
	must.Do(t, file.Close())
	if got, err := ReadCalls(path); err != nil || len(got) != 2 {
		t.Errorf("with a line that is cut off: %v, %v", got, err)
	}
	other := Call{Verb: "delete", Version: "v1", Resource: "pods"}
	record(t, path, other, get)
	got, err := ReadCalls(path)
	if diff := godiff.Diff([]Call{get, list, other}, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

func TestOpenRecorder_RefusesWhatIsNotItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	must.Do(t, os.WriteFile(target, nil, 0o600))
	must.Do(t, os.Symlink(target, filepath.Join(dir, "link")))
	must.Do(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "open"), nil, 0o600))
	must.Do(t, os.Chmod(filepath.Join(dir, "open"), 0o644))
	must.Do(t, os.WriteFile(filepath.Join(dir, "other"), []byte("{}\n"), 0o600))
	for name, want := range map[string]string{
		"link": "too many levels of symbolic links", "fifo": "is not a regular file", "open": "may be read or written by others", "other": "other:1: this is not a recorded API call",
		"none/file": "no such file or directory", ".": "is a directory",
	} {
		if _, err := OpenRecorder(filepath.Join(dir, name)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", name, err, want)
		}
	}
}
