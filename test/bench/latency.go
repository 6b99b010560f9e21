package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/rest"
)

// operation is a kind of request. call returns the i-th request by the way of that
// name: a write is for an object of this way only, and new each time.
type operation struct {
	name string
	call func(way string, i int) call
}

const (
	latencyNamespace = "bench-latency"
	mergePatch       = "application/merge-patch+json"
	applyPatch       = "application/apply-patch+yaml"
	// warmUp requests are not counted: during them, connections, caches and the watch on
	// the run's dependents are established.
	warmUp = 20
	// listedObjects is how many objects a list has.
	listedObjects = 100
)

func configMaps(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }

// configMap is the body of a ConfigMap of usual size.
func configMap(name string, i int) []byte {
	const text = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"labels":{"app":"bench"}},"data":{"number":"%d","text":%q}}`
	return fmt.Appendf(nil, text, name, i, strings.Repeat("x", 200))
}

// operations are the kinds of requests that are measured on kept connections.
func operations() []operation {
	path := configMaps(latencyNamespace)
	return []operation{
		{"GET a ConfigMap", func(string, int) call { return call{method: http.MethodGet, path: path + "/read"} }},
		{fmt.Sprintf("LIST %d ConfigMaps", listedObjects), func(string, int) call {
			return call{method: http.MethodGet, path: fmt.Sprintf("%s?limit=%d", path, listedObjects)}
		}},
		{"discovery, /apis/apps/v1", func(string, int) call { return call{method: http.MethodGet, path: "/apis/apps/v1"} }},
		{"POST, creates a ConfigMap", func(way string, i int) call {
			return call{http.MethodPost, path, "application/json", configMap(fmt.Sprintf("new-%s-%d", way, i), i)}
		}},
		{"PATCH, merge", func(way string, i int) call {
			return call{http.MethodPatch, path + "/merged-" + way, mergePatch, fmt.Appendf(nil, `{"data":{"number":"%d"}}`, i)}
		}},
		{"PATCH, server-side apply", func(way string, i int) call {
			return call{http.MethodPatch, path + "/applied-" + way + "?fieldManager=bench&force=true", applyPatch, configMap("applied-"+way, i)}
		}},
	}
}

// series are the times of one operation by one way, in milliseconds, or similar
// values.
type series []float64

// row prints quantiles of s.
func (s series) row(name, note string) {
	v := slices.Sorted(slices.Values(s))
	quantile := func(q float64) float64 { return v[min(int(q*float64(len(v))), len(v)-1)] }
	fmt.Printf("%-50s %9.2f %9.2f %9.2f %9.2f %9.2f   %s\n", name, v[0], quantile(0.5), quantile(0.9), quantile(0.99), v[len(v)-1], note)
}

// quartiles prints the quartiles of s, and the target to reach.
func (s series) quartiles(name, reach string) {
	v := slices.Sorted(slices.Values(s))
	n := len(v)
	fmt.Printf("%-50s %9.2f %9.2f %9.2f %9.2f %9.2f   %s\n", name, v[0], v[n/4], v[n/2], v[3*n/4], v[n-1], reach)
}

// less returns the differences of values that were measured in turn.
func (s series) less(other series) series {
	difference := make(series, len(s))
	for i := range s {
		difference[i] = s[i] - other[i]
	}
	return difference
}

func header(title string) {
	fmt.Printf("\n%-50s %9s %9s %9s %9s %9s\n", title, "min", "median", "p90", "p99", "max")
}

// latency measures what the way through an operator's API proxy adds to
// requests of a run.
func (b *bench) latency(ctx context.Context) error {
	if err := b.startLending(ctx, latencyNamespace, 1); err != nil {
		return err
	}
	run, err := b.borrow(ctx, latencyNamespace, "owner")
	if err != nil {
		return err
	}
	if err := b.furnish(ctx, run.config); err != nil {
		return err
	}
	if err := b.keptConnections(ctx, run.config); err != nil {
		return err
	}
	if err := b.freshConnections(ctx, run.config); err != nil {
		return err
	}
	if err := b.pythonClients(ctx, run); err != nil {
		return err
	}
	return run.end()
}

// furnish makes the objects that are read and patched.
func (b *bench) furnish(ctx context.Context, proxied *rest.Config) error {
	direct, through, err := b.bothEnds(proxied)
	if err != nil {
		return err
	}
	for i := range listedObjects - 2 {
		if err := direct.createConfigMap(ctx, latencyNamespace, fmt.Sprintf("listed-%d", i), i); err != nil {
			return err
		}
	}
	return errors.Join(
		direct.createConfigMap(ctx, latencyNamespace, "read", 0),
		direct.createConfigMap(ctx, latencyNamespace, "merged-direct", 0),
		through.createConfigMap(ctx, latencyNamespace, "merged-proxied", 0),
	)
}

// keptConnections compares requests on connections that are kept, as a client in
// one process makes them.
func (b *bench) keptConnections(ctx context.Context, proxied *rest.Config) error {
	header(fmt.Sprintf("one request, kept connection, %d pairs, ms", b.opts.pairs))
	for _, op := range operations() {
		direct, through, err := b.bothEnds(proxied)
		if err != nil {
			return err
		}
		times, cpu, err := b.inTurn(ctx, op, direct, through)
		if err != nil {
			return err
		}
		times[0].row(op.name+", direct", "")
		times[1].row("  proxied", "")
		times[1].less(times[0]).row("  difference", fmt.Sprintf("CPU of the operator: %.2f", cpu))
	}
	return nil
}

// freshConnections compares requests that each make a new connection, as the tasks
// of a play do.
func (b *bench) freshConnections(ctx context.Context, proxied *rest.Config) error {
	header(fmt.Sprintf("one GET, fresh connection, %d times, ms", b.opts.pairs))
	var ends []*end
	for _, e := range []struct {
		name   string
		config *rest.Config
	}{{"direct, TLS", b.config}, {"proxied, TLS", proxied}, {"proxied, plain", plain(proxied)}} {
		fresh, err := newEnd(e.name, e.config, true)
		if err != nil {
			return err
		}
		ends = append(ends, fresh)
	}
	times, _, err := b.inTurn(ctx, operations()[0], ends...)
	if err != nil {
		return err
	}
	for i, s := range times {
		s.row(ends[i].name, "")
	}
	times[1].less(times[0]).row("  difference, TLS", "")
	times[2].less(times[0]).row("  difference, plain", "")
	return nil
}

// inTurn makes requests of one kind by all ways in turn, in changing order.
// The second result is the operator's CPU time per turn, in milliseconds.
func (b *bench) inTurn(ctx context.Context, op operation, ends ...*end) ([]series, float64, error) {
	times := make([]series, len(ends))
	var before usage
	for i := range b.opts.pairs + warmUp {
		if i == warmUp {
			var err error
			if before, err = b.operator.usage(); err != nil {
				return nil, 0, err
			}
		}
		for k := range ends {
			which := (i + k) % len(ends)
			took, err := ends[which].do(ctx, op.call(ends[which].name, i))
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", op.name, err)
			}
			if i >= warmUp {
				times[which] = append(times[which], took)
			}
		}
	}
	after, err := b.operator.usage()
	return times, ms(after.cpu-before.cpu) / float64(b.opts.pairs), err
}
