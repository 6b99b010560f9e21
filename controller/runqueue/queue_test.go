package runqueue

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/test/must"
)

func named(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

// stage is a queue whose runs are started by hand. Its kinds record which objects were woken.
type stage struct {
	*Queue
	t     *testing.T
	named int // the number of kinds

	mu    sync.Mutex
	woken []string
}

// wake records that an object was woken.
func (s *stage) wake(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken = append(s.woken, key.Name)
}

// taken returns the objects that were woken since the last call.
func (s *stage) taken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	woken := strings.Join(s.woken, " ")
	s.woken = nil
	return woken
}

func (s *stage) kind(limit int, r Rollout) *Kind {
	s.named++
	return s.Kind(fmt.Sprint(s.named), limit, r, s.wake)
}

// ask asks for places for objects, one after the other, and returns which get one at once.
func ask(k *Kind, class Class, names ...string) (have string) {
	var all []string
	for i, name := range names {
		if has, _ := k.Ask(named(name), class, time.Now().Add(time.Duration(i)), Inputs{"inputs", "inputs"}); has {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

// then gives back the place of an object, and checks which others are woken.
func (s *stage) then(k *Kind, name, want string) {
	s.t.Helper()
	s.taken()
	k.Leave(named(name))
	must.Be(s.t, "woken after "+name, want, s.taken())
}

func TestQueue_TheMostUrgentRunsNext(t *testing.T) {
	s := &stage{Queue: New(Options{}), t: t}
	k := s.kind(1, Rollout{})
	must.Be(t, "at once", "first", ask(k, Period, "first"))
	for class := Period; class >= Deletion; class-- {
		must.Be(t, "at once", "", ask(k, class, class.String()))
	}
	// Each fourth place is for the urgent run that has waited longest, or for any run.
	order := []string{"first", "deletion", "manual", "change", "effect", "trigger", "content", "period", "retry"}
	for i, name := range order[:len(order)-1] {
		s.then(k, name, order[i+1])
	}
}

// However many more urgent runs come, each waiting run gets its turn.
func TestQueue_NothingStarves(t *testing.T) {
	for class, most := range map[Class]int{Period: 2 * patience, Content: 2 * patience, Change: patience} {
		for _, granted := range []int{0, 1, patience - 1, patience, 2*patience - 1} { // wherever the turns stand
			s := &stage{Queue: New(Options{}), t: t}
			s.granted = granted
			k := s.kind(1, Rollout{})
			must.Be(t, "at once", "0", ask(k, Deletion, "0"))
			k.Ask(named("waits"), class, time.Now().Add(-time.Hour), Inputs{})
			turns := 0
			for n := 1; turns == 0 && n <= 100; n++ {
				ask(k, Deletion, fmt.Sprint(n))
				s.taken()
				if k.Leave(named(fmt.Sprint(n - 1))); s.taken() == "waits" {
					turns = n
				}
			}
			if turns == 0 || turns > most {
				t.Errorf("%s, after %d grants: it got the place at turn %d of at most %d; 0 is never", class, granted, turns, most)
			}
		}
	}
}

func TestQueue_AnObjectThatAsksAgainKeepsItsTurn(t *testing.T) {
	s := &stage{Queue: New(Options{}), t: t}
	k := s.kind(1, Rollout{})
	ask(k, Change, "runs")
	ask(k, Period, "a", "b", "c")
	must.Be(t, "who runs asks again", "runs", ask(k, Change, "runs"))
	ask(k, Change, "c") // its object was changed meanwhile
	k.Leave(named("b")) // its object was deleted
	s.then(k, "runs", "c")
	s.then(k, "c", "a")
	s.then(k, "a", "")
	must.Be(t, "left", 0, len(k.places))
}

// If the content has changed, an object gives back a place that it got for another run, because a rollout may hold that
// run back. A kind that is replaced keeps only the places of its runs.
func TestQueue_TakesPlacesBack(t *testing.T) {
	s := &stage{Queue: New(Options{Max: 2}), t: t}
	k, other := s.kind(2, Rollout{MaxParallel: 1}), s.kind(2, Rollout{})
	must.Be(t, "at once", "a b", ask(k, Change, "a", "b"))
	ask(k, Period, "c", "d")
	s.then(k, "a", "c")
	must.Be(t, "one runs for changed content", "b", ask(k, Content, "b"))
	must.Be(t, "and no other", "", ask(k, Content, "c"))
	must.Be(t, "its place is free", "d", s.taken())
	ask(other, Period, "x", "y")
	s.taken()
	k.Drain() // d does not know yet that it has a place
	must.Be(t, "woken", "x", s.taken())
	s.then(k, "b", "y")
	must.Be(t, "of the kind that ends", "", ask(k, Deletion, "e"))
}

func TestQueue_KindsShareThePlaces(t *testing.T) {
	s := &stage{Queue: New(Options{Max: 4}), t: t}
	big, small := s.kind(8, Rollout{}), s.kind(8, Rollout{})
	must.Be(t, "one place is kept for urgent runs", "a b c", ask(big, Period, "a", "b", "c", "d", "e"))
	must.Be(t, "no place", "", ask(small, Period, "x"))
	must.Be(t, "the place that is kept", "new", ask(small, Change, "new"))
	s.then(big, "a", "x") // of the kind with fewer runs
	small.Close()
	must.Be(t, "woken after the end of a kind", "d", s.taken())
}

func TestQueue_WaitsForMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var used atomic.Int64
		used.Store(100)
		var told []bool
		s := &stage{t: t, Queue: New(Options{
			Memory:   func() (int64, int64) { return used.Load(), 1000 },
			OnMemory: func(waits bool) { told = append(told, waits) },
		})}
		k := s.kind(10, Rollout{})
		must.Be(t, "before a run was seen", "a b", ask(k, Change, "a", "b"))
		k.Used(300)
		must.Be(t, "100 of the operator and 3 runs of 300", "", ask(k, Change, "c"))
		s.then(k, "a", "c") // 100 and 600 and 300 are too many; 100 and 300 and 300 are not
		used.Store(800)
		must.Be(t, "what is used counts", "", ask(k, Change, "d"))
		must.Be(t, "a kind whose runs are small", "x", ask(s.kind(1, Rollout{}), Period, "x"))
		used.Store(100)
		for range 3 { // smaller runs: the large one is forgotten slowly
			k.Used(10)
		}
		s.taken()
		time.Sleep(memoryEvery)
		synctest.Wait()
		must.Be(t, "woken by time", "d", s.taken())
		must.Be(t, "told", fmt.Sprint([]bool{true, false, true, false}), fmt.Sprint(told))
	})
}

