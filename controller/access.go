package controller

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// activeRun is a run in progress with its access to the API proxy.
type activeRun struct {
	id     string
	uid    types.UID
	access *proxy.Access
	life   *lifetime
	log    logr.Logger
	since  time.Time
	// section is the protected section, which is not cut short.
	section section
	// progress knows which generations of the object the run itself has made.
	progress *progress
	// finalizes is true for a finalizer run.
	finalizes bool
	// restarts is true if a change of the object stops the run.
	restarts bool
	// podless is since when the run has waited for its Pod; zero if it does not wait.
	podless time.Time
}

// admit gives the run of s its access to the API server. It may write until the
// access is refused or revoked.
func (r *reconciler) admit(s *scope, life *lifetime) {
	grant := r.grant(r.owner(s))
	grant.RunID, grant.CheckMode, grant.Token = s.runID, s.plan.check, s.token
	s.tracker = &runTracker{log: s.log}
	if r.dependents != nil {
		s.tracker.tracked = r.dependents.Begin(s.key, s.object.GetUID())
	}
	s.calls = r.newCalls(s, grant.Owner)
	grant.Tracker, grant.Secrets, grant.Calls, grant.Self = s.tracker, r.secretsOf(s), s.calls, s.progress
	if r.referring != nil {
		s.referring = r.referring.begin(s.key, s.referred)
		s.tracker.referring, grant.Writes = s.referring, s.referring
	}
	grant.Note = r.pruning() && !s.plan.check && !s.deleting
	// It is not known what an adopted run has touched so far.
	if grant.Note && s.token == "" {
		s.touched = &touches{named: map[touch]struct{}{}}
		grant.Touched = s.touched
	}
	if r.opts.History != nil {
		grant.Written = func(w proxy.Written) { r.wrote(s, w) }
	}
	s.access = r.opts.Proxy.Admit(grant)
	run := &activeRun{
		id: s.runID, uid: s.object.GetUID(), access: s.access, life: life, log: s.log, since: s.active.Started,
		section: r.section(s), progress: s.progress, finalizes: s.deleting,
		restarts: r.watch.OnChange == watches.OnChangeRestart,
	}
	r.objects.with(s.key, func(e *entry) { e.run = run })
}

// dismiss ends the access of s's run, and notes the object's dependents in s.
func (r *reconciler) dismiss(s *scope) {
	if s.access == nil {
		return
	}
	r.objects.with(s.key, func(e *entry) { e.run = nil })
	s.access.Revoke()
	owned := s.tracker.end()
	if s.tracker.more {
		s.warn(tooManyKinds)
	}
	if r.watch.PruneOnDelete || slices.Contains(s.object.GetFinalizers(), pruneFinalizer) {
		// The operator has to find again what garbage collection does not reach,
		// whether it is watched or not, and even if the watch no longer sets the key.
		owned = slices.Concat(owned, s.tracker.known, r.record(s.object).Dependents)
	}
	s.dependents = resourceNames(owned)
	if s.plan.check {
		s.dependents = resourceNames(r.record(s.object).Dependents) // unchanged
	}
	s.access = nil
}

// runTracker learns from the API proxy which dependents a run writes and reads. It is a [proxy.Tracker].
type runTracker struct {
	// tracked is nil if the dependents are not watched.
	tracked *dependent.Run
	// referring is nil if the object refers to no others.
	referring *referringRun

	log logr.Logger

	mu    sync.Mutex
	known []schema.GroupVersionResource
	// more is true if there were more than maxKinds.
	more bool
}

// maxKinds is the largest number of resources whose objects one run may write or find: each may
// need a watch. The status records as many.
const maxKinds = 100

// tooManyKinds is the warning about kinds beyond that number.
const tooManyKinds = "the run has written, or found, objects of more than 100 kinds: changes to objects of the remaining kinds start no runs, " +
	"and pruneOnDelete does not remove them"

