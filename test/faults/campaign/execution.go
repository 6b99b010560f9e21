package campaign

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/faults/history"
	"github.com/rolewright/rolewright/test/faults/plan"
	"github.com/rolewright/rolewright/test/faults/wire"
)

// Result is the result of a plan.
type Result struct {
	Plan plan.Plan
	// Reached is true if every fault of the plan took place.
	Reached    bool
	Violations []history.Violation
	// Dir has the history.
	Dir  string
	Took time.Duration
	// Trace has the requests that went through the fault proxy.
	Trace []plan.Request `json:"-"`
	// Runs is how many runs were started. Of those that got far enough to report it, Forked were
	// started by a fork server, and Plain were not.
	Runs, Forked, Plain int
	// Report is the workload's own report.
	Report string
}

// execution is a plan that is being carried out.
type execution struct {
	c         *Campaign
	plan      plan.Plan
	work      workload
	dir       string
	namespace string
	// elects is true if the operators elect a leader.
	elects         bool
	driver, client *journal
	wire           *wire.Proxy
	// metrics is the address of the operator's metrics; 0 for none.
	metrics, report string
	replicas        []*replica

	mu         sync.Mutex
	deaths     []death
	violations []history.Violation
	want       map[string]want
}

// death is the end of an operator.
type death struct {
	mark, replica string
	at            time.Time
	settled       bool
}

// want is the client's last wish for an object.
type want struct {
	Kind    string `json:"kind"`
	Value   string `json:"value"`
	Deleted bool   `json:"deleted"`
	// Result is the expected result of the last run.
	Result string `json:"result"`
}

// Run carries out a plan, and checks what happened. reference is the directory with the
// history of the same workload without faults; it is empty for that history itself. The
// error means that the plan could not be carried out.
func (c *Campaign) Run(ctx context.Context, p plan.Plan, reference string) (Result, error) {
	began := time.Now()
	e := &execution{c: c, plan: p, dir: filepath.Join(c.opts.Dir, "plans", p.Name), want: map[string]want{}, metrics: "0"}
	res := Result{Plan: p, Dir: e.dir}
	var ok bool
	if e.work, ok = workloads()[p.Workload]; !ok {
		return res, fmt.Errorf("plan %s: there is no workload %q", p.Name, p.Workload)
	}
	e.elects = max(p.Replicas, e.work.replicas) > 1 || e.work.elects
	e.namespace = c.prefix + strconv.FormatInt(c.serial.Add(1), 10)
	if p.Workload == soakWorkload {
		var err error
		if e.metrics, err = freeAddress(); err != nil {
			return res, fmt.Errorf("plan %s: %w", p.Name, err)
		}
	}
	if err := e.open(ctx, reference); err != nil {
		return res, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	err := e.carryOut(ctx)
	err = errors.Join(err, e.driver.close(), e.client.close())
	if err != nil {
		return res, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	res.Trace, res.Reached = e.wire.Trace(), len(e.wire.Unreached()) == 0
	for _, f := range p.Failpoints {
		res.Reached = res.Reached && e.reachedBy(f.Name, max(1, f.Occurrence)) != 0
	}
	h, err := history.Load(e.dir)
	if err != nil {
		return res, fmt.Errorf("plan %s: %w", p.Name, err)
	}
	res.Violations = append(e.violations, history.Check(h)...)
	res.Report = e.report
	res.Runs, res.Took = len(h.Runs), time.Since(began)
	for _, run := range h.Runs {
		switch {
		case run.Forked:
			res.Forked++
		case run.Begin != 0 && run.HasValue:
			res.Plain++
		}
	}
	return res, nil
}

// open prepares everything except the operators.
func (e *execution) open(ctx context.Context, reference string) error {
	if err := os.RemoveAll(e.dir); err != nil {
		return fmt.Errorf("remove an older history: %w", err)
	}
	if err := os.MkdirAll(e.failpointDir(), 0o700); err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	if err := writeJSON(filepath.Join(e.dir, "plan.json"), e.plan); err != nil {
		return err
	}
	if reference != "" {
		data, err := os.ReadFile(filepath.Join(reference, "end.json"))
		if err == nil {
			err = os.WriteFile(filepath.Join(e.dir, "reference.json"), data, 0o600)
		}
		if err != nil {
			return fmt.Errorf("copy the reference: %w", err)
		}
	}
	var err error
	if e.driver, err = openJournal(filepath.Join(e.dir, "driver.jsonl")); err != nil {
		return err
	}
	if e.client, err = openJournal(filepath.Join(e.dir, "client.jsonl")); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}}
	if err := e.c.client.Create(ctx, ns); err != nil {
		return fmt.Errorf("create the namespace: %w", err)
	}
	upstream := rest.CopyConfig(e.c.config)
	upstream.UserAgent = ""
	if e.wire, err = wire.New(wire.Options{Upstream: upstream, Rules: e.plan.Rules, Crash: e.crash}); err != nil {
		return err
	}
	for i := range max(1, e.plan.Replicas, e.work.replicas) {
		name := strconv.Itoa(i)
		config, err := e.wire.Kubeconfig(name)
		if err != nil {
			return err
		}
		path := filepath.Join(e.dir, "kubeconfig-"+name)
		if err := os.WriteFile(path, config, 0o600); err != nil {
			return fmt.Errorf("write the operator's kubeconfig: %w", err)
		}
		e.replicas = append(e.replicas, newReplica(e, name, path))
	}
	return nil
}

