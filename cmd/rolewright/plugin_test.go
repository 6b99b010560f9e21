package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// kubectl finds the program through one link, and asks it for completions through another.
func TestKubectlPlugin(t *testing.T) {
	t.Parallel()
	kubectl := must.Get(filepath.Abs("../../bin/tools/kubectl"))(t)
	if _, err := os.Stat(kubectl); err != nil {
		parts.Missing(t, err)
	}
	dir, self := t.TempDir(), must.Get(os.Executable())(t)
	for _, name := range []string{kubectlPlugin, kubectlComplete} {
		must.Do(t, os.Symlink(self, filepath.Join(dir, name)))
	}
	for line, want := range map[string]string{
		"rolewright get --help":              "  kubectl rolewright get [command]\n",
		"rolewright version":                 "rolewright version",
		"__complete rolewright get ":         "runs\tList runs",
		"__complete rolewright get runs -o ": "jsonpath=\n",
	} {
		args := strings.Fields(line)
		if strings.HasSuffix(line, " ") {
			args = append(args, "")
		}
		cmd := exec.Command(kubectl, args...)
		cmd.Env = append(os.Environ(), asProgram+"=1", "KUBECONFIG=nowhere", "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), want) {
			t.Errorf("kubectl %s: %v\n%s\nwant %q", line, err, out, want)
		}
	}
}