// note remembers the resource of a child. It returns false if there are too many.
func (w *runTracker) note(c proxy.Child) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.known, c.Resource) {
		return true
	}
	if len(w.known) < maxKinds {
		w.known = append(w.known, c.Resource)
		return true
	}
	if !w.more {
		w.log.Info("The run has dependents of too many kinds; those of the remaining kinds are not watched", "most", maxKinds, "resource", c.Resource.String())
	}
	w.more = true
	return false
}

// Found implements [proxy.Tracker].
func (w *runTracker) Found(c proxy.Child) {
	if w.note(c) && w.tracked != nil {
		w.tracked.Found(c)
	}
}

// Expect implements [proxy.Tracker].
func (w *runTracker) Expect(c proxy.Child) {
	if w.note(c) && w.tracked != nil {
		w.tracked.Expect(c)
	}
}

// Wrote implements [proxy.Tracker].
func (w *runTracker) Wrote(c proxy.Child) {
	if w.tracked != nil {
		w.tracked.Wrote(c)
	}
}

// Deleted implements [proxy.Tracker].
func (w *runTracker) Deleted(c proxy.Child) {
	if w.tracked != nil {
		w.tracked.Deleted(c)
	}
	if w.referring != nil {
		w.referring.deleted(c)
	}
}

// end returns the resources of the object's dependents; nil if they are not watched. It must be called
// when no request of the run is in progress.
func (w *runTracker) end() []schema.GroupVersionResource {
	if w.tracked == nil {
		return nil
	}
	return w.tracked.End()
}

// Grant returns what a client may do that acts for owner without being a run, by owner's
// watch.
func (s *Set) Grant(owner proxy.Owner) proxy.Grant {
	key := types.NamespacedName{Namespace: owner.Namespace, Name: owner.Name}
	var found *reconciler
	for _, k := range s.all() {
		r := k.reconciler()
		if r == nil || k.watch.GVK.GroupKind() != owner.GVK.GroupKind() {
			continue
		}
		if m := r.objects.get(key).memory; m != nil && m.uid == owner.UID {
			found = r // this watch has run the object
			break
		}
		if found == nil || r.watch.OwnNamespaceOnly {
			found = r // if no watch has run it: the one that allows least
		}
	}
	if found == nil {
		return proxy.Grant{Owner: owner, Inject: s.inject}
	}
	g := found.grant(owner)
	if found.dependents != nil {
		g.Tracker = &otherTracker{r: found, owner: key}
	}
	return g
}

// otherTracker is the [proxy.Tracker] of clients other than runs, as with "rolewright proxy --owner". What they
// create is watched, and their writes count as changes by another client.
type otherTracker struct {
	r     *reconciler
	owner types.NamespacedName
}

// Expect implements [proxy.Tracker].
func (b *otherTracker) Expect(c proxy.Child) {
	b.r.dependents.Restore(b.owner, []schema.GroupVersionResource{c.Resource})
}

// Found implements [proxy.Tracker].
func (b *otherTracker) Found(c proxy.Child) { b.Expect(c) }

// Wrote implements [proxy.Tracker].
func (b *otherTracker) Wrote(proxy.Child) {}

// Deleted implements [proxy.Tracker].
func (b *otherTracker) Deleted(proxy.Child) {}

// grant returns what the watch allows a client that acts for owner.
func (r *reconciler) grant(owner proxy.Owner) proxy.Grant {
	return proxy.Grant{
		Owner: owner, Inject: r.opts.InjectOwnerRef,
		AdoptUnowned: r.watch.Adopt == watches.AdoptIfUnowned, Blacklist: r.watch.Blacklist,
		OwnNamespaceOnly: r.watch.OwnNamespaceOnly,
	}
}

// stop refuses further writes of the run, and ends it. If the role is in a protected
// section, both happen after that.
func (a *activeRun) stop(cause error) {
	if a.life.withdraw(cause, a.section, func() { a.access.Refuse(cause.Error()) }) {
		a.log.Info("Run will be stopped after its protected section", "reason", cause.Error())
	}
}

// cancelled reports whether the annotations of the run's object name the run.
func (a *activeRun) cancelled(obj *unstructured.Unstructured) bool {
	set, _ := annotated(obj, settings{}, false)
	return set.cancelled == a.id
}

