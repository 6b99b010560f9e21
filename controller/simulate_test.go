package controller

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/test/must"
)

// simulation is an operator without a cluster and without Ansible. Its objects use the real decisions and the real queue,
// on a clock that jumps from event to event.
type simulation struct {
	t     *testing.T
	queue *runqueue.Queue
	// flat treats all runs as equally urgent: first come, first served.
	flat bool
	// takes returns how long a run lasts, and fails whether it fails.
	takes time.Duration
	fails func(content string) bool

	mu    sync.Mutex
	waits map[string]map[cause][]time.Duration // by kind
	wg    sync.WaitGroup
}

type simulatedKind struct {
	*simulation
	name    string
	content string
	places  *runqueue.Kind
	objects map[types.NamespacedName]*simulated
}

type simulated struct {
	situation

	mu      sync.Mutex
	since   time.Time
	timer   *time.Timer
	running bool
}

func (s *simulation) kind(name string, limit int, r runqueue.Rollout) *simulatedKind {
	s.waits[name] = map[cause][]time.Duration{}
	k := &simulatedKind{simulation: s, name: name, content: "first", objects: map[types.NamespacedName]*simulated{}}
	k.places = s.queue.Kind(name, limit, r, func(key types.NamespacedName) { s.wg.Go(func() { k.look(key) }) })
	return k
}

// add adds an object whose last run was some time ago; none for a new object.
func (k *simulatedKind) add(name string, period, since time.Duration) types.NamespacedName {
	key := types.NamespacedName{Namespace: k.name, Name: name}
	o := &simulated{situation: situation{
		fingerprint: k.content, generation: 1, period: period, retry: retry{min: 10 * time.Second, max: 10 * time.Minute},
	}, since: time.Now()}
	if since > 0 {
		ended := time.Now().Add(-since)
		o.last = &status.Run{ID: name, Result: status.Succeeded, Fingerprint: k.content, Generation: 1, Started: ended.Add(-k.takes), Finished: ended}
		if due, why := o.next(time.Now()); why != "" && due.Before(o.since) {
			o.since = due
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects[key] = o
	return key
}

func (k *simulatedKind) of(key types.NamespacedName) *simulated {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.objects[key]
}

// change applies a change to an object, and reconciles it.
func (k *simulatedKind) change(key types.NamespacedName, do func(*situation)) {
	o := k.of(key)
	o.mu.Lock()
	do(&o.situation)
	o.since = time.Now()
	o.mu.Unlock()
	k.look(key)
}

// look does what the reconcile of an object does.
func (k *simulatedKind) look(key types.NamespacedName) {
	o := k.of(key)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running {
		return // it is reconciled when the run has ended
	}
	now := time.Now()
	p := decide(now, o.situation)
	if p.cause == "" {
		k.places.Leave(key)
		if p.wait > 0 {
			o.since = now.Add(p.wait)
			o.timer = time.AfterFunc(p.wait, func() { k.look(key) })
		}
		return
	}
	class := classOf(p.cause)
	if k.flat {
		class = runqueue.Retry
	}
	has, since := k.places.Ask(key, class, o.since, runqueue.Inputs{Content: k.content})
	if !has {
		return
	}
	o.running, o.dependent = true, false
	k.mu.Lock()
	k.waits[k.name][p.cause] = append(k.waits[k.name][p.cause], now.Sub(since))
	k.mu.Unlock()
	k.wg.Go(func() { k.run(key, p.cause) })
}

func (k *simulatedKind) run(key types.NamespacedName, why cause) {
	o := k.of(key)
	o.mu.Lock()
	run := status.Run{
		ID: key.Name + time.Now().String(), Cause: string(why), Result: status.Succeeded, Fingerprint: o.fingerprint, Generation: o.generation, Handled: o.requested,
	}
	o.mu.Unlock()
	time.Sleep(k.takes)
	o.mu.Lock()
	if run.Finished = time.Now(); k.fails != nil && k.fails(run.Fingerprint) {
		if run.Result, run.Attempts = status.Failed, 1; o.last != nil && o.last.Result == status.Failed {
			run.Attempts += o.last.Attempts
		}
		if why == causeContent && o.last.Result == status.Succeeded {
			k.places.Failed(key, runqueue.Content, runqueue.Inputs{Content: run.Fingerprint})
		}
	}
	if o.last = &run; why == causeDeleted {
		o.deleting = false // the object is gone
		o.period = 0
	}
	o.since, o.running = time.Now(), false
	if o.fingerprint == run.Fingerprint {
		o.others = "" // the run has seen the change
	}
	o.mu.Unlock()
	k.places.Leave(key)
	k.look(key)
}

// end stops the simulation after a time.
func (s *simulation) end(d time.Duration, kinds ...*simulatedKind) {
	time.Sleep(d)
	for _, k := range kinds {
		k.places.Close()
		for _, o := range k.objects {
			o.mu.Lock()
			o.period, o.times, o.retry.min = 0, timetable{}, 10*365*24*time.Hour
			o.retry.max = o.retry.min
			if o.timer != nil {
				o.timer.Stop()
			}
			o.mu.Unlock()
		}
	}
	s.wg.Wait()
}

func newSimulation(places int, takes time.Duration) *simulation {
	return &simulation{
		queue: runqueue.New(runqueue.Options{Max: places}), takes: takes, waits: map[string]map[cause][]time.Duration{},
	}
}

// everyCase tells whether each case is wanted, as make simulate-schedule has it.
func everyCase() bool { return os.Getenv("ROLEWRIGHT_TEST_EVERY_CASE") != "" }

// simulatedObjects is how many objects there are.
func simulatedObjects() int {
	if everyCase() {
		return 5000
	}
	return 1500 // enough to be too many, and few enough for the race detector
}

// started returns how long the runs for a cause waited until they started, over all kinds.
func (s *simulation) started(c cause) (all []time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waits := range s.waits {
		all = append(all, waits[c]...)
	}
	return all
}

// runs returns how many runs of a kind have started.
func (s *simulation) runs(kind string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, waits := range s.waits[kind] {
		n += len(waits)
	}
	return n
}

func percentile(all []time.Duration, of int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*of/100].Round(time.Second)
}

// orders simulates a case, and logs what it makes rows of: with runs as they are, and if each case is wanted, also with all
// runs as equally urgent, which is for comparison.
func orders(t *testing.T, header string, simulate func(s *simulation, row func(kind string, c cause))) {
	t.Helper()
	const takes = 20 * time.Second
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "order\tkind\tcause\truns\twait p50\tp99\tmost")
	flats := []bool{false}
	if everyCase() {
		flats = []bool{true, false}
	}
	for _, flat := range flats {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(10, takes)
			s.flat = flat
			order := "by urgency"
			if flat {
				order = "as they come"
			}
			s.t = t
			simulate(s, func(kind string, c cause) {
				synctest.Wait() // for what happens at this time
				all := s.waits[kind][c]
				if len(all) == 0 {
					fmt.Fprintf(out, "%s\t%s\t%s\t0\t\t\t\n", order, kind, c)
					return
				}
				fmt.Fprintf(out, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", order, kind, c, len(all), percentile(all, 50), percentile(all, 99), percentile(all, 100))
			})
		})
	}
	must.Do(t, out.Flush())
	t.Logf("%s; 10 runs at a time of %s\n%s", header, takes, table.String())
}

