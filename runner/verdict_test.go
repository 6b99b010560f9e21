package runner

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// stats returns a summary whose stats event arrived. failures and dark say, per host, how many tasks failed and whether the
// host was unreachable.
func stats(failures, dark map[string]int, failed ...jobevent.Failure) jobevent.Summary {
	s := jobevent.Summary{Complete: true, Failed: failed, OK: 1}
	processed := map[string]int{"localhost": 1}
	for host, n := range failures {
		s.Failures += n
		processed[host] = 1
	}
	for host, n := range dark {
		s.Unreachable += n
		processed[host] = 1
	}
	s.Stats = &jobevent.Stats{Failures: failures, Dark: dark, Processed: processed}
	return s
}

func TestVerdict(t *testing.T) {
	one := map[string]int{"localhost": 1}
	task := jobevent.Task{Name: "Deploy", Action: "ansible.builtin.command", Role: "memcached", Path: "/roles/memcached/tasks/main.yml:7"}
	failure := jobevent.Failure{Task: task, Host: "localhost", Message: "non-zero return code", Detail: "no space left"}
	const where = `task "Deploy", role "memcached", host localhost, at /roles/memcached/tasks/main.yml:7`
	with := func(change func(*jobevent.Failure)) jobevent.Failure {
		f := failure
		change(&f)
		return f
	}
	running := jobevent.Summary{Task: task, TasksStarted: 3}

	tests := []struct {
		name   string
		result Result
		want   Verdict
	}{
		{"proved", Result{Status: "successful", Summary: stats(nil, nil)}, Verdict{true, Succeeded, ""}},
		{"nothing processed", Result{Status: "successful", Summary: jobevent.Summary{Complete: true}}, Verdict{true, Succeeded, ""}},
		{"zero result", Result{}, Verdict{false, RunnerDied, "ansible-runner crashed with exit code 0\nbefore the first task"}},

		{"success without stats", Result{Status: "successful", Summary: running},
			Verdict{false, ResultIncomplete, "exit code 0 without a complete account of what was done\nlast task \"Deploy\", role \"memcached\", at /roles/memcached/tasks/main.yml:7"}},
		{"success against the stats", Result{Status: "successful", Summary: stats(one, nil, failure)},
			Verdict{false, ResultIncomplete, "exit code 0, status \"successful\" and stats (ok=1 failed=1 unreachable=0) contradict each other\n" + where}},
		{"unreachable against the exit code", Result{Status: "successful", Summary: stats(nil, one)},
			Verdict{false, ResultIncomplete, "exit code 0, status \"successful\" and stats (ok=1 failed=0 unreachable=1) contradict each other"}},
		{"no status after the stats", Result{Summary: stats(nil, nil)},
			Verdict{false, RunnerDied, "ansible-runner crashed with exit code 0\nbefore the first task"}},
		{"status against exit code", Result{Status: "failed", Summary: stats(nil, nil)},
			Verdict{false, ResultIncomplete, "exit code 0, status \"failed\" and stats (ok=1 failed=0 unreachable=0) contradict each other"}},
		{"exit code against stats", Result{ExitCode: 1, Status: "failed", Summary: stats(nil, nil)},
			Verdict{false, PlaybookFailed, "ansible-playbook left neither result nor output\nansible-playbook ended with exit code 1"}},
		{"no hosts", Result{Status: "successful", Summary: jobevent.Summary{Complete: true, NoHostsMatched: true, Stats: &jobevent.Stats{}}},
			Verdict{false, NoHostsMatched, "no hosts matched\nno play of the playbook found a host in the inventory"}},
		{"no results, and a meta task at the end", Result{Status: "successful", Summary: jobevent.Summary{
			Complete: true, Acted: true, Task: jobevent.Task{Name: "Flush", Action: "meta"}, Stats: &jobevent.Stats{},
		}}, Verdict{false, ResultIncomplete, "exit code 0, and none of the tasks that were begun has a result\nlast task \"Flush\""}},
		{"no hosts for one of two plays", Result{Status: "successful", Summary: func() jobevent.Summary {
			s := stats(nil, nil)
			s.NoHostsMatched = true
			return s
		}()}, Verdict{true, Succeeded, ""}},

		{"failed task", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, failure)},
			Verdict{false, TaskFailed, "non-zero return code\n" + where + "\nno space left"}},
		{"failed task, and no memory", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, failure), Shortage: "the kernel has killed it"},
			Verdict{false, TaskFailed, "non-zero return code\nthe kernel has killed it\n" + where + "\nno space left"}},
		{"failed task, stats lost", Result{ExitCode: 2, Status: "failed", Summary: jobevent.Summary{Failed: []jobevent.Failure{failure}}},
			Verdict{false, TaskFailed, "non-zero return code\n" + where + "\nno space left"}},
		{"events lost, stats left", Result{ExitCode: 2, Status: "failed", Summary: stats(map[string]int{"b": 1, "a": 2}, nil)},
			Verdict{false, PlaybookFailed, "failed on a, b\nthe events that say more are missing"}},
		{"unreachable, events lost", Result{ExitCode: 4, Status: "failed", Summary: stats(nil, map[string]int{"b": 1, "a": 2})},
			Verdict{false, Unreachable, "unreachable: a, b\nthe events that say more are missing"}},
		{"failed items", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, with(func(f *jobevent.Failure) {
			f.Message, f.Detail, f.Items, f.ItemsFailed = "One or more items failed", "", []string{"a: no", "b: no"}, 7
		}))}, Verdict{false, ItemFailed, "One or more items failed\n" + where + "\nitem a: no\nitem b: no\nand 5 more items"}},
		{"handler", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, with(func(f *jobevent.Failure) { f.Handler, f.FailedWhen = true, true }))},
			Verdict{false, HandlerFailed, "non-zero return code\n" + where + "\nno space left"}},
		{"failed_when", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, with(func(f *jobevent.Failure) { f.FailedWhen = true }))},
			Verdict{false, ConditionFailed, "non-zero return code\n" + where + "\nno space left"}},
		{"author speaks of undefined things", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, with(func(f *jobevent.Failure) {
			f.Task.Action, f.Message, f.Detail = "fail", "'size' is undefined", ""
		}))}, Verdict{false, TaskFailed, "'size' is undefined\n" + where}},
		{"undefined attribute", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, with(func(f *jobevent.Failure) {
			f.Message, f.Detail = "'dict object' has no attribute 'size'", ""
		}))}, Verdict{false, UndefinedVariable, "'dict object' has no attribute 'size'\n" + where}},
		{"error of Python in a module", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, with(func(f *jobevent.Failure) {
			f.Message, f.Detail = "'NoneType' object has no attribute 'size'", ""
		}))}, Verdict{false, TaskFailed, "'NoneType' object has no attribute 'size'\n" + where}},
		{"role not found while running", Result{ExitCode: 2, Status: "failed", Summary: stats(one, nil, with(func(f *jobevent.Failure) {
			f.Message, f.Detail = "the role 'x' was not found in /roles", ""
		}))}, Verdict{false, RoleNotFound, "the role 'x' was not found in /roles\n" + where}},
		{"failed here, unreachable there", Result{ExitCode: 4, Status: "failed", Summary: stats(one, map[string]int{"far": 1},
			jobevent.Failure{Task: task, Host: "far", Message: "no\nroute", Unreachable: true}, failure)},
			Verdict{false, TaskFailed, "non-zero return code\n" + where + "\nno space left\nalso task \"Deploy\", role \"memcached\", host far, at /roles/memcached/tasks/main.yml:7: no route"}},

		{"runner killed", Result{ExitCode: -1, Signal: "SIGKILL", Summary: running},
			Verdict{false, RunnerDied, "ansible-runner was killed by SIGKILL\nlast task \"Deploy\", role \"memcached\", at /roles/memcached/tasks/main.yml:7"}},
		{"runner killed after a failure", Result{ExitCode: -1, Signal: "SIGTERM", Summary: jobevent.Summary{Task: task, Failed: []jobevent.Failure{failure}}},
			Verdict{false, RunnerDied, "ansible-runner was killed by SIGTERM\nlast task \"Deploy\", role \"memcached\", at /roles/memcached/tasks/main.yml:7"}},
		{"playbook killed", Result{ExitCode: 0, Status: "failed", Summary: running},
			Verdict{false, RunnerDied, "ansible-playbook was killed by a signal\nlast task \"Deploy\", role \"memcached\", at /roles/memcached/tasks/main.yml:7"}},
		{"worker killed", Result{ExitCode: 1, Status: "failed", Summary: running, Tail: "TASK [Deploy] ***\nERROR! A worker was found in a dead state\n"},
			Verdict{false, RunnerDied, "a process of ansible-playbook was killed: A worker was found in a dead state\nlast task \"Deploy\", role \"memcached\", at /roles/memcached/tasks/main.yml:7\nansible-playbook ended with exit code 1"}},
		{"cancelled", Result{ExitCode: 254, Status: "canceled", Summary: running},
			Verdict{false, RunnerDied, "ansible-runner ended with exit code 254 and status \"canceled\"\nlast task \"Deploy\", role \"memcached\", at /roles/memcached/tasks/main.yml:7"}},
		{"crash", Result{ExitCode: 1, Tail: "Traceback (most recent call last):\n  File\nOSError: [Errno 28] No space left on device\n"},
			Verdict{false, RunnerDied, "ansible-runner crashed with exit code 1: OSError: [Errno 28] No space left on device\nbefore the first task"}},

		{"bad options", Result{ExitCode: 5, Status: "failed", Tail: "ERROR! --tree requires an argument"},
			Verdict{false, BadArguments, "--tree requires an argument\nansible-playbook ended with exit code 5"}},
		{"locale", Result{ExitCode: 1, Status: "failed", Tail: "ERROR: Ansible requires the locale encoding to be UTF-8; Detected None."},
			Verdict{false, PlaybookFailed, "Ansible requires the locale encoding to be UTF-8; Detected None.\nansible-playbook ended with exit code 1"}},
		{"unexpected exception", Result{ExitCode: 250, Status: "failed", Tail: "ERROR! Unexpected Exception, this is probably a bug: maximum recursion depth exceeded\nthe full traceback was:\n\nTraceback"},
			Verdict{false, PlaybookFailed, "Unexpected Exception, this is probably a bug: maximum recursion depth exceeded\nthe full traceback was:\n\nTraceback\nansible-playbook ended with exit code 250"}},
		{"interrupted", Result{ExitCode: 99, Status: "failed", Tail: "[ERROR]: User interrupted execution\n"},
			Verdict{false, PlaybookFailed, "User interrupted execution\nansible-playbook ended with exit code 99"}},
		{"output without error", Result{ExitCode: 127, Status: "failed", Tail: "The command was not found or was not executable: ansible-playbook.\n"},
			Verdict{false, PlaybookFailed, "The command was not found or was not executable: ansible-playbook.\nansible-playbook ended with exit code 127"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.result.Verdict()
			must.Be(t, "verdict", tt.want, got)
			checkMessage(t, got)
		})
	}
}

