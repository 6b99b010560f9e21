package campaign

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/test/faults/history"
)

// actor is the client of a workload. It talks to the API server directly. Under faults,
// nothing that it waits for is certain to happen: if it waits in vain, that is
// recorded, and the workload goes on.
type actor struct {
	e   *execution
	ctx context.Context
}

// step limits each wait of a workload: an expiring lease, and a run.
const step = 35 * time.Second

// fake is the behaviour of the fake runner for an object; see the runner's documentation.
type fake map[string]any

// create makes an object, with annotations in pairs of key and value. An earlier object
// of the same name may still be in deletion.
func (a *actor) create(kind, name, value string, does fake, annotations ...string) {
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": specOf(value, does)}}
	obj.SetGroupVersionKind(gvk(kind))
	obj.SetNamespace(a.e.namespace)
	obj.SetName(name)
	for pair := range slices.Chunk(annotations, 2) {
		obj.SetAnnotations(map[string]string{pair[0]: pair[1]})
	}
	a.wish(name, want{Kind: kind, Value: value, Result: "Succeeded"})
	a.operate("create", name, value, obj, func() error {
		return poll(a.ctx, a.e.slowly(step), func() error { return a.e.c.client.Create(a.ctx, obj) })
	})
}

// update replaces the spec of an object.
func (a *actor) update(name, value string, does fake) {
	obj := a.object(name)
	patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": specOf(value, does)}})
	if err != nil {
		a.e.violate("driver", err.Error())
		return
	}
	w := a.wanted(name)
	if !w.Deleted {
		w.Value = value
	}
	a.wish(name, w)
	a.operate("update", name, value, obj, func() error {
		return a.e.c.client.Patch(a.ctx, obj, client.RawPatch(types.JSONPatchType, patch))
	})
}

// annotate sets an annotation of an object; an empty value removes it.
func (a *actor) annotate(name, key, value string) {
	obj := a.object(name)
	set := any(value)
	if value == "" {
		set = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: set}}})
	if err != nil {
		a.e.violate("driver", err.Error())
		return
	}
	a.operate("annotate", name, a.wanted(name).Value, obj, func() error {
		return a.e.c.client.Patch(a.ctx, obj, client.RawPatch(types.MergePatchType, patch))
	})
}

// noPeriod removes the period, and makes the object run once more: when that run is recorded, the operator
// has seen that there is no period.
func (a *actor) noPeriod(name string) {
	a.annotate(name, periodAnnotation, "")
	a.update(name, "A", fake{})
}

// remove deletes an object, and does not wait until it is gone.
func (a *actor) remove(name string) {
	obj := a.object(name)
	w := a.wanted(name)
	w.Deleted = true
	a.wish(name, w)
	if current, err := a.e.get(a.ctx, w.Kind, name); err == nil {
		obj = current
	}
	a.operate("delete", name, w.Value, obj, func() error {
		return client.IgnoreNotFound(a.e.c.client.Delete(a.ctx, obj))
	})
}

// removeMade deletes what the runs of an object have made.
func (a *actor) removeMade(name string) {
	made := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: a.e.namespace, Name: name}}
	a.operate("delete-dependent", name, a.wanted(name).Value, a.object(name), func() error {
		return client.IgnoreNotFound(a.e.c.client.Delete(a.ctx, made))
	})
}

// operate does something, and records it as an operation of the client.
func (a *actor) operate(op, name, value string, obj *unstructured.Unstructured, do func() error) {
	invoked := seconds(history.Boot())
	err := do()
	line := map[string]any{
		"op": op, "name": name, "uid": obj.GetUID(), "generation": obj.GetGeneration(), "value": value,
		"finalizer": obj.GetKind() == kindThing, "invoked": invoked, "completed": seconds(history.Boot()),
	}
	if err != nil {
		line["error"] = err.Error()
	}
	a.e.client.add(line)
}

func specOf(value string, does fake) map[string]any {
	spec := map[string]any{"value": value, "canary": history.Canary}
	if does != nil {
		spec["fake"] = map[string]any(does)
	}
	return spec
}

func (a *actor) wish(name string, w want) {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.e.want[name] = w
}

func (a *actor) wanted(name string) want {
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	return a.e.want[name]
}

// object returns an object with the kind, namespace and name that the client uses.
func (a *actor) object(name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk(a.wanted(name).Kind))
	obj.SetNamespace(a.e.namespace)
	obj.SetName(name)
	return obj
}

