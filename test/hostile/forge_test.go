package hostile

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// token returns data as ansible-runner's callback encodes it in the output.
func token(data any) string {
	text, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprint("a forged event is always JSON: ", err))
	}
	var out strings.Builder
	out.WriteString("\x1b[K")
	for chunk := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(text)), 78) {
		fmt.Fprintf(&out, "%s\x1b[%dD", chunk, len(chunk))
	}
	return out.String() + "\x1b[K"
}

type fields = map[string]any

// forgedStats returns the end of a successful run on a host.
func forgedStats(host string) fields {
	one, none := fields{host: 1}, fields{}
	return fields{"uuid": "f-stats", "event": "playbook_on_stats", "counter": 5, "event_data": fields{
		"playbook_uuid": "00000000-0000-4000-8000-000000000000",
		"ok":            one, "processed": one, "changed": none, "dark": none, "failures": none, "ignored": none, "rescued": none, "skipped": none,
	}}
}

func forged(event string, data fields) fields {
	return fields{"uuid": "f-" + event, "event": event, "event_data": data}
}

// forgery is data that pretends to be an event.
type forgery struct {
	name, text string
	// deadly says that ansible-runner does not survive it.
	deadly bool
}

// forgeries are F.9 and F.10. They claim the opposite of what happens.
func forgeries() []forgery {
	without := forgedStats("localhost")
	delete(without["event_data"].(fields), "playbook_uuid")
	failed := forgedStats("localhost")
	failed["event_data"].(fields)["failures"] = fields{"localhost": 3}
	all := []forgery{
		{name: "stats", text: token(forgedStats("localhost"))},
		{name: "stats without the playbook's UUID", text: token(without)},
		{name: "stats with failures", text: token(failed)},
		{name: "a second start, and its end", text: token(forged("playbook_on_start", fields{"playbook_uuid": "mine"})) +
			token(forged("playbook_on_stats", fields{"playbook_uuid": "mine", "ok": fields{"localhost": 1}, "processed": fields{"localhost": 1}, "changed": fields{}, "dark": fields{},
				"failures": fields{}, "ignored": fields{}, "rescued": fields{}, "skipped": fields{}}))},
		{name: "task ok", text: token(forged("runner_on_ok", fields{"host": "localhost", "task": "x", "res": fields{"changed": true}}))},
		{name: "task failed", text: token(forged("runner_on_failed", fields{"host": "localhost", "task": "x", "res": fields{"msg": "forged"}}))},
		{name: "unreachable", text: token(forged("runner_on_unreachable", fields{"host": "localhost", "res": fields{"msg": "forged"}}))},
		{name: "no hosts", text: token(forged("playbook_on_no_hosts_matched", fields{}))},
		{name: "requeue", text: token(forged("runner_on_ok", fields{"host": "localhost", "task_action": "operator_sdk.util.requeue_after",
			"resolved_action": "operator_sdk.util.requeue_after", "res": fields{"period": "1s"}}))},
		{name: "requeue by a number", text: token(forged("runner_on_ok", fields{"task_action": "requeue_after", "res": fields{"period": 1.0}}))},
		{name: "UUID is a number", text: token(fields{"uuid": 7, "event": "playbook_on_stats"})},
		{name: "UUID with a line break", text: token(fields{"uuid": "a\nb", "event": "verbose"})},
		{name: "UUID of 5000 characters", text: token(fields{"uuid": strings.Repeat("u", 5000), "event": "runner_on_ok"})},
		{name: "no event", text: token(fields{"uuid": "f-none"})},
		{name: "empty", text: token(fields{}) + token(nil)},
		{name: "no base64", text: "\x1b[KAAA=A\x1b[6D\x1b[K" + "\x1b[K!!\x1b[2D\x1b[K"},
		{name: "a token in a token", text: "\x1b[K" + token(forgedStats("localhost")) + "\x1b[K"},
		{name: "escape before the escape", text: strings.ReplaceAll(token(forgedStats("localhost")), "\x1b[K", "\x1b\x1b[K[K")},
		{name: "half a token", text: "\x1b[KeyJ1dWlkIjoi\x1b[12D"},
		{name: "a hundred stats", text: strings.Repeat(token(forgedStats("localhost")), 100)},
	}
	// Files that ansible-runner would read, merge and remove.
	for _, victim := range []string{
		"../../../../bystander/victim", "BYSTANDER/victim", "../../../../../runs/bystander/artifacts/x/job_events/victim", "../../../victim",
	} {
		all = append(all, forgery{name: "UUID leads to " + victim, text: token(fields{"uuid": victim, "event": "runner_on_ok", "event_data": fields{}})})
	}
	for name, data := range map[string]any{"number": 1, "string": "x", "list": []int{1}, "true": true} {
		all = append(all, forgery{name: "token is a " + name, text: token(data), deadly: true})
	}
	return append(all, forgery{name: "UUID is a list", text: token(fields{"uuid": []int{1}})},
		forgery{name: "UUID with a NUL", text: token(fields{"uuid": "a\x00b"}), deadly: true})
}

// play is a run of forge.yml.
type play struct {
	// fail says how it ends.
	fail bool
	// fromObject says that the text comes from the object; otherwise the playbook reads it from a file that another
	// client has written.
	fromObject bool
	// pastDisplay says that one of the author's plugins prints it.
	pastDisplay bool
}

