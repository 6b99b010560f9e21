package runner

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Recorded returns the result of a run from its artifacts alone, whichever program made
// the run with ansible-runner: dir is the private data directory, and id the name of the
// directory below its artifacts. It is an error if the artifacts have no exit code.
func Recorded(ctx context.Context, dir, id string) (Result, error) {
	req := Request{ID: id, Dir: dir}
	text, err := tailBelow(dir, filepath.Join("artifacts", id, "rc"), 16, nil)
	if err != nil {
		return Result{}, fmt.Errorf("read the exit code of run %s: %w", id, err)
	}
	res := Result{ID: id}
	if res.ExitCode, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
		return Result{}, fmt.Errorf("the exit code of run %s is %q", id, text)
	}
	done := make(chan struct{})
	close(done)
	res.Summary = follow(ctx, req, done)
	res.Status, res.Tail = readArtifacts(req)
	return res, ctx.Err()
}
