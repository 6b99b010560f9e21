package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/test/testenv"
)

// timesEnv names the file to which the stub appends how long it took.
const timesEnv = "FAKERUNNER_TIMES"

const defaultIdleTime = 30 * time.Second

type options struct {
	binary     string
	stub       string
	part       string // empty for all
	quick      bool
	runs, idle int
	watch      time.Duration
	rest       time.Duration
	pairs      int
	configMaps int
	owned      int
	listing    time.Duration
	settling   time.Duration
	workloads  string
	workload   string // empty for all
	repeats    int
	objects    int
	rounds     int
	ended      int
	saved      int

	recorded, historyPairs int
}

// bench is one measurement on one cluster.
type bench struct {
	opts     options
	config   *rest.Config
	client   client.WithWatch
	dir      string
	operator *operator
	crd      *apiextensionsv1.CustomResourceDefinition
	// namespaces were made for a part of the measurement; seen are the runs whose access was borrowed.
	namespaces []*corev1.Namespace
	seen       map[string]bool
}

func thing() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "bench.rolewright.test", Version: "v1", Kind: "Thing"}
}

func prepare(ctx context.Context, opts options) (*bench, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of KUBECONFIG: %w; call `make bench`", err)
	}
	cfg.QPS = -1
	scheme := runtime.NewScheme()
	if err := errors.Join(apiextensionsv1.AddToScheme(scheme), corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), authenticationv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster: %w", err)
	}
	dir, err := os.MkdirTemp("", "rolewright-bench-")
	if err != nil {
		return nil, err
	}
	b := &bench{opts: opts, config: cfg, client: c, dir: dir, seen: map[string]bool{}}
	if err := b.content(); err != nil {
		return nil, err
	}
	if err := b.prepareWorkloads(ctx); err != nil {
		return nil, err
	}
	return b, b.install(ctx)
}

// content writes the project that the operator serves, and the stub.
func (b *bench) content() error {
	stub, err := filepath.Abs(b.opts.stub)
	if err != nil {
		return err
	}
	for _, dir := range []string{"bin", "roles/nothing/tasks"} {
		if err := os.MkdirAll(filepath.Join(b.dir, dir), 0o700); err != nil {
			return err
		}
	}
	if err := os.Symlink(stub, filepath.Join(b.dir, "bin", "ansible-runner")); err != nil {
		return err
	}
	watches := "- {group: bench.rolewright.test, version: v1, kind: Thing, role: nothing}\n"
	if err := os.WriteFile(filepath.Join(b.dir, "watches.yaml"), []byte(watches), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.dir, "roles/nothing/tasks/main.yml"), []byte("[]\n"), 0o600)
}

func (b *bench) install(ctx context.Context) error {
	b.crd = testenv.Definition(thing())
	if err := b.client.Create(ctx, b.crd); err != nil {
		return fmt.Errorf("install the kind: %w", err)
	}
	return wait(ctx, "the kind", func() bool {
		_, err := b.things(ctx)
		return err == nil
	})
}

func (b *bench) cleanUp() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.endLending(); err != nil {
		return err
	}
	if b.operator != nil {
		if err := b.operator.stop(); err != nil {
			return err
		}
	}
	for _, ns := range b.namespaces {
		if err := b.client.Delete(ctx, ns); err != nil {
			return err
		}
	}
	if err := client.IgnoreNotFound(b.client.Delete(ctx, b.crd)); err != nil {
		return err
	}
	return os.RemoveAll(b.dir)
}

// figures are repeated measurements of the same thing, in milliseconds.
type figures struct {
	name, reach string
	values      []float64
}

func (f figures) row() {
	v := slices.Sorted(slices.Values(f.values))
	fmt.Printf("%-58s %10.1f %10.1f %10.1f   %s\n", f.name, v[0], v[len(v)/2], v[len(v)-1], f.reach)
}

type pathFigures []figures

func (p pathFigures) print() {
	for _, f := range p {
		f.row()
	}
}

