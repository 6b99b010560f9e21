package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/controller/waitfor"
	"github.com/rolewright/rolewright/internal/discovery"
)

// The pauses between two checks of what a parked object waits for.
const (
	minLook = time.Second
	maxLook = 30 * time.Second
	// failPause is the pause between two checks, for any objects, of a kind for which the
	// API server does not answer.
	failPause = 10 * time.Second
)

// waitLookTimeout limits a check outside of a run, since it occupies a worker.
const waitLookTimeout = 2 * time.Second

// maxSilent is the largest number of kinds that are remembered as unanswered.
const maxSilent = 100

// waitCall is the request of the module wait_for.
type waitCall struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
	For        string `json:"for"`
	// Timeout is in seconds.
	Timeout float64 `json:"timeout"`
	// Park asks the operator to continue to wait after the run.
	Park bool `json:"park"`
}

// waitAnswer is the answer to a waitCall. Met says that the goal is reached, Parked that
// the operator continues to wait after the run, TimedOut that the time to wait is over.
type waitAnswer struct {
	Met      bool   `json:"met"`
	Parked   bool   `json:"parked"`
	TimedOut bool   `json:"timedOut"`
	Detail   string `json:"detail,omitempty"`
}

// waitFor checks whether a goal is reached, and parks the object if not and the call asks for it.
func (c *calls) waitFor(ctx context.Context, body []byte) (any, error) {
	var call waitCall
	if err := decodeCall(body, &call); err != nil {
		return nil, err
	}
	if call.Timeout < 1 || call.Timeout > status.MaxWait.Seconds() {
		return nil, badCall("timeout: %g seconds are not from 1 to %g", call.Timeout, status.MaxWait.Seconds())
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
	met, detail, err := c.r.checkGoal(ctx, c.owner.Namespace, wait)
	if err != nil {
		return nil, err
	}
	if met { // an earlier task that was told "parked" may have left things undone: the object runs once more
		return waitAnswer{Met: true}, nil
	}
	if !call.Park || c.check {
		return waitAnswer{Detail: detail}, nil
	}
	// The goal of an adopted run may contain a secret that it has read, so the next run parks the object.
	if !c.adopted {
		if err := c.recordable(call); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A time in the future means that the clock went back.
	if c.before != nil && c.before.Same(wait) && !c.before.Since.After(now) {
		wait.Since, wait.Until = c.before.Since, c.before.Since.Add(wait.Until.Sub(wait.Since))
	}
	if !now.Before(wait.Until) {
		c.over = true
		c.unpark(wait)
		return waitAnswer{TimedOut: true, Detail: detail}, nil
	}
	if c.promised = c.adopted; !c.promised && c.wait == nil {
		c.wait = &wait // only the first of several goals: the next run asks for the others
	} else if !c.promised && !c.wait.Same(wait) {
		c.several = true
	}
	return waitAnswer{Parked: true, Detail: detail}, nil
}

// unpark forgets a goal whose time is over. If the run was told to wait for another one, too, the
// object stays parked, so that the next run asks for that one. c.mu must be held.
func (c *calls) unpark(goal status.Wait) {
	if c.wait != nil && c.wait.Same(goal) && !c.several {
		c.wait = nil
	}
}

// recordable returns an error if the goal contains what has to be masked, since the status
// would show the goal.
func (c *calls) recordable(call waitCall) error {
	for _, field := range []struct{ name, text string }{
		{"for", call.For}, {"name", call.Name}, {"namespace", call.Namespace},
	} {
		if c.masker.Masker.Mask(field.text) == field.text {
			continue
		}
		if why := c.masker.Withheld(); why != "" {
			return badCall("the object cannot be parked: what it waits for would be written to its status, and the output of this run is withheld: %s", why)
		}
		return badCall("%s: it contains a value of a Secret that this run has read, and would be written to the status of the object; "+
			"wait for something else, or wait inside the run with mode: block", field.name)
	}
	return nil
}

// checkGoal reports whether the goal of a wait is reached; if not, detail says what is found
// instead. home is the namespace of the object that waits. An error that is an
// [apierrors.APIStatus] below 500 lasts until someone acts.
func (r *reconciler) checkGoal(ctx context.Context, home string, w status.Wait) (met bool, detail string, err error) {
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
	res, err := r.opts.Proxy.Discovery().LookupKind(ctx, gv.WithKind(w.Kind))
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

// checkWait checks, if it is time to, whether the parked object's goal is reached, and sets s.arrived.
func (r *reconciler) checkWait(ctx context.Context, s *scope) {
	last, m := s.memory.last, s.memory
	if last == nil || last.Wait == nil || r.now().Before(m.nextLook) {
		return
	}
	if !r.proved(s, *last) {
		s.log.Info("What the object waits for is not recorded on this operator's disk; the object runs again to record it", "for", last.Wait.String())
		s.arrived = true
		return
	}
	kind := schema.FromAPIVersionAndKind(last.Wait.APIVersion, last.Wait.Kind)
	if until, ok := r.unansweredKinds.mayLook(kind, r.now()); !ok {
		m.nextLook = until.Add(jitter(failPause, s.uid()) - failPause)
		return
	}
	within, cancel := context.WithTimeout(ctx, waitLookTimeout)
	defer cancel()
	met, detail, err := r.checkGoal(within, s.key.Namespace, *last.Wait)
	before := m.looks
	m.looks = before.after(err)
	if m.looks.failed > 0 {
		r.unansweredKinds.failed(kind, r.now())
	} else {
		r.unansweredKinds.answered(kind)
	}
	if err != nil {
		s.log.V(1).Info("What the object waits for cannot be read", "error", err.Error())
	} else if !met {
		s.log.V(1).Info("The object waits", "for", last.Wait.String(), "detail", detail)
	}
	// After two refusals in a row a run starts, which reports the problem.
	if s.arrived = met || before.refused && m.looks.refused; s.arrived {
		return // the goal is checked again when the object gets its place
	}
	m.nextLook = r.now().Add(lookPause(r.now().Sub(last.Wait.Since), m.looks.failed, s.uid()))
}

// proved reports whether a run of this operator has parked the object for the goal in its
// status. Otherwise a client that may write the status could have the operator read what the
// client itself may not.
func (r *reconciler) proved(s *scope, last status.Run) bool {
	if own := s.memory.parked; own != nil && own.Same(*last.Wait) {
		return true
	}
	run, _ := r.store.Recorded(s.uid(), s.deleting, status.Active{ID: last.ID, Generation: last.Generation})
	return run != nil && run.Wait != nil && run.Wait.Same(*last.Wait)
}

// looks says how the last checks for an object went.
type looks struct {
	// failed counts the checks in a row without an answer of the API server.
	failed int
	// refused is true if the API server refused the last check.
	refused bool
}

// after returns the looks after one more check, which returned err.
func (l looks) after(err error) looks {
	var answer apierrors.APIStatus
	switch {
	case err == nil:
		return looks{}
	case errors.As(err, &answer) && answer.Status().Code < http.StatusInternalServerError && !apierrors.IsTooManyRequests(err):
		return looks{refused: true}
	}
	return looks{failed: l.failed + 1}
}

// lookPause returns the time until the next check, for an object that has waited for waited and
// whose last failed checks had no answer. It differs between objects, so that objects parked
// together are not checked together.
func lookPause(waited time.Duration, failed int, uid string) time.Duration {
	pause := max(waited/10, minLook)
	for ; failed > 0 && pause < maxLook; failed-- {
		pause *= 2
	}
	return jitter(min(pause, maxLook), uid)
}

// unansweredKinds are the kinds that the API server did not answer for. Checks of such a kind
// happen one at a time, with a pause, so that a hanging API does not occupy the workers that
// other objects need.
type unansweredKinds struct {
	mu sync.Mutex
	// until says when a kind may be checked again. It has at most [maxSilent] entries.
	until map[schema.GroupVersionKind]time.Time
}

// mayLook reports whether a kind may be checked; if not, until says when. Of the objects that
// wait for an unanswered kind, one is checked after each pause.
func (f *unansweredKinds) mayLook(kind schema.GroupVersionKind, now time.Time) (until time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	until, has := f.until[kind]
	if !has {
		return time.Time{}, true
	}
	if now.Before(until) {
		return until, false
	}
	f.until[kind] = now.Add(failPause)
	return time.Time{}, true
}

// failed notes a check of a kind that had no answer.
func (f *unansweredKinds) failed(kind schema.GroupVersionKind, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.until == nil {
		f.until = map[schema.GroupVersionKind]time.Time{}
	}
	if _, has := f.until[kind]; !has && len(f.until) >= maxSilent {
		maps.DeleteFunc(f.until, func(_ schema.GroupVersionKind, until time.Time) bool { return until.Before(now) })
		if len(f.until) >= maxSilent {
			return
		}
	}
	f.until[kind] = now.Add(failPause)
}

// answered notes a check of a kind that had an answer.
func (f *unansweredKinds) answered(kind schema.GroupVersionKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.until, kind)
}
