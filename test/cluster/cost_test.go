//go:build e2e

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// TestJobs_Cost prints the cost of a run as a Job and of a forked run of the same role, COST pairs one after the other.
// It is a measurement, and not part of make test: see make bench-jobs.
func TestJobs_Cost(t *testing.T) {
	pairs, _ := strconv.Atoi(os.Getenv("COST"))
	if pairs < 1 {
		t.Skip("it measures: make bench-jobs")
	}
	p := newPotter(t, "--metrics-bind-address=127.0.0.1:18383", "--warm-idle=0")
	here := must.Get(filepath.Abs(repository))(t)
	var watches strings.Builder
	kinds := []string{"Tea", "Chai"} // as a Job, and forked
	for _, kind := range kinds {
		p.define(t, kind)
		how := "executor: warm"
		if kind == kinds[0] {
			how = "executor: job, job: " + fmt.Sprintf(podTemplate, "", "", here, p.dir) // the programs of the machine, as for the other kind
		}
		fmt.Fprintf(&watches, "- {group: jobs.example.com, version: v1, kind: %s, %s, %s}\n", kind, roleOf(here, "tea"), how)
	}
	p.write(t, "watches.yaml", watches.String())
	p.eventually(t, "the default service account", p.equals("serviceaccount/default", "get", "serviceaccount", "default", "--output=name"))
	p.start(t)
	t.Cleanup(func() { p.stop(t, syscall.SIGTERM) })
	began, ended, cpus := map[string][]float64{}, map[string][]float64{}, map[string][]float64{} // seconds, by kind
	for i := range pairs + 1 {
		for _, kind := range kinds {
			b, e, c := p.cost(t, kind, fmt.Sprintf("%s-%d", strings.ToLower(kind), i))
			if i > 0 { // the first run waits for the fork server
				began[kind], ended[kind], cpus[kind] = append(began[kind], b), append(ended[kind], e), append(cpus[kind], c)
			}
		}
	}
	fmt.Printf("%d pairs; medians and quartiles\n\n| | until Ansible began, s | until the status said so, s | CPU of the machine, s | CPU of the run, s | memory of the run |\n|---|---|---|---|---|---|\n", pairs)
	for _, kind := range kinds {
		name := map[string]string{kinds[0]: "Job", kinds[1]: "forked"}[kind]
		cpu, memory := p.metered(t, kind)
		fmt.Printf("| %s | %s | %s | %s | %.2f | %.0f MiB |\n", name, quartiles(began[kind]), quartiles(ended[kind]), quartiles(cpus[kind]), cpu, memory/(1<<20))
	}
}

// cost creates an object, waits for its run, and waits until the machine is idle again. began is when Ansible started,
// and ended when the status said that the run has ended, in seconds after the creation. cpu is the CPU time of the
// machine, less what it uses when idle.
func (p *potter) cost(t *testing.T, kind, name string) (began, ended, cpu float64) {
	t.Helper()
	const rest = 5 * time.Second
	time.Sleep(rest)
	idle, before := busy(t), time.Now()
	time.Sleep(rest)
	perSecond := (busy(t) - idle) / time.Since(before).Seconds() // what the cluster uses by itself
	start, at := busy(t), time.Now()
	p.create(t, kind, name, "")
	s := p.ends(t, kind, name, anyEnd)
	ended = time.Since(at).Seconds()
	if s.LastRun.Result != "Succeeded" {
		t.Fatalf("the run of %s is %+v", name, s.LastRun)
	}
	time.Sleep(rest) // the Pod is deleted
	return firstEvent(t, p.root, s.LastRun.ID).Sub(at).Seconds(), ended, busy(t) - start - perSecond*time.Since(at).Seconds()
}

// firstEvent returns when Ansible started.
func firstEvent(t *testing.T, root, run string) time.Time {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, ".runs", "*", run, "artifacts", run, "job_events", "1-*.json"))
	if err != nil || len(names) != 1 {
		t.Fatalf("the first event of run %s: %v, %v", run, names, err)
	}
	var event struct{ Created string }
	text, err := os.ReadFile(names[0])
	if err == nil {
		err = json.Unmarshal(text, &event)
	}
	created, _, _ := strings.Cut(event.Created, "+") // UTC; older versions do not say so
	began, parseErr := time.Parse("2006-01-02T15:04:05.999999", created)
	if err != nil || parseErr != nil {
		t.Fatalf("the first event of run %s: %v, %v", run, err, parseErr)
	}
	return began
}

// busy returns the CPU time that the machine has used, in seconds (proc(5)).
func busy(t *testing.T) float64 {
	t.Helper()
	text := must.Get(os.ReadFile("/proc/stat"))(t)
	line, _, _ := bytes.Cut(text, []byte("\n"))
	ticks := 0.0
	for i, field := range strings.Fields(string(line))[1:] {
		if n, err := strconv.ParseFloat(field, 64); err == nil && i < 8 && i != 3 && i != 4 { // idle, and waiting for disks
			ticks += n
		}
	}
	const userHZ = 100
	return ticks / userHZ
}

// metered returns the average CPU time and memory of a run, as the operator measured them on the run's processes.
func (p *potter) metered(t *testing.T, kind string) (cpu, memory float64) {
	t.Helper()
	answer, err := http.Get("http://127.0.0.1:18383/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text := must.Get(io.ReadAll(answer.Body))(t)
	sum := func(name string) (total float64) {
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, name+"{") && strings.Contains(line, fmt.Sprintf("kind=%q", kind)) {
				n, _ := strconv.ParseFloat(strings.Fields(line)[1], 64)
				total += n
			}
		}
		return total
	}
	weighed := max(sum("rolewright_run_memory_bytes_count"), 1) // short runs are not measured
	return sum("rolewright_run_cpu_seconds_total") / sum("rolewright_runs_by_executor_total"), sum("rolewright_run_memory_bytes_sum") / weighed
}

// quartiles returns the median and the quartiles around it.
func quartiles(of []float64) string {
	slices.Sort(of)
	at := func(quarter int) float64 { return of[(len(of)-1)*quarter/4] }
	return fmt.Sprintf("%.2f (%.2f to %.2f)", at(2), at(1), at(3))
}
