package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
)

// reportingController is the reporting controller in Events, both the operator's own and those of roles.
const reportingController = "rolewright.dev/operator"

// The actions in the operator's Events.
const (
	actionReconcile = "Reconcile"
	actionFinalize  = "Finalize"
	actionCheck     = "Check"
)

// Reasons of Events that are not reasons of runs.
const (
	// reasonRecovered: a run has succeeded after failures.
	reasonRecovered = "Recovered"
	// reasonOrphaned: the finalizer is removed although its run has failed.
	reasonOrphaned = "Orphaned"
)

// reporter writes the operator's own Events in the background. The library merges equal Events
// into one with a count, and retries. reporter writes until it is closed.
type reporter struct {
	events.EventRecorder
	caster events.EventBroadcaster
	sink   *eventSink
	log    logr.Logger
	// recording ends with end.
	recording context.Context
	end       context.CancelFunc
	closing   sync.Once
}

func newReporter(mgr manager.Manager, log logr.Logger) (*reporter, error) {
	client, err := typedeventsv1.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("client for Events: %w", err)
	}
	log = log.WithName("events")
	sink := &eventSink{EventSink: &events.EventSinkImpl{Interface: client}, log: log}
	caster := events.NewBroadcaster(sink)
	r := &reporter{EventRecorder: caster.NewRecorder(mgr.GetScheme(), reportingController), caster: caster, sink: sink, log: log}
	r.recording, r.end = context.WithCancel(logr.NewContext(context.Background(), log))
	return r, nil
}

// start writes Events until ctx ends, and then those that are not written yet.
func (r *reporter) start(ctx context.Context) error {
	if err := r.caster.StartRecordingToSinkWithContext(r.recording); err != nil { //nolint:contextcheck // until it is closed
		return fmt.Errorf("recorder of Events: %w", err)
	}
	<-ctx.Done()
	r.close()
	return nil
}

// close waits until the Events of the runs that ended last are written, for five seconds at most. Further calls wait for the
// first one.
func (r *reporter) close() {
	r.closing.Do(func() {
		defer r.end()
		r.caster.Shutdown()
		err := wait.PollUntilContextTimeout(r.recording, 250*time.Millisecond, 5*time.Second, false, func(context.Context) (bool, error) {
			return r.sink.writes.Load() == 0, nil
		})
		if err != nil {
			r.log.Info("Events about the last runs may not be written, since the API server does not answer")
		}
	})
}

// eventSink drops Events that the operator may not write, and logs that once.
type eventSink struct {
	events.EventSink
	log    logr.Logger
	once   sync.Once
	writes atomic.Int32 // in progress
}

// Create implements [events.EventSink].
func (s *eventSink) Create(ctx context.Context, e *eventsv1.Event) (*eventsv1.Event, error) {
	s.writes.Add(1)
	defer s.writes.Add(-1)
	made, err := s.EventSink.Create(ctx, e)
	return s.allowed(made, e, err)
}

// Patch implements [events.EventSink].
func (s *eventSink) Patch(ctx context.Context, e *eventsv1.Event, data []byte) (*eventsv1.Event, error) {
	s.writes.Add(1)
	defer s.writes.Add(-1)
	made, err := s.EventSink.Patch(ctx, e, data)
	return s.allowed(made, e, err)
}

func (s *eventSink) allowed(made, e *eventsv1.Event, err error) (*eventsv1.Event, error) {
	if !apierrors.IsForbidden(err) {
		return made, err
	}
	if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		s.once.Do(func() {
			s.log.Info("Events about failed runs cannot be written and are dropped; grant the operator create and patch on events in group events.k8s.io",
				"namespace", e.Namespace, "error", err.Error())
		})
	}
	return e, nil
}

// report writes an Event about the end of a run if it is worth one. before is the previous
// run; nil if none is known. The run's message is masked already.
func (r *reconciler) report(s *scope, before *status.Run, run status.Run) {
	e, worth := eventOf(s.memory.judged, run, r.givenUp(s, run))
	if run.Mode == status.ModeCheck {
		e, worth = driftEvent(before, run)
	}
	if worth {
		r.tell(s, e)
	}
}

// tell writes an Event about the object of s.
func (r *reconciler) tell(s *scope, e reported) {
	if r.set.events == nil {
		return
	}
	// Without a resource version: Events of two versions would not be alike.
	r.set.events.Eventf(&corev1.ObjectReference{
		APIVersion: r.gvk.GroupVersion().String(), Kind: r.gvk.Kind, Namespace: s.key.Namespace, Name: s.key.Name, UID: s.object.GetUID(),
	}, nil, e.kind, e.reason, e.action, "%s", text.Cut(e.note, maxEventNote))
}

// givenUp returns why a failed run that could be retried is not retried: its finalizer is
// removed, or the retries are exhausted. It is empty otherwise, and if the object was
// already stalled before the run.
func (r *reconciler) givenUp(s *scope, run status.Run) string {
	last := s.memory.judged
	switch {
	case run.Result != status.Failed:
		return ""
	case s.memory.finalized:
		return reasonOrphaned
	case run.Permanent, run.Reason == status.ReasonCancelled, !r.situationAfter(s, run).stalled(),
		last != nil && last.Fingerprint == run.Fingerprint && r.situationAfter(s, *last).stalled():
		return ""
	}
	return status.ReasonExhausted
}

// reported is an Event about a run.
type reported struct{ kind, reason, action, note string }

// eventOf returns the Event about a run, and false if there is none. There is one about the
// first failure in a row, a failure with another reason, the end of retries, and the success
// after failures. last is the previous run that was not interrupted; nil if none is known.
// givenUp is why no retry follows; empty if one does, or the failure itself says why.
func eventOf(last *status.Run, run status.Run, givenUp string) (reported, bool) {
	e := reported{corev1.EventTypeWarning, run.Reason, actionReconcile, run.Message}
	if run.Cause == string(causeDeleted) {
		e.action = actionFinalize
	}
	failed := last != nil && last.Result == status.Failed && (last.Cause == string(causeDeleted)) == (run.Cause == string(causeDeleted))
	switch {
	case givenUp != "":
		e.reason = givenUp
		return e, true
	case run.Result == status.Failed:
		return e, !failed || last.Reason != run.Reason || last.Fingerprint != run.Fingerprint || run.Permanent && !last.Permanent
	case run.Result == status.Succeeded && failed:
		e.kind, e.reason = corev1.EventTypeNormal, reasonRecovered
		e.note = fmt.Sprintf("Run %s succeeded after %s failed with %s", shortID(run.ID), runs(last.Attempts), last.Reason)
		return e, true
	}
	return reported{}, false
}

// driftEvent returns the Event about a check, and false if there is none. There is one about the
// first check in a row that finds changes, and about the first that fails.
func driftEvent(before *status.Run, run status.Run) (reported, bool) {
	e := reported{corev1.EventTypeWarning, status.Drifted, actionCheck, ""}
	again := before != nil && before.Mode == status.ModeCheck
	if run.Result == status.Failed {
		e.reason, e.note = run.Reason, run.Message
		return e, !again || before.Result != status.Failed || before.Reason != run.Reason
	}
	e.note, _, _ = strings.Cut(run.Drift, "\n\n") // the tasks, without their diffs
	return e, run.Drifted && !(again && before.Drifted)
}

// runs returns a number of runs as a phrase.
func runs(n int64) string {
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}