// await waits until is returns true for an object.
func (a *actor) await(what, name string, is func(obj *unstructured.Unstructured, st objectStatus) bool) {
	err := poll(a.ctx, a.e.slowly(step), func() error {
		obj, err := a.e.get(a.ctx, a.wanted(name).Kind, name)
		if err != nil {
			return err
		}
		if !is(obj, statusOf(obj)) {
			return errors.New("not yet")
		}
		return nil
	})
	if err != nil {
		a.e.driver.add(map[string]any{"event": "in-vain", "detail": fmt.Sprintf("wait for %s of %s: %v", what, name, err)})
	}
}

// running waits until a run of the object's generation is in progress: it is
// recorded, and it has begun.
func (a *actor) running(name string) {
	a.await("a run", name, func(obj *unstructured.Unstructured, st objectStatus) bool {
		return st.Ansible.ActiveRun != nil && a.e.begun(st.Ansible.ActiveRun.ID) || st.Ansible.LastRun.Generation == obj.GetGeneration()
	})
}

// begun tells whether a run has reported its begin. Real runs report nothing.
func (e *execution) begun(run string) bool {
	data, err := os.ReadFile(e.truth())
	return e.c.opts.Runner == "" || err == nil && bytes.Contains(data, []byte(`"event":"begin","run":"`+run+`"`))
}

// failed waits until a run of the object's generation has failed.
func (a *actor) failed(name string) {
	a.await("a failure", name, func(obj *unstructured.Unstructured, st objectStatus) bool {
		return st.Ansible.LastRun.Result == "Failed" && st.Ansible.LastRun.Generation == obj.GetGeneration()
	})
}

// triedAgain waits until an object has failed this many times in a row.
func (a *actor) triedAgain(name string, attempts int64) {
	a.await("another failure", name, func(_ *unstructured.Unstructured, st objectStatus) bool {
		return st.Ansible.LastRun.Result == "Failed" && st.Ansible.LastRun.Attempts >= attempts
	})
}

// ran waits until a run with this cause is recorded.
func (a *actor) ran(name, cause string) {
	a.await("a run by "+cause, name, func(_ *unstructured.Unstructured, st objectStatus) bool { return st.Ansible.LastRun.Cause == cause })
}

// gone waits until an object is gone.
func (a *actor) gone(name string) {
	err := poll(a.ctx, a.e.slowly(step), func() error {
		_, err := a.e.get(a.ctx, a.wanted(name).Kind, name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is there"), err)
	})
	if err != nil {
		a.e.driver.add(map[string]any{"event": "in-vain", "detail": fmt.Sprintf("wait for %s to go: %v", name, err)})
	}
}

// settled waits until everything is as the client wants it.
func (a *actor) settled() {
	if err := poll(a.ctx, a.e.slowly(step), func() error { return a.e.settled(a.ctx) }); err != nil {
		a.e.driver.add(map[string]any{"event": "in-vain", "detail": "wait for rest: " + err.Error()})
	}
}

// signal sends a signal to the replica that leads.
func (a *actor) signal(sig syscall.Signal) { a.leading().signal(sig) }

// leading returns the replica that leads, as far as can be told, or the only one.
func (a *actor) leading() *replica {
	leading := a.e.replicas[0]
	if len(a.e.replicas) > 1 {
		// The replica that last renewed the lease.
		for _, r := range a.e.wire.Trace() {
			if r.Resource != "leases" || !r.Writes() || r.Code >= 300 || r.Code == 0 {
				continue
			}
			for _, candidate := range a.e.replicas {
				if candidate.name == r.Replica {
					leading = candidate
				}
			}
		}
	}
	return leading
}

// down kills the operators and keeps them down; up lets them come back.
func (a *actor) down() {
	for _, r := range a.e.replicas {
		r.setDown(true)
		r.signal(syscall.SIGKILL)
	}
	_ = poll(a.ctx, a.e.slowly(step), func() error {
		for _, r := range a.e.replicas {
			r.mu.Lock()
			up := r.cmd != nil
			r.mu.Unlock()
			if up {
				return errors.New("it is up")
			}
		}
		return nil
	})
}

// nothingRuns waits until no process of a run is left, or watchDeaths has found the ones that are.
func (a *actor) nothingRuns() {
	_ = poll(a.ctx, survival+1500*time.Millisecond, func() error {
		if len(members(truthVariable+"="+a.e.truth())) > 0 {
			return errors.New("runs are left")
		}
		return nil
	})
}

func (a *actor) up() {
	for _, r := range a.e.replicas {
		r.setDown(false)
	}
}

// with returns the behaviour with one more field.
func (f fake) with(key string, value any) fake {
	next := maps.Clone(f)
	next[key] = value
	return next
}
