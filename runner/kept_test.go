package runner

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// What Ansible reads when it is imported a forked run does not read again: each such
// setting is one for which a run is not forked, on each line of Ansible.
func TestKept_HasWhatAnsibleReadsAtImport(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile(mustLook(t, "ansible-playbook"))
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := bytes.Cut(script, []byte("\n"))
	python := strings.TrimSpace(strings.TrimPrefix(string(line), "#!"))
	out, err := exec.CommandContext(t.Context(), python, "testdata/settings_at_import.py", "warm/python").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
