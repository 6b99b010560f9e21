package supervise

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// A fork bomb stands still while the container is frozen; outside of a container, which TestSuite_AsProcessOne makes one, nothing
// does. It is not parallel: other tests would stand still too.
func TestFreeze_StopsTheContainer(t *testing.T) { //nolint:paralleltest // see above
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
