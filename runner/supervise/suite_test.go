package supervise

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// suite returns the arguments with which the test binary runs the tests that apply to every user and to process 1. Tests
// for which the user makes no difference are left out.
func suite() []string {
	return []string{
		"-test.v", "-test.timeout=30m", "-test.parallel=4",
		"-test.run=^(TestRun|TestSupervisor|TestTree|TestCgroup|TestReapOrphans|TestMain|TestFreeze)_",
		"-test.skip=AForkBomb|CancelIsQuick|HearsWhatWasSaid|AServiceOutlivesSilence|BelievesNoForgedRecord",
	}
}

// runSuite runs the suite in a process that is another user or process 1.
func runSuite(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED AS SOMEBODY ELSE: only root can become anybody, or process 1")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	passed := strings.Count(string(out), "\n--- PASS: ")
	said := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		if _, what, ok := strings.Cut(strings.TrimSpace(line), "NOT TESTED "); ok && !said[what] {
			said[what] = true
			t.Log("NOT TESTED " + what)
		}
	}
	const some = 15
	if t.Logf("%d tests passed", passed); passed < some {
		t.Errorf("only %d tests:\n%s", passed, out)
	}
}

// In a container without an init process, the operator is process 1: all orphans come to it, and it has no parent.
func TestSuite_AsProcessOne(t *testing.T) {
	parts.Root(t)
	parts.Time(t)
	t.Parallel()
	cmd := exec.Command("/proc/self/exe", asInit)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS}
	runSuite(t, cmd)
}

// becomeInit is called in a process that is already process 1. It mounts the /proc that shows that, and runs the suite.
func becomeInit() int {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == nil {
		err = unix.Mount("proc", "/proc", "proc", 0, "")
	}
	if pid := os.Getpid(); err == nil && pid != 1 {
		err = fmt.Errorf("this is process %d", pid)
	}
	if err == nil {
		// A container has its own share of the CPU. Here other tests use the same share, and commands with a nice value
		// that is ten higher would get almost nothing of it.
		err = unix.Setpriority(unix.PRIO_PROCESS, 0, lessUrgentOutside-lessUrgentInside)
	}
	return runAs("/proc/self/exe", err)
}

func runAs(executable string, err error) int {
	if err == nil {
		err = unix.Exec(executable, append([]string{executable}, suite()...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// OpenShift gives each namespace its own user ID, which is not in /etc/passwd.
func TestSuite_AsAnArbitraryUser(t *testing.T) {
	parts.Root(t)
	parts.Time(t)
	t.Parallel()
	const uid = 1000660000
	dir, err := os.MkdirTemp("", "arbitrary-user-") // t.TempDir() is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary, tmp := filepath.Join(dir, "supervise.test"), filepath.Join(dir, "tmp")
	must.Do(t, errors.Join(os.Chmod(dir, 0o755), copyTestBinary(binary), os.Mkdir(tmp, 0o700)))
	cmd := exec.Command(binary, asUser)
	if os.Geteuid() == 0 {
		must.Do(t, os.Chown(tmp, uid, 0))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 0}}
	}
	if group := delegate(t, uid); group != nil {
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(group.Fd())
	}
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + tmp, "GOTRACEBACK=all"}
	runSuite(t, cmd)
}

// delegate makes a control group that belongs to a user, and returns its open directory; nil if that is not possible.
func delegate(t *testing.T, uid int) *os.File {
	t.Helper()
	parent, err := delegated()
	if err != nil {
		return nil
	}
	group := must.Get(newCgroup(parent, "test-"+strconv.Itoa(os.Getpid())))(t)
	t.Cleanup(func() {
		if err := group.remove(); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"} {
		must.Do(t, os.Chown(group.file(name), uid, 0))
	}
	dir := must.Get(os.Open(string(group)))(t)
	t.Cleanup(func() { _ = dir.Close() })
	return dir
}

func copyTestBinary(path string) error {
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close(), os.Chmod(path, 0o755))
}

// becomeUser gives up the privileges that a restricted container does not have, and runs the suite.
func becomeUser() int {
	runtime.LockOSThread()
	unix.Umask(0)
	err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	status, readErr := os.ReadFile("/proc/self/status")
	if err = errors.Join(err, readErr); err == nil && !strings.Contains(string(status), "CapEff:\t0000000000000000\n") {
		err = errors.New("there are capabilities left")
	}
	return runAs(os.Args[0], err)
}
