package jobevent

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rolewright/rolewright/test/must"
)

// captured returns the events that ansible-runner wrote for a playbook in
// testdata/project, one JSON text each.
func captured(t testing.TB, playbook string) []string {
	t.Helper()
	text := must.Get(os.ReadFile(filepath.Join("testdata", "events", playbook+".jsonl")))(t)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func decode(t testing.TB, text string) Event {
	t.Helper()
	e, err := Decode(strings.NewReader(text))
	if err != nil {
		t.Fatalf("decode %.200s: %v", text, err)
	}
	return e
}

func summarise(t testing.TB, playbook string) *Summary {
	t.Helper()
	var s Summary
	for _, text := range captured(t, playbook) {
		s.Observe(decode(t, text))
	}
	return &s
}

// TestSummary_OfCapturedRuns checks the summaries of real runs. Times and UUIDs differ with every capture and are checked
// separately.
func TestSummary_OfCapturedRuns(t *testing.T) {
	failTask := func(name, file string, at int) Task {
		return Task{Name: name, Action: "fail", Path: fmt.Sprintf("/runner/project/%s.yml:%d", file, at)}
	}
	command := func(name, file string, at int) Task {
		return Task{Name: name, Action: "command", Path: fmt.Sprintf("/runner/project/%s.yml:%d", file, at)}
	}
	ping := func(file string) Task {
		return Task{Name: "reach it", Action: "ping", Path: "/runner/project/" + file + ".yml:4"}
	}
	const refused = "Failed to connect to the host via ssh: ssh: connect to host 127.0.0.1 port 1: Connection refused"

	tests := map[string]struct {
		want     Summary   // totals, RequeueAfter and NoHostsMatched are compared
		failed   []Failure // Summary.Failed
		culprits []Failure // nil: the same as failed
		none     bool      // no culprits at all
	}{
		"ok": {want: Summary{TasksStarted: 4, OK: 3, Changed: 1, Skipped: 1}},
		"failed": {
			want:   Summary{TasksStarted: 2, OK: 1, Failures: 1},
			failed: []Failure{{Task: failTask("break it", "failed", 6), Host: "localhost", Message: "it is broken"}},
		},
		"loop_failed": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task: command("many", "loop_failed", 4), Host: "localhost",
				Message: "One or more items failed", ItemsFailed: 2,
				Items: []string{"1: non-zero return code", "3: non-zero return code"},
			}},
		},
		"loop_many": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task: failTask("many", "loop_many", 4), Host: "localhost",
				Message: "One or more items failed", ItemsFailed: 7,
				Items: []string{"item a: no a", "item b: no b", "item c: no c", "item d: no d", "item e: no e"},
			}},
		},
		"rescue": {
			want:   Summary{TasksStarted: 2, OK: 1, Rescued: 1},
			failed: []Failure{{Task: failTask("try", "rescue", 5), Host: "localhost", Message: "tried in vain"}},
			none:   true,
		},
		"rescue_failed": {
			want: Summary{TasksStarted: 3, OK: 1, Failures: 1, Rescued: 1},
			failed: []Failure{
				{Task: failTask("try", "rescue_failed", 5), Host: "localhost", Message: "tried in vain"},
				{Task: failTask("repair", "rescue_failed", 8), Host: "localhost", Message: "beyond repair"},
			},
			culprits: []Failure{
				{Task: failTask("repair", "rescue_failed", 8), Host: "localhost", Message: "beyond repair"},
			},
		},
		"ignore_errors": {want: Summary{TasksStarted: 2, OK: 2, Ignored: 1}},
		"failed_when": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task: command("conditional", "failed_when", 4), Host: "localhost",
				Message: "hi", FailedWhen: true,
			}},
		},
		"unreachable": {
			want:   Summary{TasksStarted: 1, Unreachable: 1},
			failed: []Failure{{Task: ping("unreachable"), Host: "gone", Message: refused, Unreachable: true}},
		},
		"ignore_unreachable": {
			want:   Summary{TasksStarted: 2, OK: 2, Ignored: 1},
			failed: []Failure{{Task: ping("ignore_unreachable"), Host: "gone", Message: refused, Unreachable: true}},
			none:   true,
		},
		"unreachable_loop": {
			want: Summary{TasksStarted: 1, Unreachable: 1},
			failed: []Failure{{
				Task: ping("unreachable_loop"), Host: "gone", Unreachable: true,
				Message: "All items completed", ItemsFailed: 2,
				Items: []string{"1: " + refused, "2: " + refused},
			}},
		},
		"no_hosts": {want: Summary{NoHostsMatched: true}},
		"end_play": {want: Summary{TasksStarted: 1}},
		"handler_failed": {
			want: Summary{TasksStarted: 2, OK: 1, Changed: 1, Failures: 1},
			failed: []Failure{{
				Task: failTask("restart it", "handler_failed", 8), Host: "localhost",
				Message: "did not restart", Handler: true,
			}},
		},
		"no_log": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task: failTask("hidden", "no_log", 4), Host: "localhost",
				Message: unknownFailure, Detail: hiddenDetail,
			}},
		},
		"no_log_loop": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task: command("hidden", "no_log_loop", 4), Host: "localhost",
				Message: unknownFailure, Detail: hiddenDetail, ItemsFailed: 2,
			}},
		},
		"requeue": {want: Summary{
			TasksStarted: 4, OK: 3, Skipped: 1,
			RequeueAfter: &RequeueAfter{Period: "5s", Task: Task{
				Name: "sooner", Action: "requeue_after", Path: "/runner/project/requeue.yml:6",
			}},
		}},
		"requeue_loop": {want: Summary{
			TasksStarted: 1, OK: 1,
			RequeueAfter: &RequeueAfter{Period: "2s", Task: Task{
				Name: "loop", Action: "requeue_after", Path: "/runner/project/requeue_loop.yml:4",
			}},
		}},
		"hosts": {
			want: Summary{TasksStarted: 4, OK: 3, Skipped: 1, Failures: 1, Unreachable: 1, Rescued: 1},
			failed: []Failure{
				{
					Task: Task{Name: "first", Action: "ping", Path: "/runner/project/hosts.yml:4"},
					Host: "gone", Message: refused, Unreachable: true,
				},
				{Task: failTask("only on b", "hosts", 6), Host: "b", Message: "b is bad"},
				{Task: failTask("fail", "hosts", 11), Host: "a", Message: "a is bad for a moment"},
			},
			culprits: []Failure{
				{
					Task: Task{Name: "first", Action: "ping", Path: "/runner/project/hosts.yml:4"},
					Host: "gone", Message: refused, Unreachable: true,
				},
				{Task: failTask("only on b", "hosts", 6), Host: "b", Message: "b is bad"},
			},
		},
		"list_msg": {
			want:   Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{Task: failTask("list it", "list_msg", 4), Host: "localhost", Message: "one; two"}},
		},
		"bad_args": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task:    Task{Name: "misuse", Action: "file", Path: "/runner/project/bad_args.yml:4"},
				Host:    "localhost",
				Message: "value of state must be one of: absent, directory, file, hard, link, touch, got: bogus",
			}},
		},
		"missing_include": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task:    Task{Name: "include", Action: "include_tasks", Path: "/runner/project/missing_include.yml:4"},
				Host:    "localhost",
				Message: "Could not find or access '/runner/project/missing.yml' on the Ansible Controller.",
			}},
		},
		"clear_errors": {
			want: Summary{TasksStarted: 3, Failures: 2},
			failed: []Failure{
				{Task: failTask("bad", "clear_errors", 5), Host: "localhost", Message: "cleared"},
				{Task: failTask("after", "clear_errors", 9), Host: "localhost", Message: "real"},
			},
			culprits: []Failure{{Task: failTask("after", "clear_errors", 9), Host: "localhost", Message: "real"}},
		},
		// Culprits cannot know that the real failure came before the rescued one.
		"recovered": {
			want: Summary{TasksStarted: 3, OK: 1, Failures: 1, Rescued: 1},
			failed: []Failure{
				{Task: failTask("real", "recovered", 6), Host: "localhost", Message: "the real one"},
				{Task: failTask("probe", "recovered", 10), Host: "localhost", Message: "rescued"},
			},
			culprits: []Failure{{Task: failTask("probe", "recovered", 10), Host: "localhost", Message: "rescued"}},
		},
		"role": {
			want: Summary{TasksStarted: 1, Failures: 1},
			failed: []Failure{{
				Task: Task{
					Name: "in a role", Action: "ansible.builtin.fail", Role: "thing",
					Path: "/runner/project/roles/thing/tasks/main.yml:1",
				},
				Host:    "localhost",
				Message: "rôle brøken\nsecond line",
			}},
		},
		"forged": {
			want:   Summary{TasksStarted: 2, OK: 1, Failures: 1, Foreign: 4},
			failed: []Failure{{Task: failTask("break it", "forged", 8), Host: "localhost", Message: "it is broken"}},
		},
	}
	totals := cmp.Options{
		cmpopts.IgnoreUnexported(Summary{}),
		cmpopts.IgnoreFields(Summary{}, "PlaybookUUID", "Events", "Task", "CompletedAt", "Stats", "Changes", "Failed", "Acted", "Answered", "HostsMatched"),
		cmpopts.IgnoreFields(Task{}, "Started"),
		cmpopts.EquateEmpty(),
	}
	for playbook, tt := range tests {
		t.Run(playbook, func(t *testing.T) {
			s := summarise(t, playbook)
			tt.want.Complete = true
			must.Be(t, "totals", tt.want, *s, totals)
			must.Be(t, "Failed", tt.failed, s.Failed, totals)
			culprits := tt.culprits
			if culprits == nil && !tt.none {
				culprits = tt.failed
			}
			must.Be(t, "Culprits", culprits, s.Culprits(), totals)
			if want := len(captured(t, playbook)) - tt.want.Foreign; s.Events != want {
				t.Errorf("Events = %d, want %d", s.Events, want)
			}
			if s.CompletedAt.IsZero() || s.PlaybookUUID == "" {
				t.Errorf("no time of completion or no UUID: %v, %q", s.CompletedAt, s.PlaybookUUID)
			}
			for _, f := range s.Failed {
				if f.Task.Started.IsZero() {
					t.Errorf("the failure of %q has no start", f.Task.Name)
				}
			}
		})
	}
}

