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

// Limits of what one run prunes.
const (
	// maxPruned is how many objects one run removes; the following runs remove the others.
	maxPruned = 20
	// prunedFreely is how many objects are removed even if they are most of what the object owns.
	prunedFreely = 3
	// maxCandidates is how many untouched objects there may be. With more, the run prunes nothing.
	maxCandidates = 200
	// maxTouched is how many names one run remembers. With more, the run prunes nothing.
	maxTouched = 100_000
	// maxTouchedBytes is the total length of these names. With more, the run prunes nothing.
	maxTouchedBytes = 8 << 20
	// pruneTimeout limits the time of all requests together.
	pruneTimeout = time.Minute
	// maxAwaited is how long a run waits for the watches to show what its object owns.
	maxAwaited = 5 * time.Second
)

// Reasons of Events about pruning.
const (
	reasonPruned    = "Pruned"
	reasonPruneHeld = "PruneHeld"
)

// keepAnnotation protects an object from pruning if its value is "false".
const keepAnnotation = ownPrefix + "prune"

// touches are the objects that a run has named in requests, including reads: a task whose object
// is already as wanted only reads it. It is a [proxy.Touched].
type touches struct {
	mu     sync.Mutex
	named  map[touch]struct{}
	bytes  int // the total length of the names
	untold bool
}

// touch names an object. It has no group, since some objects are served in several groups.
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

// all returns the touched objects, and false if not all of them are known.
func (t *touches) all() (map[touch]struct{}, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.named, !t.untold
}

// pruning reports whether runs prune what they have not touched.
func (r *reconciler) pruning() bool {
	return r.watch.Prune && r.opts.InjectOwnerRef && r.dependents != nil
}

// pruneUntouched removes what runs of the object have created and this run has not touched. It does so
// only after a success, when all requests of the run have ended. In doubt it removes nothing.
func (r *reconciler) pruneUntouched(ctx context.Context, s *scope) {
	if s.touched == nil || s.err != nil || !s.result.Verdict().Success {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	touched, told := s.touched.all()
	why := r.notWhole(s)
	if !told {
		why = "the run has written in an encoding, or so much, that the operator cannot tell what it has touched"
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
		s.log.Info("What the run has not touched is pruned after the next run at the earliest: the watches do not show yet what the object owns")
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

// subset matches the arguments with which ansible-playbook runs only some of the tasks, or changes
// nothing, also in abbreviated or combined form.
var subset = regexp.MustCompile(`(^|[\s"'])(--(ta|sk|st|li|ch)|-[a-zA-Z]*[tlC])`)

// notWhole returns why a successful run may not have executed all of its role; empty if there is no
// sign of that.
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

// owned returns what the object of s owns; false if the watches do not show all of it yet. It waits
// for them, up to maxAwaited, if wait is true.
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

// untouched returns the objects of these kinds that runs of the owner have created and this run has
// not touched; live is the number of owned objects that it has touched.
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

// ofKinds reports whether kinds has a kind, in any version.
func ofKinds(kinds []schema.GroupVersionKind, group, kind string) bool {
	return slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool { return k.Group == group && k.Kind == kind })
}

// holds returns why the removable objects are not removed although nothing else is in doubt; empty if they
// are removed. live is the number of owned objects that the run has touched.
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

// removable returns the candidates that may be removed, judged by their live state. There are none if
// the owner has changed since its run began.
func (r *reconciler) removable(ctx context.Context, s *scope, candidates []dependent.Object) (removable []dependent.Object, err error) {
	owner := r.newObject()
	if err := r.client.Get(ctx, s.key, owner); err != nil {
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

// isStill reports whether the object is unchanged since its run was planned.
func (r *reconciler) isStill(s *scope, obj *unstructured.Unstructured) bool {
	return obj.GetUID() == s.object.GetUID() && obj.GetGeneration() == s.active.Generation && obj.GetDeletionTimestamp() == nil
}

// Kept returns why an object is not pruned for the owner, whatever its kind; empty if it may be
// pruned. created is when the owner was created.
func Kept(o metav1.Object, resource schema.GroupVersionResource, owner proxy.Owner, created time.Time) string {
	others := slices.ContainsFunc(o.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID != owner.UID })
	_, helm := o.GetAnnotations()["meta.helm.sh/release-name"]
	_, hook := o.GetAnnotations()["helm.sh/hook"]
	switch {
	case !proxy.CreatedBy(o, resource, owner.UID):
		return "no run has created it since prune is on"
	case created.IsZero() || o.GetCreationTimestamp().Time.Before(created):
		return "it is older than its owner, whose runs cannot have created it" // its creation marks are forged
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

// remove deletes the objects, provided that they have not changed since removable read them.
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

// holdPrune reports, as a warning and as an Event, that objects were not pruned, so that someone checks them.
func (r *reconciler) holdPrune(s *scope, why string, objects []dependent.Object) {
	said := fmt.Sprintf("nothing was pruned, because %s; check whether the role skips tasks that it should run, or delete with kubectl what is no longer needed: %s",
		why, namesOf(objects, maxNamed))
	s.warnings = append(s.warnings, said)
	r.tell(s, reported{corev1.EventTypeWarning, reasonPruneHeld, actionReconcile, s.mask.Mask(said)})
}

// pruneFailed adds a warning that objects could not be removed. The run still counts as a success;
// the next one tries again.
func (r *reconciler) pruneFailed(ctx context.Context, s *scope, err error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // the operator stops, or the object is gone
	}
	hint := ""
	if apierrors.IsForbidden(err) {
		hint = "; grant the operator get and delete on these kinds"
	}
	s.warnings = append(s.warnings, short("what the run has not touched cannot be pruned, which the next run tries again: "+err.Error()+hint))
}

// maxNamed is how many objects a status or an Event names.
const maxNamed = 10

// namesOf returns the names of the first most objects, and the number of the others, as text.
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
