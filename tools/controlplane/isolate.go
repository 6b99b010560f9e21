package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

// A real node mounts file systems, makes network devices and leaves processes behind that nobody waits for. So with
// --node this program runs itself in namespaces of its own: with the last process they go, and with them all of that.

// isolatedFlag tells the program that it is in namespaces of its own. It is not for users.
const isolatedFlag = "--isolated"

// isolate runs this program once more with the same arguments and returns its exit code, with nothing left of it: no
// process, mount, network device, control group or file. A signal ends it at once; there is nothing to end gracefully.
func isolate(opts options, mode string, args []string) (code int, err error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("--node wants root: a kubelet makes containers")
	}
	dir := opts.Dir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rolewright-node-"); err != nil {
			return 1, fmt.Errorf("make a state directory: %w", err)
		}
	}
	groups, err := makeControlGroups(controlGroup(dir))
	defer func() {
		for _, group := range groups {
			err = errors.Join(err, removeControlGroup(group))
		}
		if left := os.RemoveAll(dir); left != nil {
			err = errors.Join(err, fmt.Errorf("remove the state directory: %w", left))
		}
	}()
	if err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("find this program: %w", err)
	}
	// The shell is the first process of the namespace, where it waits for whoever has lost its parent.
	command := slices.Concat([]string{"--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
		"sh", "-c", `"$@" & wait "$!"`, "sh", self, mode, isolatedFlag, "--dir", dir}, args)
	cmd := exec.Command("unshare", command...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	spawner := newSpawner()
	defer close(spawner.calls)
	if err := spawner.start(cmd); err != nil {
		return exitNotFound, fmt.Errorf("make namespaces with unshare: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended: // the exit code says it all
		return exitCode(cmd.ProcessState, nil), nil
	case received := <-signals:
		_ = cmd.Process.Kill() // gone already is as good
		<-ended
		return exitInterrupted, fmt.Errorf("stopped by %s", received)
	}
}

// controlGroup is the name of the control group of a node whose state is in dir.
func controlGroup(dir string) string { return "/" + filepath.Base(dir) }

// makeControlGroups makes the group in every hierarchy and returns the directories, also those that it made before it
// failed. A kubelet wants its root group to be there.
func makeControlGroups(name string) ([]string, error) {
	const root = "/sys/fs/cgroup"
	hierarchies, err := filepath.Glob(root + "/*/cgroup.procs")
	if err != nil {
		return nil, fmt.Errorf("list the hierarchies of control groups: %w", err)
	}
	if _, err := os.Stat(root + "/cgroup.procs"); err == nil { // version 2: the others are groups in it
		hierarchies = []string{root + "/cgroup.procs"}
	}
	var made []string
	for _, procs := range hierarchies {
		group := filepath.Dir(procs) + name
		if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return made, fmt.Errorf("make a control group for the node, which needs a writable %s: %w", root, err)
		}
		made = append(made, group)
	}
	return made, nil
}

// removeControlGroup removes a group with the groups in it. No process is left in any.
func removeControlGroup(group string) error {
	var groups []string
	err := filepath.WalkDir(group, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			groups = append(groups, path)
		}
		return err
	})
	for _, path := range slices.Backward(groups) {
		err = errors.Join(err, os.Remove(path))
	}
	if err != nil {
		return fmt.Errorf("remove the control group of the node: %w", err)
	}
	return nil
}

// pause is what keeps the namespaces of a Pod: it does nothing until it is told to end. A Pod's processes that have lost
// their parent are its children where the Pod shares its process numbers.
func pause() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		for pid := 1; pid > 0; {
			var err error
			if pid, err = syscall.Wait4(-1, nil, syscall.WNOHANG, nil); err != nil {
				break
			}
		}
	}
}
