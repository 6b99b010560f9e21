package supervise

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
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is the directory of the control group (version 2) of one command;
// empty if the command has none. Processes cannot leave it by forking. They can
// be killed all at once, including those that are just being forked.
type cgroup string

// cgroupPrefix begins the names of the groups of commands.
const cgroupPrefix = "rolewright-"

// delegated returns the directory below which commands can have control groups:
// this process's own group. The error says why they cannot have any.
func delegated() (string, error) {
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", fmt.Errorf("own control group: %w", err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("own control group: %w", err)
	}
	dir, err := ownGroup(string(self), string(mounts))
	if err != nil {
		return "", err
	}
	// To start a process in another group, one must be allowed to move it out of one's own.
	if err := unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK); err != nil {
		return "", fmt.Errorf("control group %s is not delegated: %w", dir, err)
	}
	probe, err := newCgroup(dir, "probe-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		return "", err
	}
	return dir, probe.remove()
}

// errNoCgroup is returned if there is no cgroup2.
var errNoCgroup = errors.New("no cgroup2 is mounted")

// ownGroup returns the directory of a process's group in the first cgroup2 mount
// that contains it. self and mounts are the contents of /proc/<pid>/cgroup and
// mountinfo (cgroups(7), proc(5)).
func ownGroup(self, mounts string) (string, error) {
	path, found := "", false
	for line := range strings.Lines(self) {
		if path, found = strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); found {
			break
		}
	}
	if !found || strings.HasPrefix(path, "/..") { // outside of our namespace
		return "", errNoCgroup
	}
	const fieldRoot, fieldMountPoint = 3, 4
	for line := range strings.Lines(mounts) {
		mount, kind, _ := strings.Cut(line, " - ")
		f := strings.Fields(mount)
		if !strings.HasPrefix(kind, "cgroup2 ") || len(f) <= fieldMountPoint {
			continue
		}
		if below, err := filepath.Rel(f[fieldRoot], path); err == nil && filepath.IsLocal(below) {
			return filepath.Join(f[fieldMountPoint], below), nil
		}
	}
	return "", errNoCgroup
}

// newCgroup makes the group of a command.
func newCgroup(parent, name string) (cgroup, error) {
	g, err := cgroupOf(parent, name)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(string(g), 0o700); err != nil {
		return "", fmt.Errorf("make a control group: %w", err)
	}
	if _, err := os.Stat(g.file("cgroup.kill")); err != nil {
		return "", errors.Join(fmt.Errorf("the kernel is older than 5.14: %w", err), g.remove())
	}
	return g, nil
}

// cgroupOf returns the group of a command, which need not exist.
func cgroupOf(parent, name string) (cgroup, error) {
	if parent == "" || name == "" || filepath.Base(name) != name {
		return "", fmt.Errorf("%w for %q", errNoCgroup, name)
	}
	return cgroup(filepath.Join(parent, cgroupPrefix+name)), nil
}

func (g cgroup) file(name string) string { return filepath.Join(string(g), name) }

// all lists the group and the groups that its processes have made within it.
func (g cgroup) all() []string {
	var dirs []string
	if g == "" {
		return nil
	}
	// A group that cannot be read has just been removed.
	_ = filepath.WalkDir(string(g), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// pids returns the processes in the group, without zombies.
func (g cgroup) pids() map[int]bool {
	found := map[int]bool{}
	for _, dir := range g.all() {
		list, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for field := range bytes.FieldsSeq(list) {
			if pid, err := strconv.Atoi(string(field)); err == nil {
				found[pid] = true
			}
		}
	}
	return found
}

// kill kills all processes of the group, if there is one. If that fails,
// tree.kill kills them.
func (g cgroup) kill() {
	if g != "" {
		_ = os.WriteFile(g.file("cgroup.kill"), []byte("1"), 0)
	}
}

// remove removes the group, whose processes must be dead. The kernel refuses to for as long as it tears down the memory of a
// thread whose process cgroup.procs does not list anymore, so remove tries for about a second.
func (g cgroup) remove() error {
	pause := time.Millisecond
	for range refusedSurveys {
		if err := g.rmdir(); !errors.Is(err, unix.EBUSY) {
			return err
		}
		time.Sleep(pause)
		pause = min(2*pause, maxPause)
	}
	return g.rmdir()
}

// rmdir is a single attempt to remove the group.
func (g cgroup) rmdir() error {
	var errs []error
	for _, dir := range slices.Backward(g.all()) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("remove control group %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
