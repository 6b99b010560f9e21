package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// functionRun is a request for a run of Go code.
func functionRun(t *testing.T, call func(ctx context.Context, reports io.Writer) int) Request {
	t.Helper()
	return Request{
		ID: uuid.NewString(), Dir: filepath.Join(t.TempDir(), "run"),
		Content: Content{Function: &Function{Name: "cups", Call: call}},
	}
}

// A run of Go code is like the run of a command: it has events, a verdict and a record that a later process can read. A
// panic fails the run, and the run's output has the stack.
func TestFunction_Verdicts(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		call    func(ctx context.Context, reports io.Writer) int
		reason  Reason
		message string
	}{
		"ok": {func(_ context.Context, reports io.Writer) int {
			fmt.Fprintln(reports, `{"type":"progress","step":"Fill"}`)
			fmt.Fprintln(reports, `{"type":"result","verdict":"ok","changed":true}`)
			return 0
		}, Succeeded, ""},
		"failed": {func(_ context.Context, reports io.Writer) int {
			fmt.Fprintln(reports, `{"type":"result","verdict":"failed","message":"it leaks"}`)
			return 1
		}, CommandFailed, "it leaks"},
		"refused": {func(_ context.Context, reports io.Writer) int {
			fmt.Fprintln(reports, `{"type":"result","verdict":"failed","message":"no such size"}`)
			return 78
		}, InputRefused, "no such size"},
		"panic": {func(_ context.Context, reports io.Writer) int {
			fmt.Fprintln(reports, `{"type":"progress","step":"Fill"}`)
			panic("no cups left")
		}, CommandFailed, "cups has panicked: no cups left\ntask \"Fill\""},
		"Goexit": {func(context.Context, io.Writer) int {
			runtime.Goexit()
			return 0
		}, CommandFailed, "cups has ended its goroutine (runtime.Goexit)"},
		"half a line": {func(_ context.Context, reports io.Writer) int {
			fmt.Fprint(reports, `{"type":"pro`)
			return 0
		}, ProtocolError, "what the command reports cannot be relied on: line 1 of the reports: it has no end of line: whether it is whole is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := New(Options{})
			defer r.Close()
			req := functionRun(t, tt.call)
			var events []jobevent.Event
			req.OnEvent = func(e jobevent.Event) { events = append(events, e) }
			result := must.Get(r.Run(t.Context(), req))(t)
			got := result.Verdict()
			if got.Reason != tt.reason || got.Message != tt.message || result.Executor() != ExecutorHandler || len(events) < 4 {
				t.Errorf("%s: %q, by %s, %d events", got.Reason, got.Message, result.Executor(), len(events))
			}
			if strings.Contains(name, "panic") && !strings.Contains(result.Tail, "function_test.go:") {
				t.Errorf("no stack: %q", result.Tail)
			}
			later := must.Get(r.Recover(t.Context(), req.Dir, req.ID, false, nil))(t)
			if is := later.Verdict(); is.Reason != tt.reason || later.Executor() != ExecutorHandler {
				t.Errorf("recovered: %+v", is)
			}
			if kept := CommandEvents(t.Context(), req.Dir, req.ID, nil, nil); len(kept) != len(events) {
				t.Errorf("%d events are kept of %d", len(kept), len(events))
			}
		})
	}
}

// If the disk is full when the code returns, it is known how the run has ended.
func TestFunction_FillsTheDisk(t *testing.T) {
	t.Parallel()
	r := New(Options{})
	defer r.Close()
	root := smallDisk(t, "size=2m,mode=0700")
	req := functionRun(t, func(context.Context, io.Writer) int {
		leaveFree(t, root, 0)
		return 0
	})
	req.Dir = filepath.Join(root, req.ID)
	for _, result := range []Result{must.Get(r.Run(t.Context(), req))(t), must.Get(r.Recover(t.Context(), req.Dir, req.ID, false, nil))(t)} {
		if v := result.Verdict(); !v.Success {
			t.Errorf("verdict = %+v", v)
		}
	}
}

// Run returns only when the code has returned. If the code of a stopped run fails, the error is the cause of the stop; if
// it succeeds, the result counts, unless what it has reported had no effect.
func TestFunction_Stopped(t *testing.T) {
	t.Parallel()
	r := New(Options{})
	defer r.Close()
	for _, tt := range []struct {
		code    int
		report  string
		stopped bool
	}{{code: 1, stopped: true}, {code: 0}, {code: 0, report: `{"type":"status","patch":{"cups":3}}` + "\n", stopped: true}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("its time is over")
		returned := false
		req := functionRun(t, func(ctx context.Context, reports io.Writer) int {
			cancel(cause)
			<-ctx.Done()
			returned = true
			fmt.Fprint(reports, tt.report)
			return tt.code
		})
		req.Call = func(ctx context.Context, _ string, _ []byte) error { return ctx.Err() }
		_, err := r.Run(ctx, req)
		if !returned || errors.Is(err, cause) != tt.stopped {
			t.Errorf("%+v: returned %v, %v", tt, returned, err)
		}
	}
}
