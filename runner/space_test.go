package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner/rundir"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/test/must"
)

// smallDisk mounts a tmpfs with these options, and returns its directory.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("NOT TESTED: a full disk. A file system cannot be mounted here (%v); run the test as root with CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// leaveFree fills the file system of dir until only so many bytes are free.
func leaveFree(t *testing.T, dir string, bytes int64) {
	t.Helper()
	var st unix.Statfs_t
	must.Do(t, unix.Statfs(dir, &st))
	f := must.Get(os.Create(filepath.Join(dir, "ballast")))(t)
	defer f.Close()
	must.Do(t, unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-bytes))
}

// moment says when the disk was full: before the run, during its tasks, at their end, or never. The test uses it to check
// that its cases cover them.
func moment(res Result, err error) string {
	switch {
	case err != nil && res.Started.IsZero():
		return "before"
	case res.Verdict().Success:
		return "never"
	case strings.Contains(res.Summary.Task.Name, "last") || res.Summary.Complete:
		return "end"
	default:
		return "during"
	}
}

// Whenever the disk is full, the run reports that, and never a false success.
func TestRun_OnAFullDisk(t *testing.T) {
	r := ansible(t)
	r.patience = 2 * time.Second
	seen := map[string]int{}
	try := func(t *testing.T, root string) {
		t.Helper()
		req := request(t, "chatty.yml")
		req.Dir = filepath.Join(root, req.ID)
		res, err := r.Run(t.Context(), req)
		v := res.Verdict()
		at := moment(res, err)
		seen[at]++
		t.Logf("full %s: error %v, verdict %+v", at, err, v)
		switch {
		case err != nil:
			if !errors.Is(err, ErrNoSpace) {
				t.Errorf("error = %v, want ErrNoSpace", err)
			}
			if entries, _ := filepath.Glob(filepath.Join(root, "*"+req.ID+"*")); len(entries) > 0 && at == "before" {
				t.Errorf("left: %v", entries)
			}
		case v.Success:
			for name, want := range map[string]string{"rc": "0", "status": "successful"} {
				if got, err := os.ReadFile(filepath.Join(artifactsDir(req), name)); err != nil || string(got) != want {
					t.Errorf("a success with %s = %q, %v", name, got, err)
				}
			}
			const all = 13
			if res.Summary.OK != all && res.Summary.Stats.OK["localhost"] != 2 || !res.Summary.Complete {
				t.Errorf("a success of %+v", res.Summary)
			}
		case v.Reason != NoSpace || !strings.Contains(v.Message, "no space left"):
			t.Errorf("verdict = %+v, want NoSpace\n%s", v, res.Tail)
		}
	}
	for _, kib := range []int64{0, 48, 1024} {
		t.Run(fmt.Sprintf("%d KiB free", kib), func(t *testing.T) {
			root := smallDisk(t, "size=2m,mode=0700")
			leaveFree(t, root, kib<<10)
			try(t, root)
		})
	}
	for _, inodes := range []int{10, 26, 100} {
		t.Run(fmt.Sprintf("%d inodes", inodes), func(t *testing.T) {
			try(t, smallDisk(t, fmt.Sprintf("size=16m,mode=0700,nr_inodes=%d", inodes)))
		})
	}
	if !t.Skipped() && len(seen) > 0 {
		for _, at := range []string{"before", "during", "never"} {
			if seen[at] == 0 {
				t.Errorf("no case in which the disk was full %s: %v", at, seen)
			}
		}
	}
}

// The playbook itself fills the disk. The end of the run is recorded all the same, because the space for the record was
// reserved.
func TestRun_ThatFillsTheDisk(t *testing.T) {
	r := ansible(t)
	r.patience = 2 * time.Second
	for _, more := range []int{0, 20} {
		t.Run(fmt.Sprintf("%d tasks before the end", more), func(t *testing.T) {
			root := smallDisk(t, "size=2m,mode=0700")
			req := request(t, "fill.yml")
			req.Dir = filepath.Join(root, req.ID)
			req.ExtraVars = fmt.Appendf(nil, `{"victim": %q, "more": %d}`, root, more)
			res, err := r.Run(t.Context(), req)
			if err != nil && !errors.Is(err, ErrNoSpace) {
				t.Fatal(err)
			}
			if v := res.Verdict(); v.Reason != NoSpace {
				t.Errorf("verdict = %+v\n%+v", v, res)
			}
			if res.Summary.Task.Name != "Fill the disk" {
				t.Errorf("the run got to %+v", res.Summary.Task)
			}
			if _, err := supervise.ReadExit(filepath.Join(req.Dir, endRecord)); err != nil {
				t.Errorf("the end of the run is not recorded: %v", err)
			}
			if err := rundir.Remove(req.Dir); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
}

// A run that writes without end is stopped, and its error says why.
func TestRun_IsStoppedWhenItWritesTooMuch(t *testing.T) {
	t.Parallel()
	r, req := ansible(t), request(t, "pour.yml")
	const limit = 4 << 20
	req.MaxBytes = limit
	res, err := r.Run(t.Context(), req)
	if !errors.Is(err, ErrTooLarge) {
		t.Fatalf("error = %v, want ErrTooLarge\n%s", err, res.Tail)
	}
	if left := marked(t, req.ID); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
}

// After Strip, no secret that the run was given is left in its directory.
func TestStrip_LeavesNoExtraVarsAndNoEnvironment(t *testing.T) {
	t.Parallel()
	const canary = "canary-7d1f"
	r, req := ansible(t, "SECRET_OF_THE_OPERATOR="+canary), request(t, "facts.yml")
	req.ExtraVars, req.Env = []byte(`{"password": "`+canary+`"}`), map[string]string{"TOKEN": canary}
	req.Files = map[string][]byte{"kubeconfig": []byte(canary), "ticket.json": []byte("{}")}
	must.Get(r.Run(t.Context(), req))(t)
	cached := false
	for _, text := range tree(t, filepath.Join(artifactsDir(req), "fact_cache")) {
		cached = cached || strings.Contains(text, canary)
	}
	if !cached {
		t.Error("no fact has it: there is nothing that could be left")
	}
	for range 2 {
		must.Do(t, rundir.Strip(req.Dir, "kubeconfig"))
	}
	for name, text := range tree(t, req.Dir) {
		if strings.Contains(text, canary) {
			t.Errorf("%s has it", name)
		}
	}
	command, err := os.ReadFile(filepath.Join(artifactsDir(req), "command"))
	if err != nil || !strings.Contains(string(command), "ansible-playbook") || strings.Contains(string(command), `"env":`) {
		t.Errorf("command = %s, %v", command, err)
	}
	if _, err := r.Recover(t.Context(), req.Dir, req.ID, false, nil); err != nil {
		t.Errorf("recover: %v", err)
	}
	if err := rundir.Strip(filepath.Join(t.TempDir(), uuid.NewString())); err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}