// forge runs forge.yml, which prints a text in every possible way.
func (p play) forge(t *testing.T, text string) (*sandbox, runner.Result) {
	t.Helper()
	s := newSandbox(t)
	s.req.Content.Playbook = absolute(t, "testdata/forge.yml")
	victims := s.layVictims()
	text = strings.ReplaceAll(text, "BYSTANDER", filepath.Dir(victims[0]))
	object := fields{"metadata": fields{"name": "n"}, "spec": fields{"foreign": "data"}}
	vars := fields{"probe_fail": p.fail, "probe_past_display": p.pastDisplay, "probe_file": filepath.Join(s.root, "foreign")}
	write(t, filepath.Join(s.root, "foreign"), text, 0o600)
	if p.fromObject {
		object["spec"] = fields{"foreign": text, text: text}
		delete(vars, "probe_file")
	}
	content, _, err := extravars.Build(object, extravars.Options{Group: group, Kind: kind, MarkUnsafe: true, Vars: vars})
	if err != nil {
		t.Fatal(err)
	}
	s.req.ExtraVars = content
	result := s.run()
	for _, victim := range victims {
		if got, err := os.ReadFile(victim); err != nil || string(got) != "{}" {
			t.Errorf("%s was touched: %q, %v", victim, got, err)
		}
	}
	return s, result
}

// layVictims creates other runs' files at the paths to which forged UUIDs lead.
func (s *sandbox) layVictims() []string {
	s.t.Helper()
	bystander := filepath.Join(s.root, "runs", "bystander")
	var victims []string
	for _, dir := range []string{"", "artifacts/x/job_events"} {
		must.Do(s.t, os.MkdirAll(filepath.Join(bystander, dir), 0o700))
		victim := filepath.Join(bystander, dir, "victim-partial.json")
		write(s.t, victim, "{}", 0o600)
		victims = append(victims, victim)
	}
	return victims
}

// checkHonest checks that the run ended as the playbook says.
func (p play) checkHonest(t *testing.T, result runner.Result) {
	t.Helper()
	v := result.Verdict()
	if v.Success == p.fail || p.fail && (v.Reason != runner.TaskFailed || !strings.HasPrefix(v.Message, "the honest failure")) {
		t.Errorf("verdict = %+v\n%s", v, result.Tail)
	}
	sum := result.Summary
	if sum.RequeueAfter != nil || sum.NoHostsMatched || !sum.Complete || sum.Stats == nil || p.fail != (sum.Failures == 1) || sum.Unreachable > 0 {
		t.Errorf("summary = %+v", sum)
	}
}

// together returns the forgeries by name if each gets its own run. Otherwise it joins those into one text that do not
// affect each other.
func together(all []forgery) map[string]string {
	texts := map[string]string{}
	for _, f := range all {
		if everyCase() {
			texts[f.name] = f.text
		} else {
			texts["all at once"] += f.text + " | "
		}
	}
	return texts
}

// TestForgeries_ReachNoChannel: whatever wrote them, and wherever the playbook displays them, they are text.
// ansible-runner would read, merge and remove the file that an event's UUID names, and an event that is not an object
// would end it.
func TestForgeries_ReachNoChannel(t *testing.T) {
	for name, text := range together(forgeries()) {
		for _, p := range []play{{fail: true}, {fail: false}, {fail: true, fromObject: true}, {fail: false, fromObject: true}} {
			t.Run(fmt.Sprintf("%s, failing %v, from the object %v", name, p.fail, p.fromObject), func(t *testing.T) {
				t.Parallel()
				_, result := p.forge(t, text)
				p.checkHonest(t, result)
				if sum := result.Summary; sum.Foreign+sum.Bad+sum.Gaps > 0 {
					t.Errorf("summary = %+v", sum)
				}
			})
		}
	}
}

// TestForgeries_AreNotBelieved tests the second defence: what gets past the display reaches ansible-runner, and is
// refused there.
func TestForgeries_AreNotBelieved(t *testing.T) {
	harmless := slices.DeleteFunc(forgeries(), func(f forgery) bool { return f.deadly || strings.HasPrefix(f.name, "UUID leads to") })
	for name, text := range together(harmless) {
		for _, p := range []play{{fail: true, pastDisplay: true}, {fail: false, pastDisplay: true}} {
			t.Run(fmt.Sprintf("%s, failing %v", name, p.fail), func(t *testing.T) {
				t.Parallel()
				_, result := p.forge(t, text)
				p.checkHonest(t, result)
				if sum := result.Summary; !everyCase() && sum.Foreign == 0 {
					t.Errorf("none got there: %+v", sum)
				}
			})
		}
	}
}

// TestForgeries_ARunThatDiesOfOneFailsAlone: nothing that was written before counts for the verdict.
func TestForgeries_ARunThatDiesOfOneFailsAlone(t *testing.T) {
	for _, f := range forgeries() {
		if !f.deadly || !everyCase() && f.name != "token is a list" {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			_, result := play{pastDisplay: true}.forge(t, token(forgedStats("localhost"))+f.text)
			if v := result.Verdict(); v.Success || v.Reason != runner.RunnerDied {
				t.Errorf("verdict = %+v of %+v", v, result)
			}
		})
	}
}
