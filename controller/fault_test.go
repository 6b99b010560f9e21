package controller

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func withFinalizer(w *watches.Watch) {
	w.Finalizer = &watches.Finalizer{Name: "example.com/finalizer", Content: watches.Content{Role: "testdata/roles/finalizer"}}
}

// A successful finalizer run is not repeated if its record cannot be written. A result that cannot be written is written
// later, without another run.
func TestReconcile_ResultIsWrittenLaterAndTheRunNotRepeated(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	var broken atomic.Int32 // while this many runs have been made, status writes fail
	faulty := refusing(cfg, http.StatusInternalServerError, func(req *http.Request) bool {
		return exec.count() == int(broken.Load()) && strings.HasSuffix(req.URL.Path, "/status")
	})
	broken.Store(1)
	start(t, faulty, exec, Options{Watches: []watches.Watch{watchOf(gvk, withFinalizer)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	eventually(t, "the run", func() bool { return exec.count() == 1 })
	settle()
	broken.Store(2)
	is := awaitCondition(t, c, obj, status.Ready, "True")
	if n := exec.count(); n != 1 {
		t.Fatalf("%d runs, want 1", n)
	}
	must.Do(t, c.Delete(t.Context(), is))
	eventually(t, "the finalizer run", func() bool { return exec.count() == 2 })
	settle()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(obj), is); err != nil {
		t.Errorf("the object goes before the end of its finalizer run is recorded: %v", err)
	}
	broken.Store(0)
	eventually(t, "the object goes", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), object(gvk, ns, "one", nil)))
	})
	if n := exec.count(); n != 2 {
		t.Errorf("%d runs, want 2: one, and one for the finalizer", n)
	}
	exec.mu.Lock()
	defer exec.mu.Unlock()
	if want := []string{exec.runs[0].ID, exec.runs[1].ID}; !slices.Equal(exec.forgotten, want) {
		t.Errorf("what the cluster has of the runs %q is removed, want %q, once each", exec.forgotten, want)
	}
}

// An object that no longer matches the selector is still released when it is deleted. A client that replaces the object
// with a manifest removes the finalizer.
func TestReconcile_FinalizerComesBack(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, withFinalizer)}})
	obj := create(t, c, object(gvk, ns, "it", map[string]any{}))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	update(t, c, obj, func(is map[string]any) { delete(is["metadata"].(map[string]any), "finalizers") })
	eventually(t, "the finalizer is there again", func() bool { return slices.Equal(get(t, c, obj).GetFinalizers(), is.GetFinalizers()) })
	must.Be(t, "finalizers", 1, len(is.GetFinalizers()))
	quiet(t, exec, 1, "it starts no run")
}

func TestReconcile_FinalizerOfAnObjectThatLeftTheSelector(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, withFinalizer, func(w *watches.Watch) {
		w.Selector.MatchLabels = map[string]string{"tier": "gold"}
	})}})
	obj := object(gvk, ns, "one", map[string]any{})
	obj.SetLabels(map[string]string{"tier": "gold"})
	create(t, c, obj)
	awaitCondition(t, c, obj, status.Ready, "True")
	update(t, c, obj, func(m map[string]any) { delete(m["metadata"].(map[string]any), "labels") })
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	settle()
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs, want 1: it does not match any more", n)
	}
	must.Do(t, c.Delete(t.Context(), obj))
	eventually(t, "the object goes", func() bool {
		return apierrors.IsNotFound(c.Get(t.Context(), client.ObjectKeyFromObject(obj), object(gvk, ns, "one", nil)))
	})
}

// If the schema allows only ansible-operator's conditions, these are kept.
func TestKind_SchemaThatAllowsTheIncumbentsConditionsOnly(t *testing.T) {
	t.Parallel()
	keep := true
	cfg, c, gvk, ns := installed(t, testenv.WithSchema(apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", XPreserveUnknownFields: &keep},
			"status": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"conditions": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"type": {Type: "string", Enum: []apiextensionsv1.JSON{
						{Raw: []byte(`"Running"`)}, {Raw: []byte(`"Successful"`)}, {Raw: []byte(`"Failure"`)},
					}}},
				}}}},
			},
		},
	}))
	exec := &fakeExecutor{}
	o := start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{"size": int64(1)}))
	eventually(t, "the success is shown", func() bool {
		return condition(get(t, c, obj), status.Successful)["status"] == "True"
	})
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "the change is run", func() bool {
		return exec.count() == 2 && condition(get(t, c, obj), status.Running)["reason"] == "Successful"
	})
	if n := strings.Count(o.log(), "only Running, Successful and Failure are written"); n != 1 {
		t.Errorf("the log says so %d times, want once", n)
	}
}

