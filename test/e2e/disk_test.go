package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// An operator whose disk a run fills says so in the object, removes old runs, and
// goes on when there is room.
func TestDisk_FullIsReportedAndPasses(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", s.root, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("NOT TESTED: an operator on a full disk. A file system cannot be mounted here (%v); run the test as root with CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(s.root, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	k := s.kind()
	filler := filepath.Join(s.root, "filler")
	s.role("fill", fmt.Sprintf(`- name: Fill the disk
  ansible.builtin.shell: |
    setsid sh -c 'while sleep 0.02; do dd if=/dev/zero of=%s bs=4k oflag=append conv=notrunc 2>/dev/null; done' >/dev/null 2>&1 &
    sleep 1
  when: fill | default(false)
- name: Go on
  ansible.builtin.debug:
    msg: done
`, filler))
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
		_ = os.Remove(filler) // the run that is under way may fill it once more
		return is.ready()
	})
}
