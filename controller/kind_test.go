package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// crdObject returns the CustomResourceDefinition of gvk as it is installed.
func crdObject(t *testing.T, c client.Client, gvk schema.GroupVersionKind) *unstructured.Unstructured {
	t.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinitionList"))
	must.Do(t, c.List(t.Context(), list))
	for _, item := range list.Items {
		group, _, _ := unstructured.NestedString(item.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(item.Object, "spec", "names", "kind")
		if group == gvk.Group && kind == gvk.Kind {
			return &item
		}
	}
	t.Fatalf("no CustomResourceDefinition for %s", gvk)
	return nil
}

// reinstall creates the CustomResourceDefinition of gvk again.
func reinstall(t *testing.T, c client.Client, crd *unstructured.Unstructured) {
	t.Helper()
	next := &unstructured.Unstructured{Object: map[string]any{"spec": crd.Object["spec"]}}
	next.SetGroupVersionKind(crd.GroupVersionKind())
	next.SetName(crd.GetName())
	eventually(t, "the CustomResourceDefinition is back", func() bool {
		return c.Create(t.Context(), next.DeepCopy()) == nil
	})
	t.Cleanup(func() { _ = c.Delete(context.Background(), next) })
}

// The operator waits for a kind that is missing, or that is removed and comes back. The other kinds are served meanwhile.
func TestKind_LifeCycleOfTheDefinition(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c := clientOf(t, cfg)
	gone, other, ns := testenv.CRD(t, cfg), testenv.CRD(t, cfg), testenv.Namespace(t, cfg)
	crd := crdObject(t, c, gone)
	must.Do(t, c.Delete(t.Context(), crd.DeepCopy()))
	eventually(t, "the kind is gone", func() bool {
		return c.List(t.Context(), listOf(gone)) != nil
	})
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gone), watchOf(other)}})
	first := create(t, c, object(other, ns, "before", map[string]any{}))
	awaitCondition(t, c, first, status.Ready, "True")
	eventually(t, "the operator is ready while a kind is not installed", func() bool { return o.set.Ready() == nil })

	reinstall(t, c, crd)
	var obj *unstructured.Unstructured
	eventually(t, "an object of the kind is accepted", func() bool {
		obj = object(gone, ns, "one", map[string]any{})
		return c.Create(t.Context(), obj) == nil
	})
	awaitCondition(t, c, obj, status.Ready, "True")

	must.Do(t, c.Delete(t.Context(), crdObject(t, c, gone)))
	eventually(t, "the log says that the kind is gone", func() bool {
		return strings.Count(o.log(), "Waiting for kind to be installed") == 2
	})
	still := create(t, c, object(other, ns, "meanwhile", map[string]any{}))
	awaitCondition(t, c, still, status.Ready, "True")

	reinstall(t, c, crd)
	eventually(t, "an object of the kind is accepted again", func() bool {
		obj = object(gone, ns, "two", map[string]any{})
		return c.Create(t.Context(), obj) == nil
	})
	awaitCondition(t, c, obj, status.Ready, "True")
}

// An API server that has just started may not know a kind for a moment. That stops no run.
func TestKind_OneNotFoundStopsNoRun(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var armed atomic.Bool
	var looks atomic.Int64
	starting := refusing(cfg, http.StatusNotFound, func(req *http.Request) bool {
		return armed.Load() && req.URL.Path == "/apis/"+gvk.Group+"/"+gvk.Version && looks.Add(1) == 1
	})
	exec, began := hanging()
	o := start(t, starting, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	create(t, c, object(gvk, ns, "one", map[string]any{}))
	<-began
	armed.Store(true)
	eventually(t, "it was looked at again", func() bool { return looks.Load() > 2 })
	if log := o.log(); strings.Contains(log, "Waiting for kind to be installed") {
		t.Errorf("the kind was given up:\n%s", log)
	}
}

func listOf(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	return list
}

// Two groups may have one kind and version, which ansible-operator refuses.
func TestKind_TwoGroupsWithOneKind(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c := clientOf(t, cfg)
	a, b, ns := testenv.CRD(t, cfg), testenv.CRD(t, cfg), testenv.Namespace(t, cfg)
	if a.Kind != b.Kind || a.Version != b.Version || a.Group == b.Group {
		t.Fatalf("%s and %s do not make the case", a, b)
	}
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(a), watchOf(b)}})
	awaitCondition(t, c, create(t, c, object(a, ns, "one", nil)), status.Ready, "True")
	awaitCondition(t, c, create(t, c, object(b, ns, "one", nil)), status.Ready, "True")
	if n := exec.count(); n != 2 {
		t.Errorf("%d runs, want one per object", n)
	}
}

