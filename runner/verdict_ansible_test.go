package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// missingRole is part of Ansible's message about a missing role. It lacks the first letter, which is a capital from 2.22
// on.
const missingRole = "he role 'no_such_role' was not found"

// TestVerdict_RealAnsible checks how runs can end with the installed ansible-core, whichever line it is.
func TestVerdict_RealAnsible(t *testing.T) {
	hosts := func(r *Request) { r.Inventory = "testdata/inventory_hosts" }
	role := func(name string) func(*Request) {
		return func(r *Request) { r.Content = Content{Role: "testdata/roles/" + name}; r.SkipFacts = true }
	}
	tests := []struct {
		name     string
		playbook string
		change   func(*Request) // nil for none
		reason   Reason
		// first is the beginning of the message; contains lists what else must be in it.
		first    string
		contains []string
	}{
		{"success", "success.yml", nil, Succeeded, "", nil},
		{"rescued", "rescue.yml", nil, Succeeded, "", nil},
		{"ignored errors", "ignore_errors.yml", nil, Succeeded, "", nil},
		{"ignored unreachable host", "ignore_unreachable.yml", hosts, Succeeded, "", nil},
		{"play ended early", "end_play.yml", nil, Succeeded, "", nil},
		{"play without tasks", "no_tasks.yml", nil, Succeeded, "", nil},
		{"hosts for one of two plays", "some_hosts.yml", nil, Succeeded, "", nil},
		{"role", "", role("works"), Succeeded, "", nil},
		{"role with facts", "", func(r *Request) { r.Content = Content{Role: "testdata/roles/works"} }, Succeeded, "", nil},

		{"failed task", "failed_task.yml", nil, TaskFailed,
			"the disk is full\n", []string{`task "Refuse"`, "host localhost", "playbooks/failed_task.yml:4"}},
		{"always", "always.yml", nil, TaskFailed,
			"not rescued\n", []string{`task "Fail before always"`, "always.yml:6"}},
		{"failing role", "", role("fails"), TaskFailed,
			"the role refuses\n", []string{`task "Refuse in the role"`, `role "fails"`, "roles/fails/tasks/main.yml:1"}},
		{"argument specification not met", "", role("picky"), ArgumentSpecNotMet,
			"Validation of arguments failed:\nmissing required arguments: size\n", []string{`role "picky"`}},
		{"list as message", "list_message.yml", nil, TaskFailed,
			"first reason; second reason\n", []string{"list_message.yml:4"}},
		{"hidden result", "no_log.yml", nil, TaskFailed,
			"unknown playbook failure\n", []string{`task "Fail in secret"`, "no_log.yml:4", "hidden"}},
		{"any_errors_fatal", "any_errors_fatal.yml", hosts, TaskFailed,
			"the disk is full\n", []string{"host bad", "any_errors_fatal.yml:5"}},
		{"several hosts", "several_hosts.yml", hosts, TaskFailed,
			"the disk is full\n", []string{"host bad", "several_hosts.yml:7", "host gone", "several_hosts.yml:4"}},
		{"failed item", "failed_item.yml", nil, ItemFailed,
			"One or more items failed\n", []string{`task "Try each"`, "failed_item.yml:4", "false", "non-zero return code"}},
		{"failed handler", "handler.yml", nil, HandlerFailed,
			"the service does not start\n", []string{`task "Restart it"`, "handler.yml:8"}},
		{"failed_when", "failed_when.yml", nil, ConditionFailed, // from 2.21 on, the message begins with the condition
			"", []string{"bad", `task "Judge"`, "failed_when.yml:4"}},
		{"undefined variable", "undefined.yml", nil, UndefinedVariable,
			"", []string{"'no_such_variable' is undefined", `task "Use it"`, "undefined.yml:4"}},
		{"undefined variable in loop", "undefined_loop.yml", nil, UndefinedVariable,
			"", []string{"'no_such_list' is undefined", "undefined_loop.yml:4"}},
		{"undefined variable in when", "undefined_when.yml", nil, UndefinedVariable,
			"", []string{"'no_such_variable' is undefined", "undefined_when.yml:4"}},
		{"unreachable host", "unreachable.yml", hosts, Unreachable,
			"", []string{"Failed to create temporary directory", `task "Knock"`, "host gone", "unreachable.yml:4"}},
		{"an include of nothing", "include_nothing.yml", nil, Succeeded, "", nil},
		{"no hosts but for a play without tasks", "no_hosts_later.yml", nil, Succeeded, "", nil},
		{"no hosts matched", "no_hosts.yml", nil, NoHostsMatched, "no hosts matched\n", nil},

		{"syntax error", "syntax.yml", nil, PlaybookInvalid,
			"", []string{"did not find expected key", "exit code 4", "\nat ", "playbooks/syntax.yml:7"}},
		{"unknown module", "unknown_module.yml", nil, PlaybookInvalid,
			"couldn't resolve module/action 'ansible.builtin.no_such_module'", []string{"unknown_module.yml:4"}},
		{"missing playbook", "no_such_playbook.yml", nil, RoleNotFound,
			"the playbook: ", []string{"no_such_playbook.yml could not be found"}},
		{"missing role", "missing_role.yml", nil, RoleNotFound,
			"", []string{missingRole, "missing_role.yml:4"}},
		{"missing role, included", "missing_include_role.yml", nil, RoleNotFound,
			"", []string{missingRole, "missing_include_role.yml:"}},
		{"missing role, run as such", "", role("no_such_role"), RoleNotFound,
			"", []string{missingRole}},
		{"vaulted file", "vault.yml", nil, VaultError,
			"", []string{"ttempting to decrypt but no vault secrets found"}},
		{"vaulted variable", "vault_inline.yml", nil, VaultError,
			"", []string{"ttempting to decrypt but no vault secrets found", `task "Use the secret"`, "vault_inline.yml:12"}},
		{"unknown argument", "success.yml", func(r *Request) { r.Cmdline = "--no-such-argument" }, BadArguments,
			"unrecognized arguments: --no-such-argument\n", []string{"exit code 2"}},
		{"argument without its value", "success.yml", func(r *Request) { r.Cmdline = "--tags" }, BadArguments, "argument -t/--tags", nil},
		{"unbalanced quotes", "success.yml", func(r *Request) { r.Cmdline = "--tags 'a" }, BadArguments,
			"", []string{"No closing quotation"}},
		{"limit to nobody", "success.yml", func(r *Request) { r.Cmdline = "--limit nobody" }, PlaybookFailed,
			"Specified inventory, host pattern and/or --limit leaves us with no hosts to target", []string{"exit code 1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := request(t, tt.playbook)
			if tt.change != nil {
				tt.change(&req)
			}
			res := must.Get(ansible(t).Run(t.Context(), req))(t)
			v := res.Verdict()
			if v.Reason != tt.reason || v.Success != (tt.reason == Succeeded) {
				t.Errorf("verdict = %v, %s, want %s", v.Success, v.Reason, tt.reason)
			}
			if !strings.HasPrefix(v.Message, tt.first) {
				t.Errorf("message does not begin with %q", tt.first)
			}
			for _, text := range tt.contains {
				if !strings.Contains(v.Message, text) {
					t.Errorf("message does not contain %q", text)
				}
			}
			checkMessage(t, v)
			// An error that is found after a task has begun may depend on more than the inputs.
			permanent := []Reason{PlaybookInvalid, RoleNotFound, BadArguments, ArgumentSpecNotMet}
			if late := tt.name == "missing role, included"; slices.Contains(permanent, tt.reason) && res.Summary.Prepared() == late {
				t.Errorf("found before the first task of the content: %v, want %v", late, !late)
			}
			if strings.Contains(v.Message, "canary-secret") {
				t.Error("message tells a secret")
			}
			t.Logf("exit code %d, status %q, message:\n%s", res.ExitCode, res.Status, v.Message)
			if t.Failed() {
				t.Logf("output:\n%s", res.Tail)
			}
			if left := marked(t, req.ID); len(left) > 0 {
				t.Errorf("survivors: %v", left)
			}
		})
	}
}