// carryOut executes the plan from the start of the operators to their end.
func (e *execution) carryOut(ctx context.Context) error {
	from := int64(0)
	if info, err := os.Stat(e.c.opts.AuditLog); err == nil {
		from = info.Size()
	}
	defer e.wire.Close()
	operators, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { e.watchFailpoints(operators) })
	watching.Go(func() { e.watchDeaths(operators) })
	e.start(operators)

	a := &actor{e: e, ctx: ctx}
	e.work.do(a)
	e.wire.Quiet()
	e.driver.add(map[string]any{"event": "quiet"})
	e.settle(ctx)
	end := e.end(ctx)
	stop()
	for _, r := range e.replicas {
		<-r.ended
	}
	watching.Wait()
	e.lastSurvivors()
	e.tidy(ctx)
	return errors.Join(ctx.Err(), end, e.collect(from))
}

// start starts the replicas, the first one before the others so that it leads.
func (e *execution) start(ctx context.Context) {
	for i, r := range e.replicas {
		go r.run(ctx)
		if i == 0 && len(e.replicas) > 1 {
			// The plan may keep it from leading: then another replica leads.
			_ = poll(ctx, 5*time.Second, func() error { return e.led(ctx) })
		}
	}
}

// crash is called by the fault proxy.
func (e *execution) crash(_ context.Context, replica, signal string) {
	signals := map[string]syscall.Signal{
		"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	}
	for _, r := range e.replicas {
		if r.name == replica {
			r.signal(signals[signal])
		}
	}
}

func (e *execution) violate(invariant, text string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.violations = append(e.violations, history.Violation{Invariant: invariant, Text: text})
}

// survival is how long a run may outlive its operator (I7): history.survivalLimit says why.
const survival = 15 * time.Second

// watchDeaths looks for runs that have outlived their operators.
func (e *execution) watchDeaths(ctx context.Context) {
	for ctx.Err() == nil {
		e.mu.Lock()
		for i := range e.deaths {
			if d := &e.deaths[i]; !d.settled && time.Since(d.at) > survival {
				d.settled = true
				e.survivors(d.replica, members(d.mark))
			}
		}
		e.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (e *execution) survivors(replica string, left []member) {
	for _, m := range left {
		e.driver.add(map[string]any{"event": "survivor", "replica": replica, "pid": m.pid, "run": m.run, "detail": m.String()})
	}
}

// lastSurvivors looks for processes that are left when all operators have ended.
func (e *execution) lastSurvivors() {
	mark := truthVariable + "=" + e.truth()
	left := members(mark)
	for deadline := time.Now().Add(survival); len(left) > 0 && time.Now().Before(deadline); left = members(mark) {
		time.Sleep(100 * time.Millisecond)
	}
	e.survivors("", left)
}

// collect adds what other programs have recorded to the history.
func (e *execution) collect(from int64) error {
	audit, err := os.OpenFile(filepath.Join(e.dir, "audit.jsonl"), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("keep the history: %w", err)
	}
	_, err = history.CopyAudit(audit, e.c.opts.AuditLog, from, e.namespace)
	err = errors.Join(err, audit.Close())
	err = errors.Join(err, e.keepTrace(), e.keepSeen())
	for _, r := range e.replicas {
		log, readErr := os.ReadFile(filepath.Join(e.dir, "operator-"+r.name+".log"))
		if readErr == nil {
			e.lookForCrashes(r.name, string(log))
		}
	}
	return err
}

// keepTrace records when and by which replica the requests in the audit log were sent.
func (e *execution) keepTrace() error {
	j, err := openJournal(filepath.Join(e.dir, "wire.jsonl"))
	if err != nil {
		return err
	}
	now, boot := time.Now(), history.Boot()
	for _, r := range e.wire.Record() {
		if r.Event == "" || r.Fault != "" {
			j.add(map[string]any{
				"auditID": r.AuditID, "replica": r.Replica, "verb": r.Verb, "path": r.Resource + "/" + r.Name, "fault": r.Fault,
				"sent": seconds(boot.Plus(-now.Sub(r.Time))),
			})
		}
	}
	return j.close()
}

// keepSeen records when each run was last seen to have a process.
func (e *execution) keepSeen() error {
	j, err := openJournal(filepath.Join(e.dir, "seen.jsonl"))
	if err != nil {
		return err
	}
	for run, last := range e.c.sampler.take(e.truth()) {
		j.add(map[string]any{"run": run, "last": seconds(last)})
	}
	return j.close()
}

// lookForCrashes finds panics of the operator that no plan has asked for, and reports of the race detector.
func (e *execution) lookForCrashes(replica, log string) {
	for line := range strings.Lines(log) {
		bad := strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") || strings.Contains(line, "Observed a panic") ||
			strings.HasPrefix(line, "WARNING: DATA RACE")
		if bad && !strings.Contains(line, "failpoint ") {
			e.violate("crash", "replica "+replica+": "+strings.TrimSpace(line))
			return
		}
	}
}