// However many small runs come, a large run gets the memory that it needs. If it does not fit beside a long run, it
// blocks the others for at most half of the time.
func TestQueue_ALargeRunGetsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, Queue: New(Options{Max: 3, Memory: func() (int64, int64) { return 100, 1000 }})}
		large, small, long := s.kind(1, Rollout{}), s.kind(3, Rollout{}), s.kind(1, Rollout{})
		large.Used(600)
		long.Used(400)
		small.Used(200)
		begun := 0
		// pass starts a small run every ten seconds, which ends half a minute later.
		pass := func(from, to int) {
			for n := from; n < to; n++ {
				begun += len(strings.Fields(ask(small, Change, fmt.Sprint(n)) + " " + s.taken()))
				small.Leave(named(fmt.Sprint(n - 3)))
				time.Sleep(10 * time.Second)
				synctest.Wait()
			}
		}
		pass(0, 3)
		must.Be(t, "beside three small runs", "", ask(large, Period, "a"))
		pass(3, 27)
		must.Be(t, "after four minutes", true, large.places[named("a")].has)
		ask(long, Deletion, "long")
		large.Leave(named("a"))
		must.Be(t, "the next one", true, long.places[named("long")].has)
		must.Be(t, "beside a long run", "", ask(large, Period, "b"))
		unknown := s.kind(1, Rollout{})
		begun = 0
		pass(27, 27+360)
		if large.places[named("b")].has || begun < 180 {
			t.Errorf("of 360 small runs, %d began in an hour", begun)
		}
		for !s.yields(small, Change, time.Now()) {
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		for n := range 3 {
			small.Leave(named(fmt.Sprint(27 + 360 - 1 - n)))
		}
		must.Be(t, "while others wait", "", ask(small, Change, "c"))
		must.Be(t, "a deletion", "d", ask(small, Deletion, "d"))
		must.Be(t, "of a kind that takes no memory", "u", ask(unknown, Change, "u"))
		s.taken()
		small.Leave(named("d"))
		large.Leave(named("b"))
		must.Be(t, "when the large one has gone", "c", s.taken())
	})
}

