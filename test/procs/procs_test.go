package procs_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
)

// A process that has emptied its command line is alive all the same.
func TestMarked_FindsWhatHasNoCommandLine(t *testing.T) {
	t.Parallel()
	mark := "PROCS_TEST=" + t.TempDir()
	cmd := exec.Command("sh")
	cmd.Args = []string{""}
	cmd.Env = append(os.Environ(), mark)
	input := must.Get(cmd.StdinPipe())(t)
	must.Do(t, cmd.Start())
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	found := must.Get(procs.Marked("PROCS_TEST=another", mark))(t)
	if line, ok := found[cmd.Process.Pid]; len(found) != 1 || !ok || line != "" {
		t.Errorf("found %v, want only %d, with no command line", found, cmd.Process.Pid)
	}
	if none := must.Get(procs.Marked())(t); len(none) > 0 {
		t.Errorf("found without a text: %v", none)
	}
}
