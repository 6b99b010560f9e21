package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// kind is a watched kind, with its objects in the namespace of a stage.
type kind struct {
	t       *testing.T
	gvk     schema.GroupVersionKind
	objects dynamic.ResourceInterface
}

// kind installs a kind that only this test uses.
func (s *stage) kind(opts ...testenv.CRDOption) kind {
	s.t.Helper()
	return s.kindOf(testenv.CRD(s.t, s.cfg, opts...))
}

// kindOf returns a kind that is installed already.
func (s *stage) kindOf(gvk schema.GroupVersionKind) kind {
	s.t.Helper()
	client := must.Get(dynamic.NewForConfig(s.cfg))(s.t)
	resource := gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
	return kind{t: s.t, gvk: gvk, objects: client.Resource(resource).Namespace(s.namespace)}
}

// object is an object as it was read, with its status as the documentation describes it.
type object struct {
	*unstructured.Unstructured
	status struct {
		ObservedGeneration int64
		Conditions         []condition
		Ansible            struct {
			ActiveRun *run
			LastRun   *run
			Warnings  []string

			LastHandledReconcileAt string
		}
	}
}

type condition struct {
	Type, Status, Reason, Message string
	ObservedGeneration            int64
}

// run is status.ansible.activeRun or lastRun.
type run struct {
	ID, Cause, Trigger, Mode, Result, Reason, Message, RequeueAfter string
	Generation, Attempts, Pruned                                    int64
	Started, Finished                                               time.Time
	Modules                                                         map[string]int
	FailedTask                                                      *struct{ Name, Role, Host, Path string }
}

func (k kind) decode(u *unstructured.Unstructured) object {
	k.t.Helper()
	o := object{Unstructured: u}
	data, err := json.Marshal(u.Object["status"])
	if err == nil {
		err = json.Unmarshal(data, &o.status)
	}
	if err != nil {
		k.t.Fatalf("decode the status of %s: %v", u.GetName(), err)
	}
	return o
}

// condition returns the condition of a type; the zero value if there is none.
func (o object) condition(of string) condition {
	for _, c := range o.status.Conditions {
		if c.Type == of {
			return c
		}
	}
	return condition{}
}

// lastRun returns the recorded run; the zero value if there is none.
func (o object) lastRun() run {
	if r := o.status.Ansible.LastRun; r != nil {
		return *r
	}
	return run{}
}

// settled reports whether the run for the object's generation has ended, successfully or not.
func (o object) settled() bool {
	return o.lastRun().Generation == o.GetGeneration() && o.status.Ansible.ActiveRun == nil
}

// ready reports whether the run for the object's generation has succeeded.
func (o object) ready() bool {
	c := o.condition("Ready")
	return c.Status == "True" && c.ObservedGeneration == o.GetGeneration() && o.settled()
}

// create creates an object; with nil it has no spec.
func (k kind) create(name string, spec map[string]any) object {
	k.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if spec != nil {
		u.Object["spec"] = spec
	}
	u.SetGroupVersionKind(k.gvk)
	u.SetName(name)
	u, err := k.objects.Create(k.t.Context(), u, metav1.CreateOptions{})
	if err != nil {
		k.t.Fatalf("create %s %s: %v", k.gvk.Kind, name, err)
	}
	return k.decode(u)
}

func (k kind) get(name string) object {
	k.t.Helper()
	u, err := k.objects.Get(k.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		k.t.Fatalf("get %s %s: %v", k.gvk.Kind, name, err)
	}
	return k.decode(u)
}

// patch merges JSON into an object.
func (k kind) patch(name, merge string) object {
	k.t.Helper()
	u, err := k.objects.Patch(k.t.Context(), name, types.MergePatchType, []byte(merge), metav1.PatchOptions{})
	if err != nil {
		k.t.Fatalf("patch %s %s: %v", k.gvk.Kind, name, err)
	}
	return k.decode(u)
}

func (k kind) delete(name string) {
	k.t.Helper()
	if err := k.objects.Delete(k.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		k.t.Fatalf("delete %s %s: %v", k.gvk.Kind, name, err)
	}
}

// await waits until an object meets a condition, and returns it.
func (k kind) await(name, what string, wanted func(object) bool) object {
	k.t.Helper()
	var o object
	testenv.Eventually(k.t, fmt.Sprintf("%s %s: %s", k.gvk.Kind, name, what), func(ctx context.Context) error {
		u, err := k.objects.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			k.t.Fatalf("wait for %s %s: %s: it is gone", k.gvk.Kind, name, what)
		}
		if err != nil {
			return err
		}
		if o = k.decode(u); wanted(o) {
			return nil
		}
		status, err := json.Marshal(u.Object["status"])
		return errors.Join(err, fmt.Errorf("generation %d, status %s", u.GetGeneration(), status))
	})
	return o
}

// awaitReady waits until the run for an object's generation has succeeded. If it has failed, it does not wait for the
// retry.
func (k kind) awaitReady(name string) object {
	k.t.Helper()
	return k.await(name, "ready", func(o object) bool {
		if last := o.lastRun(); o.settled() && last.Result == "Failed" {
			k.t.Fatalf("%s %s: the run has failed: %s: %s", k.gvk.Kind, name, last.Reason, last.Message)
		}
		return o.ready()
	})
}

// awaitGone waits until an object is deleted.
func (k kind) awaitGone(name string) {
	k.t.Helper()
	testenv.Eventually(k.t, fmt.Sprintf("%s %s: gone", k.gvk.Kind, name), func(ctx context.Context) error {
		u, err := k.objects.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("finalizers %v, status %v", u.GetFinalizers(), u.Object["status"])
	})
}