// If the operator may not read a kind, the log says what to grant. The other kinds are served.
func TestKind_MissingPermission(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c := clientOf(t, cfg)
	denied, granted, ns := testenv.CRD(t, cfg), testenv.CRD(t, cfg), testenv.Namespace(t, cfg)
	limited := testenv.User(t, cfg, []rbacv1.PolicyRule{{
		APIGroups: []string{granted.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	}})
	o := start(t, limited, &fakeExecutor{}, Options{Watches: []watches.Watch{watchOf(denied), watchOf(granted)}})
	awaitCondition(t, c, create(t, c, object(granted, ns, "one", nil)), status.Ready, "True")
	eventually(t, "readiness names the kind", func() bool {
		err := o.set.Ready()
		return err != nil && strings.Contains(err.Error(), denied.Group) && strings.Contains(err.Error(), "grant the operator get, list, watch, patch of status on ")
	})
	if strings.Contains(o.set.Ready().Error(), granted.Group) {
		t.Errorf("readiness blames a kind that is served: %v", o.set.Ready())
	}
}

// If the first list fails, the kind is not served, and the operator says why. A permission that is removed later, or is
// given back, is noticed at the next list or watch.
func TestKind_ListFails(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var broken atomic.Bool
	broken.Store(true)
	limited, withdraw := withdrawing(cfg, "")
	faulty := refusing(limited, http.StatusInternalServerError, func(req *http.Request) bool {
		return broken.Load() && strings.HasSuffix(req.URL.Path, "/widgets")
	})
	o := start(t, faulty, &fakeExecutor{}, Options{Watches: []watches.Watch{watchOf(gvk)}})
	state := func(why string) {
		t.Helper()
		eventually(t, "the kind is not served: "+why, func() bool {
			err := o.set.Ready()
			return err != nil && strings.Contains(err.Error(), why)
		})
	}
	state("list the objects: ")
	broken.Store(false)
	obj := awaitCondition(t, c, create(t, c, object(gvk, ns, "one", nil)), status.Ready, "True")
	eventually(t, "the kind is served", func() bool { return o.set.Ready() == nil })
	withdraw(true)
	state("changes of objects are not seen: no permission: grant the operator get, list, watch")
	withdraw(false)
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "the change is run, and the kind served", func() bool {
		return get(t, c, obj).Object["status"].(map[string]any)["observedGeneration"] == int64(2) && o.set.Ready() == nil
	})
}

// The kind is served, and the operator is ready, as long as it can see the objects of one namespace.
func TestKind_ListFailsInOneNamespace(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, kept := installed(t)
	lost := testenv.Namespace(t, cfg)
	limited, withdraw := withdrawing(cfg, lost)
	o := start(t, limited, &fakeExecutor{}, Options{Watches: []watches.Watch{watchOf(gvk)}, Namespaces: []string{lost, kept}})
	obj := awaitCondition(t, c, create(t, c, object(gvk, lost, "one", nil)), status.Ready, "True")
	withdraw(true)
	const says = "Kind is not served in all namespaces; it is in the others"
	eventually(t, "the log names the namespace", func() bool {
		return strings.Contains(o.log(), says) && strings.Contains(o.log(), `namespace \"`+lost)
	})
	must.Be(t, "the state of the kind", nil, o.set.Ready())
	awaitCondition(t, c, create(t, c, object(gvk, kept, "one", nil)), status.Ready, "True")
	withdraw(false)
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "the change is run", func() bool {
		return get(t, c, obj).Object["status"].(map[string]any)["observedGeneration"] == int64(2)
	})
}

