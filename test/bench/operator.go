package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
)

// operator is a Rolewright process.
type operator struct {
	cmd     *exec.Cmd
	ended   chan error
	metrics string // the address of the metrics server
}

// freeAddress returns a loopback address that no one listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// startOperator starts an operator whose ansible-runner is the stub, with env
// added to the environment.
func (b *bench) startOperator(ctx context.Context, env ...string) error {
	return b.startProcess(ctx, []string{"--executor", "runner", "--proxy-port", "0"}, append(b.stubEnviron(), env...))
}

// stubEnviron returns an environment in which the operator finds the stub, or what has replaced it.
func (b *bench) stubEnviron() []string {
	return []string{"PATH=" + filepath.Join(b.dir, "bin") + ":" + os.Getenv("PATH"), timesEnv + "=" + b.times()}
}

// startReal starts an operator that runs Ansible.
func (b *bench) startReal(ctx context.Context, args ...string) error {
	if err := os.RemoveAll(b.operatorLog()); err != nil {
		return err
	}
	return b.startProcess(ctx, append([]string{"--proxy-port", "0"}, args...), nil)
}

func (b *bench) operatorLog() string { return filepath.Join(b.dir, "operator.log") }

// startProcess starts the operator with additional arguments and environment entries.
func (b *bench) startProcess(ctx context.Context, args, env []string) error {
	binary, err := filepath.Abs(b.opts.binary)
	if err != nil {
		return err
	}
	probe, err := freeAddress()
	if err != nil {
		return err
	}
	scrape, err := freeAddress()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(b.operatorLog(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own descriptor
	o := &operator{ended: make(chan error, 1), metrics: scrape}
	args = append([]string{"run", "--runner-root", filepath.Join(b.dir, "runner"),
		"--health-probe-bind-address", probe, "--metrics-bind-address", scrape, "--ansible-log-events", "Nothing",
		"--user-metrics-bind-address", "0"}, args...)
	o.cmd = exec.Command(binary, args...)
	o.cmd.Dir = b.dir
	o.cmd.Env = append(append(os.Environ(), markEnv+"="+b.dir), env...)
	o.cmd.Stdout, o.cmd.Stderr = log, log
	if err := o.cmd.Start(); err != nil {
		return fmt.Errorf("start the operator: %w", err)
	}
	go func() { o.ended <- o.cmd.Wait() }()
	b.operator = o
	return wait(ctx, "the operator to be ready", func() bool {
		res, err := http.Get("http://" + probe + "/readyz") // bounded by wait
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

func (o *operator) stop() error {
	_ = o.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-o.ended:
		o.ended <- err
		return err
	case <-time.After(time.Minute):
		_ = o.cmd.Process.Kill()
		return errors.New("the operator did not end")
	}
}

// usage is what a process uses: its current memory, the peak since resetPeak, and its
// CPU time so far. Memory that is not anonymous belongs to files.
type usage struct {
	residentMiB, peakMiB, anonMiB float64
	cpu                           time.Duration
}

// usage reads /proc (proc_pid_status(5), proc_pid_stat(5)).
func (o *operator) usage() (usage, error) {
	process, err := procfs.NewProc(o.cmd.Process.Pid)
	if err != nil {
		return usage{}, fmt.Errorf("find the operator: %w", err)
	}
	memory, err := process.NewStatus()
	if err != nil {
		return usage{}, fmt.Errorf("read the operator's memory: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return usage{}, fmt.Errorf("read the operator's CPU time: %w", err)
	}
	const mib = 1 << 20
	return usage{
		residentMiB: float64(memory.VmRSS) / mib, peakMiB: float64(memory.VmHWM) / mib, anonMiB: float64(memory.RssAnon) / mib,
		cpu: time.Duration(stat.CPUTime() * float64(time.Second)),
	}, nil
}

// resetPeak restarts the measurement of the peak memory (proc_pid_clear_refs(5)).
func (o *operator) resetPeak() error {
	file := filepath.Join("/proc", strconv.Itoa(o.cmd.Process.Pid), "clear_refs")
	if err := os.WriteFile(file, []byte("5"), 0); err != nil {
		return fmt.Errorf("reset the operator's peak of memory: %w", err)
	}
	return nil
}

// phases returns the mean durations of the phases of a reconcile so far, in
// milliseconds, from the operator's own metrics.
func (o *operator) phases() (map[string]float64, error) {
	res, err := http.Get("http://" + o.metrics + "/metrics") // on loopback
	if err != nil {
		return nil, fmt.Errorf("read the operator's metrics: %w", err)
	}
	defer res.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return nil, fmt.Errorf("parse the operator's metrics: %w", err)
	}
	means := map[string]float64{}
	for _, m := range families["rolewright_phase_duration_seconds"].GetMetric() {
		for _, label := range m.GetLabel() {
			if h := m.GetHistogram(); label.GetName() == "phase" && h.GetSampleCount() > 0 {
				means[label.GetValue()] = 1000 * h.GetSampleSum() / float64(h.GetSampleCount())
			}
		}
	}
	return means, nil
}
