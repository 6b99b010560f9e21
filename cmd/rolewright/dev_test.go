package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/console"
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
