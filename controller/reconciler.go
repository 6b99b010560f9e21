package controller

import (
	"cmp"
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
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/failpoint"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
)

// reconciler brings the objects of one kind to what their specs say, one run
// at a time per object.
type reconciler struct {
	watch   watches.Watch
	gvk     schema.GroupVersionKind
	res     resource
	opts    *Options
	cached  client.Reader
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
	// watchers are all watches of the kind, and claim is this one's claim in it.
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

// memory is what the reconciler remembers of an object between reconciles. It
// is used by the one reconcile of the object in progress.
type memory struct {
	uid types.UID
	// last is the object's last run, as recorded in its status when the
	// process met it, and as it took place since.
	last *status.Run
	// met is what the object was like when the process met it, if nothing but that tells that
	// it was run before; else nil.
	met *met
	// judged is the last run that was applied and not interrupted, as far as it is known.
	judged *status.Run
	// lost is the run that the status shows in progress and that this process does
	// not make; nil if there is none.
	lost *status.Active
	// unwritten is a run whose end could not be written yet.
	unwritten *status.Run
	// finalized is true once a finalizer run of this object was proved, or given up.
	finalized bool
	// ran is true once this process has run the object.
	ran bool
	// nextLook is when to look again for what the object waits for, looks how the last went.
	nextLook time.Time
	looks    looks
	// asked is what the object was parked for last, unless a success has asked for
	// nothing since; nil for nothing.
	asked *asked
	// ownSpec is the generation that the last run has made by changing its own spec; 0 for none.
	ownSpec int64
	// loops is how many runs in a row changes by others, or such ones, have started, blocked
	// how many failures in a row were not the role's.
	loops   int
	blocked int64
	// observed is the last generation that the status was brought to without a run.
	observed int64
	// held is the run that the status says is held back; zero for none.
	held heldRun
	// notWatched are the lines of what the status says cannot be watched.
	notWatched string
}

// heldRun is a run that a pause holds back, or, with until, that waits for a maintenance
// window.
type heldRun struct {
	cause      cause
	generation int64
	until      int64 // in Unix time
}

// heldBefore stands for a run that an earlier process held back.
func heldBefore() heldRun { return heldRun{generation: -1} }

func newReconciler(k *kind, res resource, cached client.Reader, c client.Client) *reconciler {
	r := &reconciler{
		watch: k.watch, gvk: k.watch.GVK, res: res, opts: k.opts, cached: cached, live: c, client: c,
		cfg: k.cfg, take: k.take, atEnd: k.atEnd, store: k.store, metrics: k.opts.Metrics, objects: newObjects(), log: k.log.WithValues("gvk", k.watch.GVK.String()),
		now: time.Now, watchers: k.watchers, claim: k.claim, shard: k.shard, set: k.set, metadata: k.set.metadata,
	}
	r.places = k.set.queue.Kind(k.watch.GVK.GroupKind().String(), k.watch.MaxConcurrentReconciles, k.rolloutOf(), r.objects.look)
	r.referring = newReferring(r)
	if k.watch.ManageStatus && !res.hasStatus {
		r.log.Info("The kind has no status subresource: no status is written; add subresources.status to its " +
			"CustomResourceDefinition, or set manageStatus: false to say that this is meant")
	}
	return r
}

// phase is one step of a reconcile. Its outcome says how the reconcile goes on;
// an error ends it, and is retried with backoff. The name is a label of metrics.
type phase struct {
	name string
	do   func(ctx context.Context, s *scope) (outcome, error)
}

// Reconcile is called for one object at a time, and never twice at once for the
// same one.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	res, err := r.reconcile(ctx, req, r.objects.take(req.NamespacedName, r.now()))
	if err != nil || res.RequeueAfter > 0 {
		// After an error it is due at once, and has to wait.
		r.objects.mark(req.NamespacedName, r.now().Add(res.RequeueAfter))
	}
	return res, err
}

// reconcile brings one object forward; due is when it should have been looked at.
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
		r.objects.with(req.NamespacedName, func(e *entry) { e.waits = waits{} })
		return ctrl.Result{}, nil
	}
	if _, busy := r.set.busy.Load(obj.GetUID()); busy {
		return ctrl.Result{RequeueAfter: time.Duration(lookAgain)}, nil // another watch of the kind runs it, and ends first
	}
	failpoint.Hit("reconcile.dequeued")
	started := r.now()
	s, err := r.open(ctx, obj)
	if err != nil {
		return ctrl.Result{}, err
	}
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
		return ctrl.Result{}, err
	case s.queued:
		queued = true
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

// phases are those of an object, in order. After a run, reconcile calls conclude.
func (r *reconciler) phases(s *scope) []phase {
	if s.deleting {
		return []phase{
			{"unwritten", r.writeUnwritten}, {"finalizer", r.checkFinalizer}, {"lost", r.settleLost},
			{"decide", r.decide}, {"begin", r.begin}, {"run", r.run},
		}
	}
	return []phase{
		{"unwritten", r.writeUnwritten}, {"lost", r.settleLost}, {"finalizer", r.ensureFinalizer},
		{"decide", r.decide}, {"begin", r.begin}, {"run", r.run},
	}
}

