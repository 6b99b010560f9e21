package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/internal/proxy"
)

// Bounds of what one run removes.
const (
	// maxPruned objects are removed at most; the others by the runs that follow.
	maxPruned = 20
	// prunedFreely objects are removed also where they are most of what the object owns.
	prunedFreely = 3
	// maxCandidates is how many objects are looked at.
	maxCandidates = 200
	// maxTouched is how many names of one run are remembered. With more, it prunes nothing.
	maxTouched = 100_000
	// maxTouchedBytes is how long they are together at most. With more, it prunes nothing, either.
	maxTouchedBytes = 8 << 20
	// pruneTimeout is for all requests.
	pruneTimeout = time.Minute
	// maxAwaited is how long a run waits for the watches to show what its object owns.
	maxAwaited = 5 * time.Second
)

// Reasons of Events about what a run has not touched.
const (
	reasonPruned    = "Pruned"
	reasonPruneHeld = "PruneHeld"
)

// keepAnnotation with the value false keeps an object from being pruned.
const keepAnnotation = ownPrefix + "prune"

// touches are the objects that a run has named in requests, reads included: a task whose
// object is as wished does nothing but read it. It is a [proxy.Touched].
type touches struct {
	mu     sync.Mutex
	named  map[touch]struct{}
	bytes  int // of all that are named
	untold bool
}

// touch is an object by its name. It has no group: some objects are served by several.
type touch struct{ resource, namespace, name string }

// Touch implements [proxy.Touched].
func (t *touches) Touch(resource schema.GroupVersionResource, namespace, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	is := touch{resource.Resource, namespace, name}
	if _, known := t.named[is]; known {
		return
	}
	size := len(is.resource) + len(is.namespace) + len(is.name)
	if len(t.named) >= maxTouched || t.bytes+size > maxTouchedBytes {
		t.untold = true
		return
	}
	t.bytes += size
	t.named[is] = struct{}{}
}

// Untold implements [proxy.Touched].
func (t *touches) Untold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.untold = true
}

// all are the touched objects; false if they are not known in full.
func (t *touches) all() (map[touch]struct{}, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named, !t.untold
}

// pruning reports whether runs remove what they have not touched.
func (r *reconciler) pruning() bool {
	return r.watch.Prune && r.opts.InjectOwnerRef && r.dependents != nil
}

