package runner

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// TestNoLog_HidesMessagesAndNamesThePlace: ansible-core 2.19 prints the messages of tasks with no_log. Rolewright must not
// show them.
func TestNoLog_HidesMessagesAndNamesThePlace(t *testing.T) {
	r := ansible(t)
	req := request(t, "no_log_all.yml")
	var said strings.Builder
	req.OnEvent = func(e jobevent.Event) {
		text, err := json.Marshal(e)
		if err != nil {
			t.Error(err)
		}
		said.Write(text)
	}
	res := must.Get(r.Run(t.Context(), req))(t)
	file := must.Get(os.Open(filepath.Join(artifactsDir(req), "stdout")))(t)
	defer file.Close()
	output := must.Get(io.ReadAll(jobevent.CensoredReader(file)))(t)
	v := res.Verdict()
	for where, text := range map[string]string{"events": said.String(), "tail": res.Tail, "output": string(output), "verdict": v.Message} {
		if strings.Contains(text, "canary") {
			t.Errorf("%s: the message is there:\n%s", where, text)
		}
	}
	for _, want := range []string{`task "Fail at last"`, "no_log_all.yml:22", "hidden because of no_log"} {
		if !strings.Contains(v.Message, want) {
			t.Errorf("verdict lacks %q: %q", want, v.Message)
		}
	}
	if n := strings.Count(res.Tail, "censored"); n < 4 || !strings.Contains(res.Tail, "open") {
		t.Errorf("tail has %d censored results, want all, and the open one:\n%s", n, res.Tail)
	}
}

// stars masks one word, but not in names at one place.
type stars struct{}

func (stars) Mask(text string) string       { return strings.ReplaceAll(text, "canary", "***") }
func (m stars) MaskTail(text string) string { return m.Mask(text) }
func (m stars) Name(text, place string) string {
	if place == "literal.yml:1" {
		return text
	}
	return m.Mask(text)
}

func TestMasked_AllTextOfAnEventButThePlace(t *testing.T) {
	e := jobevent.Event{
		UUID: "canary", Kind: jobevent.PlaybookStats, Stdout: "a canary",
		Data: jobevent.Data{
			PlaybookUUID: "canary", Play: "canary", Task: "canary", TaskUUID: "canary", TaskAction: "canary", ResolvedAction: "canary",
			TaskArgs: "a=canary", TaskPath: "/canary.yml:1", Role: "canary", Host: "canary", Name: "canary",
			Res:   json.RawMessage(`{"canary":["x canary\n",1.50,{"a":"canary"}],"n":12345678901234567890}`),
			Stats: &jobevent.Stats{OK: map[string]int{"canary": 1, "***": 2}},
		},
	}
	got := masked(e, stars{})
	want := e
	want.Stdout, want.Data.Play, want.Data.Task, want.Data.TaskArgs, want.Data.Host, want.Data.Name = "a ***", "***", "***", "a=***", "***", "***"
	want.Data.Res = json.RawMessage(`{"***":["x ***\n",1.50,{"a":"***"}],"n":12345678901234567890}`)
	none := map[string]int{}
	want.Data.Stats = &jobevent.Stats{
		OK: map[string]int{"***": 3}, Changed: none, Failures: none, Dark: none, Skipped: none, Rescued: none, Ignored: none, Processed: none,
	}
	must.Be(t, "event", want, got)
	if e.Data.Stats.OK["canary"] != 1 {
		t.Error("the event that was given is changed")
	}
	plain := json.RawMessage(`{ "b" : 1 }`)
	if got := maskedJSON(plain, stars{}, false); string(got) != string(plain) {
		t.Errorf("JSON without values is changed: %s", got)
	}
}

// withheld masks all text.
type withheld struct{}

func (withheld) Mask(text string) string {
	if text == "" {
		return ""
	}
	return "[masked]"
}
func (m withheld) MaskTail(text string) string { return m.Mask(text) }
func (m withheld) Name(text, _ string) string  { return m.Mask(text) }

// TestMasked_WhatARunIsJudgedByStays: if all text of a run is masked, as for a run that another operator process has begun,
// what the run asks for still counts.
func TestMasked_WhatARunIsJudgedByStays(t *testing.T) {
	const requeue, wait = "operator_sdk.util.requeue_after", "rolewright.operator.wait_for"
	type summary struct {
		Changed int
		Period  string
		Parked  bool
	}
	for _, tc := range []struct {
		action, res string
		want        summary
	}{
		{"copy", `{"changed":true,"canary":"canary","period":"30s"}`, summary{Changed: 1}},
		{requeue, `{"changed":true,"msg":"canary","period":"1m30s"}`, summary{Changed: 1, Period: "1m30s"}},
		{requeue, `{"results":[{"period":"5s","item":"canary"}]}`, summary{Period: "5s"}},
		{requeue, `{"period":"canary"}`, summary{}},
		{wait, `{"parked":true,"detail":"canary"}`, summary{Parked: true}},
		{wait, `{"results":[{"parked":false},{"parked":true,"item":"canary"}]}`, summary{Parked: true}},
		{wait, `{"parked":false,"met":true}`, summary{}},
		{"copy", `{"parked":true}`, summary{}},
	} {
		var s jobevent.Summary
		s.Observe(jobevent.Event{Kind: jobevent.PlaybookStart, Data: jobevent.Data{PlaybookUUID: "a"}})
		e := masked(jobevent.Event{Kind: jobevent.RunnerOK, Data: jobevent.Data{
			PlaybookUUID: "a", TaskUUID: "b", Host: "h", TaskAction: tc.action, ResolvedAction: tc.action, Res: json.RawMessage(tc.res),
		}}, withheld{})
		s.Observe(e)
		got := summary{Changed: s.Changed, Parked: s.Parked}
		if s.RequeueAfter != nil {
			got.Period = s.RequeueAfter.Period
		}
		must.Be(t, tc.action+" "+tc.res, tc.want, got)
		if strings.Contains(string(e.Data.Res), "canary") {
			t.Errorf("%s: the value is there: %s", tc.res, e.Data.Res)
		}
	}
}

