package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func watchesDoc() string {
	var b strings.Builder
	b.WriteString("# Keys of watches.yaml\n\n" +
		"Written by `go test ./cmd/rolewright -run WatchesReference -update`; edit the fields in the code, not this page.\n\n" +
		"What they mean together is in [watches.yaml](../watches.md). Keys may be written in any case. A default that begins with `--` is\n" +
		"that of the [flag](flags.md).\n\n" +
		"| key | type | default | meaning |\n|---|---|---|---|\n")
	for _, f := range watches.Fields() {
		value := code(f.Default)
		if f.Required {
			value = "required"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", f.Key, f.Type, value, cell(f.Description))
	}
	return b.String()
}

func TestWatchesReference_IsInStepWithTheFields(t *testing.T) {
	checkPage(t, "watches.md", watchesDoc())
}

// situation is a moment in the life of an object, and the status at that moment.
type situation struct {
	title  string
	status map[string]any
}

// sampleRun returns a run with every field that is recorded.
func sampleRun(result status.Result, reason string) status.Run {
	began := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	return status.Run{
		ID: "1c5a1f0e-…", Cause: "changed", Trigger: "object", Generation: 3, Fingerprint: "v1:5f0c…", Inputs: "q83vEjRW", Started: began, Finished: began.Add(42 * time.Second),
		Result: result, Reason: reason, Message: "MESSAGE", RequeueAfter: time.Minute, Attempts: 1, Counts: status.Counts{OK: 4, Changed: 1},
		FailedTask: &status.Task{Name: "Make it", Role: "web", Host: "localhost", Path: "roles/web/tasks/main.yml:3"},
		Executor:   "warm", Modules: map[string]int64{"forked": 7},
		Dependents: []string{"deployments.v1.apps"}, Warnings: []string{"WARNING"}, Completed: began,
	}
}

func situations() []situation {
	now := time.Date(2026, 5, 6, 7, 9, 0, 0, time.UTC)
	active := status.Active{ID: "1c5a1f0e-…", Cause: "changed", Trigger: "object", Generation: 3, Started: now, Task: status.Task{Name: "Make it", Role: "web", Path: "roles/web/tasks/main.yml:3"}, TasksStarted: 2}
	begun := func() map[string]any { return status.Begin(map[string]any{}, active, false, now) }
	permanent := sampleRun(status.Failed, "PlaybookInvalid")
	permanent.Permanent = true
	exhausted := sampleRun(status.Failed, "TaskFailed")
	exhausted.Attempts = 5
	lost := sampleRun(status.Interrupted, status.ReasonLost)
	lost.Losses = 3
	succeeded := sampleRun(status.Succeeded, "Succeeded")
	succeeded.Message, succeeded.Attempts, succeeded.FailedTask, succeeded.Handled = "", 0, nil, "2026-05-06T18:00:00Z"
	succeeded.Pruned, succeeded.References = 1, []string{status.Reference("v1", "ConfigMap", "prod", "menu")}
	parked := succeeded
	parked.Wait = &status.Wait{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "prod", Name: "web", For: "ready", Since: now, Until: now.Add(time.Hour)}
	checked, drifted, checking := succeeded, succeeded, active
	checking.Mode, checked.Mode, drifted.Mode, drifted.Drifted, drifted.Drift = status.ModeCheck, status.ModeCheck, status.ModeCheck, true, "1 task would change something …"
	unchecked := sampleRun(status.Failed, "TaskFailed")
	unchecked.Mode = status.ModeCheck
	loop := succeeded
	loop.Loop = "It ran 10 times in a row because other clients changed what it owns, the last time: …"
	applied := status.Conclude(begun(), succeeded, 0, now)
	return []situation{
		{"first run in progress", begun()},
		{"run succeeded", status.Conclude(begun(), succeeded, 0, now)},
		{"run succeeded, again because others had changed what runs do", status.Conclude(begun(), loop, 0, now)},
		{"run succeeded, and the object waits (wait_for)", status.Conclude(begun(), parked, 0, now)},
		{"run failed, and is retried", status.Conclude(begun(), sampleRun(status.Failed, "TaskFailed"), 4*time.Second, now)},
		{"run failed, and the same inputs cannot succeed", status.Conclude(begun(), permanent, 0, now)},
		{"run failed, as often as retry.maxAttempts allows", status.Conclude(begun(), exhausted, 0, now)},
		{"run cancelled", status.Conclude(begun(), sampleRun(status.Failed, status.ReasonCancelled), 0, now)},
		{"run interrupted", status.Conclude(begun(), sampleRun(status.Interrupted, "Interrupted"), 0, now)},
		{"run lost with its operator for the third time in a row", status.Conclude(begun(), lost, 4*time.Second, now)},
		{"check in progress, after a run", status.Begin(applied, checking, false, now)},
		{"check that has found changes, of an object that no run was applied to", status.Conclude(status.Begin(nil, checking, false, now), drifted, 0, now)},
		{"check that has found none, after a run", status.Conclude(applied, checked, 0, now)},
		{"check that failed, after a run", status.Conclude(applied, unchecked, time.Second, now)},
		{"finalizer run in progress", status.Begin(status.Conclude(begun(), succeeded, 0, now), active, true, now)},
		{"a change without a run: its inputs have succeeded before", status.Resume(map[string]any{}, status.Run{Result: status.Succeeded}, 3, 0, now)},
		{"finalizer refused, so that no run starts", status.Stuck(map[string]any{}, 3, false, "add the finalizer: admission webhook … denied the request", now)},
		{"finalizer run succeeded, and the object cannot go", status.Stuck(applied, 3, true, "remove the finalizer: admission webhook … denied the request", now)},
		{"run held back by a pause", status.Hold(map[string]any{}, 3, "changed", time.Time{}, nil, now)},
		{"run held back by a maintenance window", status.Hold(applied, 3, "content", now.Add(time.Hour), nil, now)},
	}
}

// statusMeanings says what the fields of status.ansible are for.
func statusMeanings() map[string]string {
	return map[string]string{
		"activeRun": "The run in progress; missing between runs.", "lastRun": "The last run that has ended.",
		"activeRun.id": "Identifies the run, in the log and on disk too.", "activeRun.waiting": "What keeps the Pod of the run from starting, or from being heard of; missing otherwise.", "activeRun.task.host": "Its host.", "activeRun.cause": "Why it runs.", "activeRun.trigger": "What has caused it: the inputs that have changed, or the dependent. Missing where there is no more to say.", "activeRun.mode": "check for a run that changes nothing; else missing.", "activeRun.generation": "The generation of the object that it runs for.",
		"activeRun.started": "When it began.", "activeRun.task": "The task that runs now.", "activeRun.task.name": "Its name.", "activeRun.task.role": "Its role.",
		"activeRun.task.path": "Its file and line.", "activeRun.tasksStarted": "How many tasks have begun.", "activeRun.counts": "Results of tasks so far.",
		"lastRun.id": "As of the active run.", "lastRun.cause": "As of the active run.", "lastRun.trigger": "As of the active run.", "lastRun.mode": "As of the active run.", "lastRun.drifted": "Whether the check would have changed something; missing after other runs.", "lastRun.generation": "As of the active run.", "lastRun.started": "As of the active run.",
		"lastRun.finished": "When it ended.", "lastRun.duration": "How long it took.", "lastRun.result": "Succeeded, Failed or Interrupted.", "lastRun.reason": "The end in one word, see the reasons.",
		"lastRun.message": "What went wrong: at most 1 KiB. Missing after a success.", "lastRun.counts": "Results of tasks, on all hosts.", "lastRun.failedTask": "The task that decided a failure.",
		"lastRun.failedTask.name": "Its name.", "lastRun.failedTask.role": "Its role.", "lastRun.failedTask.host": "The host on which it failed.", "lastRun.failedTask.path": "Its file and line.",
		"lastRun.executor": "warm, runner, job, command or handler: how the run was made.", "lastRun.modules": "How many modules a forked run executed, by how.",
		"lastRun.modules.forked": "Those that were forked. Other names are reasons for a new Python.",
		"lastRun.attempts":       "How many runs in a row have failed.", "lastRun.requeueAfter": "The time until the next run, where the run asked for one.", "lastRun.fingerprint": "Identifies the inputs: a success with the same ones is not repeated.",
		"lastRun.losses":     "How many runs in a row were lost; missing if this one was not.",
		"lastRun.references": "The objects that the command has named by reports, which are watched for this one.",
		"lastRun.pruned":     "How many objects were removed because the run has not touched them.",
		"lastRun.inputs":     "A few bits of a digest of each input, by which the operator names those that have changed.",
		"lastRun.wait":       "What the object waits for, where the run has parked it.", "lastRun.wait.apiVersion": "The API version of what it waits for.",
		"lastRun.wait.kind": "Its kind.", "lastRun.wait.namespace": "Its namespace, if it is in one.", "lastRun.wait.name": "Its name.",
		"lastRun.wait.for":   "What has to be true of it, as `kubectl wait --for` takes it, or `ready`.",
		"lastRun.wait.since": "When it was asked for first.", "lastRun.wait.until": "When the object runs at the latest.",
		"lastHandledReconcileAt": "The annotation `rolewright.dev/reconcile-at` as it was when the last run began.",
		"nextRetry":              "When the run is repeated that has failed, or that was interrupted and is not repeated at once; missing where none is planned, and during a run.",
		"dependents":             "The resources of the objects that this object owns. They are watched for it.", "warnings": "What the author of the object should know.",
	}
}

// paths lists the fields of a value with their types.
func paths(prefix string, value any, into map[string]string) {
	switch v := value.(type) {
	case map[string]any:
		into[prefix] = "mapping"
		for key, inner := range v {
			paths(strings.TrimPrefix(prefix+"."+key, "."), inner, into)
		}
	case []any:
		into[prefix] = "list of strings"
	case int64:
		into[prefix] = "integer"
	case bool:
		into[prefix] = "boolean"
	default:
		into[prefix] = "string"
	}
	delete(into, "")
}

// reasonsOf returns the constants of a file that are reasons, with their doc comments.
func reasonsOf(t *testing.T, path string, is func(name string) bool) []string {
	t.Helper()
	file := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments))(t)
	var rows []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || !is(spec.Names[0].Name) || spec.Doc == nil {
			return true
		}
		value, ok := spec.Values[0].(*ast.BasicLit)
		if !ok {
			return true
		}
		word := must.Get(strconv.Unquote(value.Value))(t)
		_, says, ok := strings.Cut(strings.Join(strings.Fields(spec.Doc.Text()), " "), ": ")
		if !ok {
			t.Errorf("%s: the comment of %s has not the form NAME: meaning", path, spec.Names[0].Name)
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s |\n", word, cell(says)))
		return true
	})
	if len(rows) == 0 {
		t.Fatalf("%s: no reasons are found", path)
	}
	return rows
}

