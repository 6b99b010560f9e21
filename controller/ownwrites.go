package controller

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/proxy"
)

// referringRun is a run in progress of an object with references or triggers. It records what
// the run writes to those objects, and which versions of them the watch has shown meanwhile. It
// is a [proxy.Writes].
type referringRun struct {
	f   *referring
	key types.NamespacedName
	// targets are the objects that the object refers to and those that start it, by their resource and
	// name when the run began; members are those that start it, per trigger.
	targets map[child]target
	members [][]referred

	mu sync.Mutex
	// own are the versions that the run has written.
	own map[target][]string
	// seen are the versions that the watch has shown.
	seen map[target][]string
}

// child is an object as the API proxy names it.
type child struct {
	schema.GroupResource
	types.NamespacedName
}

// maxSeen is the largest number of versions of one object that a run remembers. If there are
// more, another run follows.
const maxSeen = 100

// begin is called before a run of an object; the caller has to call end after the run.
func (f *referring) begin(key types.NamespacedName, all []referred) *referringRun {
	run := &referringRun{f: f, key: key, targets: map[child]target{}, own: map[target][]string{}, seen: map[target][]string{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.triggers {
		members := t.membersOf(key)
		run.members, all = append(run.members, members), append(slices.Clip(all), members...)
	}
	for _, is := range all {
		if is.kind.followed != nil && f.seen(is.target) {
			run.targets[child{is.kind.resource.GroupResource(), is.NamespacedName}] = is.target
		}
	}
	f.runs[key] = run
	return run
}

func (run *referringRun) end() {
	run.f.mu.Lock()
	defer run.f.mu.Unlock()
	if run.f.runs[run.key] == run {
		delete(run.f.runs, run.key)
	}
}

// see notes a version of an object that the watch has shown. The caller must hold the lock
// of referring.
func (run *referringRun) see(t target, version string) {
	if _, follows := run.targets[child{t.kind.resource.GroupResource(), t.NamespacedName}]; !follows {
		return
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if len(run.seen[t]) <= maxSeen {
		run.seen[t] = append(run.seen[t], version)
	}
}

// Wants implements [proxy.Writes].
func (run *referringRun) Wants(resource schema.GroupVersionResource, namespace, name string) bool {
	for c := range run.targets {
		if c.GroupResource == resource.GroupResource() && c.Namespace == namespace && (name == "" || c.Name == name) {
			return true
		}
	}
	return false
}

// Stored implements [proxy.Writes].
func (run *referringRun) Stored(c proxy.Child) {
	run.wrote(c, versionName(dependent.Version{UID: c.UID, ResourceVersion: c.ResourceVersion, Generation: c.Generation}))
}

// deleted is called for each object that the run has deleted.
func (run *referringRun) deleted(c proxy.Child) { run.wrote(c, missing) }

func (run *referringRun) wrote(c proxy.Child, version string) {
	t, wanted := run.targets[child{c.Resource.GroupResource(), types.NamespacedName{Namespace: c.Namespace, Name: c.Name}}]
	if !wanted {
		return
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	if own := run.own[t]; len(own) <= maxSeen {
		run.own[t] = append(own, version)
	}
}

// only reports whether only the run has changed an object since version was, when version
// is is the current one. certain says whether the watch has shown enough to be sure.
func (run *referringRun) only(t target, was, is string) (only, certain bool) {
	run.mu.Lock()
	defer run.mu.Unlock()
	own := run.own[t]
	if len(own) == 0 || len(own) > maxSeen || len(run.seen[t]) > maxSeen {
		return false, true
	}
	for _, version := range run.seen[t] {
		if version != was && !slices.Contains(own, version) {
			return false, true
		}
	}
	return is == own[len(own)-1], is == own[len(own)-1]
}

// maxShown is how long the end of a run waits for the watch to show what the run has
// written; minShown is the pause between two checks.
const (
	maxShown = 2 * time.Second
	minShown = 10 * time.Millisecond
)

// settleReferences is called when the run of s has ended. Versions of other objects that the
// run itself has written replace those in the run's inputs. Versions that others have written
// do not, so that another run follows.
func (r *reconciler) settleReferences(ctx context.Context, s *scope) {
	if s.referring == nil {
		return
	}
	defer r.watchReported(s)
	if s.earlier {
		return // such a run has the inputs in its ticket
	}
	ctx, cancel := context.WithTimeout(ctx, maxShown)
	defer cancel()
	f := s.referring.f
	s.referring.settle(ctx, s.referred, func(t target) referred { return f.now(t, r.owner(s)) })
	for i := range s.triggered { // none in a finalizer run
		t, members := f.triggers[i], s.referring.members[i]
		s.referring.settle(ctx, members, func(of target) referred { return f.memberNow(t, s.key, of) })
		s.triggered[i].value = digestOf(members)
	}
	r.noteReferred(s)
}

// settle replaces, in all, the objects that only the run has changed by what now returns for them.
func (run *referringRun) settle(ctx context.Context, all []referred, now func(target) referred) {
	for i, was := range all {
		for {
			is := now(was.target)
			only, certain := run.only(was.target, was.version, is.version)
			if only {
				all[i] = is
			}
			if certain || !sleep(ctx, minShown) {
				break
			}
		}
	}
}

// sleep waits for d. It returns false if ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// referredParts returns the inputs from the object's references and triggers.
func (s *scope) referredParts() []fingerprint.Part {
	var parts []fingerprint.Part
	for _, is := range s.referred {
		parts = append(parts, fingerprint.Part{Group: fingerprint.OfReferences, Name: is.String(), Value: is.value})
	}
	for _, is := range s.triggered {
		parts = append(parts, is.part(is.value))
	}
	return parts
}

// ofReferred reports whether p is one of the referredParts.
func ofReferred(p fingerprint.Part) bool {
	return p.Group == fingerprint.OfReferences || p.Group == fingerprint.OfTriggers
}

// noteReferred recomputes the fingerprint of a run with the current references and
// triggers in s.
func (r *reconciler) noteReferred(s *scope) {
	s.parts = append(slices.DeleteFunc(slices.Clone(s.parts), ofReferred), s.referredParts()...)
	s.fingerprint, s.inputs = fingerprint.Of(s.parts), r.packInputs(s)
}
