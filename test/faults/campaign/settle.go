package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// patience limits the time from the end of the faults until everything rests: an expiring lease,
	// the operator's back-off, and runs, on an overloaded machine. It is less
	// than the five minutes after which client-go renews a watch: if rest takes that, an event was lost.
	patience = 150 * time.Second
	// collection limits how long the garbage collector may take: it looks for new
	// kinds every 30 s. Only an end that still lacks a collection waits that long.
	collection = 5 * time.Minute
	// leaving limits how long unwanted runs may take to end: the
	// operator has to notice them, and they have a grace period of five seconds. A run that stays by
	// mistake sleeps for minutes.
	leaving = time.Minute
	// tail is how long the operator may write after the runs have ended: it repeats a write whose
	// answer was lost.
	tail = 2 * time.Second
	// steady is how long the cluster is watched after that.
	steady = 1500 * time.Millisecond
)

// slowly returns d, or more for the real runner, or for a fork server, which may have to start twice.
func (e *execution) slowly(d time.Duration) time.Duration {
	switch {
	case e.c.opts.Runner == "":
		return 4 * d
	case e.c.opts.forks():
		return 2 * d
	}
	return d
}

// settle waits until the operator has done what the client wants, and checks
// that it then rests.
func (e *execution) settle(ctx context.Context) {
	err := poll(ctx, e.slowly(patience), func() error {
		if err := e.thawed(); err != nil {
			return err
		}
		return e.settled(ctx)
	})
	if err != nil {
		e.driver.add(map[string]any{"event": "unstable", "detail": err.Error()})
		return
	}
	e.driver.add(map[string]any{"event": "stable"})
	mark := truthVariable + "=" + e.truth()
	var left []member
	err = poll(ctx, leaving, func() error {
		// A fork server lives as long as its operator.
		left = slices.DeleteFunc(members(mark), func(m member) bool { return strings.HasPrefix(m.run, "server-") })
		if len(left) > 0 {
			return errors.New("runs are left")
		}
		return nil
	})
	if err != nil {
		for _, m := range left {
			e.driver.add(map[string]any{"event": "leftover", "pid": m.pid, "run": m.run, "detail": m.String()})
		}
	}
	for _, r := range e.replicas {
		pid := 0
		// A dead orphan is reaped within about a second.
		err := poll(ctx, survival, func() error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.cmd == nil {
				return nil
			}
			if pid = r.cmd.Process.Pid; zombies(pid) > 0 {
				return errors.New("there are zombies")
			}
			return nil
		})
		if err != nil {
			e.driver.add(map[string]any{"event": "zombie", "replica": r.name, "pid": pid})
		}
	}
	if len(e.replicas) == 1 {
		// An operator that has just started has not cleaned up yet. What stays is for the checker to find.
		_ = poll(ctx, e.slowly(patience), func() error { return e.cleaned(ctx) })
	}
	sleep(ctx, tail)
	e.driver.add(map[string]any{"event": "steady-begin"})
	sleep(ctx, steady)
	e.driver.add(map[string]any{"event": "steady-end"})
}

// sleep returns after d, or when ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// settled returns nil if every object is in the state that the client wants, both according
// to the operator and in what the runs have made.
func (e *execution) settled(ctx context.Context) error {
	e.mu.Lock()
	wanted := maps.Clone(e.want)
	e.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := e.objectSettled(ctx, name, wanted[name]); err != nil {
			return fmt.Errorf("object %s: %w", name, err)
		}
	}
	return nil
}

func (e *execution) objectSettled(ctx context.Context, name string, w want) error {
	obj, err := e.get(ctx, w.Kind, name)
	if w.Deleted {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(errors.New("it is not gone"), err)
	}
	if err != nil {
		return err
	}
	st := statusOf(obj)
	switch generation := obj.GetGeneration(); {
	case st.Ansible.ActiveRun != nil:
		return fmt.Errorf("run %s is in progress", st.Ansible.ActiveRun.ID)
	case st.Ansible.LastRun.Result != "Succeeded":
		return fmt.Errorf("its last run has ended as %q", st.Ansible.LastRun.Result)
	case st.Ansible.LastRun.RequeueAfter != "":
		return errors.New("its last run has asked for another one")
	case st.ObservedGeneration != generation:
		return fmt.Errorf("generation %d is recorded, %d is current", st.ObservedGeneration, generation)
	}
	made := &corev1.ConfigMap{}
	if err := e.c.client.Get(ctx, e.key(name), made); err != nil {
		return fmt.Errorf("what its runs make: %w", err)
	}
	if made.Data["spec"] != w.Value {
		return fmt.Errorf("its runs have made %q, it wants %q", made.Data["spec"], w.Value)
	}
	return nil
}

