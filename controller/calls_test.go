package controller

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// caller sends the calls of a run with the run's own kubeconfig.
type caller struct {
	t      *testing.T
	config *rest.Config
	client *http.Client
}

func callerOf(t *testing.T, req runner.Request) *caller {
	t.Helper()
	config, err := clientcmd.RESTConfigFromKubeConfig(req.Files[kubeconfigFile])
	if err != nil {
		t.Error(err)
		return nil
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Error(err)
		return nil
	}
	return &caller{t, config, client}
}

// call sends a call and compares status code and answer. Any goroutine may call it.
func (c *caller) call(name, body string, code int, says string) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, c.config.Host+"/rolewright/v1/run/"+name, strings.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return
	}
	resp, err := c.client.Do(req)
	if err != nil {
		c.t.Errorf("%s %s: %v", name, body, err)
		return
	}
	answer, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != code || !strings.Contains(string(answer), says) {
		c.t.Errorf("%s %s: %d %s; want %d %q", name, body, resp.StatusCode, answer, code, says)
	}
}

// calling returns an executor whose runs only send calls.
func calling(t *testing.T, do func(c *caller)) *fakeExecutor {
	t.Helper()
	return &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		if c := callerOf(t, req); c != nil {
			do(c)
		}
		return succeeded(), nil
	}}
}

// Calls are decoded strictly. A refusal says what is wrong and what to do.
func TestCalls_Refuse(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	wait := func(namespace, more string) string {
		return `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + namespace + `", "name": "x", "for": "ready", "timeout": 5` + more + `}`
	}
	exec := calling(t, func(c *caller) {
		c.call("status", `{"fields": {"a": 1}, "conditions": [], "more": 1}`, 400, `unknown field \"more\"`)
		c.call("status", `{"fields": {"a": 1, "a": 2}}`, 400, "duplicate field")
		c.call("status", `{"fields": 3}`, 400, "this operator cannot parse the request")
		c.call("status", `not JSON`, 400, "this operator cannot parse the request")
		c.call("status", `{} {}`, 400, "this operator cannot parse the request")
		c.call("status", `{"conditions": [{"type": "Ready", "status": "True", "reason": "Mine"}]}`, 400, "the operator writes the condition Ready")
		c.call("status", `{"fields": {"ansible": null}}`, 400, "the operator writes status.ansible")
		c.call("metric", `{}`, 400, "the metric is not kept")
		c.call("event", `{"type": "Error", "reason": "A", "message": "a"}`, 400, "neither Normal nor Warning")
		c.call("event", `{"type": "Normal", "reason": "not one", "message": "a"}`, 400, "one word in CamelCase")
		c.call("wait", wait(ns, `, "park": 1`), 400, "this operator cannot parse the request")
		c.call("wait", strings.Replace(wait(ns, ""), `"ready"`, `"jsonpath={..a}"`, 1), 400, "wildcards and .. are not evaluated")
		c.call("wait", strings.Replace(wait(ns, ""), `"timeout": 5`, `"timeout": 1e9`, 1), 400, "are not from 1 to 604800")
		c.call("wait", strings.Replace(wait(ns, ""), `"x"`, `"../x"`, 1), 400, "name:")
		c.call("wait", wait("", ""), 400, "ConfigMap is in a namespace: name it")
		c.call("wait", strings.Replace(wait(ns, ""), `"ConfigMap"`, `"Namespace"`, 1), 400, "Namespace is cluster-scoped")
		c.call("wait", strings.Replace(wait(ns, ""), `"v1"`, `"apps/v7"`, 1), 200, "does not serve apps/v7 ConfigMap")
		for range maxEvents {
			c.call("event", `{"type": "Normal", "reason": "Often", "message": "a"}`, 200, `{"changed":true}`)
		}
		c.call("event", `{"type": "Normal", "reason": "Often", "message": "a"}`, 429, "has reported 20 Events")
	})
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "it", nil))
	awaitCondition(t, c, obj, status.Ready, "True")
	var events corev1.EventList
	cs := clientOf(t, cfg)
	must.Do(t, cs.List(t.Context(), &events))
	n := 0
	for _, e := range events.Items {
		if e.Namespace == ns && e.Reason == "Often" {
			n++
		}
	}
	if n != maxEvents {
		t.Errorf("%d Events, want %d", n, maxEvents)
	}
}

