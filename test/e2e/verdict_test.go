package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rolewright/rolewright/internal/testenv"
)

// verdictCase is an end of a run, and what the object's status has to say about it.
type verdictCase struct {
	name string
	// role or tasks (of a playbook) or files (with playbook.yml among them) are the content.
	role, tasks string
	files       map[string]string
	// reason is Ready's, contains what the message has to say; the path in it ends the failed task's too.
	reason   string
	contains []string
	task     string // name of the failed task; empty if none is known
	path     string // file:line of it
	stalled  bool   // no retry can help
}

// play is a playbook of one play.
func play(lines ...string) map[string]string {
	return map[string]string{"playbook.yml": "- hosts: localhost\n  gather_facts: false\n" + indent(strings.Join(lines, "\n"), "  ")}
}

const vaulted = "$ANSIBLE_VAULT;1.1;AES256\n" +
	"38616562343831313038363062396533663430653964326464616263343234386365336161303138\n" +
	"6263346364616439\n"

func verdictCases() []verdictCase {
	vault := play("vars_files: [secret.yml]", "tasks:", "- ansible.builtin.debug: {msg: never}")
	vault["secret.yml"] = vaulted
	return []verdictCase{
		{
			name: "success", role: "- name: Say it\n  ansible.builtin.debug:\n    msg: done\n",
			reason: "RunSucceeded",
		},
		{
			name: "rescued", tasks: "- block:\n    - name: Break\n      ansible.builtin.fail:\n  rescue:\n" +
				"    - name: Fix\n      ansible.builtin.debug:\n        msg: fixed\n",
			reason: "RunSucceeded",
		},
		{
			name: "ended early", tasks: "- ansible.builtin.meta: end_play\n- ansible.builtin.fail:\n",
			reason: "RunSucceeded",
		},
		{
			name: "failed task in a role", role: "- name: Prepare\n  ansible.builtin.debug:\n    msg: done\n" +
				"- name: Refuse\n  ansible.builtin.fail:\n    msg: the disk is full\n",
			reason: "TaskFailed", contains: []string{"the disk is full", "host localhost"},
			task: "Refuse", path: "tasks/main.yml:4",
		},
		{
			name: "failed loop item", tasks: "- name: Try each\n  ansible.builtin.command:\n    cmd: \"{{ item }}\"\n  loop: [\"true\", \"false\"]\n",
			reason: "ItemFailed", contains: []string{"One or more items failed", "false"},
			task: "Try each", path: "playbook.yml:4",
		},
		{
			name: "unreachable host", files: play("vars:", "  ansible_remote_tmp: /dev/null/none", "tasks:",
				"- name: Knock", "  ansible.builtin.ping:"),
			reason: "Unreachable", contains: []string{"Failed to create temporary directory"},
			task: "Knock", path: "playbook.yml:6",
		},
		{
			name: "undefined variable", tasks: "- name: Use it\n  ansible.builtin.debug:\n    msg: \"{{ no_such_variable }}\"\n",
			reason: "UndefinedVariable", contains: []string{"'no_such_variable' is undefined"},
			task: "Use it", path: "playbook.yml:4",
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
			name: "failed handler", files: play("tasks:", "- name: Change", "  ansible.builtin.command: \"true\"", "  notify: Restart it",
				"handlers:", "- name: Restart it", "  ansible.builtin.fail:", "    msg: it does not start"),
			reason: "HandlerFailed", contains: []string{"it does not start"},
			task: "Restart it", path: "playbook.yml:8",
		},
		{
			name: "syntax error", files: play("tasks:", "- name: [unclosed"),
			reason: "PlaybookInvalid", contains: []string{"playbook.yml:"}, stalled: true,
		},
		{
			name: "missing role inside a playbook", files: play("roles:", "- no_such_role"),
			reason: "RoleNotFound", contains: []string{"the role 'no_such_role' was not found", "playbook.yml:4"}, stalled: true,
		},
		{
			name: "no hosts matched", files: map[string]string{"playbook.yml": "- hosts: nobody\n  tasks:\n  - ansible.builtin.ping:\n"},
			reason: "NoHostsMatched", contains: []string{"no hosts matched"},
		},
		{
			name: "vault without password", files: vault,
			reason: "VaultError", contains: []string{"no vault secrets found"},
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
	files := c.files
	if files == nil {
		files = play("tasks:\n" + c.tasks)
	}
	for path, text := range files {
		s.write(name+"/"+path, text)
	}
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

// checkMessage checks what holds for every message.
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

func TestVerdict_ArgumentsThatAnsibleRefuses(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("one", "- ansible.builtin.debug:\n    msg: done\n")
	s.watch(k, "role: one")
	s.start("--ansible-args=--no-such-argument")
	k.create("it", nil)
	verdictCase{
		reason: "BadArguments", contains: []string{"unrecognized arguments: --no-such-argument"}, stalled: true,
	}.check(t, k.await("it", "end of its run", object.settled))
}