func TestRollout_ReachesTheFirstFew(t *testing.T) {
	for _, class := range []Class{Content, Trigger} {
		t.Run(class.String(), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { rollsOut(t, class) }) })
	}
}

func rollsOut(t *testing.T, class Class) {
	t.Helper()
	other, inputs, fixed := Trigger, Inputs{"inputs", "inputs"}, Inputs{"fixed", "inputs"}
	if class == Trigger {
		other, fixed = Content, Inputs{"inputs", "fixed"}
	}
	s := &stage{Queue: New(Options{}), t: t}
	k := s.kind(8, Rollout{MaxParallel: 2, Interval: time.Minute, StopOnFailures: 3})
	must.Be(t, "at once", "a", ask(k, class, "a", "b", "c", "d", "e", "f"))
	must.Be(t, "others do not wait", "new", ask(k, Change, "new"))
	pass := func(want string) {
		t.Helper()
		s.taken()
		time.Sleep(time.Minute)
		synctest.Wait()
		must.Be(t, "woken by time", want, s.taken())
	}
	fail := func(name string, stops bool, next string) {
		t.Helper()
		must.Be(t, name+" stops it", stops, k.Failed(named(name), class, inputs))
		s.then(k, name, next)
	}
	pass("b")
	pass("") // two run
	k.Failed(named("a"), class, inputs)
	k.Recovered(named("a"), inputs) // by its repetition
	s.then(k, "a", "c")
	k.Failed(named("x"), class, Inputs{"inputs of before", "inputs of before"}) // this failure does not count
	fail("b", false, "")
	pass("d")
	fail("c", false, "") // d may fail, too
	pass("")
	fail("d", true, "")
	pass("")
	must.Be(t, "stopped", true, k.State().Stopped)
	must.Be(t, "asked for", "e", ask(k, Manual, "e"))
	must.Be(t, "of the other class", "g", ask(k, other, "g"))
	k.Ask(named("f"), class, time.Now(), fixed)
	must.Be(t, "stopped", false, k.State().Stopped)
	has, _ := k.Ask(named("f"), class, time.Now(), fixed)
	must.Be(t, "fixed", true, has)
}

func TestRollout_IsNotStoppedByWhatIsGone(t *testing.T) {
	s := &stage{Queue: New(Options{}), t: t}
	k := s.kind(8, Rollout{StopOnFailures: 1})
	must.Be(t, "at once", "a", ask(k, Content, "a", "b"))
	k.Failed(named("a"), Content, Inputs{"inputs", "inputs"})
	s.then(k, "a", "")
	k.Gone(named("a"))
	must.Be(t, "woken after a is gone", "b", s.taken())
}

