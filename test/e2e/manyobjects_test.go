package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rolewright/rolewright/test/must"
)

// TestManyObjects prints what it costs to serve many objects of five kinds of which few change, for make simulate-scale:
// OBJECTS is their number. Each is paused, with the status of one that has run; of each kind, a hundred are resumed in each
// round, which runs each of them once.
func TestManyObjects(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("OBJECTS"))
	if n <= 0 {
		t.Skip("make simulate-scale runs it")
	}
	m := &manyObjects{sharing: newSharing(t, 5, "--max-concurrent-runs=16", "--ansible-log-events=Nothing"), n: n}
	m.script("shared.sh", "#!/bin/sh\nexit 0\n")
	m.create()
	fmt.Println("| replicas | seconds until all objects are served | MiB of a replica, most | MiB, least | writes meanwhile | seconds for 500 runs | requests per run | seconds to take over |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for round, replicas := range []int{1, 2, 4, 8} {
		m.round(round, replicas)
	}
}

type manyObjects struct {
	*sharing
	n int
}

const resumedOfEachKind = 100

// create makes the objects, with the status of one that has run and is held back, so that none is written at first.
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

// round has replicas serve the objects, run some of them, and take over from one that is killed.
func (m *manyObjects) round(round, replicas int) {
	m.t.Helper()
	began := time.Now()
	var all []*operator
	for range replicas {
		all = append(all, m.another())
	}
	sum := func(ctx context.Context, metric string, labels ...string) (total, most, least float64, err error) {
		for i, o := range all {
			is, err := o.metric(ctx, metric, labels...)
			if err != nil {
				return 0, 0, 0, err
			}
			if total, most = total+is, max(most, is); i == 0 || is < least {
				least = is
			}
		}
		return total, most, least, nil
	}
	served := func() {
		m.t.Helper()
		m.until(func(ctx context.Context) bool {
			for _, o := range all {
				if o.hasEnded() {
					m.t.Fatal("a replica has ended")
				}
			}
			shards, _, _, err1 := sum(ctx, "rolewright_shards_held")
			objects, _, _, err2 := sum(ctx, "rolewright_shard_objects")
			return err1 == nil && err2 == nil && shards == shardsOfTest && int(objects) == m.n
		})
	}
	count := func(metric string, labels ...string) float64 {
		total, _, _, err := sum(m.t.Context(), metric, labels...)
		must.Do(m.t, err)
		return total
	}
	served()
	took := time.Since(began)
	writes := count("rest_client_requests_total", `method="PATCH"`)
	_, most, least, err := sum(m.t.Context(), "process_resident_memory_bytes")
	must.Do(m.t, err)

	before, began := count("rest_client_requests_total"), time.Now()
	from := round * resumedOfEachKind
	m.names = nil
	for i := range resumedOfEachKind {
		m.names = append(m.names, fmt.Sprintf("it-%d", from+i))
	}
	m.each(func(k kind, name string) {
		k.patch(name, `{"metadata":{"annotations":{"rolewright.dev/paused":null}},"spec":{"replicas":4}}`)
	})
	m.awaitReady()
	ran := time.Since(began)
	requests := (count("rest_client_requests_total") - before) / float64(len(m.kinds)*resumedOfEachKind)

	over := "-"
	if replicas > 1 {
		all[0].signal(syscall.SIGKILL)
		killed := time.Now()
		all[0].exit()
		all = all[1:]
		served()
		over = fmt.Sprintf("%.1f", time.Since(killed).Seconds())
	}
	for _, o := range all {
		o.stop()
	}
	fmt.Printf("| %d | %.1f | %.0f | %.0f | %.0f | %.1f | %.1f | %s |\n", replicas, took.Seconds(), most/(1<<20), least/(1<<20), writes, ran.Seconds(), requests, over)
}

// until waits for what takes minutes with as many objects as one likes. The metrics name each object, and are not read more often than
// Prometheus would.
func (m *manyObjects) until(reached func(context.Context) bool) {
	m.t.Helper()
	must.Do(m.t, wait.PollUntilContextTimeout(m.t.Context(), 5*time.Second, 20*time.Minute, true, func(ctx context.Context) (bool, error) {
		return reached(ctx), nil
	}))
}
