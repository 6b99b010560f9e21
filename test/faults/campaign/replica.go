package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/procs"
)

// restarts is how often a replica is started in one plan: a process that dies more often
// is in a crash loop.
const restarts = 40

// replica runs an operator: a process, and its successors.
type replica struct {
	name string
	e    *execution
	// kubeconfig leads through the fault proxy.
	kubeconfig string

	mu  sync.Mutex
	cmd *exec.Cmd // nil if there is none
	// down is true while the replica has to stay down.
	down  bool
	wake  chan struct{}
	ended chan struct{} // closed when run has ended
}

func newReplica(e *execution, name, kubeconfig string) *replica {
	return &replica{name: name, e: e, kubeconfig: kubeconfig, wake: make(chan struct{}, 1), ended: make(chan struct{})}
}

// run keeps the replica up until ctx ends, and then ends it.
func (r *replica) run(ctx context.Context) {
	defer close(r.ended)
	for n := 0; ctx.Err() == nil; n++ {
		if n == restarts {
			r.e.violate("crash loop", fmt.Sprintf("replica %s was started %d times", r.name, n))
			<-ctx.Done()
			return
		}
		cmd, err := r.start(n)
		if err != nil {
			r.e.violate("driver", err.Error())
			return
		}
		exited := make(chan struct{})
		go func() {
			select {
			case <-ctx.Done():
				r.end(cmd, exited)
			case <-exited:
			}
		}()
		_ = cmd.Wait() // ProcessState says everything
		died := time.Now()
		r.mu.Lock()
		r.cmd = nil
		r.mu.Unlock()
		close(exited)
		r.e.noteExit(r, n, cmd, died)
		for r.isDown() && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-r.wake:
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// end asks the process to end, and kills it if it does not.
func (r *replica) end(cmd *exec.Cmd, exited <-chan struct{}) {
	_ = cmd.Process.Signal(unix.SIGCONT)
	_ = cmd.Process.Signal(unix.SIGTERM)
	select {
	case <-exited:
	case <-time.After(90 * time.Second): // its own limit is 30 s
		r.e.violate("shutdown", fmt.Sprintf("replica %s did not end within 90 s of SIGTERM", r.name))
		_ = cmd.Process.Kill()
	}
}

func (r *replica) isDown() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down
}

// setDown sets whether the replica stays down after its process has ended.
func (r *replica) setDown(down bool) {
	r.mu.Lock()
	r.down = down
	r.mu.Unlock()
	if !down {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

// signal sends a signal to the process, if there is one.
func (r *replica) signal(sig syscall.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return
	}
	r.e.driver.add(map[string]any{"event": "signal", "replica": r.name, "signal": unix.SignalName(sig), "pid": r.cmd.Process.Pid})
	_ = r.cmd.Process.Signal(sig) // it may have ended
}

func (r *replica) root() string { return filepath.Join(r.e.dir, "runner-"+r.name) }

// mark returns an entry for the environment of all runs that the n-th process makes.
func (r *replica) mark(n int) string {
	return "FAULTS_OPERATOR=" + filepath.Join(r.e.dir, r.name, strconv.Itoa(n)) + "."
}

func (r *replica) start(n int) (*exec.Cmd, error) {
	log, err := os.OpenFile(filepath.Join(r.e.dir, "operator-"+r.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	defer log.Close() // the process has its own descriptor
	args := []string{
		"run", "--runner-root", r.root(), "--metrics-bind-address", r.e.metrics, "--health-probe-bind-address", "0",
		"--user-metrics-bind-address", "0", "--proxy-port", "0", "--ansible-log-events", "Tasks", "--reconcile-period", "0",
		"--retry-min", retryMin.String(), "--retry-max", retryMax.String(), "--max-concurrent-reconciles", "4",
	}
	if r.e.c.opts.forks() {
		args = append(args, "--executor", "warm")
	}
	event := map[string]any{
		"event": "start", "replica": r.name, "retryMin": retryMin.String(), "finalizers": map[string]string{"things": finalizer},
	}
	if r.e.elects {
		args = append(args, "--leader-elect", "--leader-election-id", "leader", "--leader-election-namespace", r.e.namespace)
		event["leaderElect"], event["renewDeadline"], event["leaseDuration"] = true, "10s", "15s"
	}
	cmd := exec.Command(r.e.c.opts.Rolewright, args...)
	cmd.Dir = r.e.c.project
	points := r.e.failpoints(r.name)
	cmd.Env = append(r.e.environ(), "KUBECONFIG="+r.kubeconfig, r.mark(n), "ROLEWRIGHT_FAILPOINT="+points, "FAULTS_POINTS="+points,
		"ROLEWRIGHT_FAILPOINT_HISTORY="+filepath.Join(r.e.dir, "ledger-"+r.name+".jsonl"))
	cmd.Stdout, cmd.Stderr = log, log
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	r.cmd = cmd
	event["pid"] = cmd.Process.Pid
	r.e.driver.add(event)
	return cmd, nil
}

// The operator's back-off in a campaign: the tests check that it tries again,
// not how long it waits. The lease has the documented timing, because other limits depend on it:
// what must be over before another replica takes over.
const (
	retryMin = time.Second
	retryMax = 2 * time.Second
)

// environ returns the environment of the operators, which the runs of the plan inherit. The path of the
// truth log marks all processes of the plan.
func (e *execution) environ() []string {
	environ := []string{
		"HOME=" + os.Getenv("HOME"), "LANG=C.UTF-8", "PATH=" + e.c.bin + ":" + os.Getenv("PATH"),
		"WATCH_NAMESPACE=" + e.namespace, truthVariable + "=" + e.truth(), "ROLEWRIGHT_FAILPOINT_DIR=" + e.failpointDir(),
	}
	if e.c.opts.Forked {
		environ = append(environ, "PYTHONPATH="+e.c.bin, "FAKERUNNER="+e.c.opts.Runner, "FAULTS_POINTS_DIR="+e.failpointDir())
	}
	if procs := os.Getenv("GOMAXPROCS"); procs != "" {
		environ = append(environ, "GOMAXPROCS="+procs)
	}
	return environ
}

const truthVariable = "FAKERUNNER_TRUTH"

func (e *execution) truth() string        { return filepath.Join(e.dir, "truth.jsonl") }
func (e *execution) failpointDir() string { return filepath.Join(e.dir, "failpoints") }

// failpoints returns the variable with the plan's failpoints for a replica.
func (e *execution) failpoints(replica string) string {
	text := ""
	for _, f := range e.plan.Failpoints {
		if f.Replica != "" && f.Replica != replica {
			continue
		}
		action := f.Do
		if f.Do == "sleep" {
			action += "=" + f.For.Duration.String()
		}
		text += fmt.Sprintf("%s#%d:%s,", f.Name, max(1, f.Occurrence), action)
	}
	if text == "" {
		return ""
	}
	return text[:len(text)-1]
}

// noteExit records the end of an operator.
func (e *execution) noteExit(r *replica, n int, cmd *exec.Cmd, died time.Time) {
	event := map[string]any{"event": "exit", "replica": r.name, "pid": cmd.Process.Pid, "code": cmd.ProcessState.ExitCode()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		event["signal"] = unix.SignalName(ws.Signal())
	}
	e.driver.add(event)
	e.mu.Lock()
	e.deaths = append(e.deaths, death{mark: r.mark(n), replica: r.name, at: died})
	e.mu.Unlock()
}

// watchFailpoints continues processes that a failpoint has stopped, until ctx
// ends.
func (e *execution) watchFailpoints(ctx context.Context) {
	type stopped struct {
		pid  int
		wake time.Time
	}
	var frozen []stopped
	seen := map[int]bool{}
	for ctx.Err() == nil {
		for i, f := range e.plan.Failpoints {
			pid := e.reachedBy(f.Name, max(1, f.Occurrence))
			if f.Do != "stop" || seen[i] || pid == 0 {
				continue
			}
			seen[i] = true
			e.driver.add(map[string]any{"event": "signal", "replica": f.Replica, "signal": "SIGSTOP", "pid": pid, "detail": "failpoint " + f.Name})
			frozen = append(frozen, stopped{pid: pid, wake: time.Now().Add(f.For.Duration)})
		}
		for i := range frozen {
			if frozen[i].pid != 0 && time.Now().After(frozen[i].wake) {
				e.driver.add(map[string]any{"event": "signal", "signal": "SIGCONT", "pid": frozen[i].pid})
				_ = unix.Kill(frozen[i].pid, unix.SIGCONT)
				frozen[i].pid = 0
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	for _, f := range frozen {
		if f.pid != 0 {
			_ = unix.Kill(f.pid, unix.SIGCONT)
		}
	}
}

// thawed returns nil when no failpoint holds a process any more.
func (e *execution) thawed() error {
	for _, f := range e.plan.Failpoints {
		pid := e.reachedBy(f.Name, max(1, f.Occurrence))
		if f.Do == "stop" && pid != 0 && procs.State(pid) == "T" {
			return errors.New("a replica is frozen")
		}
	}
	return nil
}

// reachedBy returns the ID of the process that passed a failpoint for the n-th time; 0 if none
// has.
func (e *execution) reachedBy(name string, n int) int {
	data, err := os.ReadFile(filepath.Join(e.failpointDir(), fmt.Sprintf("%s#%d", name, n)))
	if err != nil {
		return 0
	}
	line := 0
	for start, i := 0, 0; i < len(data); i++ {
		if data[i] != '\n' {
			continue
		}
		if line++; line == n {
			pid, _ := strconv.Atoi(string(data[start:i]))
			return pid
		}
		start = i + 1
	}
	return 0
}
