package controller

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
)

// phase is one step of a reconcile. Its result says how the reconcile continues. An error
// ends the reconcile, which is retried with backoff. The name is a label in metrics.
type phase struct {
	name string
	do   func(ctx context.Context, s *scope) (phaseResult, error)
}

// phases returns the steps of a reconcile, in order. The first step that finishes or requeues
// the object ends the reconcile.
func (r *reconciler) phases(s *scope) []phase {
	if s.deleting {
		return []phase{
			{"unwritten", r.writeUnwritten}, // as below
			{"finalizer", r.checkFinalizer}, // without our finalizer, the reconcile ends here
			{"lost", r.settleLost},
			{"decide", r.decide},
			{"begin", r.begin},
			{"run", r.run}, // the finalizer's content
		}
	}
	return []phase{
		{"unwritten", r.writeUnwritten},  // write the result of an earlier run that could not be written then
		{"lost", r.settleLost},           // an earlier process began a run: follow it to its end if it is a Job, else end it
		{"finalizer", r.ensureFinalizer}, // add it before the run creates what it has to clean up
		{"decide", r.decide},             // is a run due, and may it start now? schedule.go says why, or when
		{"begin", r.begin},               // decide again by the live object, and record the run in the status
		{"run", r.run},                   // extra vars, token, process or Job; wait for its end
	}
}

// atEndOfRun returns the steps after phases if a run has ended, in this reconcile or earlier.
func (r *reconciler) atEndOfRun() []phase {
	return []phase{
		{"conclude", r.conclude}, // write the result into the status; remove the finalizer from a deleted object
	}
}

// Reconcile reconciles one object. It is never called concurrently for the same object.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	due := r.objects.take(req.NamespacedName, r.now())
	next, err := r.reconcile(ctx, req.NamespacedName, due)
	if err != nil || next > 0 {
		// After an error the object is due at once; the work queue's backoff delays it.
		r.objects.mark(req.NamespacedName, r.now().Add(next))
	}
	// The low priority of the initial list applies to this reconcile only.
	return ctrl.Result{RequeueAfter: next, Priority: new(0)}, err
}

// reconcile does one reconcile of an object that has been due since due. It returns the delay after which
// to requeue the object; zero for no requeue.
func (r *reconciler) reconcile(ctx context.Context, key types.NamespacedName, due time.Time) (time.Duration, error) {
	queued := false
	defer func() {
		if !queued {
			r.places.Leave(key)
		}
	}()
	obj := r.newObject()
	if err := r.cached.Get(ctx, key, obj); apierrors.IsNotFound(err) {
		return 0, r.forget(ctx, key)
	} else if err != nil {
		return 0, fmt.Errorf("read the object: %w", err)
	}
	if next, mine := r.isMine(obj); !mine {
		return next, nil
	}
	failpoint.Hit("reconcile.dequeued")
	started := r.now()
	s := r.open(ctx, obj)
	if s.due, s.content = due, r.acquireContent(ctx); s.content == nil {
		return 0, nil // it is reconciled when its kind is served again
	}
	defer s.content.copy.Release()
	defer r.set.busy.CompareAndDelete(obj.GetUID(), s.runID)
	failpoint.Hit("reconcile.opened")
	out, err := r.each(ctx, s, r.phases(s))
	r.noteWait(s)
	if err == nil && out == runEnded {
		out, err = r.each(ctx, s, r.atEndOfRun())
	}
	switch {
	case err != nil:
		if !s.started {
			r.objects.mark(key, due) // nothing ran: the object is still due since then
		}
		return 0, err
	case s.queued:
		queued = true
	case s.earlier && s.memory.unanswered > 0:
		out = after(r.situation(s).retry.unbounded().delay(s.memory.unanswered))
	case s.earlier:
		out = lookAgain // the object may have changed since that run began
	case s.ran:
		r.metrics.Reconciled(r.gvk, r.now().Sub(started))
	}
	return time.Duration(out), nil
}

