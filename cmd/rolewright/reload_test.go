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

// A file that changes all the time keeps what has changed from use: that is told, once.
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
		if len(log) != 1 || !strings.Contains(log[0], file+" keeps changing") {
			t.Errorf("log: %q", log)
		}
		for _, f := range must.Get(reg.Gather())(t) {
			if f.GetName() == "rolewright_content_broken" && f.GetMetric()[0].GetGauge().GetValue() != 1 {
				t.Error("rolewright_content_broken is 0")
			}
		}
	})
}