// If a conversion webhook does not answer, the API server cannot list the objects.
func TestKind_CannotBeListed(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	lists := &denial{resource: "widgets", code: http.StatusInternalServerError}
	o := start(t, through(cfg, lists.roundTrip), &fakeExecutor{}, Options{Watches: []watches.Watch{watchOf(gvk)}})
	awaitCondition(t, c, create(t, c, object(gvk, ns, "one", nil)), status.Ready, "True")
	lists.set(true)
	eventually(t, "the kind is not ready", func() bool { return o.set.Ready() != nil })
	lists.set(false)
	eventually(t, "the kind is ready", func() bool { return o.set.Ready() == nil })
	awaitCondition(t, c, create(t, c, object(gvk, ns, "two", nil)), status.Ready, "True")
}

// withdrawing returns cfg and a function that takes away the permission to see widgets, in one namespace or in all, and
// ends their watches.
func withdrawing(cfg *rest.Config, namespace string) (limited *rest.Config, withdraw func(on bool)) {
	var withdrawn atomic.Bool
	lists := &denial{resource: path.Join("/", namespace, "widgets")[1:]}
	limited = through(through(cfg, lists.roundTrip), func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !withdrawn.Load() || !strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews") {
			return next.RoundTrip(req)
		}
		body, err := io.ReadAll(req.Body)
		if err == nil && bytes.Contains(body, []byte(namespace)) {
			return answer(req, http.StatusCreated, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":false}}`), nil
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
		return next.RoundTrip(req)
	})
	return limited, func(on bool) {
		withdrawn.Store(on)
		lists.set(on)
	}
}

// If the operator may not patch the finalizer onto an object, as with the permissions of an older operator, it says what
// to grant. No run is made, because the object could be deleted without its finalizer run.
func TestKind_FinalizerWithoutPatch(t *testing.T) {
	t.Parallel()
	cfg, _, gvk, ns := installed(t)
	limited := testenv.User(t, cfg, []rbacv1.PolicyRule{
		{APIGroups: []string{gvk.Group}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch", "update"}},
		{APIGroups: []string{gvk.Group}, Resources: []string{"widgets/status"}, Verbs: []string{"*"}},
	})
	exec := &fakeExecutor{}
	o := start(t, limited, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}}
	})}})
	c := clientOf(t, cfg)
	obj := create(t, c, object(gvk, ns, "one", nil))
	eventually(t, "the error names what to grant", func() bool {
		return strings.Contains(o.log(), "add the finalizer: ") && strings.Contains(o.log(), `grant the operator patch on widgets in group \"`+gvk.Group)
	})
	is := condition(awaitCondition(t, c, obj, status.Reconciling, "True"), status.Reconciling)
	if is["reason"] != "FinalizerRefused" || !strings.Contains(fmt.Sprint(is["message"]), "grant the operator patch on widgets") {
		t.Errorf("condition = %v", is)
	}
	tries := o.count("PATCH")
	eventually(t, "more tries", func() bool { return o.count("PATCH") > tries+1 })
	must.Be(t, "writes of the status", int64(1), o.count("PATCH status"))
	must.Be(t, "runs", 0, exec.count())
}

// Without a status subresource there is a message, no write, and no loop.
func TestKind_WithoutStatusSubresource(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t, testenv.WithoutStatus())
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	create(t, c, object(gvk, ns, "one", map[string]any{}))
	eventually(t, "the run", func() bool { return exec.count() == 1 })
	settle()
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
	if !strings.Contains(o.log(), "add subresources.status to its CustomResourceDefinition") {
		t.Error("the log does not say what to do")
	}
	if n := o.count("PATCH status") + o.count("PATCH"); n != 0 {
		t.Errorf("%d writes, want none", n)
	}
}

// prunesSummary is a schema that keeps only the conditions of a status.
func prunesSummary() testenv.CRDOption {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	return testenv.WithSchema(apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}},
			"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"conditions": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text,
						"observedGeneration": {Type: "integer"},
					}}}},
			}},
		},
	})
}