func (r *reconciler) newObject() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(r.gvk)
	return obj
}

func (r *reconciler) resource() schema.GroupResource {
	return schema.GroupResource{Group: r.gvk.Group, Resource: r.res.plural}
}

// remember is the memory of an object, new if its UID is.
func (r *reconciler) remember(obj *unstructured.Unstructured) (m *memory, stale types.UID) {
	key := client.ObjectKeyFromObject(obj)
	known := r.objects.get(key)
	m = known.memory
	if m != nil && m.uid == obj.GetUID() {
		return m, ""
	}
	if m != nil {
		stale = m.uid
	}
	m = &memory{uid: obj.GetUID()}
	record := r.record(obj)
	for _, part := range record.Rejected {
		r.metrics.StatusRejected(r.gvk, part)
		r.log.Info("Part of status.ansible is not as this operator writes it, and is ignored; look who else writes the status of the object",
			"namespace", key.Namespace, "name", key.Name, "part", part)
	}
	m.recall(record)
	if known.listed && stale == "" && r.ranBefore(obj, record) {
		m.met = r.meet(obj, record)
	}
	r.objects.with(key, func(e *entry) { e.memory, e.drifted = m, m.last != nil && m.last.Drifted })
	r.restore(key, record.Dependents)
	return m, stale
}

// record is what the status of an object says of its runs. A status that the
// operator does not write says nothing: who creates the object may have written
// it.
func (r *reconciler) record(obj *unstructured.Unstructured) status.Record {
	st, _ := obj.Object["status"].(map[string]any)
	if !r.writesStatus() {
		return status.Record{}
	}
	return status.Read(st)
}

// ranBefore reports whether an object has been run of which no run is recorded: by its
// conditions, else by the finalizer that it got before its first run. Where there is neither,
// it may have been.
func (r *reconciler) ranBefore(obj *unstructured.Unstructured, record status.Record) bool {
	switch {
	case record.Last != nil:
		return false
	case r.writesStatus():
		return record.Ended != ""
	case len(r.finalizers()) > 0:
		return r.waits(obj)
	}
	return true
}

// meet is what an object is like of which nothing else tells that it was run before. Which
// request was handled, no one knows: it is taken for the one that it bears.
func (r *reconciler) meet(obj *unstructured.Unstructured, record status.Record) *met {
	set, _ := r.settingsOf(obj)
	return &met{generation: cmp.Or(record.EndedGeneration, obj.GetGeneration()), requested: set.requested, result: record.Ended}
}

// recall takes over what is recorded of an object's runs.
func (m *memory) recall(record status.Record) {
	if record.Last != nil {
		m.last = record.Last
		m.judge(*m.last)
		if wait := m.last.Wait; wait != nil {
			m.asked = &asked{m.last.Fingerprint, *wait}
		}
	}
	m.lost = record.Active
	if record.Held {
		m.held = heldBefore()
	}
	if record.NotWatched {
		m.notWatched = "as an earlier process has found it"
	}
}

// judge takes over a run as the last one that was applied and not interrupted, if it was.
func (m *memory) judge(run status.Run) {
	if run.Result != status.Interrupted && run.Mode != status.ModeCheck {
		m.judged = &run
	}
}

// forget drops what is kept of an object that is not in view any more. Its
// directories go only if it is really gone: it may just have left the selector.
func (r *reconciler) forget(ctx context.Context, key types.NamespacedName) error {
	var m *memory
	r.objects.with(key, func(e *entry) {
		m, e.touched, e.due, e.deleted = e.memory, "", time.Time{}, time.Time{}
		e.drifted, e.elsewhere, e.listed, e.waits = false, false, false, waits{}
	})
	if r.dependents != nil {
		r.dependents.Forget(key)
	}
	if r.referring != nil {
		r.referring.forget(key)
	}
	if m == nil {
		r.forgetMetrics(key)
		return nil
	}
	obj := r.newObject()
	err := r.live.Get(ctx, key, obj)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("look whether the object is gone: %w", err)
	}
	if err != nil || obj.GetUID() != m.uid {
		failpoint.Hit("forget.before-remove")
		if err := r.store.Forget(string(m.uid), r.pathOf(key)...); err != nil {
			r.log.Error(err, "Directories of a deleted object cannot be removed", "namespace", key.Namespace, "name", key.Name)
		}
		failpoint.Hit("forget.removed")
	}
	r.objects.with(key, func(e *entry) { e.memory = nil })
	r.forgetMetrics(key)
	return nil
}

// forgetMetrics removes the metrics of an object that no watch of the version knows. It comes
// after the memory is gone: of two watches that forget the object at once, the last one removes them.
func (r *reconciler) forgetMetrics(key types.NamespacedName) {
	if !r.knownElsewhere(key) {
		r.metrics.ObjectGone(r.gvk, key.Namespace, key.Name)
	}
}
