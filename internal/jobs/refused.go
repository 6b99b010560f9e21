package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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
		return fmt.Sprintf("raise the quota of the namespace %s, or let fewer runs be at a time", namespace)
	}
	return "change job of the watch, or what the namespace " + namespace + " allows"
}

// absenceLook is how often the events of a Job are asked for that has no Pod.
const absenceLook = 5 * time.Second

// absence says why a Job has no Pod.
type absence struct {
	looked time.Time
	text   string
}

// why asks for the last event that says that no Pod could be made: a quota, a limit range, or an admission controller
// may have refused it, which the Job itself does not say. It is tried again by the cluster.
func (a *absence) why(ctx context.Context, e *Executor, job *batchv1.Job) string {
	if job == nil || finished(job) {
		return ""
	}
	if job.Spec.Suspend != nil && *job.Spec.Suspend {
		return "the Job is suspended, by a queue for instance, and has no Pod yet"
	}
	if time.Since(a.looked) < absenceLook {
		return a.text
	}
	a.looked = time.Now()
	if a.text == "" {
		a.text = fmt.Sprintf("there is no Pod yet: look at the events of the Job %s in the namespace %s", job.Name, job.Namespace)
	}
	events, err := e.opts.Client.CoreV1().Events(job.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.Set{"involvedObject.uid": string(job.UID), "reason": "FailedCreate"}.String(), Limit: 50,
	})
	if err != nil {
		return a.text // it may not be allowed
	}
	var last metav1.Time
	for _, event := range events.Items {
		if at := event.LastTimestamp; last.IsZero() || last.Before(&at) {
			last = at
			a.text = said("there is no Pod yet: "+event.Reason, event.Message) + "; " + remedyOf(errors.New(event.Message), job.Namespace)
		}
	}
	return a.text
}