// If the schema drops the summary, there is a message, and no loop.
func TestKind_SchemaThatPrunesTheSummary(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t, prunesSummary())
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"size": int64(1)}))
	awaitCondition(t, c, obj, status.Ready, "True")
	settle()
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
	if n := o.count("PATCH status"); n != 2 {
		t.Errorf("%d status writes, want 2", n)
	}
	for _, name := range []string{"another", "a-third"} {
		awaitCondition(t, c, create(t, c, object(gvk, ns, name, nil)), status.Ready, "True")
	}
	if n := strings.Count(o.log(), "schema drops status.ansible"); n != 1 {
		t.Errorf("the log says %d times that the summaries of three objects are dropped, want once", n)
	}
	if strings.Contains(o.log(), "unknown field") {
		t.Errorf("the log has warnings of the API server:\n%s", o.log())
	}
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	awaitCondition(t, c, obj, status.Ready, "True")

	// After a restart, the object counts as run before, however little is known about it. An object that was created or
	// changed meanwhile runs with its own cause.
	edited := create(t, c, object(gvk, ns, "edited", map[string]any{"size": int64(1)}))
	awaitCondition(t, c, edited, status.Ready, "True")
	o.stop()
	create(t, c, object(gvk, ns, "late", nil))
	update(t, c, edited, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	o = start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	for name, why := range map[string]cause{"one": causeRestart, "late": causeCreated, "edited": causeChanged, "next": causeCreated} {
		if name == "next" {
			create(t, c, object(gvk, ns, name, nil))
		}
		starts := regexp.MustCompile(`"Run starts" .*"name"="` + name + `" .*"cause"="` + string(why) + `"`)
		eventually(t, name+" runs for "+string(why), func() bool { return starts.MatchString(o.log()) })
	}
}

// If the schema refuses the conditions, there is a message, and the run still counts.
func TestKind_SchemaThatRefusesTheStatus(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t, testenv.WithSchema(apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec":   {Type: "object"},
			"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"conditions": {Type: "string"}}},
		},
	}))
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	create(t, c, object(gvk, ns, "one", map[string]any{}))
	eventually(t, "the refusal is logged", func() bool { return strings.Contains(o.log(), "Status is refused") })
	settle()
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// An object without room left gets its conditions, and no loop.
func TestReconcile_ObjectAtTheSizeLimit(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var obj *unstructured.Unstructured
	// The limit is etcd's. Find it from above.
	for size := 1_572_864; obj == nil; size -= 256 {
		try := object(gvk, ns, "big", map[string]any{"fill": strings.Repeat("x", size)})
		if c.Create(t.Context(), try) == nil {
			obj = try
		}
		if size < 1_400_000 {
			t.Fatal("no size is accepted")
		}
	}
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	eventually(t, "the run", func() bool { return exec.count() == 1 })
	eventually(t, "the log says so", func() bool { return strings.Contains(o.log(), "does not fit") })
	settle()
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
	if n := o.count("PATCH status"); n > 8 {
		t.Errorf("%d attempts to write a status that has no room", n)
	}
}

// A run in progress may end while the operator stops, and its result is written.
func TestShutdown_WaitsForTheRunAndWritesItsResult(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	begun, release := make(chan struct{}), make(chan struct{})
	exec := &fakeExecutor{do: func(ctx context.Context, _ runner.Request) (runner.Result, error) {
		close(begun)
		select {
		case <-release:
			return succeeded(), nil
		case <-ctx.Done():
			return runner.Result{}, fmt.Errorf("cut short: %w", context.Cause(ctx))
		}
	}}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}, GracefulShutdown: time.Minute})
	obj := create(t, c, object(gvk, ns, "one", nil))
	<-begun
	o.cancel()
	eventually(t, "the operator stops", func() bool { return strings.Contains(o.log(), "Stopping and waiting for leader election runnables") })
	close(release)
	o.stop()
	is := get(t, c, obj)
	if cond := condition(is, status.Ready); cond["status"] != "True" {
		t.Errorf("Ready = %v after the operator stopped", cond)
	}
}

// A run that exceeds the graceful shutdown timeout is stopped, recorded, and repeated.
func TestShutdown_InterruptedRunIsRecordedAndRepeated(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	begun := make(chan struct{})
	exec := &fakeExecutor{do: func(ctx context.Context, _ runner.Request) (runner.Result, error) {
		close(begun)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), ErrShutdown) {
			t.Errorf("cause = %v", context.Cause(ctx))
		}
		return runner.Result{Finished: time.Now()}, fmt.Errorf("cut short: %w", context.Cause(ctx))
	}}
	opts := Options{Watches: []watches.Watch{watchOf(gvk)}, GracefulShutdown: 9 * time.Second}
	o := start(t, cfg, exec, opts)
	obj := create(t, c, object(gvk, ns, "one", nil))
	<-begun
	o.stop()
	is := get(t, c, obj)
	last, ok := lastRun(is.Object["status"].(map[string]any))
	if !ok || last.Result != status.Interrupted || hasActiveRun(is.Object["status"].(map[string]any)) {
		t.Errorf("lastRun = %+v", last)
	}
	start(t, cfg, &fakeExecutor{}, opts)
	is = awaitCondition(t, c, obj, status.Ready, "True")
	if last, _ = lastRun(is.Object["status"].(map[string]any)); last.Cause != "interrupted" {
		t.Errorf("repeated for %q", last.Cause)
	}
}

