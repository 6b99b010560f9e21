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
	corev1 "k8s.io/api/core/v1"
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

// eventsLook is how often the events of Jobs, or of Pods, are asked for at most, for all of them together.
const eventsLook = 5 * time.Second

// maxEvents is how many events are read at most, eventsPage of them at a time. Each Pod that is refused makes one, as it has another name: a Job
// has six after two minutes.
const (
	maxEvents  = 50000
	eventsPage = 500
)

// lastEvents are the last events of Jobs or Pods that say why they wait, which they do not say themselves: a quota, a
// limit range, or an admission controller may have refused the Pod of a Job; the kubelet may lack a Secret of a volume.
// The cluster tries it again. One list serves all that wait: with a quota they may be thousands. It is safe for
// concurrent use.
type lastEvents struct {
	// which are the events, and say is the text for one.
	which fields.Set
	say   func(message, reason string) string
	// looking is held by the one that asks, until due.
	looking sync.Mutex
	due     time.Time
	last    atomic.Pointer[map[types.UID]string]
}

// refusals are those of Jobs that no Pod could be made for.
func refusals(namespace string) *lastEvents {
	return &lastEvents{which: fields.Set{"involvedObject.kind": "Job", "reason": "FailedCreate"}, say: func(message, reason string) string {
		return said("there is no Pod yet: "+reason, podName.ReplaceAllString(message, "the Pod")) + "; " + remedyOf(errors.New(message), namespace)
	}}
}

// warnings are those of Pods that do not begin.
func warnings() *lastEvents {
	return &lastEvents{which: fields.Set{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning}, say: func(message, reason string) string {
		return said(reason, sandbox.ReplaceAllString(message, "…"))
	}}
}

// of returns what was said last of a Job or Pod; empty if nothing was. While one asks the API server, the others do not wait.
func (l *lastEvents) of(ctx context.Context, e *Executor, uid types.UID) string {
	if l.looking.TryLock() {
		if began := time.Now(); began.After(l.due) {
			if said, err := l.read(ctx, e); err == nil { // it may not be allowed
				l.last.Store(&said)
			}
			l.due = time.Now().Add(max(eventsLook, 20*time.Since(began)))
		}
		l.looking.Unlock()
	}
	if last := l.last.Load(); last != nil {
		return (*last)[uid]
	}
	return ""
}

// read asks for the events.
func (l *lastEvents) read(ctx context.Context, e *Executor) (map[types.UID]string, error) {
	texts, last := map[types.UID]string{}, map[types.UID]metav1.Time{}
	for from, read := (metav1.ListOptions{FieldSelector: l.which.String(), Limit: eventsPage}), 0; ; {
		events, err := e.opts.Client.CoreV1().Events(e.opts.Namespace).List(ctx, from)
		if err != nil {
			return nil, err
		}
		for _, event := range events.Items {
			if of, at := event.InvolvedObject.UID, event.LastTimestamp; texts[of] == "" || !at.Before(new(last[of])) {
				last[of], texts[of] = at, l.say(event.Message, event.Reason)
			}
		}
		from.Continue, read = events.Continue, read+len(events.Items)
		if from.Continue == "" || read >= maxEvents {
			return texts, nil
		}
	}
}

// podName is how a message calls a Pod that is refused, and sandbox what the kubelet could not make for one. Each try has
// another name: with it the status of all objects that wait would be written again and again.
var (
	podName = regexp.MustCompile(`pods "[^"]*"`)
	sandbox = regexp.MustCompile(`[0-9a-f]{16,}`)
)

// absence says why a Job has no Pod; empty if it is to have none.
func (e *Executor) absence(ctx context.Context, job *batchv1.Job) string {
	switch {
	case job == nil || finished(job):
		return ""
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		return "the Job is suspended, by a queue for instance, and has no Pod yet"
	}
	if text := e.refusals.of(ctx, e, job.UID); text != "" {
		return text
	}
	return fmt.Sprintf("there is no Pod yet: look at the events of the Job %s in the namespace %s", job.Name, job.Namespace)
}