// A person who creates or deletes an object does not wait for periodic runs, however many are due. Periodic runs get
// their turn, and so do kinds with few objects.
func TestSimulate_UrgentRunsDoNotWait(t *testing.T) {
	const lasts, few = time.Hour, 50
	big := simulatedObjects()
	urgent := []cause{causeDeleted, causeManual, causeCreated, causeChanged}
	rest := []cause{causeDependent, causeReference, causeContent, causeRetry, causePeriod, causeSchedule}
	half := timetable{cron: expression(t, "*/30 * * * *"), zone: time.UTC}
	header := fmt.Sprintf("%d objects of Many and %d of Few, due every 30 min; something happens every 5 min; %s", big, few, lasts)
	orders(t, header, func(s *simulation, row func(string, cause)) {
		t := s.t
		s.fails = func(content string) bool { return content == "flaky" }
		many, other := s.kind("Many", 10, runqueue.Rollout{}), s.kind("Few", 10, runqueue.Rollout{})
		for i := range big {
			key := many.add(fmt.Sprint("many-", i), 30*time.Minute, 2*time.Hour)
			if o := many.of(key); i%10 == 9 {
				o.period, o.times = 0, half
			}
		}
		for i := range few {
			other.add(fmt.Sprint("few-", i), 30*time.Minute, 2*time.Hour)
		}
		for _, k := range []*simulatedKind{many, other} {
			for key := range k.objects {
				k.look(key)
			}
		}
		for i := range int(lasts / (5 * time.Minute)) {
			time.Sleep(5 * time.Minute)
			many.look(many.add(fmt.Sprint("new-", i), 0, 0))
			at := func(n int) types.NamespacedName {
				return types.NamespacedName{Namespace: "Many", Name: fmt.Sprint("many-", i*10+n)}
			}
			many.change(at(0), func(s *situation) { s.deleting = true })
			many.change(at(1), func(s *situation) { s.requested = "now" })
			many.change(at(2), func(s *situation) { s.fingerprint, s.generation = "changed", 2 })
			many.change(at(3), func(s *situation) { s.dependent = true })
			many.change(at(4), func(s *situation) { s.fingerprint, s.others = "changed", causeReference })
			many.change(at(5), func(s *situation) { s.fingerprint = "changed" })
			many.change(at(6), func(s *situation) { s.fingerprint, s.generation = "flaky", 2 })
		}
		s.end(0, many, other)
		for _, c := range append(urgent, rest...) {
			row("Many", c)
		}
		row("Few", causePeriod)
		if s.flat {
			return
		}
		for _, c := range urgent {
			if all := s.started(c); len(all) < 10 || percentile(all, 100) > s.takes {
				t.Errorf("%s: %d runs, of which one has waited %s", c, len(all), percentile(all, 100))
			}
		}
		if n := s.runs("Few"); n < 2*few {
			t.Errorf("the kind with few objects has had %d runs", n)
		}
		for c, least := range map[cause]int{causePeriod: 800, causeSchedule: 1, causeReference: 10, causeContent: 10, causeRetry: 10} {
			if n := len(s.started(c)); n < least {
				t.Errorf("%d runs for %s", n, c)
			}
		}
	})
}