// TestMasked_NamesOfTheContentStay: names that the content has literally stay in the event's names and in the line with
// which Ansible begins a task, and nowhere else.
func TestMasked_NamesOfTheContentStay(t *testing.T) {
	for _, tc := range []struct{ path, name, stdout, wantTask, wantName, wantStdout string }{
		{"literal.yml:1", "canaries : Feed a canary", "TASK [canaries : Feed a canary] ** canary\n", "Feed a canary", "canaries : Feed a canary", "TASK [canaries : Feed a canary] ** ***\n"},
		{"literal.yml:1", "Feed a canary", "\nTASK [Feed a canary]\ntask path: literal.yml:1\n", "Feed a canary", "Feed a canary", "\nTASK [Feed a canary]\ntask path: literal.yml:1\n"},
		{"literal.yml:1", "another canary", "TASK [another canary]", "Feed a canary", "another ***", "TASK [another ***]"},
		{"other.yml:1", "canaries : Feed a canary", "TASK [canaries : Feed a canary]", "Feed a ***", "canaries : Feed a ***", "TASK [canaries : Feed a ***]"},
	} {
		e := jobevent.Event{Kind: jobevent.TaskStart, Stdout: tc.stdout, Data: jobevent.Data{
			Task: "Feed a canary", Name: tc.name, Role: strings.TrimSuffix(tc.name, " : Feed a canary"), TaskPath: tc.path,
		}}
		got := masked(e, stars{})
		if got.Data.Task != tc.wantTask || got.Data.Name != tc.wantName || got.Stdout != tc.wantStdout {
			t.Errorf("%+v:\ngot %q, %q, %q", tc, got.Data.Task, got.Data.Name, got.Stdout)
		}
		e.Kind, e.Stdout = jobevent.RunnerOK, "ok: [Feed a canary]"
		if got := masked(e, stars{}); got.Stdout != "ok: [Feed a ***]" {
			t.Errorf("output of a result: %q", got.Stdout)
		}
	}
}

func TestMaskAround(t *testing.T) {
	for _, tc := range []struct {
		text, want string
		kept       []string
	}{
		{"a canary", "a ***", nil},
		{"a canary", "a ***", []string{"", "b"}},
		{"canary [canary] canary [canary]", "*** [canary] *** [canary]", []string{"[canary]"}},
		{"at canary: [canary], canary", "at canary: [canary], ***", []string{"[canary]", "at canary"}},
		{"at [canary], at canary, [canary]", "at [canary], at canary, [canary]", []string{"[canary]", "at canary"}},
	} {
		if got := MaskAround(stars{}, tc.text, tc.kept...); got != tc.want {
			t.Errorf("%q around %q: %q, want %q", tc.text, tc.kept, got, tc.want)
		}
	}
}

// TestMasked_PlaceThatFillsTheOutput: an event may name any place. The cost of masking must not grow with the square of the
// event's size.
func TestMasked_PlaceThatFillsTheOutput(t *testing.T) {
	e := jobevent.Event{Kind: jobevent.TaskStart, Stdout: strings.Repeat("a", 64<<10), Data: jobevent.Data{Task: "x", Name: "x", TaskPath: "a"}}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := masked(e, stars{})
	runtime.ReadMemStats(&after)
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; got.Stdout != e.Stdout || mib > 20 {
		t.Errorf("%d bytes of %d, with %d MiB", len(got.Stdout), len(e.Stdout), mib)
	}
}

func TestRun_MasksEventsSummaryAndTail(t *testing.T) {
	r := ansible(t)
	req := request(t, "masked.yml")
	req.Mask = stars{}
	req.OnEvent = func(e jobevent.Event) {
		if text, _ := json.Marshal(e); strings.Contains(strings.ReplaceAll(string(text), "masked.yml", ""), "canary") {
			t.Errorf("event: %s", text)
		}
	}
	res := must.Get(r.Run(t.Context(), req))(t)
	if v := res.Verdict(); !strings.HasPrefix(v.Message, "it is ***\n") || !strings.Contains(v.Message, `task "Break ***"`) {
		t.Errorf("verdict: %q", v.Message)
	}
	if strings.Contains(res.Tail, "canary") || !strings.Contains(res.Tail, "***") {
		t.Errorf("tail: %s", res.Tail)
	}
	again, err := r.Recover(t.Context(), req.Dir, req.ID, false, stars{})
	if err != nil || strings.Contains(again.Tail+again.Verdict().Message, "canary") {
		t.Errorf("recovered: %v, %+v", err, again)
	}
}