// pruneUntouched removes, after a run has succeeded and all its requests have ended, what
// runs of the object have created and this one has not touched. In doubt it removes nothing.
func (r *reconciler) pruneUntouched(ctx context.Context, s *scope) {
	if s.touched == nil || s.err != nil || !s.result.Verdict().Success {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	touched, told := s.touched.all()
	why := r.notWhole(s)
	if !told {
		why = "the run has written in an encoding, or so much, that what it has touched cannot be told"
	}
	owned, known := r.owned(ctx, s, why == "")
	candidates, live := untouched(owned, touched, r.watch.Prunes())
	switch {
	case len(candidates) == 0 && known:
		return
	case why != "":
		s.log.Info("What the run has not touched is not pruned", "reason", why, "untouched", len(candidates))
		return
	case !known:
		s.log.Info("What the run has not touched is not pruned before the next run: the watches do not show yet what the object owns")
		return
	case len(candidates) > maxCandidates:
		r.holdPrune(s, fmt.Sprintf("%d objects were not touched, more than %d", len(candidates), maxCandidates), candidates)
		return
	}
	removable, err := r.removable(ctx, s, candidates)
	if err != nil {
		r.pruneFailed(ctx, s, err)
		return
	}
	if held := holds(live, len(removable)); held != "" {
		r.holdPrune(s, held, removable)
		return
	}
	r.remove(ctx, s, removable)
}

// subset finds the arguments with which ansible-playbook runs a part of the tasks only, or
// changes nothing, also where they are cut short or joined with others.
var subset = regexp.MustCompile(`(^|[\s"'])(--(ta|sk|st|li|ch)|-[a-zA-Z]*[tlC])`)

// notWhole says why a run that has succeeded may not have come to all that its role does;
// empty if nothing says so.
func (r *reconciler) notWhole(s *scope) string {
	sum := s.result.Summary
	action := sum.Task.Action[strings.LastIndexByte(sum.Task.Action, '.')+1:]
	switch {
	case sum.Ignored > 0 || sum.Rescued > 0:
		return "failures were ignored or rescued"
	case sum.RequeueAfter != nil:
		return "the run has asked for another one"
	case s.calls != nil && s.calls.parked() != nil:
		return "the run waits"
	case sum.Bad > 0 || sum.Gaps > 0:
		return "events of the run are missing"
	case sum.NoHostsMatched:
		return "a play has found no host"
	case action == "meta":
		return "the last task is a meta task, which may have ended the play early"
	case subset.MatchString(r.opts.AnsibleArgs):
		return "--ansible-args selects a part of the tasks"
	case os.Getenv("ANSIBLE_RUN_TAGS")+os.Getenv("ANSIBLE_SKIP_TAGS") != "":
		return "ANSIBLE_RUN_TAGS or ANSIBLE_SKIP_TAGS selects a part of the tasks"
	}
	return ""
}

// owned is what the object of s owns. It waits a moment for the watches if wait is true.
func (r *reconciler) owned(ctx context.Context, s *scope, wait bool) ([]dependent.Object, bool) {
	ctx, cancel := context.WithTimeout(ctx, maxAwaited)
	defer cancel()
	for {
		owned, known := r.dependents.Objects(s.key, s.object.GetUID())
		if known || !wait || !sleep(ctx, minShown) {
			return owned, known
		}
	}
}

// untouched are the objects of kinds that runs of the owner have created and this one has
// not touched; live is how many it has touched.
func untouched(owned []dependent.Object, touched map[touch]struct{}, kinds []schema.GroupVersionKind) (candidates []dependent.Object, live int) {
	for _, o := range owned {
		if _, ok := touched[touch{o.Resource.Resource, o.Namespace, o.Name}]; ok {
			live++
			continue
		}
		if o.Created && ofKinds(kinds, o.Resource.Group, o.Kind) {
			candidates = append(candidates, o)
		}
	}
	return candidates, live
}

// ofKinds reports whether a kind is one of these, in any version.
func ofKinds(kinds []schema.GroupVersionKind, group, kind string) bool {
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Group == group && k.Kind == kind })
}

// holds says why so many objects are not removed where the run has touched that many;
// empty if they are.
func holds(live, removable int) string {
	switch {
	case removable == 0:
		return ""
	case live == 0:
		return "the run has touched nothing that the object owns"
	case removable > prunedFreely && removable > live:
		return fmt.Sprintf("the run has not touched %d of %d objects, more than half of them", removable, removable+live)
	}
	return ""
}

// removable are the candidates that may be removed as they are now. There are none if the
// owner has changed since its run began.
func (r *reconciler) removable(ctx context.Context, s *scope, candidates []dependent.Object) (removable []dependent.Object, err error) {
	owner := r.newObject()
	if err := r.live.Get(ctx, s.key, owner); err != nil {
		return nil, fmt.Errorf("read the object: %w", err)
	}
	if !r.isStill(s, owner) {
		return nil, nil
	}
	for _, o := range candidates {
		is, err := r.metadata.Resource(o.Resource).Namespace(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("read %s %s: %w", o.Resource.GroupResource(), o.NamespacedName, err)
		case is.UID == o.UID && Kept(is, o.Resource, r.owner(s), owner.GetCreationTimestamp().Time) == "":
			o.Version = is.ResourceVersion
			removable = append(removable, o)
		}
	}
	return removable, nil
}

// isStill reports whether the object is what its run was made for.
func (r *reconciler) isStill(s *scope, obj *unstructured.Unstructured) bool {
	return obj.GetUID() == s.object.GetUID() && obj.GetGeneration() == s.active.Generation && obj.GetDeletionTimestamp() == nil
}