// checkMessage checks what holds for every message.
func checkMessage(t *testing.T, v Verdict) {
	t.Helper()
	if (v.Message == "") != v.Success {
		t.Errorf("success = %v, message = %q", v.Success, v.Message)
	}
	if len(v.Message) > 1<<10 {
		t.Errorf("message has %d bytes", len(v.Message))
	}
	if !utf8.ValidString(v.Message) {
		t.Errorf("message is not UTF-8: %q", v.Message)
	}
	if i := strings.IndexFunc(v.Message, func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("message has a control character: %q", v.Message)
	}
}

func TestVerdict_RunnerKilled(t *testing.T) {
	t.Parallel()
	req := request(t, "daemons.yml")
	req.ExtraVars = []byte(`{"wait": true}`)
	var once sync.Once
	told := make(chan struct{})
	req.OnEvent = func(e jobevent.Event) {
		if e.Kind == jobevent.TaskStart && e.Data.Task == "Sleep" {
			once.Do(func() { close(told) })
		}
	}
	res, err := during(t.Context(), t, ansible(t), req, everything, func() {
		<-told // ansible-runner may report the task later than it starts
		send(t, req.ID, syscall.SIGKILL, func(cmdline string) bool { return strings.Contains(cmdline, "ansible-runner run ") })
	})
	if err != nil {
		t.Fatal(err)
	}
	v := res.Verdict()
	if v.Reason != RunnerDied || res.Signal != "SIGKILL" || !strings.HasPrefix(v.Message, "ansible-runner was killed by SIGKILL\n") ||
		!strings.Contains(v.Message, `task "Sleep"`) || !strings.Contains(v.Message, "daemons.yml:12") {
		t.Errorf("verdict = %+v of %+v", v, res)
	}
	checkMessage(t, v)
	if left := marked(t, req.ID); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
}

