package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// TestGuard_EndsTheRunWhereItCannotWork: if Ansible lacks what the guard changes, and does not know trust either, no task
// of the playbook runs.
func TestGuard_EndsTheRunWhereItCannotWork(t *testing.T) {
	t.Setenv("TEST_EXECUTOR", "runner") // a fork server would not become ready
	plugins := t.TempDir()
	// Ansible imports this plugin when it reads the inventory, before it imports the guard.
	const other = `import importlib.util
import ansible.template
from ansible.plugins.vars import BaseVarsPlugin

find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *args: None if name == "ansible._internal._datatag._tags" else find_spec(name, *args)
if hasattr(ansible.template, "AnsibleContext"):
    del ansible.template.AnsibleContext._is_unsafe


class VarsModule(BaseVarsPlugin):
    def get_vars(self, loader, path, entities, cache=True):
        return {}
`
	must.Do(t, os.WriteFile(filepath.Join(plugins, "other.py"), []byte(other), 0o600))
	result := must.Get(ansible(t, "ANSIBLE_VARS_PLUGINS="+plugins).Run(t.Context(), request(t, "always.yml")))(t)
	v := result.Verdict()
	if v.Success || !strings.Contains(v.Message, "This version of Ansible cannot be kept from evaluating data") {
		t.Errorf("verdict = %+v\n%s", v, result.Tail)
	}
	if strings.Contains(result.Tail, "TASK [") {
		t.Errorf("a task ran:\n%s", result.Tail)
	}
}

// TestGuard_NamesAnOldAnsible: a Pod may have another Ansible than the operator, which has checked only its own.
func TestGuard_NamesAnOldAnsible(t *testing.T) {
	t.Setenv("TEST_EXECUTOR", "runner")
	plugins := t.TempDir()
	const old = `import ansible.release
from ansible.plugins.vars import BaseVarsPlugin

ansible.release.__version__ = "2.13.13"


class VarsModule(BaseVarsPlugin):
    def get_vars(self, loader, path, entities, cache=True):
        return {}
`
	must.Do(t, os.WriteFile(filepath.Join(plugins, "old.py"), []byte(old), 0o600))
	result, err := ansible(t, "ANSIBLE_VARS_PLUGINS="+plugins).Run(t.Context(), request(t, "always.yml"))
	if !errors.Is(err, ErrUnavailable) || !strings.HasSuffix(err.Error(), "ansible-core 2.13.13 is too old, 2.14 or newer is needed: install it in the image in which the role is run") {
		t.Errorf("the run ends with %v\n%s", err, result.Tail)
	}
	if strings.Contains(result.Tail, "TASK [") {
		t.Errorf("a task ran:\n%s", result.Tail)
	}
}
