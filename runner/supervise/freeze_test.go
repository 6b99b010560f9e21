package supervise

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// Freeze stops every other process of the container, such as a fork bomb. Outside a container it stops nothing;
// TestSuite_AsProcessOne runs this test as in a container. The test is not parallel: it would stop other tests too.
func TestFreeze_StopsTheContainer(t *testing.T) {
	cmd := exec.Command("sleep", "600")
	must.Do(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	stopped := func() bool {
		stat := must.Get(os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/stat"))(t)
		_, rest, _ := strings.Cut(string(stat), ") ")
		return strings.HasPrefix(rest, "T")
	}
	eventually := func(want bool) {
		t.Helper()
		for until := time.Now().Add(time.Minute); stopped() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("stopped: %t, want %t", !want, want)
			}
		}
	}
	thaw := Freeze()
	defer thaw()
	eventually(os.Getpid() == 1)
	thaw()
	eventually(false)
}

// A process that has not reached its execve yet holds a thread for which a garbage collection waits. If Freeze stopped it
// there, the garbage collection would never end, and neither would the freeze.
func TestFreeze_StopsNoProcessThatIsBeingStarted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var starting sync.WaitGroup
	for range 4 {
		starting.Go(func() {
			for ctx.Err() == nil {
				if err := exec.Command("/bin/true").Run(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 300 {
		thaw := Freeze()
		runtime.GC()
		thaw()
	}
	stop()
	starting.Wait()
}
