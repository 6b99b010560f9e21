package supervise

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// A process counts for the command from which it descends, whatever its own environment says.
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

// An orphan that comes to a supervisor counts for the supervisor's command, whatever its own environment says.
func TestLoads_OfOrphans(t *testing.T) {
	t.Parallel()
	const name = "ROLEWRIGHT_ORPHAN_TEST"
	supervising := exec.Command("/bin/sh", "-c", name+"=orphans sleep 600 & until grep -q sleep /proc/$!/comm; do sleep 0.01; done; "+name+"=other sleep 600 & "+name+"=server sleep 600 & wait")
	supervising.Env = []string{"PATH=/usr/bin:/bin"}
	supervising.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.Do(t, supervising.Start())
	defer func() { _ = supervising.Wait() }()
	defer func() { _ = syscall.Kill(-supervising.Process.Pid, syscall.SIGKILL) }()
	var loads map[string]Load
	for until := time.Now().Add(time.Minute); len(loads["orphans"].Processes) < 3; {
		if time.Now().After(until) {
			t.Fatalf("%+v", loads)
		}
		loads = Loads(name, false, func(value string) bool { return value == "server" })
		if _, ok := loads["other"]; ok {
			t.Fatal("an orphan counts for the run that it names")
		}
	}
}
