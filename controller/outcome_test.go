package controller

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// The operator recognises every reason of a verdict as its own, so the next success replaces the condition that shows a
// failure.
func TestOutcome_NoReasonOfAFailureStays(t *testing.T) {
	t.Parallel()
	reasons := append(reasonsOf(t, "../runner/verdict.go", "Reason"), status.ReasonUnavailable, status.ReasonNotRun, status.ReasonTimedOut, status.ReasonArtifactsTooLarge,
		status.ReasonOutOfMemory, status.ReasonTooManyProcesses, status.ReasonReferenceNotFound)
	if len(reasons) < 15 {
		t.Fatalf("reasons = %q", reasons)
	}
	now := time.Now()
	for _, reason := range reasons {
		if reason == string(runner.Succeeded) {
			continue
		}
		failed := status.Conclude(nil, status.Run{ID: "1", Generation: 1, Result: status.Failed, Reason: reason, Started: now, Finished: now}, time.Second, now)
		fine := status.Conclude(failed, status.Run{ID: "2", Generation: 2, Result: status.Succeeded, Reason: "Succeeded", Started: now, Finished: now}, 0, now)
		for _, item := range fine["conditions"].([]any) {
			if c := item.(map[string]any); c["type"] == status.Ready && c["status"] != "True" {
				t.Errorf("after %s and a success, Ready = %v", reason, c)
			}
		}
	}
}

// TestOutcome_SaysWhyTextIsWithheld: the warning that says so is not withheld itself.
func TestOutcome_SaysWhyTextIsWithheld(t *testing.T) {
	t.Parallel()
	r := &reconciler{now: time.Now}
	for name, withheld := range map[string]bool{"masked": false, "withheld": true} {
		s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: &memory{}, mask: redact.New(), result: succeeded(), warnings: []string{"quotes hunter22"}, runID: "1"}
		s.mask.Add(t.Context(), "hunter22")
		want := []string{"quotes [masked]"}
		if withheld {
			s.mask.Withhold()
			want = []string{"[masked]", withheldBecause + "the values of a Secret that it has read are not known"}
		}
		if diff := cmp.Diff(want, r.endedRun(s).Warnings); diff != "" {
			t.Errorf("%s: warnings (-want +got):\n%s", name, diff)
		}
	}
}

// TestOutcome_NamesTheTaskWhateverWordsItIsMadeOf: the task is named even if the whole message is masked.
func TestOutcome_NamesTheTaskWhateverWordsItIsMadeOf(t *testing.T) {
	t.Parallel()
	r := &reconciler{now: time.Now}
	task := jobevent.Task{Name: "Wait for the managed DB", Role: "managed", Path: "/roles/managed/tasks/main.yml:3"}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"failed": {nil, "not [masked]\ntask \"Wait for the managed DB\", role \"managed\", at /roles/managed/tasks/main.yml:3"},
		"timed out": {fmt.Errorf("%w for managed", ErrTimeout), ErrTimeout.Error() +
			" for [masked]; the task that ran was \"Wait for the managed DB\", role \"managed\", at /roles/managed/tasks/main.yml:3"},
		"out of memory": {errors.Join(fmt.Errorf("%w of managed", runner.ErrMemory), runner.ErrCut), runner.ErrMemory.Error() +
			" of [masked]\na process that supervised the run was killed; the task that ran was \"Wait for the managed DB\", role \"managed\", at /roles/managed/tasks/main.yml:3" +
			"; raise the container's memory limit, lower --max-concurrent-runs, or make the role use less memory"},
	} {
		s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: &memory{}, mask: redact.New(), runID: "1", err: tc.err}
		s.result = runner.Result{ExitCode: 2, Status: "failed"}
		s.result.Summary.Task = task
		s.result.Summary.Failed = []jobevent.Failure{{Task: task, Message: "not managed"}}
		s.mask.Add(t.Context(), "managed")
		if run := r.endedRun(s); run.Message != tc.want || run.FailedTask == nil || run.FailedTask.Name != task.Name {
			t.Errorf("%s: message %q, want %q; task %+v", name, run.Message, tc.want, run.FailedTask)
		}
	}
}

// If the result of a run is known, it stays, and the message adds that processes are left.
func TestOutcome_KeepsTheVerdictWhereProcessesAreLeft(t *testing.T) {
	t.Parallel()
	left := fmt.Errorf("%w: no end of [7] after SIGKILL", runner.ErrSurvivors)
	for want, s := range map[string]*scope{
		"Succeeded Succeeded": {err: left, result: succeeded()},
		"Failed TaskFailed":   {err: left, result: failed("broken")},
		"Failed TimedOut":     {err: errors.Join(ErrTimeout, left), result: succeeded()},
	} {
		s.content, s.memory, s.mask, s.runID = &contentVersion{secrets: &secrets{}}, &memory{}, redact.New(), "1"
		run := (&reconciler{now: time.Now}).endedRun(s)
		must.Be(t, "end", want, fmt.Sprint(run.Result, " ", run.Reason))
		must.Be(t, want+": counts", countsOf(s.result.Summary), run.Counts)
		if len(run.Warnings) != 1 || !strings.Contains(run.Warnings[0], "restart the node") || !strings.Contains(run.Warnings[0], "[7]") {
			t.Errorf("%s: warnings %q", want, run.Warnings)
		}
	}
	s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: &memory{}, mask: redact.New(), runID: "1", err: runner.ErrUnseen, result: succeeded()}
	run := (&reconciler{now: time.Now}).endedRun(s)
	must.Be(t, "end where processes cannot be listed", status.Succeeded, run.Result)
	if len(run.Warnings) != 1 || strings.Contains(run.Warnings[0], "node") || !strings.Contains(run.Warnings[0], "open files") {
		t.Errorf("warnings %q", run.Warnings)
	}
}

