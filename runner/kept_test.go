package runner

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// What Ansible reads when it is imported a forked run does not read again: each such
// setting is one for which a run is not forked, on each line of Ansible.
func TestKept_HasWhatAnsibleReadsAtImport(t *testing.T) {
	t.Parallel()
	script := must.Get(os.ReadFile(mustLook(t, "ansible-playbook")))(t)
	line, _, _ := bytes.Cut(script, []byte("\n"))
	python := strings.TrimSpace(strings.TrimPrefix(string(line), "#!"))
	out, err := exec.CommandContext(t.Context(), python, "testdata/settings_at_import.py", "warm/python").CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
