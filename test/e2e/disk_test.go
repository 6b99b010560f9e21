package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
)

// If a run fills the operator's disk, the object says so. The operator removes old runs, and continues when there is
// room.
func TestDisk_FullIsReportedAndPasses(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	must.Do(t, os.MkdirAll(s.root, 0o700))
	if err := unix.Mount("tmpfs", s.root, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("NOT TESTED: an operator on a full disk. A file system cannot be mounted here (%v); run the test as root with CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(s.root, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	k := s.kind()
	filler, full := filepath.Join(s.root, "filler"), filepath.Join(t.TempDir(), "full")
	s.role("fill", fmt.Sprintf(`- name: Fill the disk
  ansible.builtin.shell: |
    rm -f %[2]s
    setsid sh -c 'while sleep 0.02; do dd if=/dev/zero of=%[1]s bs=4k oflag=append conv=notrunc 2>/dev/null; touch %[2]s; done' >/dev/null 2>&1 &
    until [ -e %[2]s ]; do sleep 0.1; done
  when: fill | default(false)
- name: Go on
  ansible.builtin.debug:
    msg: done
`, filler, full))
	s.watch(k, "role: fill")
	o := s.start("--retry-max=2s", "--ansible-verbosity=0")
	k.create("old", nil)
	old := k.awaitReady("old")

	k.create("full", map[string]any{"fill": true})
	noSpace := func(is object) bool {
		ready := is.condition("Ready")
		return is.settled() && ready.Reason == "NoSpace" && strings.Contains(ready.Message, "--artifacts-max-bytes")
	}
	k.await("full", "the disk was full while it ran", noSpace)
	if runs := s.runs(old); len(runs) > 0 {
		t.Errorf("old runs have made no room: %v", runs)
	}
	if o.hasEnded() {
		t.Fatal("the operator has ended")
	}
	k.patch("full", `{"spec":{"fill":false}}`)
	k.await("full", "it is ready when there is room", func(is object) bool {
		_ = os.Remove(filler) // the run in progress may fill the disk once more
		return is.ready()
	})
}
