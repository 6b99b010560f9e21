package executors

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
)

// nowhere is a web server that gets no requests.
const nowhere = "http://nowhere.invalid"

// project writes files to their own directory and returns the directory.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, dir, files)
	return dir
}

// collected is a module of a collection with its module_utils, and a filter of a role, which report the project they
// belong to.
func collected(name string) map[string]string {
	const collection = "collections/ansible_collections/acme/own/plugins/"
	return map[string]string{
		collection + "module_utils/which.py": fmt.Sprintf("WHICH = %q\n", name),
		collection + "modules/tell.py": "#!/usr/bin/python\nfrom ansible.module_utils.basic import AnsibleModule\n" +
			"from ansible_collections.acme.own.plugins.module_utils.which import WHICH\n" +
			"from ansible.module_utils.helper import HELP\n" +
			"AnsibleModule(argument_spec={}).exit_json(which=WHICH + HELP)\n",
		"module_utils/helper.py":      fmt.Sprintf("HELP = %q\n", " helped by "+name),
		"roles/r/filter_plugins/f.py": fmt.Sprintf("class FilterModule:\n    def filters(self):\n        return {'which': lambda x: %q}\n", name),
		"roles/r/tasks/main.yml":      "- acme.own.tell:\n  register: told\n- debug: {msg: \"{{ told.which }}, {{ 1 | which }}\"}\n",
		"play.yml": "- hosts: localhost\n  gather_facts: false\n  roles: [r]\n  tasks:\n" +
			"  - debug: {msg: \"{{ lookup('env', 'TOKEN') }} {{ lookup('env', 'K8S_AUTH_API_KEY') }}\"}\n",
	}
}

// If two projects have things with the same name, each uses its own, in whatever order they run. What one run was given,
// no other run has.
func TestRun_HasItsOwnProject(t *testing.T) {
	w := bothWays(t)
	projects := map[string]string{"first": project(t, collected("first")), "second": project(t, collected("second"))}
	for _, name := range []string{"first", "second", "first"} {
		s := sample{name: name, content: runner.Content{Playbook: filepath.Join(projects[name], "play.yml")}}
		if name == "first" {
			s.options.Env = map[string]string{"TOKEN": "given to the first", "K8S_AUTH_API_KEY": "key of the first"}
		}
		seen := s.observe(t, w.forked, nowhere)
		text := strings.Join(seen.Output, "\n")
		if !seen.Verdict.Success || !strings.Contains(text, name+" helped by "+name+", "+name) {
			t.Errorf("the run of %s: %+v\n%s", name, seen.Verdict, text)
		}
		if given := strings.Contains(text, "given to the first key of the first"); given != (name == "first") {
			t.Errorf("the run of %s has what the first was given: %v\n%s", name, given, text)
		}
	}
	if n := strings.Count(w.traced(t), "playbook forked"); n != 3 {
		t.Errorf("%d playbooks were forked, not 3", n)
	}
}

