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

// refusedWith adds advice to an error of the API server if that refuses a Job or a Secret.
func refusedWith(err error, namespace string) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return fmt.Errorf("%w; %s", err, remedyOf(err, namespace))
	}
	return err
}

// remedyOf returns the advice about a Job, a Secret or a Pod that is refused, because of missing permissions or because
// the namespace does not allow it.
func remedyOf(err error, namespace string) string {
	switch {
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), " cannot create resource "): // as authorizers say
		return grantIt
	case strings.Contains(err.Error(), "exceeded quota"):
		return fmt.Sprintf("raise the quota of the namespace %s, or lower --max-concurrent-runs", namespace)
	}
	return "change job of the watch, or what the namespace " + namespace + " allows"
}

// eventsLook is the shortest time between two lists of the events of all Jobs, or of all Pods.
const eventsLook = 5 * time.Second

// maxEvents is how many events are read at most, eventsPage of them at a time. Each attempt to make a Pod has a new name,
// and thus an event of its own: a Job has six after two minutes.
const (
	maxEvents  = 50000
	eventsPage = 500
)

// lastEvents has the last events of Jobs or Pods that say why they wait, which their status does not say: a quota, a limit
// range, or an admission controller may have refused the Pod of a Job; the kubelet may lack a Secret of a volume. The
// cluster tries again. One list serves all that wait: with a quota they may be thousands. It is safe for concurrent use.
type lastEvents struct {
	// which selects the events; say makes the text for an event.
	which fields.Set
	say   func(message, reason string) string
	// looking is held while the events are listed; due is when they may be listed again.
	looking sync.Mutex
	due     time.Time
	last    atomic.Pointer[map[types.UID]string] // the texts, by the UIDs of Jobs or Pods
}

// refusals returns the events of Jobs for which no Pod could be made.
func refusals(namespace string) *lastEvents {
	return &lastEvents{which: fields.Set{"involvedObject.kind": "Job", "reason": "FailedCreate"}, say: func(message, reason string) string {
		return said("there is no Pod yet: "+reason, podName.ReplaceAllString(message, "the Pod")) + "; " + remedyOf(errors.New(message), namespace)
	}}
}

// warnings returns the events of Pods that do not begin.
func warnings() *lastEvents {
	return &lastEvents{which: fields.Set{"involvedObject.kind": "Pod", "type": corev1.EventTypeWarning}, say: func(message, reason string) string {
		return said(reason, sandbox.ReplaceAllString(message, "…"))
	}}
}

// of returns the text of the last event of a Job or Pod; empty if there is none. While one caller lists the events,
// others do not wait, but get the text from the list before.
func (l *lastEvents) of(ctx context.Context, r *Runner, uid types.UID) string {
	if l.looking.TryLock() {
		if began := time.Now(); began.After(l.due) {
			if said, err := l.read(ctx, r); err == nil { // the operator may lack the permission
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

// read lists the events.
func (l *lastEvents) read(ctx context.Context, r *Runner) (map[types.UID]string, error) {
	texts, last := map[types.UID]string{}, map[types.UID]metav1.Time{}
	for from, read := (metav1.ListOptions{FieldSelector: l.which.String(), Limit: eventsPage}), 0; ; {
		events, err := r.opts.Client.CoreV1().Events(r.opts.Namespace).List(ctx, from)
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

// podName matches the name of a refused Pod in a message, and sandbox the ID of a sandbox that the kubelet could not
// make. Each attempt has another name: with it in the text, the status of all objects that wait would be written again
// and again.
var (
	podName = regexp.MustCompile(`pods "[^"]*"`)
	sandbox = regexp.MustCompile(`[0-9a-f]{16,}`)
)

// absence says why a Job has no Pod; empty if it needs none.
func (r *Runner) absence(ctx context.Context, job *batchv1.Job) string {
	switch {
	case job == nil || finished(job):
		return ""
	case job.Spec.Suspend != nil && *job.Spec.Suspend:
		return "the Job is suspended, by a queue for instance, and has no Pod yet"
	}
	if text := r.refusals.of(ctx, r, job.UID); text != "" {
		return text
	}
	return fmt.Sprintf("there is no Pod yet: look at the events of the Job %s in the namespace %s", job.Name, job.Namespace)
}
