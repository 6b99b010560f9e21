package supervise

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestOwnGroup(t *testing.T) {
	t.Parallel()
	const (
		unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n40 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 none rw\n"
		bind    = "30 24 0:26 /kubepods/pod1 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n"
	)
	for name, tt := range map[string]struct{ self, mounts, want string }{
		"unified":           {"0::/user.slice/a b\n", unified, "/sys/fs/cgroup/user.slice/a b"},
		"own namespace":     {"0::/\n", unified, "/sys/fs/cgroup"},
		"hybrid":            {"4:memory:/x\n0::/y\n", hybrid, "/sys/fs/cgroup/unified/y"},
		"part of the tree":  {"0::/kubepods/pod1/c\n", bind, "/sys/fs/cgroup/c"},
		"another part":      {"0::/kubepods/pod2/c\n", bind, ""},
		"above the root":    {"0::/../other\n", unified, ""},
		"version 1":         {"4:memory:/x\n", hybrid, ""},
		"nothing mounted":   {"0::/\n", "31 24 0:27 / / rw - ext4 /dev/x rw\n", ""},
		"nothing to see":    {"", "", ""},
		"a line cut short":  {"0::/\n", "31 24 - cgroup2 x\n", ""},
		"mounted elsewhere": {"0::/a\n", "31 24 0:27 / /mnt/x rw shared:1 - cgroup2 none rw\n", "/mnt/x/a"},
	} {
		got, err := ownGroup(tt.self, tt.mounts)
		if got != tt.want || (tt.want == "") != errors.Is(err, errNoCgroup) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tt.want)
		}
	}
}

func TestCgroup_HoldsTheCommandAndGoes(t *testing.T) {
	bothWays(t, func(t *testing.T, way string, s *Launcher) {
		t.Helper()
		c := recorded(t, `cat /proc/self/cgroup; setsid nohup sleep 600 & exit 0`)
		got, err := s.Run(t.Context(), c)
		if err != nil || got.Killed != 1 {
			t.Errorf("exit = %+v, %v", got, err)
		}
		out := must.Get(os.ReadFile(c.Output))(t)
		if in := strings.Contains(string(out), "/"+cgroupPrefix+c.Run+"\n"); in != (way == grouping) {
			t.Errorf("the command is in\n%s", out)
		}
		if group, err := cgroupOf(s.groups(), c.Run); err == nil && len(group.all()) > 0 {
			t.Errorf("left: %v", group.all())
		}
	})
}

// Control groups that a command makes below its own are removed too.
func TestCgroup_RemovesWhatTheCommandMade(t *testing.T) {
	bothWays(t, func(t *testing.T, way string, s *Launcher) {
		t.Helper()
		c := recorded(t, `[ -z "$GROUP" ] || { mkdir -p "$GROUP/a/b" && sh -c 'echo $$ >"$GROUP/a/b/cgroup.procs"; : >"$DIR/in"; exec env -i setsid sleep 600' & until [ -e "$DIR/in" ]; do sleep 0.01; done; }; exit 0`)
		group, _ := cgroupOf(s.groups(), c.Run)
		c.Env = append(c.Env, "GROUP="+string(group))
		got, err := s.Run(t.Context(), c)
		if err != nil || way == grouping && got.Killed != 1 {
			t.Errorf("exit = %+v, %v", got, err)
		}
		if len(group.all()) > 0 {
			t.Errorf("left: %v", group.all())
		}
	})
}

// A process that has just been killed keeps the kernel from removing its group until its threads have ended.
func TestCgroup_GoesWithAProcessThatIsEnding(t *testing.T) {
	t.Parallel()
	parent, err := delegated()
	if err != nil {
		t.Skipf("NOT TESTED WITH CONTROL GROUPS: %v; it takes a writable cgroup2, as root has it", err)
	}
	group := must.Get(newCgroup(parent, "test-ending-"+strconv.Itoa(os.Getpid())))(t)
	dir := must.Get(os.Open(string(group)))(t)
	defer dir.Close()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
	must.Do(t, cmd.Start())
	group.kill()
	if err := group.remove(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	_ = group.remove()
}

// If an operator was killed together with its supervisors, the next operator removes their control groups.
func TestCgroup_IsRemovedByTheNextOperator(t *testing.T) {
	bothWays(t, func(t *testing.T, way string, s *Launcher) {
		t.Helper()
		c := recorded(t, "")
		group, err := newCgroup(s.groups(), c.Run)
		if (err == nil) != (way == grouping) {
			t.Fatal(err)
		}
		if err := s.Reap(c); err != nil || len(group.all()) > 0 {
			t.Errorf("left: %v, %v", group.all(), err)
		}
	})
}

func TestCgroup_NamesAreNoPaths(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "a/b", "../x"} {
		if got, err := newCgroup(t.TempDir(), name); !errors.Is(err, errNoCgroup) || got != "" {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
}