func TestVerdict_PlaybookKilled(t *testing.T) {
	t.Parallel()
	req := request(t, "daemons.yml")
	req.ExtraVars = []byte(`{"wait": true}`)
	res := must.Get(during(t.Context(), t, ansible(t), req, everything, func() {
		send(t, req.ID, syscall.SIGKILL, func(cmdline string) bool {
			return strings.Contains(cmdline, "ansible-playbook") && !strings.Contains(cmdline, "ansible-runner run ")
		})
	}))(t)
	v := res.Verdict()
	if v.Reason != RunnerDied || !strings.HasPrefix(v.Message, "ansible-playbook was killed by a signal\n") || !strings.Contains(v.Message, "daemons.yml:12") {
		t.Errorf("verdict = %+v of %+v", v, res)
	}
	checkMessage(t, v)
	if left := marked(t, req.ID); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
}

func TestVerdict_PlaybookMissing(t *testing.T) {
	t.Parallel()
	// ansible-runner is there, ansible-playbook is not.
	bin := t.TempDir()
	python := mustLook(t, "python3")
	must.Do(t, os.Symlink(python, filepath.Join(bin, "python3")))
	r := ansible(t)
	r.opts.Path = mustLook(t, "ansible-runner")
	r.opts.Environ, r.opts.Warm = ansibleenv.Inherited(append(r.opts.Environ, "PATH="+bin)), nil
	res := must.Get(r.Run(t.Context(), request(t, "success.yml")))(t)
	v := res.Verdict()
	if v.Success || !strings.Contains(v.Message, "ansible-playbook") {
		t.Errorf("verdict = %+v of %+v", v, res)
	}
	checkMessage(t, v)
}
