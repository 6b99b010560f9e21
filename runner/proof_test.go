package runner

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

var update = flag.Bool("update", false, "write what the installed line of Ansible has to warm/python/tested.json")

// provenNow is a Python program that prints what proof.py finds in the installed Ansible.
const provenNow = `
import json, sys
sys.path.insert(0, sys.argv[1])
import ansible.release, proof
version = ansible.release.__version__
print(json.dumps({"version": version, "line": proof.line(version), "released": version.replace(".", "").isdigit(), "digests": proof.digests(proof.NAMES + proof.COMPUTING), "unknown": sorted(proof.unknown_settings())}))
`

// proven is the output of provenNow.
type proven struct {
	Version  string            `json:"version"`
	Line     string            `json:"line"`
	Released bool              `json:"released"`
	Digests  map[string]string `json:"digests"`
	Unknown  []string          `json:"unknown"`
}

func prove(t *testing.T) (p proven) {
	t.Helper()
	script := must.Get(os.ReadFile(mustLook(t, "ansible-playbook")))(t)
	python, _, _ := strings.Cut(strings.TrimPrefix(string(script), "#!"), "\n")
	cmd := exec.Command(strings.TrimSpace(python), "-c", provenNow, must.Get(filepath.Abs("warm/python"))(t))
	cmd.Env, cmd.Stderr = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1"), os.Stderr
	must.Do(t, json.Unmarshal(must.Get(cmd.Output())(t), &p))
	return p
}

// table is the content of warm/python/tested.json: the lines of Ansible that were tested, and for each name its digest in
// each line, which is empty if the line does not have the name. A line of which only a beta was tested is not among Lines,
// so that its next versions are compared.
type table struct {
	Lines []string `json:"lines"`
	// Versions are the versions that were tested. Other versions of these lines are compared with them by the digests of what
	// tasks without workers rely on.
	Versions []string                     `json:"versions"`
	Names    map[string]map[string]string `json:"names"`
}

// The test fails if the line of Ansible in PATH reads a setting at import that the fork server does not know, or if the
// table is not up to date with that line.
func TestProof_KnowsThisLine(t *testing.T) {
	t.Parallel()
	const file = "warm/python/tested.json"
	now := prove(t)
	if len(now.Unknown) > 0 {
		t.Errorf("ansible-core %s reads settings when it is imported that neither KEPT nor RENEWED in playbook.py has: %q", now.Line, now.Unknown)
	}
	var was, is table
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(file))(t), &was))
	is = table{Lines: was.Lines, Versions: was.Versions, Names: map[string]map[string]string{}}
	if now.Released && *update && !slices.Contains(is.Versions, now.Version) {
		is.Versions = append(is.Versions, now.Version)
	}
	if now.Released && !slices.Contains(is.Lines, now.Line) {
		is.Lines = slices.Sorted(slices.Values(append(slices.Clone(is.Lines), now.Line)))
	}
	for name, digest := range now.Digests {
		is.Names[name] = map[string]string{}
		known := false
		for line, other := range was.Names[name] {
			is.Names[name][line] = other
			known = known || other == digest
		}
		if !known || strings.HasPrefix(name, "ansible.") { // for Python's own modules, the same digest of another line suffices
			is.Names[name][now.Line] = digest
		}
	}
	if *update {
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetIndent("", "  ")
		must.Do(t, errors.Join(encoder.Encode(is), os.WriteFile(file, text.Bytes(), 0o644)))
		return
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("%s is not up to date; once the tests pass with this line of Ansible, run go test ./runner -run Proof -update (-have +want):\n%s", file, diff)
	}
}
