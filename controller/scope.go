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

// scope is one reconcile of one object: it holds what the phases have found out so far.
type scope struct {
	key types.NamespacedName
	log logr.Logger
	// object is at first the cached object, which is trimmed, and after the API server's first
	// answer the live one.
	object  *unstructured.Unstructured
	trimmed bool
	memory  *memory
	// runID is the ID of this reconcile's run, if there is one.
	runID string
	// deleting is true if the object is being deleted.
	deleting bool
	// due is the time since which the reconcile has been due.
	due time.Time
	// content is the content that the run uses, if there is a run.
	content *contentVersion
	// settings and warnings come from the watch and the object's annotations.
	settings settings
	warnings []string
	// notWatched are the warnings about what cannot be watched; warnings has them too.
	notWatched []string

	// fingerprint, the parts that it is computed from, arrived and plan are set by decide;
	// begin sets them again, except arrived.
	fingerprint string
	parts       []fingerprint.Part
	arrived     bool
	plan        plan
	// referred are the objects that the object refers to, and triggered the triggers that start
	// it, as decide and begin have found them; run sets referring if there are any.
	referred []referred
	// named are the references in the object. reported are those that a command has reported: the
	// command of the last run, until this run has succeeded. heard are the versions of the objects that this run reported.
	named, reported []reference.Reference
	heard           []referred
	triggered       []triggered
	referring       *referringRun
	// queued and class are set by place: a run of this class is due and waits for a place; the
	// queue wakes the object. rollout identifies the content that it has in common with other objects.
	queued  bool
	class   runqueue.Class
	rollout runqueue.Inputs

	// active is set by begin, with trigger, which says what has caused the run, and inputs, the
	// packed form of parts.
	active status.Active
	// quiet is set by begin to the answer of isQuiet.
	quiet           bool
	trigger, inputs string
	// previous is set by begin to what the last successful run was made for. given is set by
	// run to the spec that the run gets; nil if the object has none.
	previous previous
	given    any
	// hooked is true once the Before hook has let the run start.
	hooked bool
	// mask is set by run; nil before.
	mask *redact.Masker
	// access, life, progress, tracker and calls are set by run; access is nil again once the
	// run has ended. dependents are the resources of the objects that the object owns by then.
	access     *proxy.Access
	life       *lifetime
	progress   *progress
	tracker    *runTracker
	calls      *calls
	dependents []string
	// touched is set by run if dependents that the run does not touch are pruned; else nil. pruned
	// is the number of pruned objects.
	touched *touches
	pruned  int64
	// dependentChanged is true if another client had changed a dependent when the run began, whatever the run's cause;
	// changedInOtherNamespace is true if only dependents in other namespaces had changed.
	dependentChanged, changedInOtherNamespace bool
	// recording is set by run if there is a history.
	recording *history.Recording
	// started, ran, result and err are set by run: started is true if the run was tried, ran if
	// it took place; result and err say how it ended.
	started bool
	ran     bool
	// follower is set by run if runs are followed.
	follower Follower
	result   runner.Result
	err      error
	// earlier and recorded are set by settleLost. earlier is true if the run was begun by an
	// earlier process; recorded is its result, if that is already known.
	earlier  bool
	recorded *status.Run
	// token and age are set by adopt if this process follows a run that an earlier one began: the run's token at the API
	// proxy, and how long ago the run began.
	token string
	age   time.Duration
}

// open begins the reconcile of obj. The scope owns obj from now on.
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
		// Limits in the object's annotations apply only until its deletion;
		// the watch's author decides what time the finalizer needs.
		s.settings.timeout, s.settings.idleTimeout = r.watch.Finalizer.Timeout, r.watch.Finalizer.IdleTimeout
	}
	var since time.Time
	if s.deleting && r.hasOurFinalizer(obj) && !s.settings.holdsDeletion(r.now()) { // an object that waits on purpose must raise no alert
		since = obj.GetDeletionTimestamp().Time
	}
	r.objects.setDeleted(key, since)
	r.metrics.ObjectSeen(r.gvk, key.Namespace, key.Name, created(obj))
	return s
}

// settingsOf merges the flags, the watch and the object's annotations into settings. It also
// returns warnings about wrong annotations.
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

// hasFinalizer is true if the watch has a finalizer and the object has it, also under its former name.
func (r *reconciler) hasFinalizer(obj *unstructured.Unstructured) bool {
	f := r.watch.Finalizer
	return f != nil && slices.ContainsFunc(obj.GetFinalizers(), func(name string) bool { return name == f.Name || name == f.Former })
}

// finalizers returns all finalizers that the operator adds to the watch's objects.
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

// isOurFinalizer reports whether the operator removes a finalizer: those that the watch asks for, the watch's former
// one, and the one for pruneOnDelete even if the watch no longer sets that, since nothing else would remove it.
func (r *reconciler) isOurFinalizer(finalizer string) bool {
	former := r.watch.Finalizer != nil && r.watch.Finalizer.Former == finalizer
	return former || finalizer == pruneFinalizer || slices.Contains(r.finalizers(), finalizer)
}

// hasOurFinalizer reports whether the operator has to remove a finalizer before the object can go.
func (r *reconciler) hasOurFinalizer(obj *unstructured.Unstructured) bool {
	return slices.ContainsFunc(obj.GetFinalizers(), r.isOurFinalizer)
}

func (r *reconciler) situation(s *scope) situation {
	changes, known, effects := s.changes(), r.objects.get(s.key), s.memory.loops
	if known.dependentChanged == "" && known.changedInOtherNamespace != "" {
		effects = s.memory.otherNamespaceLoops
	}
	return situation{
		moved: r.moved(s), itself: r.itself(changes, s.object.GetGeneration()),
		last: s.memory.last, firstSeen: s.memory.firstSeen, deleting: s.deleting, dependent: known.dependentChanged+known.changedInOtherNamespace != "",
		loops: s.memory.loops, effects: effects, own: s.ownChange(s.object.GetGeneration()), blocked: s.memory.blocked,
		fingerprint: s.fingerprint, environment: only(changes, fingerprint.OfEnvironment), others: others(changes), generation: s.object.GetGeneration(),
		ofObject: among(changes, fingerprint.OfObject, fingerprint.OfReferences, fingerprint.OfTriggers), times: timetableOf(r.watch.Schedule, s.object.GetUID()),
		period: s.settings.period, mode: s.settings.mode, retry: retryOf(r.watch.Retry, r.opts.RetryMin, r.opts.RetryMax),
		paused: s.settings.paused, pausesDeletion: s.settings.pausesDeletion, requested: s.settings.requested, arrived: s.arrived, nextLook: s.memory.nextLook,
	}
}

// shortID shortens a run's ID to what people need to find the run.
func shortID(id string) string {
	if len(id) < 8 {
		return strconv.Quote(id)
	}
	return id[:8]
}

func (s *scope) uid() string { return string(s.object.GetUID()) }

// pathOf returns, in parts, the object's path below the runner root that ansible-operator
// documents.
func (r *reconciler) pathOf(key client.ObjectKey) []string {
	return []string{r.gvk.Group, r.gvk.Version, r.gvk.Kind, key.Namespace, key.Name}
}
