package supervise

import (
	"os/exec"
	"testing"
)

// A process counts for the command that it descends from, whatever it says itself.
func TestLoads_AreThoseOfTheAncestors(t *testing.T) {
	t.Parallel()
	const name = "ROLEWRIGHT_LOAD_TEST"
	cmd := exec.Command("/bin/sh", "-c", name+"=other sleep 600 & env -i sleep 600 & echo ready; wait")
	cmd.Env = []string{name + "=mine", "PATH=/usr/bin:/bin"}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Error(err)
	}
	never := func(string) bool { return false }
	loads := Loads(name, true, never)
	if mine := loads["mine"]; len(loads) != 1 || len(mine.Processes) != 3 || mine.Tasks < 3 || mine.Memory == 0 || mine.Processes[0].pid != cmd.Process.Pid {
		t.Errorf("%+v", loads)
	}
	loads["mine"].KillYoungest(1)
	if err := cmd.Wait(); err != nil {
		t.Errorf("the oldest is killed, too: %v", err)
	}
}
