package controller

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/controller/waitfor"
	"github.com/rolewright/rolewright/internal/discovery"
)

// maxWait is the longest timeout of a wait.
const maxWait = 7 * 24 * time.Hour

// The pauses between two looks at what an object waits for.
const (
	minLook = time.Second
	maxLook = 30 * time.Second
)

// waitCall is what the module wait_for sends.
type waitCall struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	For        string `json:"for"`
	// Timeout is in seconds.
	Timeout float64 `json:"timeout"`
	// Park asks the operator to wait on after the run.
	Park bool `json:"park"`
}

// waitAnswer says whether the goal is reached; parked, that the operator waits on
// after the run; timedOut, that it has waited for long enough.
type waitAnswer struct {
	Met      bool   `json:"met"`
	Parked   bool   `json:"parked"`
	TimedOut bool   `json:"timedOut"`
	Detail   string `json:"detail,omitempty"`
}

// waitFor looks whether a goal is reached.
func (c *calls) waitFor(ctx context.Context, body []byte) (any, error) {
	var call waitCall
	if err := decodeCall(body, &call); err != nil {
		return nil, err
	}
	if call.Timeout < 1 || call.Timeout > maxWait.Seconds() {
		return nil, badCall("timeout: %g seconds are not from 1 to %g", call.Timeout, maxWait.Seconds())
	}
	if c.owner.GVK.GroupVersion().String() == call.APIVersion && c.owner.GVK.Kind == call.Kind && c.owner.Name == call.Name && call.Namespace == c.owner.Namespace && call.Park {
		return nil, badCall("an object cannot be parked until it has changed itself")
	}
	now := c.r.now()
	wait := status.Wait{
		APIVersion: call.APIVersion, Kind: call.Kind, Namespace: call.Namespace, Name: call.Name, For: call.For,
		Since: now, Until: now.Add(time.Duration(call.Timeout * float64(time.Second))),
	}
	if err := wait.Check(); err != nil {
		return nil, badCall("%v", err)
	}
	met, detail, err := c.r.look(ctx, c.owner.Namespace, wait)
	if err != nil || met {
		return waitAnswer{Met: met}, err
	}
	if !call.Park {
		return waitAnswer{Detail: detail}, nil
	}
	if c.before != nil && c.before.Same(wait) {
		wait.Since, wait.Until = c.before.Since, c.before.Since.Add(wait.Until.Sub(wait.Since))
	}
	if !now.Before(wait.Until) {
		return waitAnswer{TimedOut: true, Detail: detail}, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wait == nil {
		c.wait = &wait // the first of several: when it is reached, the next run asks for the others
	}
	return waitAnswer{Parked: true, Detail: detail}, nil
}

// look reports whether the goal of a wait is reached, and if not, what there is instead.
// home is the namespace of the object that waits. An error that is an
// [apierrors.APIStatus] below 500 stays until someone acts.
func (r *reconciler) look(ctx context.Context, home string, w status.Wait) (met bool, detail string, err error) {
	goal, err := waitfor.Parse(w.For)
	if err != nil {
		return false, "", badCall("%v", err)
	}
	gv, err := schema.ParseGroupVersion(w.APIVersion)
	if err != nil {
		return false, "", badCall("apiVersion: %v", err)
	}
	if r.watch.OwnNamespaceOnly && (w.Namespace == "" || w.Namespace != home) {
		return false, "", apierrors.NewForbidden(schema.GroupResource{Group: gv.Group, Resource: w.Kind}, w.Name,
			fmt.Errorf("the watch of %s says ownNamespaceOnly, and it is in namespace %q", r.gvk, w.Namespace))
	}
	res, err := r.opts.Gateway.Discovery().LookupKind(ctx, gv.WithKind(w.Kind))
	switch {
	case errors.Is(err, discovery.ErrNotFound):
		return false, "the API server does not serve " + w.APIVersion + " " + w.Kind, nil
	case err != nil:
		return false, "", err
	case res.Namespaced && w.Namespace == "":
		return false, "", badCall("namespace: %s is in a namespace: name it", w.Kind)
	case !res.Namespaced && w.Namespace != "":
		return false, "", badCall("namespace: %s is cluster-scoped, and in none", w.Kind)
	}
	var obj *unstructured.Unstructured
	if of := r.set.content.Resource(res.GVR); res.Namespaced {
		obj, err = of.Namespace(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
	} else {
		obj, err = of.Get(ctx, w.Name, metav1.GetOptions{})
	}
	if apierrors.IsNotFound(err) {
		return false, "it does not exist", nil
	} else if err != nil {
		return false, "", err
	}
	met, detail = goal.Met(obj)
	return met, detail, nil
}

// checkWait looks, at its time, whether what the object waits for has come.
func (r *reconciler) checkWait(ctx context.Context, s *scope) {
	last := s.memory.last
	if last == nil || last.Wait == nil || r.now().Before(s.memory.nextLook) {
		return
	}
	if !r.proved(s, *last) {
		s.log.Info("What the object waits for is not on this operator's disk: the object runs, and says it again", "for", last.Wait.String())
		s.arrived = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	met, detail, err := r.look(ctx, s.key.Namespace, *last.Wait)
	if err != nil {
		s.log.V(1).Info("What the object waits for cannot be read", "error", err.Error())
		// What stays, the next run reports.
		var refused apierrors.APIStatus
		met = errors.As(err, &refused) && refused.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err)
	} else if !met {
		s.log.V(1).Info("The object waits", "for", last.Wait.String(), "detail", detail)
	}
	s.arrived = met
	s.memory.nextLook = r.now().Add(lookPause(r.now().Sub(last.Wait.Since)))
}

// proved tells whether a run of this operator has parked the object until what its
// status says. Who may write the status could otherwise have the operator read, with
// its own permissions, what they cannot.
func (r *reconciler) proved(s *scope, last status.Run) bool {
	if s.memory.ran {
		return true // the record is the one of this process
	}
	run, ok := r.store.Recorded(s.uid(), s.deleting, status.Active{ID: last.ID, Generation: last.Generation})
	return ok && run.Wait != nil && run.Wait.Same(*last.Wait)
}

// lookPause is the time from one look to the next after waiting for so long.
func lookPause(waited time.Duration) time.Duration { return min(max(waited/10, minLook), maxLook) }
