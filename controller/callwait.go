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

// The pauses between two looks at what an object waits for.
const (
	minLook = time.Second
	maxLook = 30 * time.Second
	// failPause is that between two looks at a kind of which the API server gives no
	// answer, by any object.
	failPause = 10 * time.Second
)

// waitLookTimeout bounds a look that no run makes: it takes a worker.
const waitLookTimeout = 2 * time.Second

// maxSilent bounds the kinds that are known to fail.
const maxSilent = 100

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
	if err != nil || met {
		return waitAnswer{Met: met}, err
	}
	if !call.Park || c.check {
		return waitAnswer{Detail: detail}, nil
	}
	// What an adopted run waits for may be a secret that it has read: the next run parks the object.
	if !c.adopted {
		if err := c.recordable(call); err != nil {
			return nil, err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// A time in the future is a clock that went back.
	if c.before != nil && c.before.Same(wait) && !c.over && !c.before.Since.After(now) {
		wait.Since, wait.Until = c.before.Since, c.before.Since.Add(wait.Until.Sub(wait.Since))
	}
	if !now.Before(wait.Until) {
		c.over = true
		return waitAnswer{TimedOut: true, Detail: detail}, nil
	}
	if c.promised = c.adopted; !c.promised && c.wait == nil {
		c.wait = &wait // the first of several: when it is reached, the next run asks for the others
	}
	return waitAnswer{Parked: true, Detail: detail}, nil
}

// recordable refuses to park an object for what would be masked: what it waits for stands
// in its status.
func (c *calls) recordable(call waitCall) error {
	for _, field := range []struct{ name, text string }{
		{"for", call.For}, {"name", call.Name}, {"namespace", call.Namespace},
	} {
		if c.masker.Masker.Mask(field.text) == field.text {
			continue
		}
		if why := c.masker.Withheld(); why != "" {
			return badCall("the object cannot be parked: what it waits for would stand in its status, and what this run says is withheld: %s", why)
		}
		return badCall("%s: it has a value of a Secret that this run has read, and would stand in the status of the object; "+
			"wait for something else, or in the run, with mode: block", field.name)
	}
	return nil
}

// checkGoal reports whether the goal of a wait is reached, and if not, what there is instead.
// home is the namespace of the object that waits. An error that is an
// [apierrors.APIStatus] below 500 stays until someone acts.
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

// checkWait looks, at its time, whether what the object waits for has come.
func (r *reconciler) checkWait(ctx context.Context, s *scope) {
	last, m := s.memory.last, s.memory
	if last == nil || last.Wait == nil || r.now().Before(m.nextLook) {
		return
	}
	if !r.proved(s, *last) {
		s.log.Info("What the object waits for is not on this operator's disk: the object runs, and says it again", "for", last.Wait.String())
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
	// A lasting problem is reported by the next run. One that is over at the next look starts none.
	if s.arrived = met || before.refused && m.looks.refused; s.arrived {
		return // the object looks again when it gets its place
	}
	m.nextLook = r.now().Add(lookPause(r.now().Sub(last.Wait.Since), m.looks.failed, s.uid()))
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

// looks is what the last looks for an object have had for an answer.
type looks struct {
	// failed counts those in a row that had none.
	failed int
	// refused is true if the last was refused.
	refused bool
}

// after are the looks after one more, of which the answer was err.
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

// lookPause is the time from one look to the next after waiting for so long, of which
// the last failed ones in a row had no answer. It differs between objects, so that those
// parked together do not look together.
func lookPause(waited time.Duration, failed int, uid string) time.Duration {
	pause := max(waited/10, minLook)
	for ; failed > 0 && pause < maxLook; failed-- {
		pause *= 2
	}
	return jitter(min(pause, maxLook), uid)
}

// unansweredKinds are those that the API server did not answer for. Objects that wait for one look
// one after the other, with a pause, so that an API that hangs does not keep the workers
// from other objects.
type unansweredKinds struct {
	mu sync.Mutex
	// until is when a kind may be looked at again; at most [maxSilent] kinds.
	until map[schema.GroupVersionKind]time.Time
}

// mayLook reports whether a kind may be looked at, and if not, when again. Of a kind
// that has failed, one may look, and the others after the next pause.
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

// failed is called after a look that had no answer.
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

// answered is called after a look that had an answer.
func (f *unansweredKinds) answered(kind schema.GroupVersionKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.until, kind)
}
