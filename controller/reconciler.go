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

// Reconcile is called for one object at a time, and never twice at once for the
// same one.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	res, err := r.reconcile(ctx, req, r.objects.take(req.NamespacedName, r.now()))
	if err != nil || res.RequeueAfter > 0 {
		// After an error the object is due at once, and the back-off delays it.
		r.objects.mark(req.NamespacedName, r.now().Add(res.RequeueAfter))
	}
	res.Priority = new(0) // that of a first list is for one look
	return res, err
}

// phase is one step of a reconcile. Its outcome says how the reconcile goes on;
// an error ends it, and is retried with backoff. The name is a label of metrics.
type phase struct {
	name string
	do   func(ctx context.Context, s *scope) (outcome, error)
}

// phases are what happens to an object, in order, until one of them leaves nothing to do
// or says when to look again. After a run that has ended, reconcile calls conclude, which
// writes its result into the status and lets go of an object that is deleted.
func (r *reconciler) phases(s *scope) []phase {
	if s.deleting {
		return []phase{
			{"unwritten", r.writeUnwritten}, // as below
			{"finalizer", r.checkFinalizer}, // is there anything to clean up?
			{"lost", r.settleLost},
			{"decide", r.decide},
			{"begin", r.begin},
			{"run", r.run}, // of the finalizer
		}
	}
	return []phase{
		{"unwritten", r.writeUnwritten},  // write the result of a run that could not be written at its end
		{"lost", r.settleLost},           // end, or adopt, a run of an operator that has gone
		{"finalizer", r.ensureFinalizer}, // put it on before anything exists that it has to clean up
		{"decide", r.decide},             // is a run due, and may it start now? schedule.go says why, or when
		{"begin", r.begin},               // decide again by the live object, and record the run in its status
		{"run", r.run},                   // extra vars, token, process or Job; wait for its end
	}
}

// reconcile is one reconcile of one object; due is when it was due.
func (r *reconciler) reconcile(ctx context.Context, req ctrl.Request, due time.Time) (ctrl.Result, error) {
	queued := false
	defer func() {
		if !queued {
			r.places.Leave(req.NamespacedName)
		}
	}()
	obj := r.newObject()
	if err := r.cached.Get(ctx, req.NamespacedName, obj); apierrors.IsNotFound(err) {
		return ctrl.Result{}, r.forget(ctx, req.NamespacedName)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read the object: %w", err)
	}
	if !r.concerns(obj) {
		r.objects.with(req.NamespacedName, func(e *entry) { e.waits = waits{} }) // another watch of the kind runs it
		return ctrl.Result{RequeueAfter: r.noteForsaken(obj)}, nil
	}
	if _, busy := r.set.busy.Load(obj.GetUID()); busy {
		return ctrl.Result{RequeueAfter: time.Second}, nil // another watch of the kind runs it, and ends first
	}
	failpoint.Hit("reconcile.dequeued")
	started := r.now()
	s := r.open(ctx, obj)
	if s.due, s.use = due, r.take(ctx); s.use == nil {
		return ctrl.Result{}, nil // it is looked at when its kind is served again
	}
	defer s.use.copy.Release()
	defer r.set.busy.CompareAndDelete(obj.GetUID(), s.runID)
	failpoint.Hit("reconcile.opened")
	out, err := r.each(ctx, s, r.phases(s))
	r.noteWait(s)
	if err == nil && out == runEnded {
		out, err = r.each(ctx, s, []phase{{"conclude", r.conclude}})
	}
	switch {
	case err != nil:
		if !s.started {
			r.objects.mark(req.NamespacedName, due) // what it was due for has not been done
		}
		return ctrl.Result{}, err
	case s.queued:
		queued = true
	case s.earlier && s.memory.unanswered > 0:
		out = after(r.situation(s).retry.unbounded().after(s.memory.unanswered))
	case s.earlier:
		out = lookAgain // the object may have changed since that run began
	case s.ran:
		r.metrics.Reconciled(r.gvk, r.now().Sub(started))
	}
	return ctrl.Result{RequeueAfter: time.Duration(out)}, nil
}

// each does the phases in order, up to the first that does not go on.
func (r *reconciler) each(ctx context.Context, s *scope, phases []phase) (outcome, error) {
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

// reconciler brings the objects of one kind to what their specs say, one run
// at a time per object.
type reconciler struct {
	watch   watches.Watch
	gvk     schema.GroupVersionKind
	res     resource
	opts    *Options
	cached  getter
	live    client.Reader
	client  client.Client
	cfg     *rest.Config
	take    func(ctx context.Context) *use
	atEnd   func(do func()) (unhook func() bool)
	store   *runstore.Store
	metrics *metrics.Recorder
	objects *objects
	places  *runqueue.Kind
	log     logr.Logger
	now     func() time.Time
	// watchers are all watches of the kind, and claim is the index of this one.
	watchers *watchers
	claim    int
	// shard has the objects that are reconciled; nil for all.
	shard *Shard
	// set is what all kinds share.
	set *Set

	// prunes is set once the kind's schema was seen to drop the summary.
	prunes atomic.Bool
	// legacy is set once the schema was seen to refuse the added conditions.
	legacy atomic.Bool

	// metadata reads what the object owns, for pruning.
	metadata metadata.Interface
	// dependents is nil where the dependents of the kind are not watched.
	dependents *dependent.Kind

	// referring is nil where the watch refers to no other objects.
	referring *referring

	// looks are the live reads in progress that settle whether an object is gone.
	looks sync.WaitGroup
	// silent are the kinds that parked objects cannot look at.
	silent silentKinds
}

func newReconciler(k *kind, res resource, cached getter, c client.Client) *reconciler {
	r := &reconciler{
		watch: k.watch, gvk: k.watch.GVK, res: res, opts: k.opts, cached: cached, live: c, client: c,
		cfg: k.cfg, take: k.take, atEnd: func(do func()) func() bool { return context.AfterFunc(k.leaving, do) }, store: k.store, metrics: k.opts.Metrics, objects: newObjects(), log: k.log.WithValues("gvk", k.watch.GVK.String()),
		now: time.Now, watchers: k.watchers, claim: k.claim, shard: k.shard, set: k.set, metadata: k.set.metadata,
	}
	r.places = k.set.queue.Kind(k.watch.GVK.GroupKind().String(), k.watch.MaxConcurrentReconciles, runqueue.Rollout(k.watch.Rollout), r.objects.look)
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
