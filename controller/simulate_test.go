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

// simulation is an operator without a cluster and without Ansible: objects for which the
// real decision is made, and the real queue, on a clock that jumps from event to event.
type simulation struct {
	queue *runqueue.Queue
	// flat treats all runs as equally urgent: first come, first served.
	flat bool
	// takes is how long a run lasts, and fails whether one fails.
	takes time.Duration
	fails func(content string) bool

	mu    sync.Mutex
	waits map[cause][]time.Duration
	runs  map[string]int // by kind
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
	k := &simulatedKind{simulation: s, name: name, content: "first", objects: map[types.NamespacedName]*simulated{}}
	k.places = s.queue.Kind(name, limit, r, func(key types.NamespacedName) { s.wg.Go(func() { k.look(key) }) })
	return k
}

// add adds an object with so much time since its last run; none for a new one.
func (k *simulatedKind) add(name string, period, since time.Duration) types.NamespacedName {
	key := types.NamespacedName{Namespace: k.name, Name: name}
	o := &simulated{situation: situation{
		fingerprint: k.content, generation: 1, period: period, retry: retry{min: 10 * time.Second, max: 10 * time.Minute},
	}, since: time.Now()}
	if since > 0 {
		o.last = &status.Run{ID: name, Result: status.Succeeded, Fingerprint: k.content, Generation: 1, Finished: time.Now().Add(-since)}
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

// change has something happen to an object, and has it looked at.
func (k *simulatedKind) change(key types.NamespacedName, do func(*situation)) {
	o := k.of(key)
	o.mu.Lock()
	do(&o.situation)
	o.since = time.Now()
	o.mu.Unlock()
	k.look(key)
}

// look is what the reconcile of an object does.
func (k *simulatedKind) look(key types.NamespacedName) {
	o := k.of(key)
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running {
		return // it is looked at when the run has ended
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
	k.waits[p.cause] = append(k.waits[p.cause], now.Sub(since))
	k.runs[k.name]++
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
		run.Result, run.Attempts = status.Failed, 1
		if why == causeContent && o.last.Result == status.Succeeded {
			k.places.Failed(key, runqueue.Content, runqueue.Inputs{Content: run.Fingerprint})
		}
	}
	if o.last = &run; why == causeDeleted {
		o.deleting = false // it is gone
		o.period = 0
	}
	o.since, o.running = time.Now(), false
	o.mu.Unlock()
	k.places.Leave(key)
	k.look(key)
}

// end stops everything after a time.
func (s *simulation) end(d time.Duration, kinds ...*simulatedKind) {
	time.Sleep(d)
	for _, k := range kinds {
		k.places.Close()
		for _, o := range k.objects {
			o.mu.Lock()
			o.period = 0
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
		queue: runqueue.New(runqueue.Options{Max: places}), takes: takes, waits: map[cause][]time.Duration{}, runs: map[string]int{},
	}
}

// simulatedObjects is how many objects there are.
func simulatedObjects() int {
	if os.Getenv("ROLEWRIGHT_TEST_EVERY_CASE") != "" {
		return 5000
	}
	return 1500 // as many as are too many, which the race detector can follow
}

// started is how many runs have started for a cause.
func (s *simulation) started(c cause) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waits[c])
}

func percentile(all []time.Duration, of int) time.Duration {
	slices.Sort(all)
	return all[(len(all)-1)*of/100].Round(time.Second)
}

// Who makes or deletes an object does not wait for periodic runs, however many are due; and
// those get their turn.
func TestSimulate_UrgentRunsDoNotWait(t *testing.T) {
	const takes, lasts, few = 20 * time.Second, time.Hour, 50
	big := simulatedObjects()
	urgent := []cause{causeDeleted, causeManual, causeCreated, causeChanged}
	var table strings.Builder
	out := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	defer func() {
		must.Do(t, out.Flush())
		t.Log("\n" + table.String())
	}()
	fmt.Fprintf(out, "%d objects due every 30 min, %d of another kind; 10 runs at a time of %s; %s\n", big, few, takes, lasts)
	fmt.Fprintln(out, "order\tcause\truns that started\twait p50\tp99\tmost")
	for _, flat := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(10, takes)
			s.flat = flat
			many, other := s.kind("Many", 10, runqueue.Rollout{}), s.kind("Few", 10, runqueue.Rollout{})
			for i := range big {
				many.add(fmt.Sprint("many-", i), 30*time.Minute, 2*time.Hour)
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
					return types.NamespacedName{Namespace: "Many", Name: fmt.Sprint("many-", i*4+n)}
				}
				many.change(at(0), func(s *situation) { s.deleting = true })
				many.change(at(1), func(s *situation) { s.requested = "now" })
				many.change(at(2), func(s *situation) { s.fingerprint, s.generation = "changed", 2 })
				many.change(at(3), func(s *situation) { s.dependent = true })
			}
			s.end(0, many, other)
			order := "by urgency"
			if flat {
				order = "as they come"
			}
			for _, c := range append(urgent, causeDependent, causePeriod) {
				all := s.waits[c]
				if len(all) == 0 {
					fmt.Fprintf(out, "%s\t%s\tnone\t\t\t\n", order, c)
					continue
				}
				fmt.Fprintf(out, "%s\t%s\t%d\t%s\t%s\t%s\n", order, c, len(all), percentile(all, 50), percentile(all, 99), percentile(all, 100))
			}
			if flat {
				return
			}
			for _, c := range urgent {
				if all := s.waits[c]; len(all) < 10 || percentile(all, 100) > takes {
					t.Errorf("%s: %d runs, of which one has waited %s", c, len(all), percentile(all, 100))
				}
			}
			if n := s.runs["Few"]; n < 2*few {
				t.Errorf("the kind with few objects has had %d runs", n)
			}
			if n := len(s.waits[causePeriod]); n < 1000 {
				t.Errorf("%d periodic runs", n)
			}
		})
	}
}

