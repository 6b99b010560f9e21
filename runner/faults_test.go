package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/test/must"
)

// If the supervisor is killed, all other processes of the run end too, even those that have detached themselves.
func TestRun_NothingSurvivesTheSupervisingProcess(t *testing.T) {
	t.Parallel()
	r, req := ansible(t), request(t, "daemons.yml")
	req.ExtraVars = []byte(`{"wait": true}`)
	res, err := during(t.Context(), t, r, req, everything, func() { killSupervising(t, req) })
	if !errors.Is(err, ErrCut) {
		t.Fatal(err)
	}
	if v := res.Verdict(); v.Success || v.Reason != RunnerDied || res.Signal != "SIGKILL" {
		t.Errorf("verdict = %+v of %+v", v, res)
	}
	if left := marked(t, req.ID); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
}

// everything has the commands that daemons.yml leaves behind, and the one that it waits for.
var everything = []string{"sleep 600", "sleep 601", "sleep 602"}

// killSupervising kills the supervisor of a run. It finds the supervisor by its command line and by the open log of the run.
func killSupervising(t *testing.T, req Request) {
	t.Helper()
	links := must.Get(filepath.Glob("/proc/[0-9]*/fd/*"))(t)
	for _, link := range links {
		if to, _ := os.Readlink(link); to != filepath.Join(req.Dir, runnerLog) {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		cmdline, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		if !strings.HasSuffix(string(cmdline), "\x00"+supervise.Argument+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if err != nil {
			t.Error(err)
		}
		return
	}
	t.Error("there is no supervisor")
}

// program writes a program that does nothing, for use as ansible-runner, and returns its path.
func program(t *testing.T) string {
	t.Helper()
	return write(t, filepath.Join(t.TempDir(), "ansible-runner"), "#!/bin/sh\nexit 0\n", 0o755)
}

func TestRun_UnavailableSaysWhatToDo(t *testing.T) {
	for name, tt := range map[string]struct {
		opts Options
		want []string
	}{
		"not in PATH":         {Options{Path: "ansible-runner-that-does-not-exist"}, []string{"not found in $PATH", "install it"}},
		"no program":          {Options{Path: write(t, filepath.Join(t.TempDir(), "x"), "\x7fELF?", 0o755)}, []string{"exec format error"}},
		"missing":             {Options{Path: "/nowhere/ansible-runner"}, []string{"/nowhere/ansible-runner", "no such file", "install it"}},
		"interpreter missing": {Options{Path: write(t, filepath.Join(t.TempDir(), "x"), "#!/nowhere/python\n", 0o755)}, []string{"no such file", "interpreter"}},
		"not executable":      {Options{Path: write(t, filepath.Join(t.TempDir(), "x"), "#!/bin/sh\n", 0o644)}, []string{"permission denied", "make it executable"}},
		"large environment":   {Options{Path: program(t), Environ: []string{"A=" + strings.Repeat("x", 200<<10)}}, []string{"argument list too long", "make it smaller"}},
		"endless environment": {Options{Path: program(t), Environ: []string{"A=" + strings.Repeat("x", 10<<20)}}, []string{"tell it what to run"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, req := New(tt.opts), request(t, "success.yml")
			defer r.Close()
			_, err := r.Run(t.Context(), req)
			if !errors.Is(err, ErrUnavailable) {
				t.Fatalf("error = %v, want ErrUnavailable", err)
			}
			for _, text := range tt.want {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("error = %.500v, want %q in it", err, text)
				}
			}
			if _, err := os.Lstat(req.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the private data dir: %v", err)
			}
			if name != "no program" {
				return
			}
			if _, err := r.Check(t.Context()); !errors.Is(err, ErrUnavailable) {
				t.Errorf("Check: %v, want ErrUnavailable", err)
			}
		})
	}
}

// With the argument asStarved, the test binary makes runs with few file descriptors.
const asStarved = "starved"

func TestRun_LivesThroughALackOfDescriptors(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("/proc/self/exe", asStarved, program(t), t.TempDir()).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "raise the limit of open files") {
		t.Errorf("%v:\n%s", err, out)
	}
}

// starve makes runs, each with a higher limit of open files, until one succeeds, and prints the errors of the others. It
// fails if an error is not about descriptors, or if a descriptor stays open.
func starve(path, dir string) int {
	r := New(Options{Path: path})
	run := func(name string) error {
		_, err := r.Run(context.Background(), Request{ID: uuid.NewString(), Dir: filepath.Join(dir, name), Content: Content{Playbook: path}})
		return err
	}
	open := func() int {
		files, _ := os.ReadDir("/proc/self/fd")
		return len(files)
	}
	fail := func(what string, args ...any) int {
		fmt.Fprintf(os.Stderr, what+"\n", args...)
		return 1
	}
	if err := run("first"); err != nil {
		return fail("without a limit: %v", err)
	}
	r.Close()
	before := open()
	var enough unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &enough); err != nil {
		return fail("%v", err)
	}
	const most = 64
	for more := range most {
		r = New(Options{Path: path})
		err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(before + more), Max: enough.Max})
		runErr := run(strconv.Itoa(more))
		err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &enough))
		r.Close()
		fmt.Fprintln(os.Stderr, more, runErr)
		switch {
		case err != nil:
			return fail("%v", err)
		case runErr == nil && open() > before:
			return fail("%d descriptors are open, %d were", open(), before)
		case runErr == nil:
			return 0
		case !strings.Contains(runErr.Error(), unix.EMFILE.Error()):
			return fail("that is not about descriptors")
		}
	}
	return fail("no run succeeded")
}
