package warm_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
)

const simple = `
- hosts: localhost
  gather_facts: false
  tasks: [{ping: }, {command: "true"}]
`

// These tests need no server of their own, and share one.
func TestRun_OfASharedServer(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	for name, test := range map[string]func(*testing.T, warm.Options, *runner.Runner){
		"gets no answer from the server":          getsNoAnswerFromTheServer,
		"forks modules of bash and other names":   forksModulesOfBashAndOtherNames,
		"counts tasks":                            countsTasks,
		"has a control group, as plain runs have": hasAControlGroupAsPlainRunsHave,
		"sees nothing of another":                 seesNothingOfAnother,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, o, r)
		})
	}
}

// If the operator has no locale, the interpreter sets one in its own environment, in the server as in each run.
func TestRun_IsForkedWithoutALocale(t *testing.T) {
	t.Parallel()
	o := options(t)
	o.Environ = slices.DeleteFunc(o.Environ, func(entry string) bool {
		return strings.HasPrefix(entry, "LANG=") || strings.HasPrefix(entry, "LC_")
	})
	r, _ := start(t, o)
	run(t, r, `
- hosts: localhost
  gather_facts: false
  tasks: [{shell: '[ "$LC_CTYPE" = C.UTF-8 ]'}]
`)
	if trace := traced(t, o); !strings.HasPrefix(trace, "playbook forked\n") {
		t.Errorf("trace:\n%s", trace)
	}
}

// As in a plain run, the file of log_path has what ansible-playbook prints, and nothing that a module logs.
func TestRun_WritesTheLog(t *testing.T) {
	t.Parallel()
	o, file := options(t), filepath.Join(t.TempDir(), "ansible.log")
	o.Environ = append(o.Environ, "ANSIBLE_LOG_PATH="+file)
	r, _ := start(t, o)
	req := request(t, `
- hosts: localhost
  gather_facts: false
  tasks: [{ping: , when: false}, {own: , register: said}, {assert: {that: "'said aloud' not in (said | string)"}}]
`)
	library := filepath.Join(filepath.Dir(req.Content.Playbook), "library")
	must.Do(t, os.Mkdir(library, 0o700))
	write(t, filepath.Join(library, "own.py"),
		"import logging\nfrom ansible.module_utils.basic import AnsibleModule\nlogging.info('said aloud')\nAnsibleModule(argument_spec={}).exit_json()\n")
	res, err := r.Run(t.Context(), req)
	const skipped = "skipping: [localhost]"
	log := string(must.Get(os.ReadFile(file))(t))
	if n := strings.Count(res.Tail, skipped); err != nil || !res.Verdict().Success || n != 1 {
		t.Errorf("error %v, verdict %+v, %d times %q in\n%s", err, res.Verdict(), n, skipped, res.Tail)
	}
	if strings.Count(log, skipped) != 1 || !strings.Contains(log, "PLAY RECAP") || strings.Contains(log, "said aloud") {
		t.Errorf("log:\n%s", log)
	}
	if trace := traced(t, o); !strings.HasPrefix(trace, "playbook forked\n") {
		t.Errorf("trace:\n%s", trace)
	}
}

// If the operator gets a module utility with the name of one of Ansible's own, runs use it from then on.
func TestRun_TakesModuleUtilitiesOfTheOperator(t *testing.T) {
	t.Parallel()
	o, utilities := options(t), t.TempDir()
	o.Environ = append(o.Environ, "ANSIBLE_MODULE_UTILS="+utilities)
	r, _ := start(t, o)
	const playbook = `
- hosts: localhost
  gather_facts: false
  tasks: [{uri: {url: "http://127.0.0.1:1"}, register: said, ignore_errors: true}, {assert: {that: "'%s' in (said | string)"}}]
`
	run(t, r, fmt.Sprintf(playbook, "refused"))
	write(t, filepath.Join(utilities, "urls.py"), "raise Exception('that of the operator')\n")
	run(t, r, fmt.Sprintf(playbook, "that of the operator"))
}