// isMine reports whether this watch runs the object. It is false if another watch of the kind runs it, or has not
// yet finished a run of it; next is then the delay until the next check, zero for none.
func (r *reconciler) isMine(obj *unstructured.Unstructured) (next time.Duration, mine bool) {
	if !r.handles(obj) {
		key := client.ObjectKeyFromObject(obj)
		r.objects.with(key, func(e *entry) { e.waiting = waitingRun{} })
		r.places.Gone(key)
		return r.warnUnmatched(obj), false
	}
	if _, busy := r.set.busy.Load(obj.GetUID()); busy {
		return time.Second, false // another watch of the kind is running it and has to finish first
	}
	return 0, true
}

// each does the phases in order, and stops at the first that does not return nextPhase.
func (r *reconciler) each(ctx context.Context, s *scope, phases []phase) (phaseResult, error) {
	for _, p := range phases {
		began := r.now()
		out, err := p.do(ctx, s)
		r.metrics.Phase(r.gvk, p.name, r.now().Sub(began), s.recording.TraceID())
		if err != nil || out != nextPhase {
			return out, err
		}
	}
	return finished, nil
}

// reconciler reconciles the objects of one watch, with one run at a time per object.
type reconciler struct {
	// watch is the watch, gvk its kind, and res how the API server serves that kind.
	watch watches.Watch
	gvk   schema.GroupVersionKind
	res   resource
	// watchers holds all watches of the kind; claimIndex is the index of this one.
	watchers   *watchers
	claimIndex int
	// shard restricts which objects are reconciled; nil for no restriction.
	shard *Shard
	opts  *Options

	// Clients of the API server: cached reads the kind's cache, client bypasses it, metadata reads dependents for pruning.
	cached   getter
	client   client.Client
	metadata metadata.Interface
	cfg      *rest.Config

	// State of objects and runs: in memory, in the run queue, and on disk.
	objects        *objects
	places         *runqueue.Kind
	store          *runstore.Store
	acquireContent func(ctx context.Context) *contentVersion
	atEnd          func(do func()) (unhook func() bool)
	// set is shared by all kinds.
	set *Set

	// dependents is nil if the dependents of the kind are not watched.
	dependents *dependent.Kind
	// referring is nil if the watch refers to no other objects.
	referring *referring

	// schemaDropsSummary is set once the kind's schema has dropped the summary.
	schemaDropsSummary atomic.Bool
	// legacyUntil is when the full status is tried again after the kind's schema has refused it, in Unix time; 0 if it has not.
	legacyUntil atomic.Int64
	// liveReads counts the reads in progress that check whether an object is gone.
	liveReads sync.WaitGroup
	// unansweredKinds holds the kinds that parked objects wait for and that the API server did not answer for.
	unansweredKinds unansweredKinds

	metrics *metrics.Recorder
	log     logr.Logger
	now     func() time.Time
}

func newReconciler(k *kind, res resource, cached getter, c client.Client) *reconciler {
	r := &reconciler{
		watch: k.watch, gvk: k.watch.GVK, res: res, watchers: k.watchers, claimIndex: k.claimIndex, shard: k.shard, opts: k.opts,
		cached: cached, client: c, metadata: k.set.metadata, cfg: k.cfg,
		objects: newObjects(), store: k.store, acquireContent: k.acquireContent, set: k.set,
		atEnd:   func(do func()) func() bool { return context.AfterFunc(k.leaving, do) },
		metrics: k.opts.Metrics, log: k.log.WithValues("gvk", k.watch.GVK.String()), now: time.Now,
	}
	r.places = k.set.queue.Kind(k.watch.GVK.GroupKind().String(), k.watch.MaxConcurrentReconciles, runqueue.Rollout(k.watch.Rollout), r.objects.enqueue)
	r.referring = newReferring(r)
	if k.watch.ManageStatus && !res.hasStatus {
		r.log.Info("The kind has no status subresource: no status is written; add subresources.status to its " +
			"CustomResourceDefinition, or set manageStatus: false to say that this is meant")
	}
	return r
}

func (r *reconciler) newObject() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(r.gvk)
	return obj
}

func (r *reconciler) resource() schema.GroupResource {
	return schema.GroupResource{Group: r.gvk.Group, Resource: r.res.plural}
}
