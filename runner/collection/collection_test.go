package collection

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// play runs modules, and returns the output of Ansible.
func play(t *testing.T, environ []string, modules ...string) string {
	t.Helper()
	playbook, err := exec.LookPath("ansible-playbook")
	if err != nil {
		t.Skip("ansible-playbook is not installed")
	}
	text := "- hosts: localhost\n  gather_facts: false\n  vars: {ansible_python_interpreter: '{{ ansible_playbook_python }}'}\n  tasks:\n"
	for _, module := range modules {
		text += "    - " + module + "\n      register: r\n      ignore_errors: true\n    - debug: {var: r}\n"
	}
	path := filepath.Join(t.TempDir(), "play.yml")
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	cmd := exec.CommandContext(t.Context(), playbook, "-i", "localhost,", "-c", "local", path)
	cmd.Dir, cmd.Env = t.TempDir(), environ
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

// Ansible finds the modules. If the user has a module of the same name, Ansible finds that one first, wherever its
// configuration says that it is.
func TestInstall_TheUsersCollectionWins(t *testing.T) {
	t.Parallel()
	temp, user := t.TempDir(), t.TempDir()
	d := must.Get(Install(temp))(t)
	environ := slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "ANSIBLE_") })
	environ = d.Environ(environ)
	if again := d.Environ(environ); len(again) != len(environ) {
		t.Error("the directory is there twice")
	}
	const module = "operator_sdk.util.requeue_after: {time: 1h}"
	out := play(t, environ, module, "rolewright.operator.trigger_info: {}")
	if !strings.Contains(out, `"period": "1h"`) || !strings.Contains(out, "K8S_AUTH_KUBECONFIG is not set") {
		t.Errorf("the modules that come with Rolewright, outside of a run: %s", out)
	}
	dir := filepath.Join(user, "ansible_collections/operator_sdk/util/plugins/modules")
	text := "from ansible.module_utils.basic import AnsibleModule\n" +
		"AnsibleModule(argument_spec={'time': {}}).exit_json(period='of the user')\n"
	config := filepath.Join(user, "ansible.cfg")
	for path, data := range map[string]string{filepath.Join(dir, "requeue_after.py"): text, config: "[defaults]\ncollections_path = " + user + "\n"} {
		must.Do(t, os.MkdirAll(dir, 0o700))
		must.Do(t, os.WriteFile(path, []byte(data), 0o600))
	}
	if out := play(t, append(environ, "ANSIBLE_CONFIG="+config), module); !strings.Contains(out, `"period": "of the user"`) {
		t.Errorf("the user's module: %s", out)
	}

	missing := filepath.Join(d.dir.Name(), "ansible_collections/rolewright/operator/plugins/modules/status.py")
	must.Do(t, os.Remove(missing))
	must.Do(t, d.Ensure())
	info, err := os.Stat(missing)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a file that was removed: %v, %v", info, err)
	}
	d.Close()
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestModules(t *testing.T) {
	t.Parallel()
	want := []string{
		"operator_sdk.util.k8s_status", "operator_sdk.util.osdk_metric", "operator_sdk.util.requeue_after", "rolewright.operator.event",
		"rolewright.operator.metric", "rolewright.operator.requeue_after", "rolewright.operator.status", "rolewright.operator.trigger_info",
		"rolewright.operator.wait_for",
	}
	if got := Modules(); !slices.Equal(got, want) {
		t.Errorf("modules %v", got)
	}
}

// If a directory for temporary files is gone, another user may create one with the same name.
func TestEnsure_TakesNoDirectoryOfOthers(t *testing.T) {
	t.Parallel()
	d := must.Get(Install(t.TempDir()))(t)
	defer d.Close()
	module := filepath.Join(d.dir.Name(), "ansible_collections/rolewright/operator/plugins/modules/status.py")
	must.Do(t, os.RemoveAll(d.dir.Name()))
	if err := d.Ensure(); err != nil {
		t.Errorf("it is not made again: %v", err)
	}
	if _, err := os.Stat(module); err != nil {
		t.Error(err)
	}
	must.Do(t, os.RemoveAll(d.dir.Name()))
	must.Do(t, os.Mkdir(d.dir.Name(), 0o700))
	if err := os.Chmod(d.dir.Name(), 0o777); err != nil { // as another user's may be
		t.Fatal(err)
	}
	if err := d.Ensure(); err == nil {
		t.Error("a directory that is open to others is used")
	}
}