// The failed task is the one at the beginning of the message, not the last of several.
func TestOutcome_TheFailedTaskIsThatOfTheMessage(t *testing.T) {
	t.Parallel()
	s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: &memory{}, mask: redact.New(), runID: "1", result: runner.Result{ExitCode: 2, Status: "failed"}}
	s.result.Summary.Failed = []jobevent.Failure{
		{Task: jobevent.Task{Name: "Reach it"}, Host: "far", Message: "no route", Unreachable: true},
		{Task: jobevent.Task{Name: "Deploy"}, Host: "near", Message: "refused"},
		{Task: jobevent.Task{Name: "Clean up"}, Host: "near", Message: "nothing there"},
	}
	s.result.Summary.Failed[1].Detail = "the output is hidden because of no_log"
	run := (&reconciler{now: time.Now}).endedRun(s)
	if !hidesFailure(s.result.Summary) {
		t.Error("the lines of a task with no_log are shown, since the last one has none")
	}
	if run.FailedTask == nil || run.FailedTask.Name != "Deploy" || !strings.HasPrefix(run.Message, "refused\ntask \"Deploy\"") {
		t.Errorf("failed task %+v, message %q", run.FailedTask, run.Message)
	}
}

// A run is not blamed for the death of a helper process, unless it is the run's own and that happens again. The death of
// a fork server says nothing about any run.
func TestOutcome_OfAHelperThatIsKilled(t *testing.T) {
	t.Parallel()
	r := &reconciler{now: time.Now}
	own, server := runner.ErrCut, errors.Join(runner.ErrServerCut, errors.New("and more"))
	const cut, died, interrupted = "Interrupted HelperKilled", "Failed RunnerDied", "Interrupted Interrupted"
	for name, tt := range map[string]struct {
		killed []error
		want   []string
	}{
		"its own":                   {[]error{own, own, own}, []string{cut + " 0", died + " 1", died + " 2"}},
		"the server's":              {[]error{server, server, server}, []string{interrupted + " 0", interrupted + " 0", interrupted + " 0"}},
		"the server's and its own":  {[]error{server, own, server, own}, []string{interrupted + " 0", cut + " 0", interrupted + " 0", cut + " 0"}},
		"its own after one of both": {[]error{server, own, own}, []string{interrupted + " 0", cut + " 0", died + " 1"}},
	} {
		m := &memory{}
		var got []string
		for _, err := range tt.killed {
			s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: m, mask: redact.New(), runID: "1", fingerprint: "same", err: fmt.Errorf("run: %w", err)}
			run := r.endedRun(s)
			m.last = &run
			got = append(got, fmt.Sprint(run.Result, " ", run.Reason, " ", run.Attempts))
		}
		must.Be(t, name, tt.want, got)
	}
}

// A run that had only its share of the memory when it ran out is not a failure, and is put off more each time; one that took the
// most of it is.
func TestOutcome_OfRunsThatTookTheMemoryTogether(t *testing.T) {
	t.Parallel()
	r := &reconciler{now: time.Now}
	end := func(err error) status.Run {
		return r.endedRun(&scope{
			content: &contentVersion{secrets: &secrets{}}, mask: redact.New(), runID: "1", fingerprint: "same",
			memory: &memory{last: &status.Run{Fingerprint: "same", Result: status.Failed, Attempts: 2}}, err: fmt.Errorf("%w: 180 MiB", err),
		})
	}
	run := end(runner.ErrMemoryShared)
	if run.Reason != status.ReasonNoMemory || run.Attempts != 2 || !strings.HasSuffix(run.Message, "180 MiB; raise the container's memory limit, or lower --max-concurrent-runs") {
		t.Errorf("with others: %+v", run)
	}
	must.Be(t, "in a row", int64(2), blocked(blocked(0, run), run))
	if run = end(runner.ErrMemory); run.Result != status.Failed || run.Attempts != 3 {
		t.Errorf("alone: %+v", run)
	}
}