// A run whose start is being recorded when the operator is asked to end is not started, and is not lost either.
func TestShutdown_RunIsNotLostWhileItsStartIsRecorded(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	written, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	slow := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		answered, err := next.RoundTrip(req)
		if err == nil && writesStatus(req) {
			once.Do(func() {
				close(written)
				<-answer
				if err = req.Context().Err(); err != nil {
					_ = answered.Body.Close()
					answered = nil
				}
			})
		}
		return answered, err
	})
	exec := &fakeExecutor{}
	opts := Options{Watches: []watches.Watch{watchOf(gvk)}}
	o := start(t, slow, exec, opts)
	obj := create(t, c, object(gvk, ns, "one", nil))
	<-written
	o.cancel()
	eventually(t, "the controller knows", func() bool { return strings.Contains(o.log(), "Shutdown signal received") })
	close(answer)
	o.stop()
	must.Be(t, "runs", 0, exec.count())
	st := get(t, c, obj).Object["status"].(map[string]any)
	if last, ok := lastRun(st); !ok || last.Reason != string(status.Interrupted) || hasActiveRun(st) {
		t.Errorf("status: %v", st)
	}
	start(t, cfg, exec, opts)
	awaitCondition(t, c, obj, status.Ready, "True")
}

// A run that a killed operator left recorded as begun is made good.
func TestReconcile_RunThatNobodyEndedIsRepeated(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	opts := Options{Watches: []watches.Watch{watchOf(gvk)}}
	o := start(t, cfg, &fakeExecutor{}, opts)
	obj := create(t, c, object(gvk, ns, "one", nil))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	o.stop()
	is.Object["status"] = status.Begin(is.Object["status"].(map[string]any),
		status.Active{ID: newUID(), Cause: "period", Generation: is.GetGeneration(), Started: time.Now()}, false, time.Now())
	must.Do(t, c.Status().Update(t.Context(), is))
	exec := &fakeExecutor{}
	start(t, cfg, exec, opts)
	eventually(t, "the lost run is made good", func() bool {
		st := get(t, c, obj).Object["status"].(map[string]any)
		last, _ := lastRun(st)
		return last.Cause == "interrupted" && last.Result == status.Succeeded && !hasActiveRun(st)
	})
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// Progress is written while the run is in progress, at a limited rate.
func TestReconcile_ProgressIsWrittenAtABoundedRate(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	release := make(chan struct{})
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		for i := 0; ; i++ {
			req.OnEvent(taskStart(i))
			select {
			case <-release:
				return succeeded(), nil
			case <-time.After(time.Millisecond):
			}
		}
	}}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}, ProgressInterval: 500 * time.Millisecond})
	began := time.Now()
	obj := create(t, c, object(gvk, ns, "one", nil))
	shown := map[string]bool{}
	eventually(t, "the current task is shown, then another and another", func() bool {
		task, _, _ := unstructured.NestedStringMap(get(t, c, obj).Object, "status", "ansible", "activeRun", "task")
		if strings.HasPrefix(task["name"], "task ") && strings.HasPrefix(task["path"], "main.yml:") {
			shown[task["name"]] = true
		}
		return len(shown) == 3
	})
	close(release)
	is := awaitCondition(t, c, obj, status.Ready, "True")
	most := int64(time.Since(began)/(500*time.Millisecond)) + 2
	if n := o.count("PATCH status"); n > most {
		t.Errorf("%d status writes, want at most %d", n, most)
	}
	if hasActiveRun(is.Object["status"].(map[string]any)) {
		t.Error("the progress of an ended run is still shown")
	}
}

