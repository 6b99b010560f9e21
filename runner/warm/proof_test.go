package warm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
)

// TestPool_ProvesALineThatIsNotTested pretends that the installed Ansible is another line, or another version of its line.
func TestPool_ProvesALineThatIsNotTested(t *testing.T) {
	t.Parallel()
	installed, line := installedAnsible(t)
	const differs = "ansible.utils.path:cleanup_tmp_file, DEFAULT_FORKS is read when Ansible is imported; --executor-trust-line"
	for name, tt := range map[string]struct {
		version                    string
		changed, trusted, computes bool
		want                       string
		slower                     bool
	}{
		"the same code": {version: "2.1000.0"},
		"other code":    {version: "2.1000.0", changed: true, want: "not tested with ansible-core 2.1000.0, where this has changed that they rely on: " + differs},
		"trusted":       {version: "2.1000.0", changed: true, trusted: true},

		"a version of the line":                          {version: line + ".1000"},
		"a version of the line with other code of tasks": {version: line + ".1000", computes: true, slower: line != "2.22"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.TrustLine = tt.trusted
			var slower error
			o.OnChange = func(err error) { slower = err }
			must.Do(t, os.MkdirAll(packages(o), 0o700))
			must.Do(t, exec.Command("cp", "-rs", installed, packages(o)).Run())
			change := func(name, from, to string) {
				path := filepath.Join(packages(o), "ansible", name)
				text := must.Get(os.ReadFile(path))(t)
				must.Do(t, os.Remove(path))
				write(t, path, strings.Replace(string(text), from, to, 1)+"\n")
			}
			change("release.py", "\n__version__", "\n__version__ = '"+tt.version+"'\nwas")
			if tt.changed {
				change("utils/path.py", "        if os.path.exists(path):", "        pass\n        if os.path.exists(path):")
				change("utils/version.py", "\nimport re\n", "\nimport re\nfrom ansible import constants as C\nFORKS = C.DEFAULT_FORKS\n")
			}
			if tt.computes {
				change("executor/task_executor.py", "        self._loop_eval_error = None", "        self._loop_eval_error = None  # and\n        self._more = 1")
			}
			o.Environ = append(o.Environ, "PYTHONPATH="+packages(o)+":"+os.Getenv("PYTHONPATH"))
			pool := warm.New(o)
			defer pool.Close()
			if err := pool.Wait(t.Context()); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v", err)
			}
			if tt.want != "" {
				return
			}
			if want := "where this has changed since its line was tested: ansible.executor.task_executor:TaskExecutor"; (slower == nil) == tt.slower ||
				slower != nil && !strings.HasSuffix(slower.Error(), want) {
				t.Errorf("slower: %v", slower)
			}
			r := runnerOf(o, pool, 0)
			defer r.Close()
			res := run(t, r, "- hosts: localhost\n  gather_facts: false\n  tasks: [{debug: }]\n")
			if n := res.Tasks()["none"]; (n > 0) != (strings.HasPrefix(tt.version, line+".") && line != "2.22" && !tt.slower) {
				t.Errorf("%d tasks without a worker", n)
			}
		})
	}
}

// installedAnsible returns the directory and the line of the installed Ansible.
func installedAnsible(t *testing.T) (dir, line string) {
	t.Helper()
	script := must.Get(os.ReadFile(must.Get(exec.LookPath("ansible-playbook"))(t)))(t)
	python, _, _ := strings.Cut(strings.TrimPrefix(string(script), "#!"), "\n")
	said := must.Get(exec.Command(strings.TrimSpace(python), "-c",
		"import ansible.release; print(ansible.__path__[0]); print('.'.join(ansible.release.__version__.split('.')[:2]))").Output())(t)
	dir, line, _ = strings.Cut(strings.TrimSpace(string(said)), "\n")
	return dir, line
}
