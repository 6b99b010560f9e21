// Package procs finds processes of this machine for tests and measurements. What a process is
// and needs is read by procfs, which knows the formats of /proc. A process that ends meanwhile
// is left out.
package procs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"
)

// Titled returns the processes whose command lines contain a text: pid → command line, with
// blanks between the arguments.
func Titled(text string) (map[int]string, error) {
	return find(func(_ int, line string) bool { return strings.Contains(line, text) })
}

// Marked returns the processes that have one of the texts in their environment, as [Titled] does,
// but also those whose command line is empty. A zombie has no environment.
func Marked(texts ...string) (map[int]string, error) {
	return find(func(pid int, _ string) bool {
		environ := Environ(pid)
		return slices.ContainsFunc(texts, func(text string) bool { return bytes.Contains(environ, []byte(text)) })
	})
}

// Environ returns the environment of a process as it is, which what a fork server has forked
// has changed in place; empty if the process has ended or is not ours.
func Environ(pid int) []byte {
	environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return environ
}

// Groups returns the control groups that runs have below this process's own, where they are put if they have any.
func Groups(runs ...string) ([]string, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("own control group: %w", err)
	}
	_, own, _ := strings.Cut("\n"+string(self), "\n0::")
	own, _, _ = strings.Cut(own, "\n")
	var found []string
	for _, run := range runs {
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			dir := filepath.Join(mount, own, "rolewright-"+run)
			if _, err := os.Stat(dir); err == nil {
				found = append(found, dir)
			}
		}
	}
	return found, nil
}

func find(fits func(pid int, line string) bool) (map[int]string, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list the processes: %w", err)
	}
	found := map[int]string{}
	for _, p := range all {
		args, _ := p.CmdLine() // of a process that has ended nothing fits
		if line := strings.Join(args, " "); fits(p.PID, line) {
			found[p.PID] = line
		}
	}
	return found, nil
}

// Tree returns a process, first, and all below it. To look only there costs little, which
// matters where it is part of what is measured.
func Tree(root int) ([]procfs.Proc, error) {
	p, err := procfs.NewProc(root)
	if err != nil {
		return nil, fmt.Errorf("find process %d: %w", root, err)
	}
	found := []procfs.Proc{p}
	for i := 0; i < len(found); i++ {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", found[i].PID))
		if err != nil {
			return nil, err
		}
		for _, list := range lists {
			text, _ := os.ReadFile(list) // the thread may have ended
			for field := range strings.FieldsSeq(string(text)) {
				pid, err := strconv.Atoi(field)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", list, err)
				}
				child, err := procfs.NewProc(pid)
				if errors.Is(err, fs.ErrNotExist) {
					continue
				}
				if err != nil {
					return nil, err
				}
				found = append(found, child)
			}
		}
	}
	return found, nil
}

// Parent returns the parent of a process; 0 if that is gone.
func Parent(pid int) int { return stat(pid).PPID }

// State returns the letter of proc_pid_stat(5); empty if there is no such process.
func State(pid int) string { return stat(pid).State }

func stat(pid int) procfs.ProcStat {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}
	}
	s, err := p.Stat()
	if err != nil {
		return procfs.ProcStat{}
	}
	return s
}
