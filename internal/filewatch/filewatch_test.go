package filewatch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// The watcher reports changes that editors, git and people make, and no files that tools leave behind.
func TestWatcher_TellsOfTheProjectsFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(path string) {
		t.Helper()
		path = filepath.Join(dir, path)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte("x"), 0o600))
	}
	write("roles/a/tasks/main.yml")
	write(".git/HEAD")
	w := must.Get(New(dir))(t)
	defer w.Close()
	w.count = maxDirectories // as if there had been many directories, most of which are gone
	for _, step := range []struct {
		do   func()
		want []string
	}{
		{func() { write("roles/a/tasks/main.yml"); write(".git/HEAD"); write("roles/a/tasks/.main.yml.swp") }, []string{"roles/a/tasks/main.yml"}},
		{func() { write("roles/b/tasks/main.yml"); write("watches.yaml") }, []string{"roles/b/tasks/main.yml", "watches.yaml"}},
		{func() { write("roles/b/tasks/main.yml") }, []string{"roles/b/tasks/main.yml"}},
		{func() { // how many editors write
			write("sedFsX1")
			must.Do(t, os.Rename(filepath.Join(dir, "sedFsX1"), filepath.Join(dir, "watches.yaml")))
		}, []string{"watches.yaml"}},
		{func() {
			must.Do(t, os.Remove(filepath.Join(dir, "watches.yaml")))
		}, []string{"watches.yaml"}},
	} {
		var got []string
		for range 3 { // if this process pauses in the middle, it first reports only a part
			step.do()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			got = must.Get(w.Next(ctx))(t)
			cancel()
			if slices.Equal(got, step.want) {
				break
			}
		}
		if !slices.Equal(got, step.want) {
			t.Fatalf("changed %q, want %q", got, step.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ctx); err == nil {
		t.Error("no error although the context has ended")
	}
}
