package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/test/must"
)

// If a file changes all the time, no changed content comes into use. The operator says so once.
func TestReload_SaysThatContentDoesNotRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, log, reg := t.TempDir(), []string{}, prometheus.NewRegistry()
		file := filepath.Join(dir, "tool.log")
		r := &reload{
			op: &operator{Parts: &assembly.Parts{Recorder: must.Get(metrics.New(reg))(t)}}, place: contentcopy.Place{Dirs: []string{dir}},
			log: funcr.New(func(_, args string) { log = append(log, args) }, funcr.Options{}),
		}
		for i := range 60 {
			must.Do(t, os.WriteFile(file, []byte(strings.Repeat(".", i)), 0o600))
			must.Do(t, r.look(t.Context()))
			if told := len(log) > 0; told != (i >= 30) {
				t.Fatalf("look %d: %q", i, log)
			}
			time.Sleep(contentPeriod)
		}
		if len(log) != 1 || !strings.Contains(log[0], "content keeps changing, most recently "+file) {
			t.Errorf("log: %q", log)
		}
		for _, f := range must.Get(reg.Gather())(t) {
			if f.GetName() == "rolewright_content_broken" && f.GetMetric()[0].GetGauge().GetValue() != 1 {
				t.Error("rolewright_content_broken is 0")
			}
		}
	})
}

// If a copy cannot be made, as on a full disk, the operator tries again until it can.
func TestReload_TriesACopyAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, root, log := t.TempDir(), filepath.Join(t.TempDir(), "root"), ""
		t.Chdir(dir)
		for path, text := range map[string]string{
			root: "no directory", "watches.yaml": "- {group: a.example.com, version: v1, kind: A, playbook: a.yml}", "a.yml": "- [",
		} {
			must.Do(t, os.WriteFile(path, []byte(text), 0o600))
		}
		r := &reload{
			op: &operator{
				runOptions: &runOptions{watchesFile: "watches.yaml", runnerRoot: root},
				Parts:      &assembly.Parts{Recorder: must.Get(metrics.New(prometheus.NewRegistry()))(t)},
			},
			place: contentcopy.Place{Dirs: []string{dir}}, used: "before", log: funcr.New(func(_, args string) { log = args }, funcr.Options{}),
		}
		looks := func(n int, want string) {
			t.Helper()
			for range n {
				must.Do(t, r.look(t.Context()))
				time.Sleep(contentPeriod)
			}
			if !strings.Contains(log, want) {
				t.Errorf("log: %s; want %s", log, want)
			}
		}
		looks(2, "not a directory")
		must.Do(t, os.Remove(root))
		looks(40, "a.yml:1")
	})
}
