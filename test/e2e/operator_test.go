package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv"
)

// operator is a process of the program.
type operator struct {
	t       *testing.T
	stage   *stage
	cmd     *exec.Cmd
	log     string // path of a file with both output streams
	health  string // base URL
	metrics string // URL
	ended   chan struct{}
}

// start runs the operator on the stage's project and returns when it is ready. At the end of the test the operator is
// stopped, and nothing of its runs may be left.
func (s *stage) start(args ...string) *operator {
	s.t.Helper()
	needAnsible(s.t)
	o := s.launch(args...)
	testenv.Eventually(s.t, "the operator to be ready", func(ctx context.Context) error {
		if o.hasEnded() {
			s.t.Fatalf("the operator has ended with exit code %d", o.cmd.ProcessState.ExitCode())
		}
		status, body, err := fetch(ctx, o.health+"/readyz?verbose")
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("readyz answers %d: %s", status, body)
		}
		return err
	})
	return o
}

// launch starts the operator and returns at once.
func (s *stage) launch(args ...string) *operator {
	s.t.Helper()
	return s.launchWith(nil, args...)
}

// launchWith is like launch, but makes a last change to the process before it starts.
func (s *stage) launchWith(adjust func(*operator), args ...string) *operator {
	s.t.Helper()
	health, metrics := testenv.Address(s.t), testenv.Address(s.t)
	o := &operator{
		t: s.t, stage: s, ended: make(chan struct{}),
		health: "http://" + health, metrics: "http://" + metrics + "/metrics",
	}
	// Later values override earlier ones.
	if executor := os.Getenv("TEST_EXECUTOR"); executor != "" {
		args = append([]string{"--executor=" + executor}, args...)
	}
	o.cmd = exec.Command(binary(s.t), append([]string{"run",
		"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics, "--runner-root=" + s.root,
		"--proxy-port=0", "--user-metrics-bind-address=0", "--api-port=0"}, args...)...)
	o.cmd.Dir, o.cmd.Env = s.dir, s.env
	log := must.Get(os.CreateTemp(s.t.TempDir(), "operator-*.log"))(s.t)
	defer log.Close()
	o.log, o.cmd.Stdout, o.cmd.Stderr = log.Name(), log, log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // see run
	if adjust != nil {
		adjust(o)
	}
	if err := o.run(); err != nil {
		s.t.Fatalf("start the operator: %v", err)
	}
	s.t.Cleanup(o.cleanUp)
	return o
}

// run starts the process from a thread that lives as long as the process: with Pdeathsig, a process ends with the thread
// that started it, and so with this process, however that ends.
func (o *operator) run() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := o.cmd.Start()
		started <- err
		if err == nil {
			_ = o.cmd.Wait() // ProcessState has the result
			close(o.ended)
		}
	}()
	return <-started
}

func (o *operator) hasEnded() bool {
	select {
	case <-o.ended:
		return true
	default:
		return false
	}
}

func (o *operator) signal(s os.Signal) {
	o.t.Helper()
	if err := o.cmd.Process.Signal(s); err != nil {
		o.t.Fatalf("signal the operator: %v", err)
	}
}

// exit waits until the process ends and returns its exit code.
func (o *operator) exit() int {
	o.t.Helper()
	const patience = 3 * time.Minute // only a hanging operator takes as long
	select {
	case <-o.ended:
		return o.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		o.t.Fatalf("the operator did not end in %s", patience)
		return 0
	}
}

// stop ends the operator as Kubernetes does, and checks that it ends properly.
func (o *operator) stop() {
	o.t.Helper()
	o.signal(syscall.SIGTERM)
	if code := o.exit(); code != 0 {
		o.t.Errorf("exit code after SIGTERM = %d, want 0", code)
	}
}

// cleanUp leaves no process, and prints the log if the test failed.
func (o *operator) cleanUp() {
	if !o.hasEnded() {
		_ = o.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
		select {
		case <-o.ended:
		case <-time.After(3 * time.Minute): // only a hanging operator takes as long
			o.t.Error("the operator did not end when it was asked to, and was killed")
			_ = o.cmd.Process.Kill()
			<-o.ended
		}
	}
	for pid, cmdline := range processesOf(o.t, o.stage.runs()...) {
		o.t.Errorf("process %d of a run is left: %s", pid, cmdline)
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may be gone by now
	}
	log := o.output()
	if strings.Contains(log, "WARNING: DATA RACE") {
		o.t.Error("the operator has a data race")
	}
	for range hits(log, o.stage.cfg.BearerToken, string(o.stage.cfg.KeyData)) {
		o.t.Error("the operator's credentials are in its log")
	}
	if o.t.Failed() {
		lines := strings.Split(strings.TrimSpace(log), "\n")
		o.t.Logf("the end of the operator's output:\n%s", strings.Join(lines[max(0, len(lines)-150):], "\n"))
	}
}

// output returns what the operator has printed so far.
func (o *operator) output() string {
	o.t.Helper()
	data := must.Get(os.ReadFile(o.log))(o.t)
	return string(data)
}

// awaitOutput waits until the operator has printed a text.
func (o *operator) awaitOutput(text string) {
	o.t.Helper()
	testenv.Eventually(o.t, fmt.Sprintf("output with %q", text), func(context.Context) error {
		if !strings.Contains(o.output(), text) {
			return errors.New("not there yet")
		}
		return nil
	})
}

// metric returns the sum of the series of a metric that have all labels, given as name="value"; 0 if there are none.
func (o *operator) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	status, body, err := fetch(ctx, o.metrics)
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK {
		return 0, fmt.Errorf("metrics answer %d: %s", status, body)
	}
	sum := 0.0
	lines := bufio.NewScanner(strings.NewReader(body))
next:
	for lines.Scan() {
		series, value, labelled := strings.Cut(lines.Text(), "} ")
		if !labelled {
			series, value, _ = strings.Cut(series, " ")
		}
		if before, _, _ := strings.Cut(series, "{"); before != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(series, label) {
				continue next
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("metric %s: %w", name, err)
		}
		sum += n
	}
	return sum, lines.Err()
}

// awaitDecided waits until the operator has checked n objects of a kind and found no reason to run them.
func (o *operator) awaitDecided(k kind, n int) {
	o.t.Helper()
	testenv.Eventually(o.t, fmt.Sprintf("%d objects left alone", n), func(ctx context.Context) error {
		got, err := o.metric(ctx, "rolewright_decisions_total", `kind="`+k.gvk.Kind+`"`, `decision="skip"`, `group="`+k.gvk.Group+`"`)
		if err == nil && int(got) < n {
			err = fmt.Errorf("it is %v so far", got)
		}
		return err
	})
}

func fetch(ctx context.Context, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	return res.StatusCode, string(data), err
}

// processesOf returns the live processes of runs, which it finds by the cookie in their environment: pid → command line.
func processesOf(t *testing.T, runs ...string) map[int]string {
	t.Helper()
	cookies := make([]string, len(runs))
	for i, id := range runs {
		cookies[i] = "ROLEWRIGHT_RUN=" + id
	}
	return must.Get(procs.Marked(cookies...))(t)
}
