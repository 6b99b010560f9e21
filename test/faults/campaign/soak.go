package campaign

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/test/faults/history"
	"github.com/rolewright/rolewright/test/faults/plan"
)

// soakWorkload makes as many runs as the options say, with one operator.
const soakWorkload = "soak"

// SoakPlan is a plan of many runs, during which now and then a write is refused,
// or answered late or not at all, watches are cut off, and processes are killed: in the
// first rounds the operator, then any of its processes.
func SoakPlan(name string, runs int) plan.Plan {
	p := plan.Plan{Name: name, Workload: soakWorkload, Replicas: 1}
	dos := []plan.Do{plan.Conflict, plan.Error, plan.TimeoutAfterCommit, plan.ResetAfter, plan.Throttle}
	for i := range min(100, runs/20) {
		p.Rules = append(p.Rules, plan.Rule{
			Match:  plan.Match{Verb: "patch", Resource: "things/status", Occurrence: 20 + i*20},
			Action: plan.Action{Do: dos[i%len(dos)]},
		})
	}
	p.Rules = append(p.Rules, plan.Rule{
		Match:  plan.Match{Verb: "watch", Resource: "things", Event: plan.AnyEvent, Occurrence: runs / 4, Times: 3},
		Action: plan.Action{Do: plan.CutWatch},
	}, plan.Rule{
		Match:  plan.Match{Verb: "patch", Resource: "configmaps", Occurrence: runs / 3, Times: 3},
		Action: plan.Action{Do: plan.Unavailable, For: metav1.Duration{Duration: time.Second}},
	})
	return p
}

// usage is what an operator uses.
type usage struct {
	anonymousKiB, descriptors, goroutines int
	// heapKiB is the memory that Go's garbage collector found in use, and collections how often it has run.
	heapKiB, collections int
	// bytes and files are the size and number of the files in the private data directories.
	bytes, files int
	// forked and plain count the runs since the start of the operator, by how they were made.
	forked, plain int
}

func (u usage) String() string {
	return fmt.Sprintf("%.1f MiB of memory, %.1f of it in use, %d descriptors, %d goroutines, %d bytes in %d files of runs, %d runs forked and %d plain",
		float64(u.anonymousKiB)/1024, float64(u.heapKiB)/1024, u.descriptors, u.goroutines, u.bytes, u.files, u.forked, u.plain)
}

// soak makes runs, and checks whether the operator then uses as much as before. It compares with the state after some
// first rounds, because what every operator needs once is no leak.
func soak(a *actor) {
	runs, objects := a.e.c.opts.SoakRuns, 40
	if a.e.c.opts.Runner == "" {
		objects = 8
	}
	rounds := max(2, runs/objects)
	a.round(objects, 0, max(rounds/20, min(warm, rounds/3)), func(i int) {
		if i%3 == 1 {
			a.e.replicas[0].signal(syscall.SIGKILL)
		}
	})
	a.round(objects, 1, min(warm, rounds/3), func(int) {})
	before, err := a.e.rest(a.ctx)
	if err != nil {
		a.e.violate("I14", "the operator does not come to rest: "+err.Error())
		return
	}
	a.round(objects, 2, rounds, func(i int) {
		if i%3 == 1 {
			a.e.replicas[0].killOne(i)
		}
	})
	var after usage
	const late = 5 * time.Minute // Go gives memory back some time after a collection
	err = poll(a.ctx, late, func() error {
		if after, err = a.e.rest(a.ctx); err != nil {
			return err
		}
		return before.grownTo(after)
	})
	a.e.report = fmt.Sprintf("before: %s\nafter:  %s", before, after)
	if err != nil {
		a.e.violate("I14", err.Error()+"\n"+a.e.report)
	}
	// The scripted ansible-runner does not record how it was started: the driver counts those runs.
	if a.e.c.opts.Runner == "" && after.plain > after.forked/5 {
		a.e.violate("I8", "too many runs were not forked\n"+a.e.report)
	}
}

// warm is how many rounds it takes until an operator has everything that it needs.
const warm = 12

// The limits within which the operator uses as much as before.
const (
	heapGrowthKiB = 1 << 10 // of memory in use: a hundred bytes for each of 10,000 runs
	growthKiB     = 8 << 10 // of memory, without pages of files: Go keeps pages for the next load, and barely used ones
	deviations    = 2       // of descriptors and goroutines
)

// grownTo returns nil if after is not more than u, within the limits.
func (u usage) grownTo(after usage) error {
	var errs []error
	if more := after.heapKiB - u.heapKiB; more > heapGrowthKiB {
		errs = append(errs, fmt.Errorf("memory in use has grown by %d KiB", more))
	}
	if more := after.anonymousKiB - u.anonymousKiB; more > growthKiB {
		errs = append(errs, fmt.Errorf("memory has grown by %d KiB", more))
	}
	if after.descriptors > u.descriptors+deviations {
		errs = append(errs, fmt.Errorf("%d descriptors are left open", after.descriptors-u.descriptors))
	}
	if after.goroutines > u.goroutines+deviations {
		errs = append(errs, fmt.Errorf("%d goroutines are left", after.goroutines-u.goroutines))
	}
	if after.bytes > 0 || after.files > 0 {
		errs = append(errs, fmt.Errorf("%d bytes in %d files are left of runs", after.bytes, after.files))
	}
	return errors.Join(errs...)
}

