package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/console"
	"github.com/rolewright/rolewright/internal/filewatch"
	"github.com/rolewright/rolewright/test/must"
)

// dev reacts to every file that a watch names, wherever the file is and whatever its name, and to no other file beside
// watches.yaml. The watches file may be given by its absolute path.
func TestDev_TakesWhatWatchesName(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must.Do(t, os.WriteFile("reconcile.sh", []byte("#!/bin/sh\n"), 0o755))
	must.Do(t, os.WriteFile("page.tmpl", nil, 0o644))
	must.Do(t, os.WriteFile("watches.yaml", []byte(`- group: demo.example.com
  version: v1
  kind: Page
  command: [./reconcile.sh, page.tmpl]
  inputs: {files: ["*.conf"]}
`), 0o644))
	for file, want := range map[string]string{
		"reconcile.sh":  "changed: reconcile.sh",
		"page.tmpl":     "changed: page.tmpl",
		"site.conf":     "changed: site.conf",
		"roles/a/x.yml": "changed: roles/a/x.yml",
		"README.md":     "",
		"watches.yaml":  "watches.yaml has changed: the operator restarts",
	} {
		var out strings.Builder
		d := &dev{opts: &devOptions{}, console: console.New(&out, false, time.Now)}
		d.opts.watchesFile = filepath.Join(dir, "watches.yaml")
		d.watched = must.Get(d.opts.loadWatches(logr.Discard()))(t)
		d.set, d.serves = &controller.Set{}, make(chan struct{})
		close(d.serves)
		d.changed(t.Context(), []string{file})
		if got := out.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

// If watches.yaml is saved with an error while the operator starts, dev reports that and waits for the next save.
func TestDev_BrokenWhileTheOperatorStarts(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	must.Do(t, os.WriteFile("reconcile.sh", []byte("#!/bin/sh\n"), 0o755))
	must.Do(t, os.WriteFile("watches.yaml", []byte("- {group: demo.example.com, version: v1, kind: Page, command: [./reconcile.sh]}\n"), 0o644))
	must.Do(t, os.WriteFile("root", nil, 0o644)) // where a directory is needed, so that dev writes a problem before the operator starts
	ctx, cancel := context.WithCancel(t.Context())
	var problems []string
	d := &dev{opts: &devOptions{}, watcher: must.Get(filewatch.New(dir))(t)}
	t.Cleanup(func() { _ = d.watcher.Close() })
	d.console = console.New(writes(func(line string) {
		if problems = append(problems, line); len(problems) == 1 {
			must.Do(t, os.WriteFile("watches.yaml", []byte("- {kind: Page}\n"), 0o644))
		} else if strings.Contains(line, "watches file is invalid") {
			cancel()
		}
	}), false, time.Now)
	d.opts.watchesFile, d.opts.runnerRoot = "watches.yaml", filepath.Join(dir, "root")
	must.Do(t, d.loop(ctx))
}

// writes is a writer that calls a function.
type writes func(string)

func (w writes) Write(p []byte) (int, error) {
	w(string(p))
	return len(p), nil
}