// follow is called when the run's object has changed. It stops the run if the object asks for that.
func (a *activeRun) follow(obj *unstructured.Unstructured) {
	switch {
	case a.cancelled(obj):
		a.stop(ErrCancelled)
	case a.finalizes:
	case obj.GetDeletionTimestamp() != nil:
		a.stop(ErrObjectDeleted)
	case a.restarts:
		a.progress.onChange(obj.GetGeneration(), func() { a.stop(ErrObjectChanged) })
	}
}

// followEarlier does for s what watchObjects would have done for changes of the object after the run was
// recorded and before watchObjects knew of the run.
func (r *reconciler) followEarlier(ctx context.Context, s *scope) {
	if r.cached == nil {
		return
	}
	obj := r.newObject()
	switch err := r.cached.Get(ctx, s.key, obj); {
	case apierrors.IsNotFound(err), err == nil && obj.GetUID() != s.object.GetUID():
		r.liveReads.Go(func() { r.lookAfter(ctx, s.object) })
	case err == nil:
		if run := r.running(obj); run != nil {
			run.follow(obj)
		}
	}
}

// withdraw stops the run in progress of an object that is gone.
func (r *reconciler) withdraw(obj *unstructured.Unstructured) {
	if run := r.running(obj); run != nil {
		run.stop(ErrObjectGone)
	}
}

// running returns the object's run in progress, which may also be a run of another watch that handled
// the object before; nil if there is none.
func (r *reconciler) running(obj *unstructured.Unstructured) *activeRun {
	for _, r := range append(r.otherWatches(), r) {
		if run := r.objects.get(client.ObjectKeyFromObject(obj)).run; run != nil && run.uid == obj.GetUID() {
			return run
		}
	}
	return nil
}

// addRunEnv sets the environment variables that tell a run where its files in dir are.
func addRunEnv(req *runner.Request, dir string) {
	if req.Env == nil {
		req.Env = map[string]string{}
	}
	kubeconfig := filepath.Join(dir, kubeconfigFile)
	req.Env["KUBECONFIG"], req.Env["K8S_AUTH_KUBECONFIG"], req.Env[protectEnv] = kubeconfig, kubeconfig, filepath.Join(dir, protectFile)
}

// watchObjects returns a handler that tells the runs in progress when their objects are changed or
// deleted, or ask for the run's end. It reads with ctx; after the end of ctx, wait for r.liveReads.
func (r *reconciler) watchObjects(ctx context.Context) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			was, wasOK := before.(*unstructured.Unstructured)
			is, isOK := after.(*unstructured.Unstructured)
			if !wasOK || !isOK {
				return
			}
			if was.GetUID() != is.GetUID() {
				r.withdraw(was)
			}
			if run := r.running(is); run != nil {
				run.follow(is)
			}
		},
		DeleteFunc: func(last any) {
			if unknown, ok := last.(toolscache.DeletedFinalStateUnknown); ok {
				last = unknown.Obj
			}
			obj, ok := last.(*unstructured.Unstructured)
			if !ok {
				return
			}
			if r.running(obj) != nil {
				r.liveReads.Go(func() { r.lookAfter(ctx, obj) })
			}
		},
	}
}

// lookAfter withdraws the run of an object that has left the cache, unless the object
// has only left the selector. It asks until the API server answers or the run has ended.
func (r *reconciler) lookAfter(ctx context.Context, obj *unstructured.Unstructured) {
	_ = wait.PollUntilContextCancel(ctx, lookRetry, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		is := r.newObject()
		err := r.client.Get(ctx, client.ObjectKeyFromObject(obj), is)
		if apierrors.IsNotFound(err) || err == nil && is.GetUID() != obj.GetUID() {
			r.withdraw(obj)
		}
		return err == nil || apierrors.IsNotFound(err) || r.running(obj) == nil, nil
	}) // an error means that ctx has ended
}

// lookTimeout limits one read; lookRetry is the pause after a failed read.
const (
	lookTimeout = 10 * time.Second
	lookRetry   = 2 * time.Second
)