// If other clients have filled the status of one object so that no condition fits, only that object loses its conditions.
func TestKind_StatusOfOneObjectWithoutRoom(t *testing.T) {
	t.Parallel()
	keep, most := true, int64(7)
	cfg, c, gvk, ns := installed(t, testenv.WithSchema(apiextensionsv1.JSONSchemaProps{
		Type: "object",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{
			"spec": {Type: "object", XPreserveUnknownFields: &keep},
			"status": {Type: "object", XPreserveUnknownFields: &keep, Properties: map[string]apiextensionsv1.JSONSchemaProps{
				"conditions": {Type: "array", MaxItems: &most, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &keep,
				}}},
			}},
		},
	}))
	var others []any
	for _, kind := range []string{"A", "B", "C", "D"} {
		others = append(others, map[string]any{"type": kind, "status": "True"})
	}
	full := create(t, c, object(gvk, ns, "full", map[string]any{}))
	full.Object["status"] = map[string]any{"conditions": others}
	must.Do(t, c.Status().Update(t.Context(), full))
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	eventually(t, "the success is shown", func() bool { return condition(get(t, c, full), status.Successful)["status"] == "True" })
	awaitCondition(t, c, create(t, c, object(gvk, ns, "one", map[string]any{})), status.Ready, "True")
}

// A field with the name of the cache's own digest is an ordinary field.
func TestReconcile_DigestOfTheCacheCannotBeForged(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := object(gvk, ns, "one", map[string]any{"size": int64(1)})
	obj.Object[inputsKey] = "0123456789abcdef"
	create(t, c, obj)
	awaitCondition(t, c, obj, status.Ready, "True")
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "the change is run", func() bool { return exec.count() == 2 })
}

func writesStatus(req *http.Request) bool {
	return req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/status")
}

// A run is recorded before it starts. If it then does not start because the object has changed back, it does not stay
// recorded as in progress, and what the object owns stays on record.
func TestReconcile_RunThatIsNotWantedAnyMoreLeavesTheRecord(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	var armed atomic.Bool
	obj := object(gvk, ns, "one", map[string]any{"size": int64(1)})
	var once sync.Once
	racing := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if armed.Load() && writesStatus(req) {
			once.Do(func() {
				update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(1)} })
			})
		}
		return next.RoundTrip(req)
	})
	start(t, racing, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.PruneOnDelete = true })}})
	create(t, c, obj)
	awaitCondition(t, c, obj, status.Ready, "True")
	updateStatus(t, c, obj, func(st map[string]any) { st["ansible"].(map[string]any)["dependents"] = []any{"configmaps.v1."} })
	armed.Store(true)
	update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
	eventually(t, "the last generation is settled", func() bool {
		is := get(t, c, obj)
		st, _ := is.Object["status"].(map[string]any)
		return is.GetGeneration() == 3 && st["observedGeneration"] == int64(3) && condition(is, status.Ready)["status"] == "True"
	})
	st, _ := get(t, c, obj).Object["status"].(map[string]any)
	if hasActiveRun(st) {
		t.Error("a run is on record as in progress, and none is")
	}
	must.Be(t, "dependents on record", 1, len(status.Read(st).Dependents))
}

