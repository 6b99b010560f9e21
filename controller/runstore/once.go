package runstore

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner/rundir"
)

const (
	// onceName begins the names of runner roots for one run.
	onceName = "once-"
	// onceKept is how many of them are kept after their runs.
	onceKept = 20
	// endFile is the file in a run's directory in which its supervisor notes how the run ended.
	endFile = "end.json"
)

// OnceRoot creates a runner root for one run, in runnerRoot. A store takes each run that it did not begin
// for one of an earlier process, so processes that work at the same time must not share a root.
func OnceRoot(runnerRoot string) (string, error) {
	return Dir(runnerRoot, filepath.Join(clustersDir, onceName+uuid.NewString()))
}

// TidyOnce is called with what [OnceRoot] has returned, after the run. It removes the root if it has no
// run. Of the others beside it, it keeps those in use and the newest ones. From runs whose process was
// killed, it removes the files given, as [Store.Settled] does.
func TidyOnce(root string, given ...string) error {
	roots, _ := filepath.Glob(filepath.Join(filepath.Dir(root), "*"+onceName+"*")) // the pattern is ours
	began := map[string]int64{}
	var ended []string
	var errs []error
	for _, r := range roots {
		info, err := os.Stat(r)
		switch runs, _ := filepath.Glob(filepath.Join(r, runsDir, "*", "*")); {
		case err != nil: // another process removes it
		case strings.HasPrefix(filepath.Base(r), "."), r == root && len(runs) == 0: // its removal was cut short; or its run is not kept
			errs = append(errs, rundir.Remove(r))
		case len(runs) > 0 && !slices.ContainsFunc(runs, inProgress):
			began[r], ended = info.ModTime().UnixNano(), append(ended, r)
			for _, run := range runs {
				errs = append(errs, rundir.Strip(run, given...))
			}
		}
	}
	slices.SortFunc(ended, func(a, b string) int { return int(began[b] - began[a]) })
	for _, r := range ended[min(onceKept, len(ended)):] {
		errs = append(errs, rundir.Remove(r))
	}
	return errors.Join(errs...)
}

// inProgress reports whether neither the run's process nor its supervisor has noted that it has ended.
func inProgress(run string) bool {
	_, noted := os.Lstat(filepath.Join(run, outcomeFile))
	_, supervised := os.Lstat(filepath.Join(run, endFile))
	return noted != nil && supervised != nil
}
