package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// readyFile appears in the state directory when the control plane is ready.
const readyFile = "ready.json"

// readiness is what a ready control plane says about itself.
type readiness struct {
	Kubeconfig string `json:"kubeconfig"`
	Kwok       bool   `json:"kwok"`
}

// reportFD is where the background process finds its end of the progress pipe: the first after the standard three.
const reportFD = 3

// report is how the background process tells up of its progress. The zero value reports to no one.
type report struct {
	pipe *os.File
}

func newReport(fd int) *report {
	if fd == 0 {
		return &report{}
	}
	// It came through an exec, so it would go on through the next: the reader would wait for the components too.
	unix.CloseOnExec(fd)
	return &report{pipe: os.NewFile(uintptr(fd), "progress")}
}

func (r *report) Write(p []byte) (int, error) {
	if r.pipe == nil {
		return len(p), nil
	}
	return r.pipe.Write(p)
}

// ready notes in the state directory that the control plane can be used, and lets up go.
func (r *report) ready(c *cluster, opts options) error {
	data, err := json.Marshal(readiness{Kubeconfig: c.kubeconfig(), Kwok: opts.Kwok})
	if err != nil {
		return fmt.Errorf("encode the readiness: %w", err)
	}
	// Renamed into place: anyone who sees the file sees all of it.
	partial := c.dir.join(readyFile + ".partial")
	if err := os.WriteFile(partial, data, 0o600); err != nil {
		return fmt.Errorf("write the readiness: %w", err)
	}
	if err := os.Rename(partial, c.dir.join(readyFile)); err != nil {
		return fmt.Errorf("write the readiness: %w", err)
	}
	r.close()
	return nil
}

func (r *report) close() {
	if r.pipe != nil {
		_ = r.pipe.Close() // the reader sees the end, that is all that is left to say
		r.pipe = nil
	}
}

// up starts a control plane in the background and prints its export line when it is ready. One that runs in the
// directory already, or is starting there, is waited for instead.
func up(ctx context.Context, opts options, out, progress io.Writer) error {
	ready, err := awaitReady(ctx, opts)
	if errors.Is(err, errNoneThere) {
		if err := background(ctx, opts, progress); err != nil {
			return err
		}
		ready, err = awaitReady(ctx, opts)
	}
	if err != nil {
		return err
	}
	if opts.Kwok && !ready.Kwok {
		return fmt.Errorf("the control plane in %s runs without kwok: stop it with down first", opts.Dir)
	}
	fmt.Fprintln(out, exportLine(ready.Kubeconfig))
	return nil
}

// background starts this program again as run, in a session of its own, and relays its progress until it is ready.
func background(ctx context.Context, opts options, progress io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe for progress: %w", err)
	}
	defer reader.Close()
	cmd := exec.Command(self, "run", "--dir="+opts.Dir, "--assets="+opts.Assets, "--audit-log="+opts.AuditLog,
		fmt.Sprintf("--kwok=%t", opts.Kwok), "--timeout="+opts.Timeout.String(), fmt.Sprintf("--report-fd=%d", reportFD))
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{writer}
	err = cmd.Start()
	_ = writer.Close() // the other process has its own
	if err != nil {
		return fmt.Errorf("start the background process: %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in what it reported
		close(ended)
	}()
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		_, _ = io.Copy(progress, reader)
	}()
	select {
	case <-relayed: // ready, or over
	case <-ctx.Done():
		_ = cmd.Process.Signal(syscall.SIGTERM) // gone already is as good
		<-ended
		return fmt.Errorf("start in the background: %w", context.Cause(ctx))
	}
	return nil
}

// errNoneThere says that no control plane runs in a directory, or that it has ended while it was waited for.
var errNoneThere = errors.New("no control plane there")

// awaitReady waits for the control plane that runs in the directory to become ready.
func awaitReady(ctx context.Context, opts options) (readiness, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, opts.Timeout, fmt.Errorf("not ready within %s", opts.Timeout))
	defer cancel()
	for {
		held, err := isHeld(opts.Dir)
		if err == nil && !held {
			err = errNoneThere
		}
		if err != nil {
			return readiness{}, fmt.Errorf("wait for the control plane in %s: %w", opts.Dir, err)
		}
		ready, err := readReadiness(opts.Dir)
		if err == nil || !errors.Is(err, os.ErrNotExist) {
			return ready, err
		}
		select {
		case <-ctx.Done():
			return readiness{}, fmt.Errorf("wait for the control plane in %s: %w", opts.Dir, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
}

func readReadiness(dir string) (readiness, error) {
	data, err := os.ReadFile(filepath.Join(dir, readyFile))
	if err != nil {
		return readiness{}, fmt.Errorf("read the readiness: %w", err)
	}
	var ready readiness
	if err := json.Unmarshal(data, &ready); err != nil {
		return readiness{}, fmt.Errorf("read the readiness: %w", err)
	}
	return ready, nil
}

// down stops the control plane in the directory and removes the directory. Nothing there is no error.
func down(ctx context.Context, dir string, progress io.Writer) error {
	if _, err := os.Lstat(filepath.Join(dir, lockFile)); errors.Is(err, os.ErrNotExist) {
		_, _ = fmt.Fprintf(progress, "no control plane in %s\n", dir)
		return nil
	}
	// What did not stop in time is not asked again.
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := end(ctx, dir, signal); err != nil {
			return err
		}
	}
	// What is left by one that died, or kept its logs.
	lock, err := lockDir(dir)
	if err == nil {
		err = stateDir{path: dir, lock: lock}.remove()
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", dir, err)
	}
	_, _ = fmt.Fprintf(progress, "the control plane in %s is stopped\n", dir)
	return nil
}

// stopGrace is what a control plane gets to stop. Killing a few processes takes it well under a second.
const stopGrace = 15 * time.Second

// end sends a signal to the holder of the directory and waits until it is gone, or for as long as a clean stop takes.
func end(ctx context.Context, dir string, signal syscall.Signal) error {
	held, err := isHeld(dir)
	if err != nil || !held {
		return err
	}
	pid, err := holder(dir)
	if errors.Is(err, os.ErrNotExist) { // it ended in this moment
		return nil
	}
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	for deadline := time.Now().Add(stopGrace); time.Now().Before(deadline); {
		held, err := isHeld(dir)
		if err != nil || !held {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for process %d: %w", pid, context.Cause(ctx))
		case <-time.After(pollInterval):
		}
	}
	return nil
}

// shellQuote quotes a path for a POSIX shell where that is needed.
func shellQuote(path string) string {
	if !strings.ContainsFunc(path, func(r rune) bool { return !strings.ContainsRune(plain, r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}

// plain are the characters that mean nothing to a shell.
const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@%"