// If a policy or a missing permission refuses the end of one run, that may be fixed later: the complete result is written
// then, and no run waits for it.
func TestReconcile_ResultThatIsRefusedIsWrittenLater(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusForbidden, http.StatusUnprocessableEntity, http.StatusBadRequest} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			exec := &fakeExecutor{}
			var open atomic.Bool
			faulty := refusing(cfg, code, func(req *http.Request) bool {
				return !open.Load() && exec.count() > 0 && strings.HasSuffix(req.URL.Path, "/status")
			})
			o := start(t, faulty, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
			obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
			eventually(t, "the refusal is logged", func() bool { return strings.Contains(o.log(), "Status is refused") })
			update(t, c, obj, func(m map[string]any) { m["spec"] = map[string]any{"size": int64(2)} })
			eventually(t, "the run of the change", func() bool { return exec.count() == 2 })
			open.Store(true)
			awaitCondition(t, c, obj, status.Ready, "True")
			st, _ := get(t, c, obj).Object["status"].(map[string]any)
			if last, ok := lastRun(st); !ok || last.Generation != 2 {
				t.Errorf("the record is of %+v, want generation 2", last)
			}
			if n := exec.count(); n != 2 {
				t.Errorf("%d runs, want 2", n)
			}
			eventually(t, "nothing keeps the files of either run", func() bool {
				exec.mu.Lock()
				defer exec.mu.Unlock()
				return len(exec.forgotten) == 2
			})
		})
	}
}

// A start that is recorded although the API server gave no answer is not a lost run: no run was made.
func TestReconcile_StartOfWhichNoAnswerCame(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	var starts atomic.Int32
	slow := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		answered, err := next.RoundTrip(req)
		if writesStatus(req) && err == nil && exec.count() == 0 && starts.Add(1) <= 5 && starts.Load()%2 == 1 {
			_ = answered.Body.Close()
			return refusal(req, http.StatusInternalServerError), nil
		}
		return answered, err
	})
	o := start(t, slow, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	if log := o.log(); !strings.Contains(log, "Run was not started") || strings.Contains(log, "Run of an earlier process is lost") {
		t.Errorf("the log says otherwise:\n%s", log)
	}
}

// A start that is recorded but answered with an error is repeated at growing intervals.
func TestReconcile_StartsOfWhichNoAnswerComes(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	starts := make(chan time.Time, 4)
	faulty := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		begins := false
		if writesStatus(req) && exec.count() == 0 {
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			req.Body, begins = io.NopCloser(bytes.NewReader(body)), bytes.Contains(body, []byte(`"activeRun":{`))
		}
		answered, err := next.RoundTrip(req)
		if begins && err == nil && len(starts) < cap(starts) {
			starts <- time.Now()
			_ = answered.Body.Close()
			return refusal(req, http.StatusInternalServerError), nil
		}
		return answered, err
	})
	start(t, faulty, exec, Options{RetryMin: 200 * time.Millisecond, RetryMax: time.Minute, Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
	awaitCondition(t, c, obj, status.Ready, "True")
	for last, least := <-starts, 400*time.Millisecond; len(starts) > 0; least += 200 * time.Millisecond {
		next := <-starts
		if pause := next.Sub(last); pause < least {
			t.Errorf("the pause is %s, want %s at least", pause, least)
		}
		last = next
	}
}

// An API server that has just started may say that an existing object is not there. The operator checks again.
func TestReconcile_ObjectThatIsNotThereForAMoment(t *testing.T) {
	t.Parallel()
	for name, hits := range map[string]func(req *http.Request, runs int) bool{
		"before the run": func(req *http.Request, _ int) bool {
			return req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/one")
		},
		"at its start": func(req *http.Request, _ int) bool { return writesStatus(req) },
		"at its end":   func(req *http.Request, runs int) bool { return writesStatus(req) && runs == 1 },
		"at the finalizer": func(req *http.Request, _ int) bool {
			return req.Method == http.MethodPatch && strings.HasSuffix(req.URL.Path, "/one")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			exec := &fakeExecutor{}
			var once atomic.Bool
			faulty := refusing(cfg, http.StatusNotFound, func(req *http.Request) bool { return hits(req, exec.count()) && once.CompareAndSwap(false, true) })
			start(t, faulty, exec, Options{Watches: []watches.Watch{watchOf(gvk, withFinalizer)}})
			obj := create(t, c, object(gvk, ns, "one", map[string]any{}))
			awaitCondition(t, c, obj, status.Ready, "True")
			must.Be(t, "a request was refused", true, once.Load())
			must.Be(t, "runs", 1, exec.count())
		})
	}
}
