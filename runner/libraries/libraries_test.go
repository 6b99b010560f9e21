package libraries

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestFind_FindsWhatModulesWouldImport(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Fatalf("%v: install Python", err)
	}
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(dir, path)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	const manifest = "/ansible_collections/kubernetes/core/MANIFEST.json"
	write("broken"+manifest, "{")
	write("first"+manifest, `{"collection_info": {"version": "9.8.7"}}`)
	write("second"+manifest, `{"collection_info": {"version": "1.0.0"}}`)
	write("packages/kubernetes-31.2.1.dist-info/METADATA", "Metadata-Version: 2.1\nName: kubernetes\nVersion: 31.2.1\n")
	environ := []string{"PYTHONPATH=" + dir + "/packages", "PATH=" + os.Getenv("PATH")}
	got, err := Find(t.Context(), python, environ, []string{dir + "/none", dir + "/broken", dir + "/first", dir + "/second"})
	if want := (Libraries{Client: "31.2.1", Core: "9.8.7"}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	write("python3", "#!/bin/sh\necho no packages >&2\nexit 3\n")
	must.Do(t, os.Chmod(filepath.Join(dir, "python3"), 0o700))
	if _, err := Find(t.Context(), filepath.Join(dir, "python3"), nil, nil); err == nil || !strings.HasSuffix(err.Error(), "exit status 3: no packages") {
		t.Errorf("of a Python that fails: %v", err)
	}
	if _, err := Find(t.Context(), filepath.Join(dir, "nowhere"), nil, nil); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("of no Python: %v", err)
	}
}