func TestSummary_UndefinedVariableKeepsAnsiblesMessage(t *testing.T) {
	s := summarise(t, "undefined")
	if len(s.Failed) != 1 || !strings.HasPrefix(s.Failed[0].Message, "The task includes an option with an undefined variable.") {
		t.Errorf("Failed = %+v", s.Failed)
	}
}

// With the free strategy, the events of loops on several hosts are interleaved.
func TestSummary_InterleavedLoopsAreToldApart(t *testing.T) {
	s := summarise(t, "free")
	if len(s.Culprits()) != 2 {
		t.Fatalf("Culprits = %+v", s.Culprits())
	}
	for _, f := range s.Culprits() {
		if f.ItemsFailed != 7 || len(f.Items) != maxItems {
			t.Errorf("host %s: %d items failed, %d described", f.Host, f.ItemsFailed, len(f.Items))
		}
	}
}

// With force_handlers, a handler can fail after the task that failed.
func TestSummary_ForcedHandlerIsTheLastFailure(t *testing.T) {
	s := summarise(t, "forced_handler")
	if len(s.Failed) != 2 || s.Failed[0].Handler || !s.Failed[1].Handler || s.Failures != 2 {
		t.Errorf("Failures = %d, Failed = %+v", s.Failures, s.Failed)
	}
}