// A place that nothing uses would be lost. Whatever happens, all runs end, and there are never too many.
func TestQueue_NothingIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New(Options{Max: 5})
		running, most, ended := 0, 0, map[types.NamespacedName]int{}
		var kinds []*Kind
		var due []func()
		for i := range 3 {
			var k *Kind
			look := func(key types.NamespacedName) {
				if has, _ := k.Ask(key, Class(ended[key]%int(classes)), time.Now(), Inputs{}); !has {
					return
				}
				running++
				most = max(most, running)
				due = append(due, func() {
					running--
					ended[key]++
					k.Leave(key)
				})
			}
			k = q.Kind(fmt.Sprint(i), i+1, Rollout{}, look)
			kinds = append(kinds, k)
			for n := range 50 {
				look(types.NamespacedName{Name: fmt.Sprint(i, n)})
			}
		}
		for len(due) > 0 {
			end := due[0]
			due = slices.Delete(due, 0, 1)
			end()
		}
		must.Be(t, "runs", 150, len(ended))
		must.Be(t, "most at a time", 5, most)
		must.Be(t, "places", 0, q.running)
		for _, k := range kinds {
			must.Be(t, "of the kind", 0, k.running+len(k.places))
		}
	})
}

// The watches of one kind share its places, and count as one kind in the distribution of places.
func TestQueue_PartsOfAKindShareItsPlaces(t *testing.T) {
	s := &stage{Queue: New(Options{Max: 4}), t: t}
	gold, silver, other := s.Kind("a", 3, Rollout{}, s.wake), s.Kind("a", 3, Rollout{}, s.wake), s.Kind("b", 3, Rollout{}, s.wake)
	must.Be(t, "gold", "g1 g2", ask(gold, Change, "g1", "g2"))
	must.Be(t, "silver", "s1", ask(silver, Change, "s1", "s2"))
	must.Be(t, "the other kind", "o1", ask(other, Change, "o1", "o2"))
	gold.Leave(named("g1"))
	must.Be(t, "of the kind with the fewest runs", "o2", s.taken())
	silver.Close()
	must.Be(t, "after a part was closed", "g3", ask(gold, Deletion, "g3", "g4"))
	other.Leave(named("o1"))
	other.Leave(named("o2"))
	must.Be(t, "a place for the part that is left", "g4", s.taken())
}

// The list shows what the queue decides, and what each run waits for.
func TestQueue_Waiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, Queue: New(Options{Max: 4, Memory: func() (int64, int64) { return 100, 1000 }})}
		list := func(name string, k *Kind, want ...string) {
			t.Helper()
			var all []string
			for _, e := range s.Waiting() {
				if e.Kind == k {
					all = append(all, fmt.Sprintf("%d %s %s %s", e.Position, e.Key.Name, e.Class, e.Held))
				}
			}
			must.Be(t, name, want, all)
		}
		one, many := s.kind(1, Rollout{}), s.kind(8, Rollout{MaxParallel: 1, StopOnFailures: 2})
		ask(one, Period, "a", "b")
		list("of a kind", one, "1 b period kind")
		ask(many, Period, "c", "d", "e")
		list("kept for urgent runs", many, "2 e period urgent")
		ask(many, Content, "f")
		ask(many, Change, "g")
		list("of all kinds", many, "1 f content all", "3 e period all")
		many.Leave(named("c"))
		many.Leave(named("d"))
		list("rollout", many)
		ask(many, Content, "h")
		list("in parallel", many, "1 h content rollout")
		many.Failed(named("x"), Content, Inputs{"inputs", "inputs"})
		many.Failed(named("y"), Content, Inputs{"inputs", "inputs"})
		list("stopped", many, "1 h content stopped")
		ask(many, Manual, "h")
		many.Leave(named("f"))
		many.Leave(named("g"))
		one.Used(950)
		one.Leave(named("a"))
		list("for memory", one, "1 b period memory")
	})
}

// A run that is already in progress has its place even beyond the limit, and others wait for it.
func TestQueue_Take(t *testing.T) {
	s := &stage{Queue: New(Options{}), t: t}
	k := s.kind(1, Rollout{})
	k.Take(named("a"), Change, time.Now())
	k.Take(named("b"), Change, time.Now())
	must.Be(t, "beside them", "", ask(k, Change, "c"))
	s.then(k, "a", "")
	s.then(k, "b", "c")
}