// Wrong periods and annotations are reported and ignored, and stop nothing.
func TestReconcile_BadAnnotationsAreReported(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := object(gvk, ns, "one", map[string]any{})
	obj.SetAnnotations(map[string]string{
		incumbentPrefix + "reconcile-period":     "soon",
		incumbentPrefix + "max-runner-artifacts": "many",
		ownPrefix + "verbosity":                  "loud",
	})
	is := awaitCondition(t, c, create(t, c, obj), status.Ready, "True")
	warnings, _, _ := unstructured.NestedStringSlice(is.Object, "status", "ansible", "warnings")
	all := strings.Join(warnings, "\n")
	for _, want := range []string{
		`annotation ansible.sdk.operatorframework.io/reconcile-period: "soon" is not a duration; write for example "30s"`,
		`annotation ansible.sdk.operatorframework.io/max-runner-artifacts: "many" is not a number`,
		`annotation rolewright.dev/verbosity: "loud" is not a number from 0 to 7`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no warning %q in:\n%s", want, all)
		}
	}
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// What annotations ask for is limited by the watch, unless it trusts them. A warning says what is ignored.
func TestAnnotated(t *testing.T) {
	base := settings{period: time.Hour, artifacts: 20, verbosity: 2, timeout: time.Hour, idleTimeout: time.Minute}
	none := settings{period: time.Hour, artifacts: -1, verbosity: 2}
	onlyCheck := settings{mode: watches.ModeCheck}
	but := func(s settings, change func(*settings)) settings {
		change(&s)
		return s
	}
	type all = map[string]string
	tests := []struct {
		name        string
		annotations all
		watch       settings
		trusted     bool
		change      func(*settings) // of the watch's
		warning     string          // empty: none
	}{
		{"none", nil, base, false, func(*settings) {}, ""},
		{"ansible-operator's period", all{incumbentPrefix + "reconcile-period": "5m"}, base, false, func(s *settings) { s.period = 5 * time.Minute }, ""},
		{"helm-operator's period", all{chartPrefix + "reconcile-period": "5m"}, base, false, func(s *settings) { s.period = 5 * time.Minute }, ""},
		{"ours wins", all{incumbentPrefix + "reconcile-period": "5m", ownPrefix + "reconcile-period": "6m"}, base, false,
			func(s *settings) { s.period = 6 * time.Minute }, ""},
		{"seconds", all{ownPrefix + "reconcile-period": "90"}, base, false, func(s *settings) { s.period = 90 * time.Second }, ""},
		{"zero disables", all{ownPrefix + "reconcile-period": "0"}, base, false, func(s *settings) { s.period = 0 }, ""},
		{"negative disables", all{ownPrefix + "reconcile-period": "-3s"}, base, false, func(s *settings) { s.period = 0 }, ""},
		{"long", all{ownPrefix + "reconcile-period": "999999h"}, base, false, func(s *settings) { s.period = maxPeriod }, ""},
		{"floor", all{ownPrefix + "reconcile-period": "1ms"}, base, false, func(s *settings) { s.period = minPeriod }, `"1ms" is too short; the minimum, 1s, is used instead`},
		{"floor, trusted", all{ownPrefix + "reconcile-period": "1ms"}, base, true, func(s *settings) { s.period = minPeriod }, `"1ms" is too short; the minimum, 1s, is used instead`},

		{"shorter", all{ownPrefix + "timeout": "10m", ownPrefix + "idle-timeout": "30"}, base, false,
			func(s *settings) { s.timeout, s.idleTimeout = 10*time.Minute, 30*time.Second }, ""},
		{"no timeout", all{ownPrefix + "timeout": "0"}, base, false, func(*settings) {},
			`"0" asks for more than the watch allows; the limit of the watch, 1h0m0s, is used instead; to allow more, set "annotations: trusted" in the watch`},
		{"negative timeout", all{ownPrefix + "timeout": "-1s"}, base, false, func(*settings) {}, "the limit of the watch, 1h0m0s, is used instead"},
		{"longer", all{ownPrefix + "timeout": "1h1s"}, base, false, func(*settings) {}, "the limit of the watch, 1h0m0s, is used instead"},
		{"longer idle", all{ownPrefix + "idle-timeout": "2m"}, base, false, func(*settings) {}, "the limit of the watch, 1m0s, is used instead"},
		{"longer, trusted", all{ownPrefix + "timeout": "0", ownPrefix + "idle-timeout": "2m"}, base, true,
			func(s *settings) { s.timeout, s.idleTimeout = 0, 2*time.Minute }, ""},
		{"a limit where the watch has none", all{ownPrefix + "timeout": "9h", ownPrefix + "idle-timeout": "0", ownPrefix + "max-runner-artifacts": "7"}, none, false,
			func(s *settings) { s.timeout, s.artifacts = 9*time.Hour, 7 }, ""},

		{"fewer artifacts", all{incumbentPrefix + "max-runner-artifacts": "5"}, base, false, func(s *settings) { s.artifacts = 5 }, ""},
		{"0 artifacts are all", all{incumbentPrefix + "max-runner-artifacts": "0"}, base, false, func(*settings) {}, `"0" asks for more than the watch allows; the limit of the watch, 20, is used instead`},
		{"more artifacts", all{ownPrefix + "max-runner-artifacts": "21"}, base, false, func(*settings) {}, "the limit of the watch, 20, is used instead"},
		{"0 artifacts are all, trusted", all{incumbentPrefix + "max-runner-artifacts": "0"}, base, true, func(s *settings) { s.artifacts = -1 }, ""},
		{"all of all", all{incumbentPrefix + "max-runner-artifacts": "0"}, none, false, func(*settings) {}, ""},

		{"less verbosity", all{incumbentPrefix + "verbosity": "1"}, base, false, func(s *settings) { s.verbosity = 1 }, ""},
		{"verbosity 0", all{incumbentPrefix + "verbosity": "0"}, base, false, func(s *settings) { s.verbosity = 0 }, ""},
		{"more verbosity", all{incumbentPrefix + "verbosity": "7"}, base, false, func(s *settings) { s.verbosity = 7 }, ""},
		{"verbosity, trusted", all{incumbentPrefix + "verbosity": "99"}, base, true, func(s *settings) { s.verbosity, s.verbose = 7, true }, ""},

		{"paused", all{ownPrefix + "paused": "true"}, base, false, func(s *settings) { s.paused = forEver() }, ""},
		{"not paused", all{ownPrefix + "paused": "false"}, base, false, func(*settings) {}, ""},
		{"paused until", all{ownPrefix + "paused": "2026-05-06T18:00:00Z"}, base, false,
			func(s *settings) { s.paused = time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC) }, ""},
		{"cancel", all{ownPrefix + "cancel": "0b1c2d3e-4f50-4162-8374-8596a7b8c9da"}, base, false,
			func(s *settings) { s.cancelled = "0b1c2d3e-4f50-4162-8374-8596a7b8c9da" }, ""},
		{"cancel, as get runs -o name prints it", all{ownPrefix + "cancel": "run/0b1c2d3e-4f50-4162-8374-8596a7b8c9da"}, base, false,
			func(s *settings) { s.cancelled = "0b1c2d3e-4f50-4162-8374-8596a7b8c9da" }, ""},
		{"mode", all{ownPrefix + "mode": "check"}, base, false, func(s *settings) { s.mode = watches.ModeCheck }, ""},
		{"mode, trusted", all{ownPrefix + "mode": "apply"}, onlyCheck, true, func(s *settings) { s.mode = watches.ModeApply }, ""},
		{"more mode", all{ownPrefix + "mode": "checkThenApply"}, onlyCheck, false, func(*settings) {}, "mode check of the watch is used instead"},
		{"no mode", all{ownPrefix + "mode": "Check"}, base, true, func(s *settings) { s.mode = watches.ModeCheck },
			"the object is only checked until it is corrected"},
		{"orphan", all{ownPrefix + "orphan": "true"}, base, false, func(s *settings) { s.orphan = true }, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{}}
			obj.SetAnnotations(tt.annotations)
			got, warnings := annotated(obj, tt.watch, tt.trusted)
			if want := but(tt.watch, tt.change); got != want {
				t.Errorf("annotated = %+v, want %+v", got, want)
			}
			if said := strings.Join(warnings, "\n"); (said == "") != (tt.warning == "") || !strings.Contains(said, tt.warning) || strings.Contains(said, "ignored") {
				t.Errorf("warnings = %q, want one with %q", warnings, tt.warning)
			}
		})
	}
}
