package executors

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/procs"
	"github.com/rolewright/rolewright/test/testenv"
)

// observed is what can be seen of a run, without times and identifiers.
type observed struct {
	Err      string
	ExitCode int
	Status   string
	Verdict  runner.Verdict
	Events   []any
	Output   []string
	// Files are the files that the run left in its output directory.
	Files map[string]string
	// Objects are the objects that the run left in its namespace.
	Objects map[string]any
}

// A forked run is the same as an executed run: the same events in the same order with the same results, output, end,
// files and objects.
func TestRun_IsTheSameForkedAndExecuted(t *testing.T) {
	w, server := bothWays(t), web(t)
	samples := corpus(t)
	t.Run("sample", func(t *testing.T) {
		for _, s := range samples {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				want, got := s.bothWays(t, w, server)
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Errorf("executed (-), forked (+):\n%s", diff)
				}
			})
		}
	})
	trace := w.traced(t)
	forked, executed := strings.Count(trace, "playbook forked"), strings.Count(trace, "playbook executed")
	if forked < 4*executed || forked == 0 {
		t.Errorf("%d playbooks were forked, %d were not: most are to be", forked, executed)
	}
	// A task that only computes gets a worker if it could notice the difference. Some tasks of the corpus try to notice
	// it.
	if !strings.Contains(trace, "\ntask in process ") {
		t.Error("no task was executed in ansible-playbook itself")
	}
	t.Logf("tasks in process %d, begun there and forked %d", strings.Count(trace, "\ntask in process "), strings.Count(trace, "\ntask forked: "))
	t.Logf("playbooks forked %d, executed %d; modules forked %d; commands %d",
		forked, executed, strings.Count(trace, "module forked"), strings.Count(trace, "\ncommand"))
}

// bothWays makes a plain run and a forked run. It repeats the plain run if its output was cut off.
func (s sample) bothWays(t *testing.T, w ways, server string) (executed, forked observed) {
	t.Helper()
	executed, forked = s.observe(t, w.executed, server), s.observe(t, w.forked, server)
	for range 5 {
		if !cutOff(executed.Output, forked.Output) {
			break
		}
		executed = s.observe(t, w.executed, server)
	}
	return executed, forked
}

// cutOff reports whether an output is only the beginning of another. ansible-runner stops reading when ansible-playbook
// has ended: on a busy machine a plain run loses the last output of ansible-playbook, which a forked run reads.
func cutOff(output, whole []string) bool {
	last := len(output) - 1
	return last >= 0 && last < len(whole) && slices.Equal(output[:last], whole[:last]) &&
		strings.HasPrefix(whole[last], output[last]) && !slices.Equal(output, whole)
}

// errStopped is the cause with which endless runs are stopped.
var errStopped = errors.New("the test stops it")

// stopAsleep stops a run when one of its processes is the command "sleep 600".
func stopAsleep(ctx context.Context, stop context.CancelCauseFunc, id string) {
	for ctx.Err() == nil {
		running, _ := procs.Marked("ROLEWRIGHT_RUN=" + id) // it is asked again
		for _, line := range running {
			if line == "sleep 600" {
				stop(errStopped)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// observe makes a run of the sample.
func (s sample) observe(t *testing.T, r *runner.Runner, server string) observed {
	t.Helper()
	p := place{out: t.TempDir(), server: server}
	if s.options.Cluster {
		cfg := testenv.Config(t)
		p.namespace, p.kubeconfig = testenv.Namespace(t, cfg), testenv.Kubeconfig(t, cfg)
	}
	req := s.request(t, p)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	if s.options.Stop {
		req.OnEvent = func(e jobevent.Event) {
			if e.Kind == "runner_on_start" {
				go stopAsleep(ctx, cancel, req.ID)
			}
		}
	}
	names := []string{req.Dir, "DIR", p.out, "OUT", req.ID, "ID", server, "SERVER", strings.TrimPrefix(server, "http://"), "SERVER"}
	if s.options.Cluster {
		names = append(names, p.namespace, "NAMESPACE", p.kubeconfig, "KUBECONFIG")
	}
	n := normaliser{names: strings.NewReplacer(names...), unordered: s.options.Unordered}
	var seen observed
	res, err := r.Run(ctx, req)
	if err != nil {
		seen.Err = n.text(err.Error())
	}
	if s.options.Stop && !errors.Is(context.Cause(ctx), errStopped) {
		t.Error("the run has ended before it slept")
	}
	seen.ExitCode, seen.Status, seen.Verdict = res.ExitCode, res.Status, res.Verdict()
	seen.Verdict.Message = n.text(seen.Verdict.Message)
	if s.options.Succeeds && !seen.Verdict.Success {
		t.Errorf("the run fails, so there is nothing to compare: %s", seen.Verdict.Message)
	}
	seen.Events, seen.Output = n.events(t, filepath.Join(req.Dir, "artifacts", req.ID, "job_events"))
	seen.Files = n.files(t, p.out)
	if s.options.Cluster {
		seen.Objects = n.objects(t, testenv.Config(t), p.namespace)
		if len(seen.Objects) == 0 {
			t.Error("the run has left no object: there is nothing to compare")
		}
	}
	return seen
}
