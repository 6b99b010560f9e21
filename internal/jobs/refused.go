package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// refusedWith adds to an error of the API server what to do about it, where it refuses a Job or a Secret.
func refusedWith(err error, namespace string) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("%w; %s", err, remedyOf(err, namespace))
	}
	return err
}

// remedyOf is what to do about a Job, a Secret or a Pod that is refused: because of missing permissions, or since the
// namespace does not allow it.
func remedyOf(err error, namespace string) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create resource "): // as authorizers say
		return grantIt
	case strings.Contains(err.Error(), "exceeded quota"):
		return fmt.Sprintf("raise the quota of the namespace %s, or lower --max-concurrent-runs", namespace)
	}
	return "change job of the watch, or what the namespace " + namespace + " allows"
}

// refusalsLook is how often the events of Jobs are asked for at most, for all Jobs together.
const refusalsLook = 5 * time.Second

// maxRefusals is how many events are read at most.
const maxRefusals = 5000

// refusals are the last events of Jobs which say that no Pod could be made: a quota, a limit range, or an admission
// controller may have refused it, which the Job itself does not say. The cluster tries it again. One list serves all
// Jobs that wait: with a quota they may be thousands. It is safe for concurrent use.
type refusals struct {
	// looking is held by the one that asks, until due.
	looking sync.Mutex
	due     time.Time
	last    atomic.Pointer[map[types.UID]string]
}

// of returns what was said last of a Job; empty if nothing was. While one asks the API server, the others do not wait.
func (r *refusals) of(ctx context.Context, e *Executor, job *batchv1.Job) string {
	if r.looking.TryLock() {
		if began := time.Now(); began.After(r.due) {
			if said, err := refused(ctx, e); err == nil { // it may not be allowed
				r.last.Store(&said)
			}
			r.due = time.Now().Add(max(refusalsLook, 20*time.Since(began)))
		}
		r.looking.Unlock()
	}
	if last := r.last.Load(); last != nil {
		return (*last)[job.UID]
	}
	return ""
}

// refused asks for the events.
func refused(ctx context.Context, e *Executor) (map[types.UID]string, error) {
	events, err := e.opts.Client.CoreV1().Events(e.opts.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.kind": "Job", "reason": "FailedCreate"}.String(), Limit: maxRefusals,
	})
	if err != nil {
		return nil, err
	}
	texts, last := map[types.UID]string{}, map[types.UID]metav1.Time{}
	for _, event := range events.Items {
		if of, at := event.InvolvedObject.UID, event.LastTimestamp; texts[of] == "" || !at.Before(new(last[of])) {
			last[of] = at
			texts[of] = said("there is no Pod yet: "+event.Reason, podName.ReplaceAllString(event.Message, "the Pod")) +
				"; " + remedyOf(errors.New(event.Message), e.opts.Namespace)
		}
	}
	return texts, nil
}

// podName is how a message calls a Pod that is refused. Each try has another name: with it the status of all objects that
// wait would be written again and again.
var podName = regexp.MustCompile(`pods "[^"]*"`)

// absence says why a Job has no Pod; empty if it is to have none.
func (e *Executor) absence(ctx context.Context, job *batchv1.Job) string {
	switch {
	case job == nil || finished(job):
		return ""
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		return "the Job is suspended, by a queue for instance, and has no Pod yet"
	}
	if text := e.refusals.of(ctx, e, job); text != "" {
		return text
	}
	return fmt.Sprintf("there is no Pod yet: look at the events of the Job %s in the namespace %s", job.Name, job.Namespace)
}
