package migrate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// The results of a run in ansible-operator's status.
const (
	Successful = "Successful"
	Failed     = "Failed"
	// Running: without a stats event, the run leaves the status as it was.
	Running = "Running"
)

// Judged is a run with different results.
type Judged struct {
	// Object is the directory of the object's runs, relative to the root: in
	// ansible-operator's layout group/version/kind/namespace/name.
	Object string `json:"object"`
	Run    string `json:"run"`
	// AnsibleOperator is the result in ansible-operator's status, Rolewright the reason of the
	// condition Ready. Message explains a failure.
	AnsibleOperator string `json:"ansibleOperator"`
	Rolewright      string `json:"rolewright"`
	Message         string `json:"message"`
}

// Simulation is what the artifacts of past runs show.
type Simulation struct {
	// Runs is how many runs have ended, Objects how many objects they belong to. Unfinished counts the other runs.
	Runs       int `json:"runs"`
	Objects    int `json:"objects"`
	Unfinished int `json:"unfinished"`
	// Same is how many runs have the same result; Differ are the others.
	Same   int      `json:"same"`
	Differ []Judged `json:"differ"`
	// Unread says what could not be read.
	Unread []string `json:"unread"`

	object string // of the previous run
}

// Simulate judges the runs whose artifacts are below root by ansible-operator's rule
// and by Rolewright's. It follows no symbolic links except root itself.
func Simulate(ctx context.Context, root string) (Simulation, error) {
	s := Simulation{Differ: []Judged{}, Unread: []string{}}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return s, err
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.Unread = append(s.Unread, text.OneLine(err.Error()))
			return nil
		}
		if !entry.IsDir() || entry.Name() != "job_events" {
			return nil
		}
		artifacts, id := filepath.Split(filepath.Dir(path))
		if artifacts = filepath.Clean(artifacts); filepath.Base(artifacts) == "artifacts" {
			s.judge(ctx, root, filepath.Dir(artifacts), id)
		}
		return fs.SkipDir
	})
	if err == nil {
		err = ctx.Err() // the last run may have been judged although it was read only in part
	}
	if err == nil && s.Runs+s.Unfinished+len(s.Unread) == 0 {
		err = fmt.Errorf("there are no artifacts of runs below %s", root)
	}
	return s, err
}

func (s *Simulation) judge(ctx context.Context, root, dir, id string) {
	then, err := incumbentVerdict(ctx, filepath.Join(dir, "artifacts", id, "job_events"))
	if err != nil {
		s.Unread = append(s.Unread, text.OneLine(err.Error()))
		return
	}
	result, err := runner.Recorded(ctx, dir, id)
	if err != nil {
		s.Unfinished++
		return
	}
	object, err := filepath.Rel(root, dir)
	if err != nil {
		object = dir
	}
	if s.Runs++; s.Runs == 1 || s.object != object {
		s.Objects++
	}
	s.object = object
	now := result.Verdict()
	if now.Success == (then == Successful) && then != Running {
		s.Same++
		return
	}
	s.Differ = append(s.Differ, Judged{
		Object: text.OneLine(filepath.ToSlash(object)), Run: text.OneLine(id), AnsibleOperator: then, Rolewright: string(now.Reason), Message: now.Message,
	})
}

// incumbentVerdict returns the status that ansible-operator v1.42 gives a run
// (internal/ansible/controller/reconcile.go): a failure if a task has failed and the failure is
// not ignored, whether it is rescued or not; a success if there is none and there are stats,
// whatever the exit code; no status without stats.
func incumbentVerdict(ctx context.Context, events string) (string, error) {
	ended := make(chan struct{})
	close(ended)
	failed, stats := false, false
	for event, err := range jobevent.Follow(ctx, events, ended) {
		var unreadable *jobevent.EventError
		var gap *jobevent.GapError
		switch {
		case errors.As(err, &unreadable), errors.As(err, &gap):
		case err != nil:
			return "", err
		case event.Kind == jobevent.RunnerFailed && !event.Data.IgnoreErrors:
			failed = true
		case event.Kind == jobevent.PlaybookStats:
			stats = true
		}
	}
	switch {
	case !stats:
		return Running, nil
	case failed:
		return Failed, nil
	}
	return Successful, nil
}