// TestVerdict_Output judges captured output of two lines of ansible-core.
func TestVerdict_Output(t *testing.T) {
	tests := []struct {
		file     string
		exitCode int
		reason   Reason
		first    string // first line of the message
		place    string // a later line; empty for none
	}{
		{"core-2.14/syntax.txt", 4, PlaybookInvalid, "Syntax Error while loading YAML. did not find expected key", "at /opt/ansible/playbooks/syntax.yml:7"},
		{"core-2.19/syntax.txt", 4, PlaybookInvalid, "YAML parsing failed: While parsing a block mapping did not find expected key.", "at /opt/ansible/playbooks/syntax.yml:7"},
		{"core-2.14/unknown_module.txt", 4, PlaybookInvalid, "couldn't resolve module/action 'ansible.builtin.no_such_module'. This often indicates a misspelling, missing collection, or incorrect module path.", "at /opt/ansible/playbooks/unknown_module.yml:4"},
		{"core-2.19/unknown_module.txt", 4, PlaybookInvalid, "couldn't resolve module/action 'ansible.builtin.no_such_module'. This often indicates a misspelling, missing collection, or incorrect module path.", "at /opt/ansible/playbooks/unknown_module.yml:4"},
		{"core-2.14/missing_playbook.txt", 1, RoleNotFound, "the playbook: /opt/ansible/playbooks/nonexistent.yml could not be found", ""},
		{"core-2.19/missing_playbook.txt", 1, RoleNotFound, "the playbook: /opt/ansible/playbooks/nonexistent.yml could not be found", ""},
		{"core-2.14/missing_role.txt", 1, RoleNotFound, "the role 'no_such_role' was not found in /opt/ansible/playbooks/roles:/home/me/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles:/opt/ansible/playbooks", "at /opt/ansible/playbooks/missing_role.yml:4"},
		{"core-2.19/missing_role.txt", 1, RoleNotFound, "the role 'no_such_role' was not found in /opt/ansible/playbooks/roles:/home/me/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles:/opt/ansible/playbooks", "at /opt/ansible/playbooks/missing_role.yml:4"},
		{"core-2.14/missing_include_role.txt", 2, RoleNotFound, "the role 'no_such_role' was not found in /opt/ansible/playbooks/roles:/home/me/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles:/opt/ansible/playbooks", "at /opt/ansible/playbooks/missing_include_role.yml:6"},
		{"core-2.19/missing_include_role.txt", 2, RoleNotFound, "the role 'no_such_role' was not found in /opt/ansible/playbooks/roles:/home/me/.ansible/roles:/usr/share/ansible/roles:/etc/ansible/roles:/opt/ansible/playbooks", "at /opt/ansible/playbooks/missing_include_role.yml:6"},
		{"core-2.14/vault.txt", 1, VaultError, "Attempting to decrypt but no vault secrets found", ""},
		{"core-2.19/vault.txt", 1, VaultError, "Invalid vars_files file '/opt/ansible/playbooks/vaulted_vars.yml': Attempting to decrypt but no vault secrets found.", "at /opt/ansible/playbooks/vaulted_vars.yml"},
		{"core-2.14/bad_arguments.txt", 2, BadArguments, "unrecognized arguments: --no-such-argument", ""},
		{"core-2.19/bad_arguments.txt", 2, BadArguments, "unrecognized arguments: --no-such-argument", ""},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			text := must.Get(Tail(filepath.Join("testdata/output", tt.file), tailLimit))(t)
			v := Result{ExitCode: tt.exitCode, Status: "failed", Tail: text}.Verdict()
			first, rest, _ := strings.Cut(v.Message, "\n")
			if v.Reason != tt.reason || first != tt.first {
				t.Errorf("verdict = %s %q, want %s %q", v.Reason, first, tt.reason, tt.first)
			}
			if tt.place != "" && !strings.Contains("\n"+rest+"\n", "\n"+tt.place+"\n") {
				t.Errorf("no line %q in:\n%s", tt.place, v.Message)
			}
			checkMessage(t, v)
		})
	}
}