// Kept says why an object is never pruned for the owner, which was created at a time,
// whatever its kind; empty if it may be.
func Kept(o metav1.Object, resource schema.GroupVersionResource, owner proxy.Owner, created time.Time) string {
	others := slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID != owner.UID })
	_, helm := o.GetAnnotations()["meta.helm.sh/release-name"]
	_, hook := o.GetAnnotations()["helm.sh/hook"]
	switch {
	case !proxy.CreatedBy(o, resource, owner.UID):
		return "no run has created it since prune is on"
	case created.IsZero() || o.GetCreationTimestamp().Time.Before(created):
		return "it is older than its owner, whose runs cannot have created it" // its notes are forged
	case len(o.GetOwnerReferences()) == 0 && !proxy.AnnotatedBy(o.GetAnnotations(), owner):
		return "it has another owner"
	case others:
		return "it has another owner, too"
	case o.GetAnnotations()[keepAnnotation] == "false":
		return "its annotation " + keepAnnotation + " says so"
	case proxy.Outlives(o.GetAnnotations()):
		return "its annotation helm.sh/resource-policy says so"
	case helm, hook:
		return "it is part of a Helm release"
	case o.GetDeletionTimestamp() != nil:
		return "it is being deleted"
	}
	return ""
}

// remove deletes the objects, as they were when they were looked at.
func (r *reconciler) remove(ctx context.Context, s *scope, removable []dependent.Object) {
	background := metav1.DeletePropagationBackground
	var removed []dependent.Object
	var errs error
	for _, o := range removable[:min(len(removable), maxPruned)] {
		err := r.metadata.Resource(o.Resource).Namespace(o.Namespace).Delete(ctx, o.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &o.UID, ResourceVersion: &o.Version}, PropagationPolicy: &background,
		})
		switch {
		case err == nil:
			s.tracker.Deleted(proxy.Child{Resource: o.Resource, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID})
			removed = append(removed, o)
		case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
			errs = errors.Join(errs, fmt.Errorf("delete %s %s: %w", o.Resource.GroupResource(), o.NamespacedName, err))
		}
	}
	if s.pruned = int64(len(removed)); s.pruned > 0 {
		r.metrics.Pruned(r.gvk, len(removed))
		s.log.Info("Objects that the run has not touched are removed", "count", len(removed), "objects", namesOf(removed, len(removed)))
		r.tell(s, reported{corev1.EventTypeNormal, reasonPruned, actionReconcile, "Removed what the last run did not touch: " + namesOf(removed, maxNamed)})
	}
	if errs != nil {
		r.pruneFailed(ctx, s, errs)
	}
}

// holdPrune says that objects stay that would have been removed, for people to look at.
func (r *reconciler) holdPrune(s *scope, why string, objects []dependent.Object) {
	said := fmt.Sprintf("nothing was pruned, because %s; see whether the role skips what it should not, or delete with kubectl what is of no use any more: %s",
		why, namesOf(objects, maxNamed))
	s.warnings = append(s.warnings, said)
	r.tell(s, reported{corev1.EventTypeWarning, reasonPruneHeld, actionReconcile, s.mask.Mask(said)})
}

// pruneFailed says that objects could not be removed. The run has succeeded all the same;
// the next one tries it again.
func (r *reconciler) pruneFailed(ctx context.Context, s *scope, err error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // the operator stops, or the object goes
	}
	hint := ""
	if apierrors.IsForbidden(err) {
		hint = "; grant the operator get and delete on these kinds"
	}
	s.warnings = append(s.warnings, short("what the run has not touched cannot be pruned, which the next run tries again: "+err.Error()+hint))
}

// maxNamed is how many objects are named in a status or an Event.
const maxNamed = 10

// namesOf are the names of the first objects.
func namesOf(objects []dependent.Object, most int) string {
	var names []string
	for _, o := range objects[:min(len(objects), most)] {
		names = append(names, o.Kind+" "+strings.TrimPrefix(o.NamespacedName.String(), "/"))
	}
	if more := len(objects) - most; more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}
