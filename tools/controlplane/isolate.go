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
	"time"
)

// A real node mounts file systems, makes network devices and leaves processes behind that no one waits for. So with
// --node, this program runs itself in namespaces of its own: they end with the last process, and all of that with them.

// isolatedFlag tells the program that it runs in namespaces of its own. It is not for users.
const isolatedFlag = "--isolated"

// isolate runs this program once more with the same arguments and returns its exit code. It leaves nothing behind: no
// process, mount, network device, control group or file. A signal ends it at once; a graceful end would be pointless.
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
	janitor, err := hireJanitor(stateDir{path: dir})
	if err != nil {
		return 1, err
	}
	defer func() {
		err = errors.Join(err, janitor.dismiss(), removeControlGroups(dir))
		if left := os.RemoveAll(dir); left != nil {
			err = errors.Join(err, fmt.Errorf("remove the state directory: %w", left))
		}
	}()
	if err := makeControlGroups(dir); err != nil {
		return 1, err
	}
	self, err := os.Executable()
	if err != nil {
		return 1, fmt.Errorf("find this program: %w", err)
	}
	// The shell is the first process of the namespace, and waits there for processes that have lost their parent.
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
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the answer is in ProcessState
		close(ended)
	}()
	select {
	case <-ended:
		return exitCode(cmd.ProcessState, nil), nil
	case received := <-signals:
		_ = cmd.Process.Kill() // gone already is as good
		<-ended
		return exitInterrupted, fmt.Errorf("stopped by %s", received)
	}
}

// controlGroup returns the name of the control group of a node whose state is in dir.
func controlGroup(dir string) string { return "/" + filepath.Base(dir) }

// hierarchies returns the roots of control groups: the one of version 2, or those of version 1.
func hierarchies() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.procs"); err == nil {
		return []string{root}, nil
	}
	found, err := filepath.Glob(root + "/*/cgroup.procs")
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	if err != nil || len(found) == 0 {
		return nil, fmt.Errorf("no control groups in %s: %w", root, errors.Join(err, os.ErrNotExist))
	}
	return found, nil
}

// makeControlGroups makes the group of a node in every hierarchy. A kubelet requires its root group to exist.
func makeControlGroups(dir string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := os.Mkdir(root+controlGroup(dir), 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return fmt.Errorf("make a control group for the node: %w", err)
		}
	}
	return nil
}

// removeControlGroups removes the group of a node with its subgroups, in every hierarchy. No process is left in any of them,
// but the kernel may take a moment to notice.
func removeControlGroups(dir string) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		group := root + controlGroup(dir)
		for tries := 100; tries > 0; tries-- { // 5 seconds
			var groups []string
			err = filepath.WalkDir(group, func(path string, entry os.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					groups = append(groups, path)
				}
				return err
			})
			for _, path := range slices.Backward(groups) {
				err = errors.Join(err, os.Remove(path))
			}
			if err == nil || errors.Is(err, os.ErrNotExist) {
				err = nil
				break
			}
			time.Sleep(pollInterval)
		}
		if err != nil {
			return fmt.Errorf("remove the control group of the node: %w", err)
		}
	}
	return nil
}

// pause keeps the namespaces of a Pod alive: it does nothing until it is told to end. If the Pod's containers share process
// IDs, it also waits for processes that have lost their parent, which become its children.
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