func TestVerdict_HugeAndHostileTextKeepsThePlace(t *testing.T) {
	place := "at /roles/memcached/tasks/main.yml:7"
	texts := map[string]string{
		"long":       strings.Repeat("x", 1<<16),
		"lines":      strings.Repeat("line\n", 1<<10),
		"emoji":      strings.Repeat("😀", 1<<12),
		"not UTF-8":  strings.Repeat("\xff", 1<<12),
		"escapes":    strings.Repeat("\x1b[31mred\x1b[0m", 1<<10),
		"control":    "a\x00\x07\r\x1b\x7f\u0085b\tc",
		"whitespace": strings.Repeat(" \t\r\n", 1<<10),
		"directions": "\u202eabc\u202c",
		"empty":      "",
	}
	for name, text := range texts {
		t.Run(name, func(t *testing.T) {
			failure := jobevent.Failure{
				Task: jobevent.Task{Name: text, Role: text, Path: "/roles/memcached/tasks/main.yml:7"}, Host: text,
				Message: text, Detail: text, Items: []string{text, text}, ItemsFailed: 2,
			}
			results := map[string]Result{
				"task":   {ExitCode: 2, Status: "failed", Summary: jobevent.Summary{Failed: []jobevent.Failure{failure, failure}}},
				"output": {ExitCode: 2, Status: "failed", Tail: text, Summary: jobevent.Summary{Task: failure.Task}},
				"error":  {ExitCode: 4, Status: "failed", Tail: "ERROR! " + text, Summary: jobevent.Summary{Task: failure.Task}},
				"status": {ExitCode: 1, Status: text, Summary: jobevent.Summary{Task: failure.Task}},
				"crash":  {ExitCode: 1, Tail: text, Summary: jobevent.Summary{Task: failure.Task}},
			}
			for kind, result := range results {
				v := result.Verdict()
				checkMessage(t, v)
				if !strings.Contains(v.Message, place) {
					t.Errorf("%s: the place is lost: %q", kind, v.Message)
				}
			}
		})
	}
}

func FuzzVerdict(f *testing.F) {
	files, err := filepath.Glob("testdata/output/*/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text := must.Get(os.ReadFile(file))(f)
		f.Add(2, "failed", string(text))
	}
	f.Fuzz(func(t *testing.T, exitCode int, status, tail string) {
		v := Result{ExitCode: exitCode, Status: status, Tail: text.Plain(tail)}.Verdict()
		if v.Success {
			t.Error("success without stats")
		}
		checkMessage(t, v)
	})
}
