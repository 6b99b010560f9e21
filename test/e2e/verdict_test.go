package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rolewright/rolewright/test/testenv"
)

// verdictCase is one way in which a run ends, and what the object's status must say about it.
type verdictCase struct {
	name string
	// role or tasks (of a playbook) are the content.
	role, tasks string
	// reason is Ready's, and contains is what the message must contain; its path must be the end of the failed task's
	// path.
	reason   string
	contains []string
	task     string // name of the failed task; empty if none is known
	path     string // file:line of it
	stalled  bool   // no retry can help
}

// verdictCases contains one case for each way in which a status reports a run. What the verdict on a run is,
// runner.TestVerdict_RealAnsible shows.
func verdictCases() []verdictCase {
	return []verdictCase{
		{
			name: "success", role: "- name: Say it\n  ansible.builtin.debug:\n    msg: done\n",
			reason: "RunSucceeded",
		},
		{
			name: "failed task in a role", role: "- name: Prepare\n  ansible.builtin.debug:\n    msg: done\n" +
				"- name: Refuse\n  ansible.builtin.fail:\n    msg: the disk is full\n",
			reason: "TaskFailed", contains: []string{"the disk is full", "host localhost"},
			task: "Refuse", path: "tasks/main.yml:4",
		},
		{
			name: "hidden failure", tasks: "- name: Fail in secret\n  ansible.builtin.fail:\n    msg: canary-secret\n  no_log: true\n",
			reason: "TaskFailed", contains: []string{"hidden"},
			task: "Fail in secret", path: "playbook.yml:4",
		},
		{
			name: "huge and hostile message", tasks: "- name: Shout\n  ansible.builtin.fail:\n" +
				"    msg: \"{{ 'first words' ~ '\\x1b[31m\\x07é' * 3000 }}\"\n",
			reason: "TaskFailed", contains: []string{"first words"},
			task: "Shout", path: "playbook.yml:4",
		},
		{
			name: "syntax error", tasks: "- name: [unclosed",
			reason: "PlaybookInvalid", contains: []string{"playbook.yml:"}, stalled: true,
		},
	}
}

// content writes the content of a case and returns the line of its watch.
func (c verdictCase) content(s *stage, i int) string {
	name := fmt.Sprintf("case%d", i)
	if c.role != "" {
		s.role(name, c.role)
		return "role: " + name
	}
	s.write(name+"/playbook.yml", "- hosts: localhost\n  gather_facts: false\n  tasks:\n"+indent(c.tasks, "  "))
	return "playbook: " + name + "/playbook.yml"
}

func TestVerdict_InStatus(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	cases := verdictCases()
	group := testenv.Random("verdict") + ".rolewright.test"
	kinds := make([]kind, len(cases))
	for i, c := range cases {
		kinds[i] = s.kind(testenv.WithGroup(group), testenv.WithKind(fmt.Sprintf("Case%d", i)))
		s.watch(kinds[i], c.content(s, i))
	}
	s.start("--retry-min=1h", "--retry-max=1h") // one run for each
	for _, k := range kinds {
		k.create("it", nil)
	}
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			k := kinds[i]
			k.t = t
			c.check(t, k.await("it", "end of its run", object.settled))
		})
	}
}

func (c verdictCase) check(t *testing.T, o object) {
	t.Helper()
	last := o.lastRun()
	t.Logf("message:\n%s", last.Message)
	success := c.reason == "RunSucceeded"
	want := map[string]string{"Ready": "False", "Successful": "False", "Failure": "True", "Stalled": "False", "Running": "False"}
	if success {
		want = map[string]string{"Ready": "True", "Successful": "True", "Failure": "False", "Stalled": "False", "Running": "True"}
	}
	if c.stalled {
		want["Stalled"] = "True"
	}
	for kind, status := range want {
		if got := o.condition(kind).Status; got != status {
			t.Errorf("%s = %q, want %q", kind, got, status)
		}
	}
	if got := o.condition("Ready").Reason; got != c.reason {
		t.Errorf("Ready's reason = %q, want %q", got, c.reason)
	}
	message := o.condition("Failure").Message
	if message != last.Message || success != (message == "") {
		t.Errorf("Failure says %q, the record %q", message, last.Message)
	}
	checkMessage(t, message)
	contains := c.contains
	if c.task != "" {
		contains = append(slices.Clone(contains), fmt.Sprintf("task %q", c.task), c.path)
	}
	for _, text := range contains {
		if !strings.Contains(message, text) {
			t.Errorf("message lacks %q", text)
		}
	}
	switch task := last.FailedTask; {
	case (task == nil) != (c.task == ""):
		t.Errorf("failedTask = %+v, want %q", task, c.task)
	case task != nil && (task.Name != c.task || !strings.HasSuffix(task.Path, "/"+c.path) || task.Host != "localhost"):
		t.Errorf("failedTask = %+v, want %q at %q on localhost", task, c.task, c.path)
	}
}

// checkMessage checks what must be true of every message.
func checkMessage(t *testing.T, message string) {
	t.Helper()
	if len(message) > 1<<10 {
		t.Errorf("message has %d bytes", len(message))
	}
	if !utf8.ValidString(message) {
		t.Errorf("message is not UTF-8: %q", message)
	}
	if strings.ContainsFunc(message, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }) {
		t.Errorf("message has a control character: %q", message)
	}
	if strings.Contains(message, "canary-secret") {
		t.Error("message tells a secret")
	}
}