func TestSimulate_ARestartRunsNothing(t *testing.T) {
	big := simulatedObjects()
	orders(t, fmt.Sprintf("a restart with %d unchanged objects", big), func(s *simulation, row func(string, cause)) {
		t := s.t
		k := s.kind("Many", 10, runqueue.Rollout{})
		for i := range big {
			k.look(k.add(fmt.Sprint(i), 11*time.Hour, time.Hour))
		}
		s.end(time.Hour, k)
		row("Many", causeRestart)
		must.Be(t, "runs", 0, s.runs("Many"))
	})
}

// If no run is recorded, a restart runs everything. A person who creates or changes an object then waits for one run at
// most.
func TestSimulate_ARestartWithoutARecordKeepsNoOneWaiting(t *testing.T) {
	big := simulatedObjects()
	orders(t, fmt.Sprintf("a restart with %d objects without a record, then one new and one changed", big), func(s *simulation, row func(string, cause)) {
		t := s.t
		k := s.kind("Many", 10, runqueue.Rollout{})
		for i := range big {
			k.of(k.add(fmt.Sprint(i), 0, 0)).firstSeen = &firstSeen{generation: 1}
		}
		for key := range k.objects {
			k.look(key)
		}
		time.Sleep(time.Second)
		k.look(k.add("new", 0, 0))
		time.Sleep(s.takes)
		synctest.Wait()
		for key, o := range k.objects {
			o.mu.Lock()
			waits := o.last == nil && !o.running && o.firstSeen != nil
			o.mu.Unlock()
			if waits {
				k.change(key, func(s *situation) { s.generation++ })
				break
			}
		}
		s.end(4*time.Hour, k)
		for _, c := range []cause{causeCreated, causeChanged, causeRestart} {
			row("Many", c)
		}
		for _, c := range []cause{causeCreated, causeChanged} {
			if all := s.started(c); len(all) != 1 || all[0] > s.takes && !s.flat {
				t.Errorf("%s: waits %v", c, all)
			}
		}
		must.Be(t, "runs", len(k.objects), s.runs("Many"))
	})
}

func TestSimulate_ABadRoleBreaksTheFirstFew(t *testing.T) {
	big := simulatedObjects()
	orders(t, fmt.Sprintf("a role that fails reaches %d objects, with stopOnFailures: 3", big), func(s *simulation, row func(string, cause)) {
		t := s.t
		s.fails = func(content string) bool { return content == "broken" }
		k := s.kind("Many", 10, runqueue.Rollout{StopOnFailures: 3})
		for i := range big {
			k.add(fmt.Sprint(i), 0, time.Hour)
		}
		change := func(content string) (ran int) {
			before := len(s.started(causeContent))
			k.content = content
			for _, o := range k.objects {
				o.mu.Lock()
				o.fingerprint = content
				o.mu.Unlock()
			}
			for key := range k.objects {
				k.look(key)
			}
			time.Sleep(12 * time.Hour) // three at a time, as long as all of them may fail
			synctest.Wait()
			return len(s.started(causeContent)) - before
		}
		broken := change("broken")
		row("Many", causeContent)
		if s.flat {
			s.end(0, k)
			return
		}
		must.Be(t, "objects that ran with the broken role", 3, broken)
		must.Be(t, "objects that ran with the fixed one", len(k.objects), change("fixed"))
		s.end(0, k)
	})
}