// Concurrent calls lose none of each other's changes, and none of other clients' changes.
func TestCalls_StatusAtTheSameTime(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	obj := object(gvk, ns, "it", nil)
	exec := calling(t, func(caller *caller) {
		var wg sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			wg.Go(func() { caller.call("status", `{"fields": {"`+name+`": {"n": 1}}}`, 200, `{"changed":true}`) })
		}
		wg.Go(func() { updateStatus(t, c, obj, func(st map[string]any) { st["theirs"] = "x" }) })
		wg.Wait()
		caller.call("status", `{"fields": {"a": {"n": 1}}}`, 200, `{"changed":false}`)
		caller.call("status", `{"fields": {"a": {"n": 2}}, "check": true}`, 200, `{"changed":true}`)
	})
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	create(t, c, obj)
	st := awaitCondition(t, c, obj, status.Ready, "True").Object["status"].(map[string]any)
	for _, name := range []string{"a", "b", "c"} {
		if m, _ := st[name].(map[string]any); m["n"] != int64(1) {
			t.Errorf("%s is %v", name, st[name])
		}
	}
	if st["theirs"] != "x" {
		t.Errorf("another client's field is %v", st["theirs"])
	}
}

// If the role owns the status, it may write all of it. A run that is confined to its namespace cannot wait for objects
// outside of it.
func TestCalls_OfTheWatch(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := calling(t, func(c *caller) {
		c.call("status", `{"fields": {"observedGeneration": 1}, "conditions": [{"type": "Ready", "status": "True", "reason": "Mine"}]}`, 200, `{"changed":true}`)
		c.call("wait", `{"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "x", "for": "ready", "timeout": 5, "park": true}`, 403, "ownNamespaceOnly")
		c.call("wait", `{"apiVersion": "v1", "kind": "Node", "namespace": "", "name": "x", "for": "ready", "timeout": 5}`, 403, "ownNamespaceOnly")
	})
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.ManageStatus, w.OwnNamespaceOnly = false, true })}})
	obj := create(t, c, object(gvk, ns, "it", nil))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	if condition(is, status.Ready)["reason"] != "Mine" || is.Object["status"].(map[string]any)["ansible"] != nil {
		t.Errorf("status %v", is.Object["status"])
	}
}

// A parked object is checked without a run until what it waits for is there. A change of its spec starts a run meanwhile.
func TestCalls_Park(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	ask := `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + ns + `", "name": "x", "for": "jsonpath={.data.a}", "timeout": 3600, "park": true}`
	var there atomic.Bool
	exec := calling(t, func(c *caller) {
		if there.Load() {
			c.call("wait", ask, 200, `"met":true`)
		} else {
			c.call("wait", ask, 200, `"parked":true`)
		}
	})
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	waits := func(generation int64) status.Run {
		t.Helper()
		var last status.Run
		eventually(t, "the object waits", func() bool {
			st, _ := get(t, c, obj).Object["status"].(map[string]any)
			last, _ = lastRun(st)
			return last.Wait != nil && last.Generation == generation
		})
		return last
	}
	waits(1)
	settle()
	if n := exec.count(); n != 1 {
		t.Errorf("%d runs of an object that waits", n)
	}
	update(t, c, obj, func(is map[string]any) { is["spec"] = map[string]any{"size": int64(2)} })
	if last := waits(2); last.Cause != string(causeChanged) {
		t.Errorf("the run after a change: %+v", last)
	}
	there.Store(true)
	must.Do(t, c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "x"}, Data: map[string]string{"a": "b"}}))
	is := awaitCondition(t, c, obj, status.Ready, "True")
	if last, _ := lastRun(is.Object["status"].(map[string]any)); last.Cause != string(causeWaited) || last.Wait != nil || exec.count() != 3 {
		t.Errorf("%d runs, the last %+v", exec.count(), last)
	}
}

// A task that is repeated in a run, by retries or until, does not begin to wait again when the time is over.
func TestCalls_WaitRepeatedInARun(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	ask := `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + ns + `", "name": "x", "for": "jsonpath={.data.a}", "timeout": 1, "park": true}`
	exec := &fakeExecutor{}
	exec.do = calling(t, func(at *caller) {
		if exec.count() == 1 {
			at.call("wait", ask, 200, `"parked":true`)
			return
		}
		at.call("wait", ask, 200, `"timedOut":true`)
		at.call("wait", ask, 200, `"timedOut":true`)
	}).do
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	awaitCondition(t, c, create(t, c, object(gvk, ns, "it", nil)), status.Ready, "True")
	must.Be(t, "runs", 2, exec.count())
}

