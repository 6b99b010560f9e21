package watches

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Failed runs are kept beside the others unless none are wanted. All limits
// distinguish 0 and negative values from unset.
func TestLoad_WhatIsKeptOfRuns(t *testing.T) {
	age := func(d time.Duration) *time.Duration { return &d }
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "roles", "memcached", "tasks"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		lines        []string
		runs, failed int
		age          *time.Duration
	}{
		"nothing said":        {nil, 20, 5, nil},
		"none":                {[]string{"  maxRunnerArtifacts: 0"}, 0, 0, nil},
		"failed ones only":    {[]string{"  maxFailedRunnerArtifacts: 2", "  maxRunnerArtifacts: 0"}, 0, 2, nil},
		"no failed ones":      {[]string{"  maxFailedRunnerArtifacts: 0"}, 20, 0, nil},
		"all":                 {[]string{"  maxRunnerArtifacts: -5", "  maxFailedRunnerArtifacts: -5"}, -5, -5, nil},
		"a day":               {[]string{"  artifactsMaxAge: 24h"}, 20, 5, age(24 * time.Hour)},
		"no age":              {[]string{"  artifactsMaxAge: 0"}, 20, 5, age(0)},
		"any age, by a limit": {[]string{"  artifactsMaxAge: -1s"}, 20, 5, age(-time.Second)},
	} {
		t.Run(name, func(t *testing.T) {
			got := loadText(t, dir, watch(tt.lines...), Options{})
			if len(got.watches) != 1 {
				t.Fatalf("watches = %+v, %v", got.watches, got.err)
			}
			w := got.watches[0]
			if w.MaxRunnerArtifacts != tt.runs || w.MaxFailedRunnerArtifacts != tt.failed ||
				(w.ArtifactsMaxAge == nil) != (tt.age == nil) || tt.age != nil && *w.ArtifactsMaxAge != *tt.age {
				t.Errorf("kept: %d, failed %d, age %v", w.MaxRunnerArtifacts, w.MaxFailedRunnerArtifacts, w.ArtifactsMaxAge)
			}
		})
	}
	for _, line := range []string{"  maxFailedRunnerArtifacts: abc", "  maxFailedRunnerArtifacts: 1.5", "  artifactsMaxAge: 30", "  artifactsMaxAge: soon"} {
		if got := loadText(t, dir, watch(line), Options{}); got.err == nil {
			t.Errorf("%s is taken", line)
		}
	}
}
