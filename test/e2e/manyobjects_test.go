package e2e

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rolewright/rolewright/test/must"
)

// TestManyObjects prints the cost of serving many objects of five kinds, for make simulate-scale: OBJECTS is their
// number, REPLICAS how many replicas serve them, with one round for each number. Each minute 5 % of the objects change
// and a replica is killed. Each object is paused, with the status of an object that has run; its change resumes it. The
// test checks that each change has run its object once, and that no other object has run. How long it took is only
// printed.
func TestManyObjects(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("OBJECTS"))
	if n <= 0 {
		t.Skip("make simulate-scale runs it")
	}
	m := &manyObjects{sharing: newSharing(t, 5, "--max-concurrent-runs=16", "--ansible-log-events=Nothing"), n: n}
	m.script("shared.sh", changedCommand)
	m.create()
	fmt.Println("| replicas | seconds until all objects are served | writes meanwhile | MiB of a replica, most | MiB per 1,000 objects | " +
		"changes | runs per second | seconds waited, p50 | p99 | repeated | requests per object and minute | kills | ends by itself | seconds to take over, most |")
	fmt.Println("|" + strings.Repeat("---|", 14))
	var all []*round
	for _, replicas := range strings.Fields(cmp.Or(os.Getenv("REPLICAS"), "1 2 4 8")) {
		r := &round{manyObjects: m, replicas: must.Get(strconv.Atoi(replicas))(t)}
		fmt.Println(r.run())
		m.changed += r.changes
		all = append(all, r)
	}
	if file := os.Getenv("PLOT"); file != "" {
		must.Do(t, os.WriteFile(file, plot(t, n, all), 0o600))
	}
}

// plot draws how long the changes of each round have waited.
func plot(t *testing.T, objects int, all []*round) []byte {
	t.Helper()
	type row struct {
		Name, Half, Most                          string
		Y, HalfWidth, HalfEnd, MostWidth, MostEnd float64
	}
	var rows []row
	longest := 1.0
	for _, r := range all {
		longest = max(longest, r.waited(0.99))
	}
	width := func(seconds float64) float64 { return math.Round(1 + seconds/longest*520) }
	for i, r := range all {
		name := "1 replica"
		if r.replicas > 1 {
			name = fmt.Sprintf("%d replicas", r.replicas)
		}
		half, most := r.waited(0.5), r.waited(0.99)
		rows = append(rows, row{name, fmt.Sprintf("%.2f s", half), fmt.Sprintf("%.1f s", most), float64(54 + 68*i),
			width(half), 158 + width(half), width(most), 158 + width(most)})
	}
	base := 48 + 68*len(rows)
	var out bytes.Buffer
	must.Do(t, template.Must(template.ParseFiles("testdata/scaling.svg.tmpl")).Execute(&out, map[string]any{
		"Objects": objects, "Rows": rows, "Base": base, "Foot": base + 26, "Height": base + 48,
	}))
	return out.Bytes()
}

// changedCommand records when a run begins and ends, and waits in between, so that a kill interrupts some runs.
const changedCommand = `#!/bin/sh
say() { echo "$1 $ROLEWRIGHT_UID $ROLEWRIGHT_OBJECT $(date +%s%N)" >> "$LEDGER"; }
say begin
sleep 0.2
say end
`

type manyObjects struct {
	*sharing
	n       int
	changed int // objects, from the first one on
}