// After a restart, a wait that is on the operator's disk continues. A wait that is only in the status is ignored, even if
// it looks like the operator's: the object runs.
func TestCalls_ParkedOverARestart(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	ask := `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + ns + `", "name": "x", "for": "jsonpath={.data.a}", "timeout": 3600, "park": true}`
	exec := onDisk(calling(t, func(c *caller) { c.call("wait", ask, 200, `"parked":true`) }).do)
	opts := Options{RunnerRoot: t.TempDir() + "/runner", Watches: []watches.Watch{watchOf(gvk)}}
	o := start(t, cfg, exec, opts)
	obj := create(t, c, object(gvk, ns, "it", map[string]any{"size": int64(1)}))
	waits := func(runs int, cause cause) {
		t.Helper()
		eventually(t, "the object waits", func() bool {
			st, _ := get(t, c, obj).Object["status"].(map[string]any)
			last, _ := lastRun(st)
			return last.Wait != nil && last.Wait.Name == "x" && last.Cause == string(cause) && exec.count() == runs
		})
		settle()
		if n := exec.count(); n != runs {
			t.Fatalf("%d runs of an object that waits, want %d", n, runs)
		}
	}
	waits(1, causeCreated)
	o.stop()
	o = start(t, cfg, exec, opts)
	waits(1, causeCreated)
	o.stop()
	updateStatus(t, c, obj, func(st map[string]any) {
		wait := st["ansible"].(map[string]any)["lastRun"].(map[string]any)["wait"].(map[string]any)
		wait["kind"], wait["name"], wait["namespace"] = "Secret", "of-others", "kube-system"
	})
	o = start(t, cfg, exec, opts)
	waits(2, causeWaited)
	if n := o.count("GET secret"); n > 0 {
		t.Errorf("the Secret was read %d times", n)
	}
}

// A call says what the operator lacks permission for.
func TestCalls_WithoutPermission(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	limited := testenv.User(t, cfg, []rbacv1.PolicyRule{{APIGroups: []string{gvk.Group}, Resources: []string{"*"}, Verbs: []string{"*"}}})
	exec := calling(t, func(c *caller) {
		c.call("event", `{"type": "Normal", "reason": "Denied", "message": "a"}`, 403, `grant the operator create on events in group \"events.k8s.io\"`)
		c.call("wait", `{"apiVersion": "v1", "kind": "Pod", "namespace": "`+ns+`", "name": "x", "for": "ready", "timeout": 5, "park": true}`, 403, `cannot get resource \"pods\"`)
	})
	start(t, limited, exec, Options{Watches: []watches.Watch{watchOf(gvk)}})
	obj := create(t, c, object(gvk, ns, "it", nil))
	awaitCondition(t, c, obj, status.Ready, "True")
}

// Objects that wait for a kind whose API does not answer do not keep the workers from other objects.
func TestCalls_ParkedOnWhatHangs(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	var on atomic.Bool
	var givenUp, atRun atomic.Int64
	hangs := through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if !on.Load() || req.Method != http.MethodGet || !strings.Contains(req.URL.Path, "/configmaps/") {
			return next.RoundTrip(req)
		}
		<-req.Context().Done()
		givenUp.Add(1)
		return nil, req.Context().Err()
	})
	ask := `{"apiVersion": "v1", "kind": "ConfigMap", "namespace": "` + ns + `", "name": "x", "for": "jsonpath={.data.a}", "timeout": 3600, "park": true}`
	exec := calling(t, func(c *caller) {
		if !on.Load() {
			c.call("wait", ask, 200, `"parked":true`)
			return
		}
		atRun.Store(givenUp.Load())
	})
	start(t, hangs, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) { w.MaxConcurrentReconciles = 1 })}})
	for i := range 10 {
		awaitCondition(t, c, create(t, c, object(gvk, ns, fmt.Sprint("parked", i), nil)), status.Ready, "False")
	}
	on.Store(true)
	time.Sleep(2 * minLook) // by then every object is due to check
	before := givenUp.Load()
	obj := create(t, c, object(gvk, ns, "fresh", nil))
	awaitCondition(t, c, obj, status.Ready, "True")
	// If the checks were made one after the other, there would be 10.
	if n := atRun.Load() - before; n >= 5 {
		t.Errorf("the fresh object has run after %d looks", n)
	}
}
