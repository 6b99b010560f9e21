package controller

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/reference"
	"github.com/rolewright/rolewright/controller/runqueue"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// scope is one reconcile of one object: what its phases know so far.
type scope struct {
	key types.NamespacedName
	log logr.Logger
	// object is the cached object at first, which is trimmed, and the live one
	// from the first answer of the API server on.
	object  *unstructured.Unstructured
	trimmed bool
	memory  *memory
	// runID names the run of this reconcile, should there be one.
	runID string
	// deleting is true if the object is being deleted.
	deleting bool
	// due is since when the reconcile was due.
	due time.Time
	// use is the content of which the run is made, should there be one.
	content *contentVersion
	// settings and warnings come from the watch and the object's annotations.
	settings settings
	warnings []string
	// notWatched are those of the warnings that say what cannot be watched.
	notWatched []string

	// fingerprint, the parts that it is of, arrived and plan are set by decide; begin
	// renews the fingerprint.
	fingerprint string
	parts       []fingerprint.Part
	arrived     bool
	plan        plan
	// referred are what the object refers to, and triggered what starts it, as decide and
	// begin have found them; referring is set by run if there is any.
	referred []referred
	// named are the references in the object, and reported those that a command has named: the
	// run before, until this one has succeeded. heard are the versions of those of this run.
	named, reported []reference.Reference
	heard           []referred
	triggered       []triggered
	referring       *referringRun
	// queued is set by place: the run that is due, of a class, waits for its place, which
	// wakes the object. rollout identifies what it has in common with the others.
	queued  bool
	class   runqueue.Class
	rollout runqueue.Inputs

	// active is set by begin, with what has caused the run, and what is kept of parts.
	active status.Active
	// quiet is set by begin, and said by isQuiet.
	quiet           bool
	trigger, inputs string
	// previous is set by begin: what the last successful run was made for. given is set by
	// run: the spec that the run gets; nil if the object has none.
	previous previous
	given    any
	// hooked is true once the hook Before has let the run start.
	hooked bool
	// mask is set by run; nil before.
	mask *redact.Masker
	// access, progress, tracker and calls are set by run; access is nil again once the
	// run has ended. dependents are the resources of the objects that it owns then.
	access     *proxy.Access
	life       *lifetime
	progress   *progress
	tracker    *runTracker
	calls      *calls
	dependents []string
	// touched is set by run where what it does not touch is pruned; nil elsewhere. pruned is
	// how many objects were.
	touched *touches
	pruned  int64
	// dependentChanged is true if, when the run began, another client had changed a dependent, whatever the cause of the run;
	// changedInOtherNamespace if only dependents in other namespaces were changed.
	dependentChanged, changedInOtherNamespace bool
	// recording is set by run where there is a history.
	recording *history.Recording
	// started, ran, result and err are set by run: the run was tried, it took
	// place, and how it ended.
	started bool
	ran     bool
	// follower is set by run where runs are followed.
	follower Follower
	result   runner.Result
	err      error
	// earlier and recorded are set by settleLost: the run is one of an earlier
	// process, and how it ended, where that is known already.
	earlier  bool
	recorded *status.Run
	// token is set by adopt: that of a run which an earlier process has begun and this one follows. age is how long ago that was.
	token string
	age   time.Duration
}

// open begins the reconcile of obj, which it owns from now on.
func (r *reconciler) open(ctx context.Context, obj *unstructured.Unstructured) *scope {
	key := client.ObjectKeyFromObject(obj)
	m, stale := r.remember(obj)
	id := uuid.NewString()
	log := ctrllog.FromContext(ctx).WithValues("job", id)
	if r.opts.LogLines {
		log = log.WithValues("gvk", r.gvk.String())
	}
	if stale != nil {
		if err := r.store.Forget(string(stale.uid), r.pathOf(key)...); err != nil {
			log.Error(err, "Directories of a deleted object cannot be removed")
		}
		if stale.unwritten != nil {
			r.forgetRun(stale.unwritten.ID, string(stale.uid))
		}
	}
	s := &scope{key: key, log: log, object: obj, trimmed: true, memory: m, runID: id, deleting: obj.GetDeletionTimestamp() != nil}
	s.settings, s.warnings = r.settingsOf(obj)
	if s.deleting && r.watch.Finalizer != nil {
		// The limits of the object's annotations are those of its runs while it
		// lives; what the finalizer needs is for the author of the watch to say.
		s.settings.timeout, s.settings.idleTimeout = r.watch.Finalizer.Timeout, r.watch.Finalizer.IdleTimeout
	}
	var since time.Time
	if s.deleting && r.hasOurFinalizer(obj) && !s.settings.holdsDeletion(r.now()) { // what waits on purpose wakes no one
		since = obj.GetDeletionTimestamp().Time
	}
	r.objects.setDeleted(key, since)
	r.metrics.ObjectSeen(r.gvk, key.Namespace, key.Name, created(obj))
	return s
}

