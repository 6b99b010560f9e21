package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	sigsjson "sigs.k8s.io/json"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/proxy"
)

// calls answers the requests of the modules in the collection rolewright.operator, for one
// run. It is a [proxy.Calls].
type calls struct {
	r      *reconciler
	owner  proxy.Owner
	about  about
	masker masker
	// check is true for a run that changes nothing, whatever its modules say.
	check bool
	// adopted is true for a run that another operator process began.
	adopted bool
	// before is what the object was last parked for, if the run has the same inputs as the one
	// that parked it; else nil.
	before *status.Wait

	mu sync.Mutex
	// events counts the Events that the run has reported.
	events int
	// wait is what the run has parked its object for; nil for nothing.
	wait *status.Wait
	// several is true once the run was told that its object is parked for more than one goal.
	several bool
	// promised is true once an adopted run was told that its object is parked. In fact, the next run parks it.
	promised bool
	// over is true once the time to wait is over.
	over bool
}

// about is the answer to GET /rolewright/v1/run.
type about struct {
	RunID      string   `json:"runID"`
	Cause      string   `json:"cause"`
	Trigger    string   `json:"trigger,omitempty"`
	Generation int64    `json:"generation"`
	Attempt    int64    `json:"attempt"`
	Object     aboutObj `json:"object"`
	// PreviousSpec is the spec of the last successful run. ChangedFields are the paths at which
	// the object's spec differs from it; MoreChangedFields counts the paths left out. All are
	// empty if the previous spec is not known.
	PreviousSpec      json.RawMessage `json:"previousSpec,omitempty"`
	ChangedFields     []string        `json:"changedFields,omitempty"`
	MoreChangedFields int             `json:"moreChangedFields,omitempty"`
}

type aboutObj struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	UID        string `json:"uid,omitempty"`
}

// newCalls returns the calls of the run of s, which acts for owner.
func (r *reconciler) newCalls(s *scope, owner proxy.Owner) *calls {
	c := &calls{r: r, owner: owner, adopted: s.earlier, masker: s.masker(s.mask), check: s.plan.check, about: about{
		RunID: s.runID, Cause: string(s.plan.cause), Trigger: s.trigger, Generation: s.active.Generation, Attempt: s.attempts() + 1,
		Object:       aboutObj{owner.GVK.GroupVersion().String(), owner.GVK.Kind, owner.Namespace, owner.Name, string(owner.UID)},
		PreviousSpec: s.previous.raw, ChangedFields: s.previous.fields, MoreChangedFields: s.previous.more,
	}}
	if asked := s.memory.asked; asked != nil && asked.fingerprint == s.fingerprint {
		c.before = &asked.wait // with other inputs, the time to wait begins again
	}
	return c
}

// attempts returns how many runs with the same inputs have failed in a row before this one.
func (s *scope) attempts() int64 {
	last := s.memory.last
	if last != nil && last.Result == status.Failed && last.Mode == s.plan.mode() &&
		(last.Fingerprint == s.fingerprint || s.deleting && s.ownChange(s.active.Generation)) &&
		(last.Cause == string(causeDeleted)) == s.deleting {
		return last.Attempts
	}
	return 0
}

// About implements [proxy.Calls].
func (c *calls) About() any { return c.about }

// Names implements [proxy.Calls].
func (c *calls) Names() []string { return []string{"event", "metric", "status", "wait"} }

// callTimeout limits how long one call waits for the API server.
const callTimeout = 20 * time.Second

// Call implements [proxy.Calls].
func (c *calls) Call(ctx context.Context, name string, body []byte) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	switch name {
	case "status":
		return c.status(ctx, body)
	case "event":
		return c.event(ctx, body)
	case "wait":
		return c.waitFor(ctx, body)
	case "metric":
		return c.metric(body)
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "calls"}, name)
}

// parked returns what the run has parked its object for; nil for nothing. It must be called
// when no call is in progress.
func (c *calls) parked() *status.Wait {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wait
}

// toPark is true if an adopted run was told that its object is parked. It must be called when no call is in progress.
func (c *calls) toPark() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.promised
}

// asked is what an object was parked for, with the fingerprint of the run that parked it.
type asked struct {
	fingerprint string
	wait        status.Wait
}

// askedAfter returns what the object of s is parked for, or was last parked for, after its run
// has ended as run; nil for nothing. A run that does not succeed does not restart the time to wait.
func (s *scope) askedAfter(run status.Run) *asked {
	switch {
	case run.Wait != nil:
		return &asked{run.Fingerprint, *run.Wait}
	case run.Result == status.Succeeded:
		return nil
	case s.calls == nil:
		return s.memory.asked
	}
	wait := s.calls.parked()
	if wait == nil && !s.calls.over {
		wait = s.calls.before
	}
	if wait == nil {
		return nil
	}
	return &asked{run.Fingerprint, *wait}
}

// decodeCall decodes the body of a call into target. The JSON must not have fields that target does not have.
func decodeCall(body []byte, target any) error {
	strict, err := sigsjson.UnmarshalStrict(body, target)
	if err = errors.Join(append(slices.Clone(strict), err)...); err != nil {
		return badCall("this operator cannot parse the request: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// badCall returns the answer to an invalid call.
func badCall(format string, args ...any) error {
	return apierrors.NewBadRequest(fmt.Sprintf(format, args...))
}

// metric changes one of the role's metrics.
func (c *calls) metric(body []byte) (any, error) {
	if c.r.opts.Metric == nil {
		return nil, badCall("there is no endpoint of metrics here: the metric is not kept")
	}
	if !c.check {
		if err := c.r.opts.Metric(body); err != nil {
			return nil, err
		}
	}
	return changed(), nil
}

// changed returns the answer that says only that something changed.
func changed() map[string]any { return map[string]any{"changed": true} }