// create creates the objects, with the status of an object that has run and is held back, so that no status is written at
// first.
func (m *manyObjects) create() {
	m.t.Helper()
	spec := map[string]any{"image": "example/cache:1.6.39", "replicas": int64(3), "settings": map[string]any{}}
	for i := range 20 {
		spec["settings"].(map[string]any)[fmt.Sprintf("setting_%d", i)] = "a value as settings have them"
	}
	first, k := m.another(), m.kinds[0]
	k.create("first", spec)
	ready := k.awaitReady("first").Object["status"]
	first.stop()
	must.Do(m.t, m.createPaused(m.t.Context(), k, "second", spec, ready))
	first = m.another()
	held := k.await("second", "held back", func(o object) bool { return o.condition("Reconciling").Reason == "Paused" }).Object["status"]
	first.stop()
	k.delete("first")
	k.delete("second")
	each, ctx := errgroup.WithContext(m.t.Context())
	each.SetLimit(16)
	for i := range m.n {
		each.Go(func() error {
			return m.createPaused(ctx, m.kinds[i%len(m.kinds)], fmt.Sprintf("it-%d", i/len(m.kinds)), spec, held)
		})
	}
	must.Do(m.t, each.Wait())
}

func (m *manyObjects) createPaused(ctx context.Context, k kind, name string, spec map[string]any, status any) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(k.gvk)
	u.SetName(name)
	u.SetAnnotations(map[string]string{"rolewright.dev/paused": "true"})
	u, err := k.objects.Create(ctx, u, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	u.Object["status"] = status
	_, err = k.objects.UpdateStatus(ctx, u, metav1.UpdateOptions{})
	return err
}

// minutes are the minutes of a round in which objects change: a twentieth of them in each.
const minutes = 3

// round is what a number of replicas do.
type round struct {
	*manyObjects
	replicas int
	all      []*operator
	changes  int
	waits    []time.Duration // of the changes, in order
	requests float64         // of replicas that have ended
	ended    int             // replicas that ended by themselves
}

// run makes the replicas serve the objects, changes some objects, kills a replica each minute, and returns a row of the
// table.
func (r *round) run() string {
	r.t.Helper()
	r.changes = max(minutes*r.n/20, 1)
	_ = os.Remove(r.ledger) // of the previous round
	began := time.Now()
	for range r.replicas {
		r.all = append(r.all, r.another())
	}
	r.served()
	took := time.Since(began)
	writes := r.sum(`rest_client_requests_total`, `method="PATCH"`)

	before, began := r.sum("rest_client_requests_total"), time.Now()
	var changed map[string]time.Time
	changing, ctx := errgroup.WithContext(r.t.Context())
	changing.Go(func() (err error) {
		changed, err = r.change(ctx)
		return err
	})
	over := time.Duration(0)
	for minute := range minutes {
		next := began.Add(time.Duration(minute)*time.Minute + 30*time.Second)
		r.until(func(context.Context) bool { return time.Now().After(next) })
		r.requests += r.requestsOf(r.all[0])
		r.all[0].signal(syscall.SIGKILL)
		killed := time.Now()
		r.all[0].exit()
		r.all = append(r.all[1:], r.another()) // as the kubelet does
		r.served()
		over = max(over, time.Since(killed))
	}
	must.Do(r.t, changing.Wait())
	var runs map[string]map[string]sharedRun
	r.until(func(context.Context) bool {
		r.restart()
		runs = r.ledgered()
		for uid := range changed {
			if !slices.ContainsFunc(slices.Collect(maps.Values(runs[uid])), func(s sharedRun) bool { return s.ended }) {
				return false
			}
		}
		return true
	})
	repeated, last := r.check(changed, runs)
	requests := (r.requests + r.sum("rest_client_requests_total") - before) / float64(r.n) / time.Since(began).Minutes()
	var most, memory float64
	for _, o := range r.all {
		is := must.Get(o.metric(r.t.Context(), "process_resident_memory_bytes"))(r.t) / (1 << 20)
		most, memory = max(most, is), memory+is
	}
	for _, o := range r.all {
		o.stop()
	}
	return fmt.Sprintf("| %d | %.1f | %.0f | %.0f | %.1f | %d | %.1f | %.2f | %.2f | %d | %.2f | %d | %d | %.1f |", r.replicas, took.Seconds(), writes, most,
		memory*1000/float64(r.n), r.changes, float64(r.changes)/last.Sub(began).Seconds(), r.waited(0.5), r.waited(0.99), repeated, requests, minutes, r.ended, over.Seconds())
}

