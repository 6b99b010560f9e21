package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/supervise"
)

// Function is Go code in this process that makes a run in place of a program. It reports and
// ends like a command: see docs/handlers.md. Nothing can kill it: it has to return soon after
// its context ends.
type Function struct {
	// Name stands for the function in messages.
	Name string
	// Call makes the run, writes its reports, and returns an exit code.
	Call func(ctx context.Context, reports io.Writer) int
}

// functionCalled is the note in the record of a run that was made by a function.
const functionCalled = "function called"

// panicked is the exit code of a function that panics or ends its goroutine.
const panicked = 70 // EX_SOFTWARE of sysexits.h

// call calls the function of the run, and follows its reports.
func (r *Runner) call(ctx context.Context, req Request) (supervise.Exit, jobevent.Summary, error) {
	exit := supervise.Exit{Code: -1, Notes: functionCalled}
	reports, err := os.OpenFile(filepath.Join(artifactsDir(req), ReportsFile), os.O_WRONLY|os.O_APPEND, 0)
	if err == nil && req.Until != nil && !time.Now().Before(req.Until()) {
		err = errors.Join(errors.New("the function is not called any more"), reports.Close())
	}
	if err == nil {
		if err = supervise.ReserveExit(filepath.Join(req.Dir, endRecord)); err != nil {
			err = errors.Join(err, reports.Close())
		}
	}
	if err != nil {
		return exit, jobevent.Summary{}, fmt.Errorf("%w: %w", supervise.ErrNotStarted, err)
	}
	done := make(chan struct{})
	summaries := make(chan jobevent.Summary, 1)
	go func() { summaries <- follow(ctx, req, done) }()

	exit.Started = time.Now()
	code, said := req.Content.Function.call(ctx, reports)
	exit.Code, exit.Finished = code, time.Now()
	// A function with exit code 0 has done all its work, even if its context ended, unless its reports came too late.
	exit.Stopped = ctx.Err() != nil && code != 0
	err = reports.Close()
	if said != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(artifactsDir(req), stderrFile), []byte(said), fileMode))
	}
	req.reports.exit = exit
	close(done)
	summary := <-summaries
	exit.Stopped = exit.Stopped || req.reports.unanswered && ctx.Err() != nil
	if err = errors.Join(err, supervise.WriteExit(filepath.Join(req.Dir, endRecord), exit)); err != nil {
		// The function was called: an error would have it called again.
		req.reports.warn(fmt.Sprintf("not all files about the end of the run could be written: %v", err))
	}
	return exit, summary, nil
}

// call calls the function. If it panics or ends its goroutine, only the run fails. said is then
// the output of the run, else empty.
func (f *Function) call(ctx context.Context, reports io.Writer) (code int, said string) {
	code = panicked
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			if returned {
				return
			}
			what := "has ended its goroutine (runtime.Goexit)"
			if p := recover(); p != nil {
				what = fmt.Sprintf("has panicked: %v", p)
			}
			// The last line is the message of the run.
			said = fmt.Sprintf("%s\n%s %s\n", debug.Stack(), f.Name, text.OneLine(what))
		}()
		code = f.Call(ctx, reports)
		returned = true
	}()
	<-ended
	return code, said
}