func TestSimulate_ARestartRunsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(10, time.Second)
		k := s.kind("Many", 10, runqueue.Rollout{})
		for i := range simulatedObjects() {
			k.look(k.add(fmt.Sprint(i), 11*time.Hour, time.Hour))
		}
		s.end(time.Hour, k)
		must.Be(t, "runs", 0, s.runs["Many"])
	})
}

// Where no run is recorded, a restart runs everything; who makes an object or changes one then
// waits for one run.
func TestSimulate_ARestartWithoutARecordKeepsNoOneWaiting(t *testing.T) {
	const takes = 20 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(10, takes)
		k := s.kind("Many", 10, runqueue.Rollout{})
		for i := range simulatedObjects() {
			k.add(fmt.Sprint(i), 0, 0)
			k.of(types.NamespacedName{Namespace: "Many", Name: fmt.Sprint(i)}).met = &met{generation: 1}
		}
		for key := range k.objects {
			k.look(key)
		}
		time.Sleep(time.Second)
		k.look(k.add("new", 0, 0))
		time.Sleep(takes)
		for key, o := range k.objects {
			if o.last == nil {
				k.change(key, func(s *situation) { s.generation++ })
				break
			}
		}
		s.end(4*time.Hour, k)
		for _, c := range []cause{causeCreated, causeChanged} {
			if all := s.waits[c]; len(all) != 1 || all[0] > takes {
				t.Errorf("%s: waits %v", c, all)
			}
		}
		must.Be(t, "runs", len(k.objects), s.runs["Many"])
	})
}

func TestSimulate_ABadRoleBreaksTheFirstFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(10, time.Second)
		s.fails = func(content string) bool { return content == "broken" }
		k := s.kind("Many", 10, runqueue.Rollout{StopOnFailures: 3})
		for i := range simulatedObjects() {
			k.add(fmt.Sprint(i), 0, time.Hour)
		}
		change := func(content string) (ran int) {
			before := s.started(causeContent)
			k.content = content
			for _, o := range k.objects {
				o.mu.Lock()
				o.fingerprint = content
				o.mu.Unlock()
			}
			for key := range k.objects {
				k.look(key)
			}
			time.Sleep(time.Hour)
			return s.started(causeContent) - before
		}
		must.Be(t, "objects that ran with the broken role", 3, change("broken"))
		must.Be(t, "objects that ran with the fixed one", len(k.objects), change("fixed"))
		s.end(0, k)
	})
}