func TestSummary_CountsWhileTheRunLasts(t *testing.T) {
	var s Summary
	all := captured(t, "handler_failed")
	for _, text := range all[:len(all)-1] {
		s.Observe(decode(t, text))
	}
	got := []any{s.OK, s.Changed, s.Failures, s.TasksStarted, s.Task.Name, s.Complete}
	must.Be(t, "OK, Changed, Failures, TasksStarted, Task, Complete", []any{1, 1, 1, 2, "restart it", false}, got)
	if len(s.Culprits()) != 1 {
		t.Errorf("without stats Culprits = %+v, want all failures", s.Culprits())
	}
}

func TestSummary_NothingAfterTheStatsCounts(t *testing.T) {
	var s Summary
	s.Observe(Event{Kind: PlaybookStart, Data: Data{PlaybookUUID: "a"}})
	s.Observe(withFailures(0))
	s.Observe(Event{Kind: RunnerFailed, Data: Data{PlaybookUUID: "a", Host: "h"}})
	s.Observe(Event{Kind: NoHostsMatched, Data: Data{PlaybookUUID: "a", Host: "h"}})
	if s.Failures != 0 || len(s.Failed) != 0 || s.NoHostsMatched {
		t.Errorf("Summary = %+v", s)
	}
}

func TestSummary_CountsErrors(t *testing.T) {
	var s Summary
	s.ObserveError(&EventError{Counter: 1, Err: errDuplicate})
	s.ObserveError(errors.New("other"))
	s.ObserveError(fmt.Errorf("wrapped: %w", &GapError{First: 3, Last: 7}))
	if s.Bad != 2 || s.Gaps != 5 {
		t.Errorf("Bad = %d, Gaps = %d, want 2 and 5", s.Bad, s.Gaps)
	}
	s.ObserveError(&GapError{First: 1, Last: 1 << 47})
	s.ObserveError(&GapError{First: 1, Last: 1 << 47})
	if s.Gaps != math.MaxInt32 {
		t.Errorf("Gaps = %d, want it to stop at %d", s.Gaps, math.MaxInt32)
	}
}

