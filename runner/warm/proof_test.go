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

// TestPool_ProvesALineThatIsNotTested pretends that the installed Ansible is of
// another line.
func TestPool_ProvesALineThatIsNotTested(t *testing.T) {
	t.Parallel()
	const differs = "ansible.utils.path:cleanup_tmp_file, DEFAULT_FORKS is read when Ansible is imported; --executor-trust-line"
	script := must.Get(os.ReadFile(must.Get(exec.LookPath("ansible-playbook"))(t)))(t)
	python, _, _ := strings.Cut(strings.TrimPrefix(string(script), "#!"), "\n")
	installed := must.Get(exec.Command(strings.TrimSpace(python), "-c", "import ansible; print(ansible.__path__[0], end='')").Output())(t)
	for name, tt := range map[string]struct {
		changed, trusted bool
		want             string
	}{
		"the same code": {},
		"other code":    {changed: true, want: "not tested with ansible-core 2.1000.0, where this has changed that they rely on: " + differs},
		"trusted":       {changed: true, trusted: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.TrustLine = tt.trusted
			must.Do(t, os.MkdirAll(packages(o), 0o700))
			must.Do(t, exec.Command("cp", "-rs", string(installed), packages(o)).Run())
			change := func(name, from, to string) {
				path := filepath.Join(packages(o), "ansible", name)
				text := must.Get(os.ReadFile(path))(t)
				must.Do(t, os.Remove(path))
				write(t, path, strings.Replace(string(text), from, to, 1)+"\n")
			}
			change("release.py", "\n__version__", "\n__version__ = '2.1000.0'\nwas")
			if tt.changed {
				change("utils/path.py", "        if os.path.exists(path):", "        pass\n        if os.path.exists(path):")
				change("utils/version.py", "\nimport re\n", "\nimport re\nfrom ansible import constants as C\nFORKS = C.DEFAULT_FORKS\n")
			}
			o.Environ = append(o.Environ, "PYTHONPATH="+packages(o)+":"+os.Getenv("PYTHONPATH"))
			pool := warm.New(o)
			defer pool.Close()
			if err := pool.Wait(t.Context()); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v", err)
			}
		})
	}
}