// objectStatus is the part of a status that the campaign reads.
type objectStatus struct {
	ObservedGeneration int64
	Ansible            struct {
		ActiveRun *struct{ ID string }
		LastRun   struct {
			ID, Result, Cause, RequeueAfter string
			Generation                      int64
			Attempts                        int64
		}
	}
}

func statusOf(obj *unstructured.Unstructured) objectStatus {
	var st objectStatus
	data, err := json.Marshal(obj.Object["status"])
	if err == nil {
		_ = json.Unmarshal(data, &st) // an invalid status counts as not settled
	}
	return st
}

func (e *execution) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: e.namespace, Name: name}
}

func (e *execution) get(ctx context.Context, kind, name string) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk(kind))
	return obj, e.c.client.Get(ctx, e.key(name), obj)
}

// led returns nil if there is a leader.
func (e *execution) led(ctx context.Context) error {
	lease, err := e.leader(ctx)
	if err == nil && lease == "" {
		err = errors.New("no replica leads")
	}
	return err
}

// leader returns the identity of the lease's holder.
func (e *execution) leader(ctx context.Context) (string, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	if err := e.c.client.Get(ctx, e.key("leader"), obj); err != nil {
		return "", err
	}
	holder, _, err := unstructured.NestedString(obj.Object, "spec", "holderIdentity")
	return holder, err
}

// cleaned returns nil if the operator keeps no directories of removed objects.
func (e *execution) cleaned(ctx context.Context) error {
	objects, err := e.objects(ctx)
	if err != nil {
		return err
	}
	kept, err := os.ReadDir(filepath.Join(e.replicas[0].root(), ".runs"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, entry := range kept {
		if entry.IsDir() && !slices.ContainsFunc(objects, func(o map[string]any) bool {
			uid, _, _ := unstructured.NestedString(o, "metadata", "uid")
			return uid == entry.Name()
		}) {
			return fmt.Errorf("the directory of %s is left", entry.Name())
		}
	}
	return err
}

// objects returns the current objects of all kinds.
func (e *execution) objects(ctx context.Context) ([]map[string]any, error) {
	var objects []map[string]any
	for _, kind := range []string{kindThing, kindPlain} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk(kind))
		if err := e.c.client.List(ctx, list, client.InNamespace(e.namespace)); err != nil {
			return nil, err
		}
		for i := range list.Items {
			objects = append(objects, list.Items[i].Object)
		}
	}
	return objects, nil
}

// end records the state of the cluster at the end.
func (e *execution) end(ctx context.Context) error {
	objects, err := e.objects(ctx)
	if err != nil {
		return fmt.Errorf("keep the end state: %w", err)
	}
	// Dependents of a deleted object are removed later, by the garbage collector.
	made := &corev1.ConfigMapList{}
	living := func(uid types.UID) bool {
		return slices.ContainsFunc(objects, func(o map[string]any) bool {
			is, _, _ := unstructured.NestedString(o, "metadata", "uid")
			return is == string(uid)
		})
	}
	listed := errors.New("not listed")
	_ = poll(ctx, collection, func() error { // what stays is for the checker to find
		if listed = e.c.client.List(ctx, made, client.InNamespace(e.namespace)); listed != nil {
			return listed
		}
		made.Items = slices.DeleteFunc(made.Items, func(m corev1.ConfigMap) bool { return m.Name == "kube-root-ca.crt" })
		for _, m := range made.Items {
			if len(m.OwnerReferences) > 0 && !living(m.OwnerReferences[0].UID) {
				return fmt.Errorf("%s is left", m.Name)
			}
		}
		return nil
	})
	events := &corev1.EventList{}
	if err := errors.Join(listed, e.c.client.List(ctx, events, client.InNamespace(e.namespace))); err != nil {
		return fmt.Errorf("keep the end state: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return writeJSON(filepath.Join(e.dir, "end.json"), map[string]any{
		"objects": objects, "owned": made.Items, "events": events.Items, "want": e.want,
	})
}

// tidy removes the plan's objects. What it cannot remove goes with the control
// plane.
func (e *execution) tidy(ctx context.Context) {
	for _, kind := range []string{kindThing, kindPlain} {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(gvk(kind))
		if err := e.c.client.List(ctx, list, client.InNamespace(e.namespace)); err != nil {
			return
		}
		for i := range list.Items {
			obj := &list.Items[i]
			if len(obj.GetFinalizers()) > 0 {
				_ = e.c.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			}
		}
	}
	_ = e.c.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: e.namespace}})
}
