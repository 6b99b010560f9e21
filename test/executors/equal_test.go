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

// observed is what there is to see of a run, without times and identifiers.
type observed struct {
	Err      string
	ExitCode int
	Status   string
	Verdict  runner.Verdict
	Events   []any
	Output   []string
	// Files are those that the run left in its output directory.
	Files map[string]string
	// Objects are those that the run left in its namespace.
	Objects map[string]any
}

// A run that is forked is the run that is executed: the same events in the same
// order with the same results, output, end, files and objects.
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
	// A task of a kind that only computes has a worker where it could tell the difference, as those of the corpus try to.
	if !strings.Contains(trace, "\ntask in process ") {
		t.Error("no task was executed in ansible-playbook itself")
	}
	t.Logf("tasks in process %d, begun there and forked %d", strings.Count(trace, "\ntask in process "), strings.Count(trace, "\ntask forked: "))
	t.Logf("playbooks forked %d, executed %d; modules forked %d; commands %d",
		forked, executed, strings.Count(trace, "module forked"), strings.Count(trace, "\ncommand"))
}

// bothWays makes the run plainly and forked; plainly again where its output was cut off.
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

// cutOff tells whether there is only the beginning of an output. ansible-runner
// stops to read when ansible-playbook has ended: on a busy machine a plain run
// loses the rest of what ansible-playbook says last, which a forked run reads.
func cutOff(output, whole []string) bool {
	last := len(output) - 1
	return last >= 0 && last < len(whole) && slices.Equal(output[:last], whole[:last]) &&
		strings.HasPrefix(whole[last], output[last]) && !slices.Equal(output, whole)
}

// errStopped is why runs are stopped that would not end.
var errStopped = errors.New("the test stops it")

// stopAsleep stops a run once one of its processes is the command "sleep 600".
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