// If a run could ask the server for a process, that process would outlive the run.
func getsNoAnswerFromTheServer(t *testing.T, o warm.Options, r *runner.Runner) {
	t.Helper()
	sockets := must.Get(filepath.Glob(filepath.Join(o.Dir, "*", "*", "socket")))(t)
	if len(sockets) != 1 {
		t.Fatalf("sockets: %q", sockets)
	}
	req := request(t, `
- hosts: localhost
  gather_facts: false
  tasks:
  - command: python3 {{ playbook_dir }}/ask.py
    register: said
  - assert: {that: said.stdout == 'nothing', fail_msg: "{{ said.stdout }}"}
`)
	write(t, filepath.Join(filepath.Dir(req.Content.Playbook), "ask.py"), fmt.Sprintf(`import socket
s = socket.socket(socket.AF_UNIX)
s.connect(%q)
try:
    s.sendall(b'\0\0\0\x0d{"ping":true}')
    print(s.recv(100).decode() or "nothing")
except OSError:
    print("nothing")
`, sockets[0]))
	if res, err := r.Run(t.Context(), req); err != nil || !res.Verdict().Success {
		t.Errorf("error %v, verdict %+v\n%s", err, res.Verdict(), res.Tail)
	}
}

// Modules that are not forked are counted, by reason.
func TestRun_CountsModules(t *testing.T) {
	t.Parallel()
	r, _ := start(t, options(t))
	req := request(t, `
- hosts: localhost
  gather_facts: false
  vars: {ansible_async_dir: "{{ playbook_dir }}/async"}
  tasks:
  - ping:
  - ping:
  - ping:
    vars: {ansible_pipelining: true}
  - command: "true"
    async: 30
    poll: 1
  - ping:
    vars: {ansible_python_interpreter: "{{ playbook_dir }}/python"}
  - own:
  - incomplete:
    ignore_errors: true
  - ping:
    become: true
    vars: {ansible_become_exe: /nowhere/sudo}
    ignore_errors: true
  # With utilities that mention sys.path, where the collection cloud.common is installed.
  - kubernetes.core.k8s_exec: {host: "http://127.0.0.1:1", namespace: default, pod: no, command: "true"}
    ignore_errors: true
`)
	dir := filepath.Dir(req.Content.Playbook)
	python, err := exec.LookPath("python3")
	if err == nil {
		err = os.Symlink(python, filepath.Join(dir, "python"))
	}
	if err != nil {
		t.Fatal(err)
	}
	library := filepath.Join(dir, "library")
	must.Do(t, os.Mkdir(library, 0o700))
	write(t, filepath.Join(library, "own.py"), "import sys\nfrom ansible.module_utils.basic import AnsibleModule\nsys.path.append('/nowhere')\nAnsibleModule(argument_spec={}).exit_json()\n")
	write(t, filepath.Join(library, "incomplete.py"), "from ansible.module_utils.no_such_utility import x\n") // fails before it is executed
	res, err := r.Run(t.Context(), req)
	if err != nil || !res.Verdict().Success {
		t.Fatalf("error %v, verdict %+v\n%s", err, res.Verdict(), res.Tail)
	}
	got := res.Modules()
	// Once a second, a forked module asks whether the asynchronous one has ended.
	got["forked"] = min(got["forked"], 5)
	want := map[string]int64{"forked": 5, "pipelining": 1, "async": 1, "interpreter": 1, "libraries": 1, "become": 1, "other": 1}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Modules are forked even if the shell is bash, or if the interpreter is called by another name in its directory.
func forksModulesOfBashAndOtherNames(t *testing.T, _ warm.Options, r *runner.Runner) {
	t.Helper()
	res := run(t, r, `
- hosts: localhost
  gather_facts: false
  tasks:
  - ping:
    vars: {ansible_shell_executable: /bin/bash}
  - setup: {gather_subset: ["!all", "env"]}
    vars: {ansible_shell_executable: /bin/bash}
  - assert:
      that:
      - ansible_env.SHLVL | int == lookup('env', 'SHLVL') | default(0, true) | int + 1
      - ansible_env._ == ansible_playbook_python
  - set_fact: {ansible_python_interpreter: "{{ ansible_playbook_python | realpath }}"}
    when: (ansible_playbook_python | realpath | dirname) == (ansible_playbook_python | dirname)
  - ping:
`)
	if got, want := res.Modules(), map[string]int64{"forked": 3}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Tasks are counted by the reason why they have a worker of their own, or none.
func countsTasks(t *testing.T, _ warm.Options, r *runner.Runner) {
	t.Helper()
	req := request(t, `
- hosts: localhost
  gather_facts: false
  tasks:
  - debug: {msg: "{{ 1 + 1 }}"}
  - ping:
  - ping:
    when: false
  - ping:
    when: true
  - ping:
    loop: [1]
  - ping:
    changed_when: 1 == 2
  - group_by: {key: group}
  - debug: {msg: delegated}
    delegate_to: localhost
  - debug: {msg: "{{ lookup('pipe', 'true') }}"}
  - debug: {msg: "{{ hostvars }}"}
  - fail:
    ignore_errors: true
`)
	res, err := r.Run(t.Context(), req)
	if err != nil || !res.Verdict().Success {
		t.Fatalf("error %v, verdict %+v\n%s", err, res.Verdict(), res.Tail)
	}
	want := map[string]int64{"none": 4, "action": 3, "option": 1, "plugin": 1, "template": 1, "failed": 1}
	if core, err := exec.Command("ansible-playbook", "--version").Output(); err != nil || bytes.Contains(core, []byte("[core 2.22.")) {
		want = map[string]int64{} // with that line, all tasks have workers
	}
	if got := res.Tasks(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A forked run has a control group of its own if a plain run has one.
func hasAControlGroupAsPlainRunsHave(t *testing.T, _ warm.Options, r *runner.Runner) {
	t.Helper()
	grouped := map[runner.Executor]bool{}
	for _, executor := range []runner.Executor{runner.ExecutorWarm, runner.ExecutorRunner} {
		req := request(t, "- hosts: localhost\n  gather_facts: false\n  tasks: [{command: cat /proc/self/cgroup}]\n")
		req.Executor = executor
		req.OnEvent = func(e jobevent.Event) {
			grouped[executor] = grouped[executor] || strings.Contains(string(e.Data.Res), "/rolewright-"+req.ID+`"`) ||
				strings.Contains(string(e.Data.Res), "/rolewright-"+req.ID+`\n`)
		}
		if res, err := r.Run(t.Context(), req); err != nil || res.Executor() != executor {
			t.Errorf("executor %s, error %v", res.Executor(), err)
		}
		if left := must.Get(procs.Groups(req.ID))(t); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	}
	if grouped[runner.ExecutorWarm] != grouped[runner.ExecutorRunner] {
		t.Errorf("in a control group: %v", grouped)
	}
	if !grouped[runner.ExecutorRunner] {
		t.Log("NOT TESTED WITH CONTROL GROUPS: it takes a writable cgroup2, as root has it")
	}
}

// A run sees nothing of another run.
func seesNothingOfAnother(t *testing.T, _ warm.Options, r *runner.Runner) {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{
		"first/filter_plugins/leak.py": "import os, sys, tempfile, locale, signal, socket, logging\n" +
			"os.environ['LEAKED'] = 'x'; os.umask(0o777); os.chdir('/'); sys.path.append('/leaked'); socket.setdefaulttimeout(77)\n" +
			"tempfile.tempdir = '/leaked'; logging.root.addHandler(logging.NullHandler()); signal.signal(signal.SIGUSR2, lambda *_: None)\n" +
			"import kubernetes.client; kubernetes.client.Configuration.set_default(kubernetes.client.Configuration(host='http://leaked'))\n" +
			"import ansible.constants; ansible.constants.DEFAULT_TIMEOUT = 77; import json; json.leaked = 1\n" +
			"import multiprocessing; open(os.path.dirname(__file__) + '/key', 'wb').write(multiprocessing.current_process().authkey)\n" +
			"class FilterModule:\n    def filters(self):\n        return {'leaked': lambda x: x}\n",
		"second/filter_plugins/look.py": "import os, sys, tempfile, socket, logging, signal, json\n" +
			"import kubernetes.client, ansible.constants, multiprocessing\n" +
			"key = open(os.path.dirname(__file__) + '/../../first/filter_plugins/key', 'rb').read()\n" +
			"class FilterModule:\n    def filters(self):\n        return {'look': lambda x: ' '.join(map(str, [os.environ.get('LEAKED'), oct(os.umask(0o022)), os.getcwd() == '/', '/leaked' in sys.path," +
			" socket.getdefaulttimeout(), tempfile.gettempdir() == '/leaked', len(logging.root.handlers), signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL," +
			" 'leaked' in kubernetes.client.Configuration.get_default_copy().host, ansible.constants.DEFAULT_TIMEOUT, hasattr(json, 'leaked'), multiprocessing.current_process().authkey == key]))}\n",
	})
	content := func(name, expression string) runner.Request {
		req := request(t, "")
		req.Content.Playbook = filepath.Join(dir, name, req.ID+".yml")
		text := "- hosts: localhost\n  gather_facts: false\n  tasks: [{debug: {msg: \"" + expression + "\"}}]\n"
		must.Do(t, os.WriteFile(req.Content.Playbook, []byte(text), 0o600))
		return req
	}
	for _, tt := range []struct {
		req  runner.Request
		want string
		ok   bool
	}{
		{content("first", "{{ 'seen' | leaked }}"), "seen", true},
		{content("second", "{{ 'x' | look }}"), "None 0o22 False False None False 0 True False 10 False False", true},
		{content("second", "{{ 'x' | leaked }}"), "", false},
	} {
		res := must.Get(r.Run(t.Context(), tt.req))(t)
		if res.Verdict().Success != tt.ok || !strings.Contains(res.Tail, tt.want) {
			t.Errorf("want %q, verdict %+v\n%s", tt.want, res.Verdict(), res.Tail)
		}
	}
}

// holder is a lookup plugin that takes all locks that its process has from the server. Then it kills the run, or returns how
// many locks there are, whether there are as many as expected, and how many it could not take.
const holder = `
import gc, os, signal
from multiprocessing.synchronize import SemLock
from ansible.plugins.lookup import LookupBase

class LookupModule(LookupBase):
    def run(self, terms, variables=None, **kwargs):
        try:
            from ansible.executor.action_write_locks import action_write_locks as expected
        except ImportError:
            expected = {}
        own = {id(value) for value in gc.get_objects()}
        gc.unfreeze()
        locks = [value for value in gc.get_objects() if id(value) not in own and isinstance(value, SemLock)]
        held = [lock for lock in locks if not lock.acquire(block=False)]
        if terms == ["kill"]:
            os.killpg(0, signal.SIGKILL)
        for lock in locks:
            if lock not in held:
                lock.release()
        return [f"{len(locks)} locks, {len(locks) >= len(expected)}, {len(held)} held"]
`

// A run that is killed while it holds locks, such as those with which ansible-core 2.14 writes modules, does not block the
// next run, which has its own locks.
func TestRun_DoesNotWaitForTheLocksOfAnother(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	const look = "- hosts: localhost\n  gather_facts: false\n  tasks:\n  - debug: {msg: \"{{ lookup('holder', '%s') }}\"}\n"
	const unpack = "    register: seen\n    failed_when: \"' True, 0 held' not in seen.msg\"\n" +
		"  - command: tar cf {{ playbook_dir }}/x.tar -C {{ playbook_dir }} playbook.yml\n" +
		"  - file: {path: \"{{ playbook_dir }}/x\", state: directory, mode: \"0700\"}\n" +
		"  - unarchive: {src: \"{{ playbook_dir }}/x.tar\", dest: \"{{ playbook_dir }}/x\", remote_src: true}\n"
	for _, tt := range []struct {
		playbook string
		ok       bool
	}{{fmt.Sprintf(look, "kill"), false}, {fmt.Sprintf(look, "look") + unpack, true}} {
		req := request(t, tt.playbook)
		dir := filepath.Join(filepath.Dir(req.Content.Playbook), "lookup_plugins")
		write(t, filepath.Join(dir, "holder.py"), holder)
		res := must.Get(r.Run(t.Context(), req))(t)
		if res.Verdict().Success != tt.ok {
			t.Errorf("verdict %+v\n%s", res.Verdict(), res.Tail)
		}
	}
	if n := strings.Count(traced(t, o), "playbook forked"); n != 2 {
		t.Errorf("%d playbooks were forked, not 2", n)
	}
}
