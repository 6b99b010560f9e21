package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/test/must"
)

// A program with its own manager gets the same defaults as the flags have.
func TestDefaults_AreThoseOfTheFlags(t *testing.T) {
	t.Parallel()
	o, _ := parse(t, nil, nil)
	flags := controller.Options{
		InjectOwnerRef: o.injectOwnerRef, RunnerRoot: o.runnerRoot,
		ArtifactsMaxBytes: int64(o.artifactsMaxBytes), ArtifactsMaxAge: o.artifactsMaxAge, RunMaxBytes: int64(o.runMaxBytes),
		MaxConcurrentRuns: o.maxRuns, ReconcilePeriod: o.reconcilePeriod, RetryMin: o.retryMin, RetryMax: o.retryMax,
		ProgressInterval: o.progressInterval, GracefulShutdown: o.gracefulShutdown, LogEvents: o.eventLevel,
	}
	if diff := cmp.Diff(flags, assembly.Defaults(), cmpopts.IgnoreUnexported(controller.Options{})); diff != "" {
		t.Errorf("the flags, and the defaults of other programs:\n%s", diff)
	}
}

// The Go code that the watch names is in another program.
func TestReadWatches_RefusesHandlers(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "watches.yaml")
	must.Do(t, os.WriteFile(file, []byte("- {version: v1, kind: Cup, group: demo.example.com, handler: cups}\n"), 0o600))
	o, _ := parse(t, []string{"--watches-file=" + file}, nil)
	_, _, err := o.readWatches()
	want := "watches.yaml:1:3: error: the handler cups of the watch of demo.example.com/v1, Kind=Cup is Go code of another program, which adds the watch to its own manager; run that one; see docs/go.md"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v", err)
	}
}