// If a summary was not built from events, Culprits uses its exported fields.
func TestSummary_CulpritsOfALiteral(t *testing.T) {
	s := Summary{
		Complete: true,
		Stats:    &Stats{Failures: map[string]int{"a": 1}, Dark: map[string]int{"c": 1}},
		Failed: []Failure{
			{Host: "a", Message: "rescued"},
			{Host: "b", Message: "rescued too"},
			{Host: "c", Message: "unreachable", Unreachable: true},
			{Host: "a", Message: "final"},
			{Host: "a", Message: "ignored", Unreachable: true},
		},
	}
	var got []string
	for range 2 { // asking changes nothing
		got = nil
		for _, f := range s.Culprits() {
			got = append(got, f.Message)
		}
	}
	must.Be(t, "culprits", []string{"unreachable", "final"}, got)
}

// TestSummary_IsBounded floods a summary with distinct, large, hostile events.
func TestSummary_IsBounded(t *testing.T) {
	var s Summary
	huge := strings.Repeat("\x1b[31mx\u202e\x00é", 200)
	res := json.RawMessage(fmt.Sprintf(`{"msg":%q,"stderr":%[1]q,"item":%[1]q,"_ansible_no_log":false}`, strings.Repeat("yé", 5000)))
	s.Observe(Event{Kind: PlaybookStart, Data: Data{PlaybookUUID: "a"}})
	for i := range 100 {
		d := Data{
			PlaybookUUID: "a", Task: huge, Role: huge, TaskPath: huge, TaskAction: huge,
			TaskUUID: fmt.Sprint("task", i), Host: fmt.Sprint(i, huge), Res: res,
		}
		for _, kind := range []Kind{TaskStart, ItemFailed, ItemFailed, ItemFailed, ItemFailed, ItemFailed, ItemFailed, RunnerFailed, RunnerUnreach} {
			s.Observe(Event{Kind: kind, Created: time.Now(), Data: d})
		}
	}
	if s.Failures != 100 || s.Unreachable != 100 || len(s.Failed) != maxFailures {
		t.Errorf("Failures = %d, Unreachable = %d, %d reported", s.Failures, s.Unreachable, len(s.Failed))
	}
	if n := max(len(s.last.keys), len(s.items.keys), len(s.started.keys), len(s.last.values), len(s.items.values), len(s.started.values)); n > maxRecent {
		t.Errorf("%d things are remembered", n)
	}
	for _, f := range s.Failed {
		checkPlain(t, f)
	}
	checkPlain(t, Failure{Task: s.Task})
}