func statusDoc(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("# Fields of the status\n\n" +
		"Written by `go test ./cmd/rolewright -run StatusReference -update`; the page shows what the code writes.\n\n" +
		"How to read it is in [status](../status.md).\n\n## Conditions\n\n" +
		"All of them after each moment in the life of an object that had none before its first run.\n\n")
	fields := map[string]string{}
	for _, s := range situations() {
		fmt.Fprintf(&b, "**%s**\n\n| type | status | reason | message |\n|---|---|---|---|\n", strings.ToUpper(s.title[:1])+s.title[1:])
		list, _ := s.status["conditions"].([]any)
		for _, item := range list {
			c := item.(map[string]any)
			fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", c["type"], c["status"], code(c["reason"].(string)), cell(c["message"].(string)))
		}
		b.WriteString("\n")
		paths("", s.status["ansible"], fields)
	}
	progress := status.Progress(status.Active{ID: "x", Waiting: "x", TasksStarted: 1, Task: status.Task{Name: "x", Role: "x", Host: "x", Path: "x"}})
	paths("", progress["ansible"], fields)
	meanings := statusMeanings()
	b.WriteString("## status.ansible\n\n| field | type | meaning |\n|---|---|---|\n")
	for _, path := range slices.Sorted(maps.Keys(fields)) {
		if strings.Contains(path, ".counts.") {
			continue
		}
		if meanings[path] == "" {
			t.Errorf("status.ansible.%s is not explained", path)
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", path, fields[path], meanings[path])
	}
	for path := range meanings {
		if fields[path] == "" {
			t.Errorf("status.ansible.%s is explained, and never written", path)
		}
	}
	var counts []string
	for path := range fields {
		if count, ok := strings.CutPrefix(path, "lastRun.counts."); ok {
			counts = append(counts, "`"+count+"`")
		}
	}
	slices.Sort(counts)
	fmt.Fprintf(&b, "\n`counts` have %s.\n\n## Reasons\n\nOf runs that took place:\n\n| reason | |\n|---|---|\n", strings.Join(counts, ", "))
	verdicts := reasonsOf(t, filepath.Join("..", "..", "runner", "verdict.go"), ast.IsExported)
	verdicts = append(verdicts, reasonsOf(t, filepath.Join("..", "..", "runner", "ending.go"), ast.IsExported)...)
	b.WriteString(strings.Join(verdicts, "") + "\nOf runs that did not take place, or not to their end:\n\n| reason | |\n|---|---|\n")
	b.WriteString(strings.Join(reasonsOf(t, filepath.Join("..", "..", "controller", "status", "record.go"),
		func(name string) bool { return strings.HasPrefix(name, "Reason") }), ""))
	return b.String()
}

func TestStatusReference_IsInStepWithWhatIsWritten(t *testing.T) {
	checkPage(t, "status.md", statusDoc(t))
}

// The page lists every variable that the program itself reads.
func TestEnvironmentReference_HasEveryVariable(t *testing.T) {
	page := must.Get(os.ReadFile(filepath.Join("..", "..", "docs", "reference", "environment.md")))(t)
	file := must.Get(parser.ParseFile(token.NewFileSet(), "run_complete.go", nil, 0))(t)
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "env") || len(spec.Values) != 1 {
			return true
		}
		found++
		if name := strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`); !strings.Contains(string(page), "`"+name+"`") {
			t.Errorf("%s is not explained", name)
		}
		return true
	})
	if found == 0 {
		t.Error("no variables are found")
	}
}