// measurePath creates objects one after the other, and measures the time until the
// watch shows that they are ready.
func (b *bench) measurePath(ctx context.Context) (pathFigures, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(thing())
	watch, err := b.client.Watch(ctx, list, client.InNamespace("default"))
	if err != nil {
		return nil, fmt.Errorf("watch the objects: %w", err)
	}
	defer watch.Stop()
	total := figures{name: "from the object's creation to its status, ms"}
	own := figures{name: "the same less the run itself: our own path, ms", reach: "30 / 10"}
	const warmUp = 5
	for i := range b.opts.runs + warmUp {
		name := fmt.Sprintf("path-%d", i)
		began := time.Now()
		if err := b.create(ctx, "default", name); err != nil {
			return nil, err
		}
		for event := range watch.ResultChan() {
			obj, ok := event.Object.(*unstructured.Unstructured)
			if !ok || obj.GetName() != name {
				continue
			}
			if result, _, _ := unstructured.NestedString(obj.Object, "status", "ansible", "lastRun", "result"); result == "Failed" {
				return nil, fmt.Errorf("the run of the stub failed: %v", obj.Object["status"])
			}
			if ready(obj) {
				break
			}
		}
		took := time.Since(began)
		run, err := b.lastRunTime()
		if err != nil {
			return nil, err
		}
		if i >= warmUp {
			total.values = append(total.values, ms(took))
			own.values = append(own.values, ms(took-run))
		}
	}
	return pathFigures{total, own}, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func newThing(namespace, name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"size": int64(3), "image": "memcached:1.6", "labels": map[string]any{"team": "a"},
	}}}
	obj.SetGroupVersionKind(thing())
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}

func (b *bench) create(ctx context.Context, namespace, name string) error {
	if err := b.client.Create(ctx, newThing(namespace, name)); err != nil {
		return fmt.Errorf("create an object: %w", err)
	}
	return nil
}

func (b *bench) things(ctx context.Context) ([]unstructured.Unstructured, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(thing())
	err := b.client.List(ctx, list)
	return list.Items, err
}

// awaitReady waits until all objects are ready.
func (b *bench) awaitReady(ctx context.Context) error {
	return wait(ctx, "the objects to be ready", func() bool {
		list, err := b.things(ctx)
		return err == nil && !slices.ContainsFunc(list, func(o unstructured.Unstructured) bool { return !ready(&o) })
	})
}

func ready(obj *unstructured.Unstructured) bool {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == "Ready" {
			return c["status"] == "True"
		}
	}
	return false
}

// lastRunTime returns how long the last stub took, according to itself.
func (b *bench) lastRunTime() (time.Duration, error) {
	data, err := os.ReadFile(b.times())
	if err != nil {
		return 0, fmt.Errorf("read the stub's times: %w", err)
	}
	lines := strings.Fields(string(data))
	ns, err := strconv.ParseInt(lines[len(lines)-1], 10, 64)
	return time.Duration(ns), err
}

func (b *bench) times() string { return filepath.Join(b.dir, "times") }

// runs counts the runs so far.
func (b *bench) runs() int {
	data, err := os.ReadFile(b.times())
	if err != nil {
		return 0
	}
	return bytes.Count(data, []byte("\n"))
}

type idleFigures struct {
	residentMiB, cpuPercent float64
	runs                    int
}

// measureIdle creates objects until there are enough, restarts the operator
// once they are ready, and measures while nothing happens.
func (b *bench) measureIdle(ctx context.Context) (idleFigures, error) {
	for i := b.runs(); i < b.opts.idle; i++ {
		if err := b.create(ctx, "default", fmt.Sprintf("idle-%d", i)); err != nil {
			return idleFigures{}, err
		}
	}
	if err := b.awaitReady(ctx); err != nil {
		return idleFigures{}, err
	}
	before := b.runs()
	if err := b.operator.stop(); err != nil {
		return idleFigures{}, err
	}
	if err := b.startOperator(ctx); err != nil {
		return idleFigures{}, err
	}
	time.Sleep(10 * time.Second) // the start itself is not idling
	was, err := b.operator.usage()
	if err != nil {
		return idleFigures{}, err
	}
	time.Sleep(b.opts.watch)
	is, err := b.operator.usage()
	if err != nil {
		return idleFigures{}, err
	}
	return idleFigures{
		residentMiB: is.residentMiB, runs: b.runs() - before,
		cpuPercent: 100 * (is.cpu - was.cpu).Seconds() / b.opts.watch.Seconds(),
	}, nil
}

func wait(ctx context.Context, what string, cond func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, fmt.Errorf("waited in vain for %s", what))
	defer cancel()
	for !cond() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
