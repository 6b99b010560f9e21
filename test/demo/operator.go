package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// operator is a Rolewright process.
type operator struct {
	cmd   *exec.Cmd
	log   string
	root  string
	ended chan error
}

// startOperator starts the binary on the repository's watches.yaml, as `make
// run` does, and waits until it says that it is ready.
func (d *demo) startOperator(ctx context.Context, binary string) error {
	probe, err := freeAddress()
	if err != nil {
		return err
	}
	o := &operator{log: filepath.Join(d.scratch, "operator.log"), root: filepath.Join(d.scratch, "runner"), ended: make(chan error, 1)}
	log, err := os.OpenFile(o.log, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the operator's log: %w", err)
	}
	defer log.Close() // the process has its own descriptor
	o.cmd = exec.Command(binary, "run",
		"--runner-root", o.root, "--proxy-port", "0", "--user-metrics-bind-address", "0", "--health-probe-bind-address", probe, "--metrics-bind-address", "0",
		"--progress-interval", "1s")
	tmp := filepath.Join(d.scratch, "tmp")
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("make a directory for temporary files: %w", err)
	}
	// Facts as in the scaffold's Deployment; and the Python client's discovery
	// cache, which it leaves in the directory for temporary files, goes too.
	o.cmd.Env = append(os.Environ(), "ANSIBLE_GATHERING=explicit", "TMPDIR="+tmp)
	o.cmd.Stdout, o.cmd.Stderr = log, log
	// A group of its own: an interrupt at the terminal is for the demo, which
	// then stops the operator as Kubernetes would.
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := o.cmd.Start(); err != nil {
		return fmt.Errorf("start the operator: %w", err)
	}
	d.operator = o
	go func() { o.ended <- o.cmd.Wait() }()
	return o.awaitReady(ctx, probe)
}

func (o *operator) awaitReady(ctx context.Context, probe string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("the operator did not become ready in a minute"))
	defer cancel()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+probe+"/readyz", nil)
		if err != nil {
			return err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case err := <-o.ended:
			o.ended <- err
			return fmt.Errorf("the operator ended: %w\n%s", err, o.tail())
		case <-ctx.Done():
			return fmt.Errorf("%w\n%s", context.Cause(ctx), o.tail())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// stop ends the process as Kubernetes would, and with force where that does
// not help. A nil operator was never started.
func (o *operator) stop() error {
	if o == nil {
		return nil
	}
	_ = o.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-o.ended:
		if err != nil {
			return fmt.Errorf("the operator ended: %w\n%s", err, o.tail())
		}
		return nil
	case <-time.After(45 * time.Second):
		_ = o.cmd.Process.Kill()
		_ = <-o.ended
		return errors.New("the operator did not end when it was asked to, and was killed")
	}
}

// tail is the end of the operator's log.
func (o *operator) tail() string {
	data, err := os.ReadFile(o.log)
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// freeAddress is a loopback address that no one listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}