// waited returns the maximum wait in seconds of a share of the changes.
func (r *round) waited(part float64) float64 {
	return r.waits[int(part*float64(len(r.waits)-1))].Seconds()
}

// change changes objects that no round has changed, at regular intervals, and returns when each was changed, by its UID.
func (r *round) change(ctx context.Context) (map[string]time.Time, error) {
	at := map[string]time.Time{}
	tick := time.NewTicker(time.Minute * minutes / time.Duration(r.changes))
	defer tick.Stop()
	for i := r.manyObjects.changed; i < r.manyObjects.changed+r.changes; i++ {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
		is, err := r.kinds[i%len(r.kinds)].objects.Patch(ctx, fmt.Sprintf("it-%d", i/len(r.kinds)), types.MergePatchType,
			[]byte(`{"metadata":{"annotations":{"rolewright.dev/paused":null}},"spec":{"replicas":4}}`), metav1.PatchOptions{})
		if err != nil {
			return nil, err
		}
		at[string(is.GetUID())] = time.Now()
	}
	return at, nil
}

// check checks that each change has run its object, that runs were repeated only if a replica was killed, and that
// nothing else has run. It records how long each change has waited for its run, and returns how many runs were repeated,
// and when the last run ended.
func (r *round) check(changed map[string]time.Time, all map[string]map[string]sharedRun) (repeated int, last time.Time) {
	r.t.Helper()
	for uid, runs := range all {
		at, is := changed[uid]
		if !is {
			r.t.Errorf("object %s has run without a change: %v", uid, runs)
		}
		repeated += len(runs) - 1
		first := time.Time{}
		for one, a := range runs {
			if first.IsZero() || a.first.Before(first) {
				first = a.first
			}
			if a.last.After(last) {
				last = a.last
			}
			for other, b := range runs {
				if one < other && a.first.Before(b.last) && b.first.Before(a.last) {
					r.t.Errorf("runs %s and %s of %s have overlapped", one, other, uid)
				}
			}
		}
		r.waits = append(r.waits, max(first.Sub(at), 0))
	}
	if most := 16 * (minutes + r.ended); repeated > most {
		r.t.Errorf("%d runs were repeated, want those in progress at a kill, at most %d", repeated, most)
	}
	slices.Sort(r.waits)
	return repeated, last
}

// sum returns the sum of a metric over all replicas.
func (r *round) sum(metric string, labels ...string) (total float64) {
	r.t.Helper()
	for _, o := range r.all {
		total += must.Get(o.metric(r.t.Context(), metric, labels...))(r.t)
	}
	return total
}

// requestsOf returns how many requests a replica has made so far; 0 if it does not answer.
func (r *round) requestsOf(o *operator) float64 {
	n, _ := o.metric(r.t.Context(), "rest_client_requests_total")
	return n
}

// restart restarts replicas that have ended, as a replica does that loses a Lease.
func (r *round) restart() {
	r.t.Helper()
	for i, o := range r.all {
		if o.hasEnded() {
			r.ended++
			r.all[i] = r.another()
		}
	}
}

// served waits until the replicas hold all shards, and know all objects.
func (r *round) served() {
	r.t.Helper()
	r.until(func(ctx context.Context) bool {
		r.restart()
		var shards, objects float64
		for _, o := range r.all {
			s, err1 := o.metric(ctx, "rolewright_shards_held")
			n, err2 := o.metric(ctx, "rolewright_shard_objects")
			if err1 != nil || err2 != nil {
				return false
			}
			shards, objects = shards+s, objects+n
		}
		return shards == shardsOfTest && int(objects) == r.n
	})
}

// until waits for something that takes minutes with very many objects. It does not read the metrics more often, because
// they name each object.
func (m *manyObjects) until(reached func(context.Context) bool) {
	m.t.Helper()
	must.Do(m.t, wait.PollUntilContextTimeout(m.t.Context(), 2*time.Second, 20*time.Minute, true, func(ctx context.Context) (bool, error) {
		return reached(ctx), nil
	}))
}