// What a module changes in a module that it has imported is not seen by others. If a project replaces one of Ansible's
// module_utils, its modules import the replacement.
func TestModule_HasItsOwnUtilities(t *testing.T) {
	w := bothWays(t)
	const tasks = "- hosts: localhost\n  gather_facts: false\n  tasks:\n" +
		"  - change:\n  - look:\n    register: seen\n" +
		"  - debug: {msg: \"{{ seen.of_others }} {{ seen.in_archive }} {{ seen.urls }}\"}\n" +
		"  - stat: {path: /}\n    register: root\n  - assert: {that: root.stat.exists}\n"
	const change = "#!/usr/bin/python\nimport json\nfrom ansible.module_utils import basic\nfrom ansible.module_utils.common import validation\n" +
		"m = basic.AnsibleModule(argument_spec={})\n" +
		"basic.CHANGED = validation.CHANGED = json.CHANGED = basic.AnsibleModule.CHANGED = True\nm.exit_json()\n"
	const look = "#!/usr/bin/python\nimport json, sys\nfrom ansible.module_utils import basic, urls\n" +
		"from ansible.module_utils.common import validation\n" +
		"m = basic.AnsibleModule(argument_spec={})\n" +
		"archive = [name for name, module in sys.modules.items() if name.startswith('ansible')\n" +
		"           and '.zip/' in (getattr(module, '__file__', None) or '').replace('/ansible_look_payload.zip/', '/')]\n" +
		"from ansible.module_utils.six.moves.urllib.parse import urlsplit\nfrom ansible.module_utils.six.moves import http_client\n" +
		"lines = [basic.AnsibleModule.exit_json.__code__.co_filename, validation.__spec__.origin, validation.__loader__.archive]\n" +
		"archive += [line for line in lines if '/ansible_look_payload.zip' not in line]\n" +
		"m.exit_json(of_others=[hasattr(where, 'CHANGED') for where in (basic, validation, json, basic.AnsibleModule)],\n" +
		"            in_archive=archive + [urlsplit.__name__, http_client.__name__], urls=getattr(urls, 'WHICH', 'of Ansible'))\n"
	for name, tt := range map[string]struct {
		utilities map[string]string
		want      string
	}{
		"Ansible's":     {nil, "[False, False, False, False] ['urlsplit', 'http.client'] of Ansible"},
		"the project's": {map[string]string{"module_utils/urls.py": "WHICH = 'of the project'\n"}, "[False, False, False, False] ['urlsplit', 'http.client'] of the project"},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"play.yml": tasks, "library/change.py": change, "library/look.py": look}
			maps.Copy(files, tt.utilities)
			s := sample{name: name, content: runner.Content{Playbook: filepath.Join(project(t, files), "play.yml")}}
			want, got := s.bothWays(t, w, nowhere)
			if text := strings.Join(got.Output, "\n"); !got.Verdict.Success || !strings.Contains(text, tt.want) {
				t.Errorf("want %q: %+v\n%s", tt.want, got.Verdict, text)
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("executed (-), forked (+):\n%s", diff)
			}
		})
	}
	if trace := w.traced(t); strings.Count(trace, "module forked") != 6 {
		t.Errorf("six modules are to be forked:\n%s", trace)
	}
}

// A run leaves nothing in shared places: no temporary file, and no process.
func TestRun_LeavesNoTemporaryFiles(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	w := bothWays(t)
	before := names(t, temp)
	sleep := fmt.Sprintf("sleep 77777.%d", os.Getpid())
	dir := project(t, map[string]string{"play.yml": "- hosts: localhost\n  tasks:\n  - ping:\n" +
		"  - copy: {content: x, dest: \"{{ out }}/x\", mode: \"0600\"}\n" +
		"  - template: {src: t.j2, dest: \"{{ out }}/t\", mode: \"0600\"}\n  - shell: " + sleep + " &\n", "templates/t.j2": "x"})
	s := sample{name: "temporary", content: runner.Content{Playbook: filepath.Join(dir, "play.yml")}}
	for _, r := range []*runner.Runner{w.executed, w.forked} {
		if seen := s.observe(t, r, nowhere); !seen.Verdict.Success {
			t.Fatalf("%+v\n%s", seen.Verdict, strings.Join(seen.Output, "\n"))
		}
		if diff := gocmp.Diff(before, names(t, temp)); diff != "" {
			t.Errorf("left in the directory for temporary files:\n%s", diff)
		}
		if left := must.Get(procs.Titled(sleep))(t); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	}
}

// Files that runs write without a mode have the umask of the operator: the one with which it was started. The other tests
// have the usual umask.
func TestRun_HasTheUmaskOfTheOperator(t *testing.T) {
	for _, umask := range []int{0o027, 0o002} {
		t.Run(fmt.Sprintf("%#o", umask), func(t *testing.T) {
			defer unix.Umask(unix.Umask(umask))
			w := bothWays(t)
			dir := project(t, map[string]string{"play.yml": "- hosts: localhost\n  gather_facts: false\n  tasks:\n" +
				"  - shell: umask; echo x > {{ out }}/by-shell\n  - copy: {content: x, dest: \"{{ out }}/by-module\"}\n" +
				"  - shell: stat -c %a {{ out }}/by-shell {{ out }}/by-module\n  - debug: {msg: \"umask {{ lookup('pipe', 'umask') }}\"}\n"})
			s := sample{name: "umask", content: runner.Content{Playbook: filepath.Join(dir, "play.yml")}}
			want, got := s.bothWays(t, w, nowhere)
			if text := fmt.Sprintf("umask %04o", umask); !want.Verdict.Success || !strings.Contains(strings.Join(want.Output, "\n"), text) {
				t.Errorf("executed: want %q: %+v\n%s", text, want.Verdict, strings.Join(want.Output, "\n"))
			}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("executed (-), forked (+):\n%s", diff)
			}
		})
	}
}

// names returns the names of the files in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries := must.Get(os.ReadDir(dir))(t)
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	// Other tests of this process have their files there at the same time.
	return slices.DeleteFunc(found, func(name string) bool { return strings.HasPrefix(name, "Test") })
}
