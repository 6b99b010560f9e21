package migrate

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// The artifacts come from runs of the real ansible-runner in ansible-operator's layout, with each result for which the two
// rules differ.
func TestSimulate_JudgesRecordedRunsByBothRules(t *testing.T) {
	parts.Ansible(t)
	root := t.TempDir()
	const kind = "example.com/v1/Tea/default/"
	runs := map[string]struct {
		playbook string
		want     string // ansible-operator's result and Rolewright's reason if they differ
	}{
		"works":    {"- hosts: localhost\n  gather_facts: false\n  tasks: [{command: 'true'}]\n", ""},
		"fails":    {"- hosts: localhost\n  gather_facts: false\n  tasks: [{command: 'false'}]\n", ""},
		"ignores":  {"- hosts: localhost\n  gather_facts: false\n  tasks: [{command: 'false', ignore_errors: true}]\n", ""},
		"rescues":  {"- hosts: localhost\n  gather_facts: false\n  tasks: [{block: [{command: 'false'}], rescue: [{command: 'true'}]}]\n", "Failed Succeeded"},
		"gone":     {"- hosts: gone\n  gather_facts: false\n  tasks: [{ping: }]\n", "Successful Unreachable"},
		"no host":  {"- hosts: others\n  gather_facts: false\n  tasks: [{ping: }]\n", "Successful NoHostsMatched"},
		"unparsed": {"- hosts: localhost\n  tasks: {\n", "Running PlaybookInvalid"},
	}
	differ := 0
	for name, run := range runs {
		dir := filepath.Join(root, kind+name)
		must.Write(t, dir, map[string]string{
			"project/site.yml": run.playbook,
			"inventory/hosts":  "localhost ansible_connection=local\ngone ansible_host=127.0.0.1 ansible_port=1 ansible_connection=ssh ansible_ssh_executable=/bin/false\n",
		})
		out, _ := exec.CommandContext(t.Context(), "ansible-runner", "run", dir, "-p", "site.yml", "-i", "7").CombinedOutput()
		if _, err := os.Stat(filepath.Join(dir, "artifacts/7/rc")); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		if run.want != "" {
			differ++
		}
	}
	must.Do(t, os.CopyFS(filepath.Join(root, kind+"cut"), os.DirFS(filepath.Join(root, kind+"works"))))
	must.Do(t, os.Remove(filepath.Join(root, kind+"cut/artifacts/7/rc")))
	s := must.Get(Simulate(t.Context(), root))(t)
	if s.Runs != 7 || s.Objects != 7 || s.Unfinished != 1 || s.Same != s.Runs-differ || len(s.Differ) != differ {
		t.Errorf("%+v", s)
	}
	for _, j := range s.Differ {
		want := runs[strings.TrimPrefix(j.Object, kind)].want
		if got := j.AnsibleOperator + " " + j.Rolewright; got != want || j.Run != "7" {
			t.Errorf("%s: %s, want %s (%+v)", j.Object, got, want, j)
		}
	}
	if _, err := Simulate(context.Background(), t.TempDir()); err == nil {
		t.Error("a directory without runs is no error")
	}
}