// killOne kills one of the operator's processes: a supervisor, a fork
// server, a run head, or a runner.
func (r *replica) killOne(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return
	}
	pids := slices.Sorted(maps.Keys(descendants(r.cmd.Process.Pid)))
	if len(pids) == 0 {
		return
	}
	pid := pids[i*7919%len(pids)]
	r.e.driver.add(map[string]any{"event": "kill", "replica": r.name, "pid": pid})
	_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
}

// round makes objects, changes them rounds times, and deletes them; meanwhile is called
// after each change.
func (a *actor) round(objects, first, rounds int, meanwhile func(i int)) {
	patience := func(what string) {
		err := poll(a.ctx, 10*time.Minute, func() error { return a.e.settled(a.ctx) })
		if err != nil {
			a.e.violate("I8", what+": "+err.Error())
		}
	}
	name := func(i int) string { return fmt.Sprintf("o-%d-%d", first, i) }
	for i := range objects {
		kind := kindThing
		if i%4 == 3 {
			kind = kindPlain
		}
		a.create(kind, name(i), "0", nil)
	}
	patience("created")
	for n := 1; n < rounds && a.ctx.Err() == nil; n++ {
		for i := range objects {
			a.update(name(i), strconv.Itoa(n), nil)
		}
		meanwhile(n)
		patience("changed")
	}
	for i := range objects {
		a.remove(name(i))
	}
	patience("deleted")
}

// rest returns what the operator uses when it has nothing to do, after a new garbage collection, which Go
// makes every two minutes even without any other reason.
func (e *execution) rest(ctx context.Context) (u usage, err error) {
	sleep(ctx, 5*time.Second)
	var first usage
	if err := e.readMetrics(ctx, &first); err != nil {
		return u, err
	}
	err = poll(ctx, 3*time.Minute, func() error {
		if u, err = e.usage(ctx); err == nil && u.collections <= first.collections {
			err = errors.New("no garbage was collected")
		}
		return err
	})
	return u, err
}

// usage returns what the operator uses now.
func (e *execution) usage(ctx context.Context) (usage, error) {
	var u usage
	r := e.replicas[0]
	r.mu.Lock()
	cmd := r.cmd
	r.mu.Unlock()
	if cmd == nil {
		return u, errors.New("the operator is gone")
	}
	process, err := procfs.NewProc(cmd.Process.Pid)
	if err != nil {
		return u, fmt.Errorf("find the operator: %w", err)
	}
	status, err := process.NewStatus()
	if err != nil {
		return u, fmt.Errorf("read the operator's memory: %w", err)
	}
	u.anonymousKiB = int(status.RssAnon >> 10)
	if u.descriptors, err = process.FileDescriptorsLen(); err != nil {
		return u, fmt.Errorf("read the operator's descriptors: %w", err)
	}
	if err := e.readMetrics(ctx, &u); err != nil {
		return u, err
	}
	err = filepath.WalkDir(filepath.Join(r.root(), ".runs"), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasPrefix(entry.Name(), ".") {
			return err // files of the runner root itself are not counted
		}
		info, err := entry.Info()
		if err == nil {
			u.bytes += int(info.Size())
			u.files++
		}
		return err
	})
	return u, err
}

// readMetrics reads the operator's metrics about itself and its runs.
func (e *execution) readMetrics(ctx context.Context, u *usage) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.metrics+"/metrics", nil)
	if err != nil {
		return fmt.Errorf("read the operator's metrics: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("read the operator's metrics: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return fmt.Errorf("read the operator's metrics: %w", err)
	}
	if leak := history.Leak(string(text)); leak != "" {
		e.violate("I13", "the metrics have a secret value: "+leak)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return fmt.Errorf("parse the operator's metrics: %w", err)
	}
	for _, m := range families["rolewright_runs_by_executor_total"].GetMetric() {
		made := int(m.GetCounter().GetValue())
		for _, label := range m.GetLabel() {
			switch label.GetValue() {
			case "warm":
				u.forked += made
			case "runner":
				u.plain += made
			}
		}
	}
	for _, m := range families["go_gc_duration_seconds"].GetMetric() {
		u.collections = int(m.GetSummary().GetSampleCount())
	}
	for _, m := range families["go_memstats_next_gc_bytes"].GetMetric() {
		u.heapKiB = int(m.GetGauge().GetValue() / 1024)
	}
	for _, m := range families["go_gc_gogc_percent"].GetMetric() {
		// The next collection begins when the heap has grown by this percentage over what the last one found in use.
		u.heapKiB = int(float64(u.heapKiB) / (1 + m.GetGauge().GetValue()/100))
	}
	for _, m := range families["go_goroutines"].GetMetric() {
		u.goroutines = int(m.GetGauge().GetValue())
		return nil
	}
	return errors.New("the operator says nothing of its goroutines")
}

// freeAddress returns a loopback address that no one listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
