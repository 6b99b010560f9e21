package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// Files of a cluster in the background. The lock file is locked while the process lives,
// and contains its process ID.
const (
	lockFile       = "lock"
	logFile        = "log"
	kubeconfigFile = "kubeconfig"
)

// ErrNotRunning says that no cluster runs in the background.
var ErrNotRunning = errors.New("no cluster is running")

// Background is a cluster in a process of its own; there is one for each directory.
type Background struct {
	Dir string
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (b Background) Kubeconfig() string { return filepath.Join(b.Dir, kubeconfigFile) }

// Up starts a process that has to call [Background.Serve], unless the cluster is
// running already. It returns when the cluster answers.
func (b Background) Up(ctx context.Context, program string, args ...string) error {
	if err := os.MkdirAll(b.Dir, 0o700); err != nil {
		return err
	}
	var ended chan error // of the process that this call has started; nil if there is none
	for {
		_, err := b.pid()
		switch {
		case errors.Is(err, ErrNotRunning) && ended == nil: // another call may have stopped it, or its process may have failed
			if ended, err = b.start(program, args); err != nil {
				return err
			}
		case err == nil:
			if _, err := os.Stat(b.Kubeconfig()); err == nil {
				return b.answers(ctx)
			}
		case !errors.Is(err, ErrNotRunning):
			return err
		}
		select {
		case err := <-ended:
			if _, running := b.pid(); running == nil { // another call was faster
				ended = nil
				continue
			}
			said, _ := os.ReadFile(filepath.Join(b.Dir, logFile)) // print what there is
			if len(said) == 0 {
				return fmt.Errorf("the cluster did not start: %w", err)
			}
			return fmt.Errorf("the cluster did not start: %s", strings.TrimPrefix(strings.TrimSpace(string(said)), "Error: "))
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// start starts a process to serve the cluster. Its output goes to the log.
func (b Background) start(program string, args []string) (ended chan error, err error) {
	log, err := os.OpenFile(filepath.Join(b.Dir, logFile), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	if err := os.Remove(b.Kubeconfig()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	server := exec.Command(program, args...)
	server.Stdout, server.Stderr = log, log
	server.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := server.Start(); err != nil {
		return nil, err
	}
	ended = make(chan error, 1)
	go func() { ended <- server.Wait() }()
	return ended, nil
}

// answers asks the cluster whether it is ready. It was ready when its kubeconfig was written, but its programs may have been
// killed since.
func (b Background) answers(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", b.Kubeconfig())
	if err != nil {
		return err
	}
	config.Timeout = 10 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("the cluster runs and does not answer; stop it with \"rolewright cluster down\": %w", err)
	}
	return nil
}

// Down stops the cluster, and returns when its processes have ended. The error
// wraps [ErrNotRunning] if no cluster is running.
func (b Background) Down(ctx context.Context) error {
	pid, err := b.pid()
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for {
		if _, err := b.pid(); errors.Is(err, ErrNotRunning) {
			return nil
		} else if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Serve runs the cluster until ctx is done.
func (b Background) Serve(ctx context.Context, o Options) (err error) {
	lock, err := b.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	o.Dir = b.Dir
	c, err := Start(o)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, os.Remove(b.Kubeconfig()), c.Stop())
	}()
	if !c.Collects {
		fmt.Fprintf(os.Stderr, "no %s: dependents of deleted objects stay\n", controllerManager)
	}
	temporary := b.Kubeconfig() + ".new"
	if err := os.WriteFile(temporary, c.Kubeconfig, 0o600); err != nil {
		return err
	}
	if err := os.Rename(temporary, b.Kubeconfig()); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// lock takes the lock, and writes this process's ID into the file.
func (b Background) lock() (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(b.Dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for range 20 { // a process that asks for the ID holds the lock for a moment
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another process runs a cluster here: %w", b.Dir, err), file.Close())
	}
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.WriteString(strconv.Itoa(os.Getpid())); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// pid returns the ID of the process that holds the lock.
func (b Background) pid() (int, error) {
	file, err := os.Open(filepath.Join(b.Dir, lockFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, ErrNotRunning
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	switch err := unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB); {
	case err == nil:
		return 0, ErrNotRunning
	case !errors.Is(err, unix.EWOULDBLOCK):
		return 0, err
	}
	data, err := os.ReadFile(file.Name())
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil || pid <= 1 {
		return 0, fmt.Errorf("%s: it has no process ID; stop the cluster by hand", file.Name())
	}
	return pid, nil
}