// settingsOf are what the flags, the watch and the object's annotations say together, and
// what is wrong with the annotations.
func (r *reconciler) settingsOf(obj *unstructured.Unstructured) (settings, []string) {
	period := r.opts.ReconcilePeriod
	switch {
	case r.watch.ReconcilePeriod != nil:
		period = *r.watch.ReconcilePeriod
	case r.watch.Schedule.Cron != nil:
		period = 0 // the schedule says when
	}
	age := r.opts.ArtifactsMaxAge
	if r.watch.ArtifactsMaxAge != nil {
		age = *r.watch.ArtifactsMaxAge
	}
	return annotated(obj, settings{
		period: period, artifacts: r.watch.MaxRunnerArtifacts, failedArtifacts: r.watch.MaxFailedRunnerArtifacts, artifactsAge: age,
		verbosity: r.watch.AnsibleVerbosity, mode: r.watch.Mode,
		timeout: r.watch.Timeout, idleTimeout: r.watch.IdleTimeout,
	}, r.watch.Annotations == watches.AnnotationsTrusted)
}

// hasFinalizer is true if the watch has a finalizer and the object bears it.
func (r *reconciler) hasFinalizer(obj *unstructured.Unstructured) bool {
	f := r.watch.Finalizer
	return f != nil && slices.ContainsFunc(obj.GetFinalizers(), func(name string) bool { return name == f.Name || name == f.Former })
}

// finalizers are all that the operator puts on the objects of the watch.
func (r *reconciler) finalizers() []string {
	var names []string
	if r.watch.Finalizer != nil {
		names = append(names, r.watch.Finalizer.Name)
	}
	if r.watch.PruneOnDelete {
		names = append(names, pruneFinalizer)
	}
	return names
}

// isOurFinalizer is true for a finalizer that the operator removes: those that the watch asks for, the former one of
// the watch, and that of pruneOnDelete even if the watch no longer has it, since no one else would remove that.
func (r *reconciler) isOurFinalizer(finalizer string) bool {
	former := r.watch.Finalizer != nil && r.watch.Finalizer.Former == finalizer
	return former || finalizer == pruneFinalizer || slices.Contains(r.finalizers(), finalizer)
}

// hasOurFinalizer is true if the object cannot go before the operator removes its finalizer.
func (r *reconciler) hasOurFinalizer(obj *unstructured.Unstructured) bool {
	return slices.ContainsFunc(obj.GetFinalizers(), r.isOurFinalizer)
}

func (r *reconciler) situation(s *scope) situation {
	changes, known, effects := s.changes(), r.objects.get(s.key), s.memory.loops
	if known.dependentChanged == "" && known.changedInOtherNamespace != "" {
		effects = s.memory.otherNamespaceLoops
	}
	return situation{
		moved: r.moved(s),
		last:  s.memory.last, firstSeen: s.memory.firstSeen, deleting: s.deleting, dependent: known.dependentChanged+known.changedInOtherNamespace != "",
		loops: s.memory.loops, effects: effects, ownSpec: s.ownSpec(s.object.GetGeneration()), blocked: s.memory.blocked,
		fingerprint: s.fingerprint, environment: only(changes, fingerprint.OfEnvironment), others: others(changes), generation: s.object.GetGeneration(),
		ofObject: among(changes, fingerprint.OfObject, fingerprint.OfReferences, fingerprint.OfTriggers), times: timetableOf(r.watch.Schedule, s.object.GetUID()),
		period: s.settings.period, mode: s.settings.mode, retry: retryOf(r.watch.Retry, r.opts.RetryMin, r.opts.RetryMax),
		paused: s.settings.paused, pausesDeletion: s.settings.pausesDeletion, requested: s.settings.requested, arrived: s.arrived, nextLook: s.memory.nextLook,
	}
}

// shortID is enough of a run's ID for people to find it.
func shortID(id string) string {
	if len(id) < 8 {
		return strconv.Quote(id)
	}
	return id[:8]
}

// uid is the UID of the object.
func (s *scope) uid() string { return string(s.object.GetUID()) }

// pathOf is the path of an object below the runner root that ansible-operator
// documents, as its parts.
func (r *reconciler) pathOf(key client.ObjectKey) []string {
	return []string{r.gvk.Group, r.gvk.Version, r.gvk.Kind, key.Namespace, key.Name}
}