// A run that the cluster has ended is not a failure; how many there were in a row lasts until a run has ended by itself.
func TestOutcome_OfARunThatTheClusterEnds(t *testing.T) {
	t.Parallel()
	r := &reconciler{now: time.Now}
	s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: &memory{}, mask: redact.New(), runID: "1", err: fmt.Errorf("%w: Evicted: too much", runner.ErrCluster)}
	run := r.endedRun(s)
	if !run.Disrupted() || run.Attempts != 0 || !strings.HasSuffix(run.Message, "Evicted: too much; it is repeated") {
		t.Errorf("%+v, want a disruption", run)
	}
	n := blocked(blocked(0, run), run)
	if n = blocked(n, status.Run{Result: status.Interrupted, Reason: "Interrupted"}); n != 2 {
		t.Errorf("%d disruptions in a row, want 2", n)
	}
	if n = blocked(n, status.Run{Result: status.Failed, Reason: "TaskFailed"}); n != 0 {
		t.Errorf("%d disruptions after a failure of the role, want 0", n)
	}
}

// If a role causes its own requests to be cut each time, its failure still counts.
func TestOutcome_OfRequestsThatAreCutAgain(t *testing.T) {
	t.Parallel()
	r := &reconciler{now: time.Now}
	m := &memory{}
	var got []string
	for range 3 {
		s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: m, mask: redact.New(), runID: "1", fingerprint: "same", err: fmt.Errorf("%w: 1 of its requests", runner.ErrUnanswered)}
		run := r.endedRun(s)
		m.last = &run
		got = append(got, fmt.Sprint(run.Result, " ", run.Attempts))
	}
	must.Be(t, "results", []string{"Interrupted 0", "Failed 1", "Failed 2"}, got)
	s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: m, mask: redact.New(), runID: "1", fingerprint: "same", err: runner.ErrUnanswered, earlier: true}
	must.Be(t, "result of a run that has lost its operator", status.Interrupted, r.endedRun(s).Result)
}

// reasonsOf returns the constants of a type in a file.
func reasonsOf(t *testing.T, file, kind string) []string {
	t.Helper()
	parsed := must.Get(parser.ParseFile(token.NewFileSet(), file, nil, 0))(t)
	var found []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name, isName := spec.Type.(*ast.Ident)
		value, isValue := spec.Values[0].(*ast.BasicLit)
		if isName && isValue && name.Name == kind {
			text := must.Get(strconv.Unquote(value.Value))(t)
			found = append(found, text)
		}
		return true
	})
	return found
}

// A run that waited for its turn until its time was over has not failed.
func TestOutcome_OfARunWhoseTurnNeverCame(t *testing.T) {
	t.Parallel()
	r := &reconciler{now: time.Now}
	s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: &memory{}, mask: redact.New(), runID: "1", err: fmt.Errorf("not started: %w: %w", runner.ErrNoTurn, ErrTimeout)}
	if run := r.endedRun(s); run.Result != status.Interrupted || run.Attempts != 0 {
		t.Errorf("%+v", run)
	}
	// As a Job, it has had its turn but got no Pod.
	r.watch.Executor, s.err = watches.ExecutorJob, fmt.Errorf("%w; its Pod waited: ImagePullBackOff", s.err)
	if run := r.endedRun(s); run.Result != status.Failed || run.Reason != status.ReasonNotRun || run.Attempts != 0 || !strings.HasSuffix(run.Message, "ImagePullBackOff") {
		t.Errorf("as a Job: %+v", run)
	}
	// If it was cancelled, no other run is wanted.
	s.err = fmt.Errorf("not started: %w: %w; its Pod waited: ImagePullBackOff", runner.ErrNoTurn, ErrCancelled)
	if run := r.endedRun(s); run.Result != status.Failed || run.Reason != status.ReasonCancelled {
		t.Errorf("cancelled: %+v", run)
	}
}

// TestOutcome_NamesWhatARunInAPodLacks: the message names its node and its watch, not the operator's disk and flags.
func TestOutcome_NamesWhatARunInAPodLacks(t *testing.T) {
	t.Parallel()
	req := runner.Request{ID: "1", Dir: filepath.Join(t.TempDir(), "run"), JobRun: &runner.JobRun{}}
	must.Do(t, runner.CreateMirror(req))
	over := make(chan struct{})
	close(over)
	inAPod, _ := runner.Mirrored(t.Context(), req, nil, over) // how it has ended is known only from what follows
	r := &reconciler{now: time.Now, opts: &Options{RunnerRoot: "/runner"}}
	for _, cause := range []error{runner.ErrMemory, runner.ErrNoSpace} {
		for name, tt := range map[string]struct {
			of   runner.Result
			want bool
		}{"in a Pod of its own": {inAPod, true}, "here": {succeeded(), false}} {
			s := &scope{content: &contentVersion{secrets: &secrets{}}, memory: &memory{}, mask: redact.New(), result: tt.of, err: cause, runID: "1"}
			said := r.endedRun(s).Message
			if strings.Contains(said, "the watch's job") != tt.want || strings.Contains(said, "--") == tt.want {
				t.Errorf("%v, %s: %q", cause, name, said)
			}
		}
	}
}

// A time that no_log hides is not ignored silently.
func TestRequeueAfter_Hidden(t *testing.T) {
	t.Parallel()
	if _, err := requeueAfter(jobevent.RequeueAfter{Hidden: true}); err == nil || !strings.Contains(err.Error(), "take no_log off the task") {
		t.Error(err)
	}
}
