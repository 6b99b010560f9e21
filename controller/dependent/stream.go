package dependent

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/rolewright/rolewright/internal/discovery"
)

// stream lists and watches one resource in one namespace, or in all.
type stream struct {
	feed      *feed
	namespace string // empty for all, and for cluster-scoped resources

	// The registry's lock guards the following fields.

	// listed is the version of the last list; position is the version up to which
	// events were handled. Both are empty before the first list.
	listed, position string
	// old counts the lists in a row that were older than position.
	old int
	// working is true once all owned objects were listed and a watch from there
	// has begun. It stays true while a broken watch is begun again.
	working bool
	// named is true once all objects were listed for feed.named.
	named bool
	// denied is true if the API server has refused the list or watch, or does not
	// know the resource.
	denied bool
	// missing is since when all answers were that there is no such resource; zero if the last one was not. Only run uses it.
	missing time.Time
	// failing is since when neither a refusal nor a watch came; zero if the last watch began.
	failing time.Time
	// logged is true if the refusal or the failure was logged.
	logged bool
	// refused is why the objects cannot be watched at the moment; else empty.
	refused string
}

const (
	// pageSize limits the memory for a list. client-go's pager has the same.
	pageSize = 500
	// pageTimeout limits the request for one page.
	pageTimeout = time.Minute
	// watchTimeout is the shortest time after which a watch is begun again; the
	// longest is twice that. It spreads the watches over the API servers.
	watchTimeout = 5 * time.Minute
	// minDelay is the first pause after a broken watch; it doubles each time.
	minDelay = 200 * time.Millisecond
	// maxOld is how many lists in a row may be older than what was seen: about six seconds, with these delays.
	maxOld = 5
	// settled is how long a watch must have lasted for the pause to begin at minDelay again, and how long an
	// API server may fail before that is said.
	settled = time.Minute
)

// errWanted says that a new list is wanted at once, errOld that a list was older than what was seen.
var (
	errWanted = errors.New("a list is wanted")
	errOld    = errors.New("the list is older than what was seen")
)

// run follows the resource until ctx ends.
func (s *stream) run(ctx context.Context) {
	delay := minDelay
	resume := false // whether to watch from the last position, without a list
	for {
		began := time.Now()
		err := s.follow(ctx, resume)
		if ctx.Err() != nil {
			return
		}
		resume = s.judge(ctx, err)
		if time.Since(began) > settled {
			delay = minDelay
		}
		if !errors.Is(err, errWanted) {
			if !pause(ctx, delay) {
				return
			}
			delay = min(2*delay, s.feed.registry.denied)
		}
	}
}

// pause waits for d and up to half of it more, so that many streams do not come back
// at once. It returns false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d + rand.N(d/2+1))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// follow lists, unless it resumes, and handles events until the watch ends.
func (s *stream) follow(ctx context.Context, resume bool) error {
	r := s.feed.registry
	r.mu.Lock()
	resource, kinds, wanted, position := s.feed.resource, s.feed.kinds, s.feed.wanted, s.position
	named := s.feed.versions != nil
	s.denied = false             // until the API server refuses again
	resume = resume && s.working // else a kind has joined whose objects are not listed
	r.mu.Unlock()
	if !resume {
		found, err := s.list(ctx, resource, kinds, named)
		if err != nil {
			return err
		}
		if err := s.take(found, wanted); err != nil {
			return err
		}
		position = found.version
	}
	return s.watch(ctx, resource, position, wanted)
}

// take merges a list into what is known. It returns an error if another list is needed:
// errWanted if a kind has joined meanwhile, whose objects this list does not have; errOld
// if the list is older than what was handled already, so that newer objects would seem
// deleted. If lists are older for some seconds, as after a restore of etcd, they count.
func (s *stream) take(found found, wanted <-chan struct{}) error {
	var notices []notice
	defer func() { deliver(notices) }() // runs after the unlock
	s.feed.registry.mu.Lock()
	defer s.feed.registry.mu.Unlock()
	if wanted != s.feed.wanted {
		return errWanted
	}
	if newer(s.position, found.version) && s.old < maxOld {
		s.old++
		return errOld
	}
	s.old = 0
	notices = append(s.feed.merge(s, found.owned, found.version), s.feed.mergeVersions(s, found.all)...)
	return nil
}

// found is the result of a list.
type found struct {
	owned map[types.NamespacedName]*record
	// all is nil if objects are not followed by name.
	all map[types.NamespacedName]Version
	// version is the list's resource version.
	version string
}

// list returns the objects owned by objects of kinds and, if named is true, also the versions of all objects.
func (s *stream) list(ctx context.Context, resource schema.GroupVersionResource, kinds []*Kind, named bool) (found, error) {
	is := found{owned: map[types.NamespacedName]*record{}}
	if named {
		is.all = map[types.NamespacedName]Version{}
	}
	options := metav1.ListOptions{Limit: pageSize}
	for {
		page, err := s.page(ctx, resource, options)
		if err != nil {
			return found{}, fmt.Errorf("list: %w", err)
		}
		for i := range page.Items {
			o := &page.Items[i]
			if owners := ownersOf(o, kinds); len(owners) > 0 {
				is.owned[idOf(o)] = newRecord(o, owners)
			}
			if named {
				is.all[idOf(o)] = VersionOf(o)
			}
		}
		if page.Continue == "" {
			is.version = page.ResourceVersion
			return is, nil
		}
		options.Continue = page.Continue
	}
}

func (s *stream) page(ctx context.Context, resource schema.GroupVersionResource, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	return s.feed.registry.opts.Client.Resource(resource).Namespace(s.namespace).List(ctx, o)
}

// watch handles the events after a version. It returns nil when the API server
// ends the watch, which happens regularly.
func (s *stream) watch(ctx context.Context, resource schema.GroupVersionResource, version string, wanted <-chan struct{}) error {
	timeout := int64((watchTimeout + rand.N(watchTimeout)).Seconds())
	w, err := s.feed.registry.opts.Client.Resource(resource).Namespace(s.namespace).Watch(ctx, metav1.ListOptions{
		ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: &timeout,
	})
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer func() {
		w.Stop()
		for range w.ResultChan() { // drain it, so that the reader of the connection ends
		}
	}()
	s.opened(resource, wanted)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wanted:
			return errWanted
		case event, ok := <-w.ResultChan():
			if !ok {
				return nil
			}
			if err := s.handle(event); err != nil {
				return err
			}
		}
	}
}

// handle handles one event.
func (s *stream) handle(event watch.Event) error {
	if event.Type == watch.Error {
		return fmt.Errorf("watch: %w", apierrors.FromObject(event.Object))
	}
	o, err := meta.Accessor(event.Object)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	f := s.feed
	f.registry.mu.Lock()
	var notices []notice
	switch event.Type {
	case watch.Deleted:
		notices = append(f.deleted(idOf(o)), f.putVersion(idOf(o), nil)...)
		delete(f.own, o.GetUID())
	case watch.Added, watch.Modified:
		v := VersionOf(o)
		notices = append(f.updated(o), f.putVersion(idOf(o), &v)...)
	}
	s.position = o.GetResourceVersion()
	f.registry.mu.Unlock()
	deliver(notices)
	return nil
}

// opened notes that a watch has begun. If no kind has joined since the list, the
// stream is working.
func (s *stream) opened(resource schema.GroupVersionResource, wanted <-chan struct{}) {
	f := s.feed
	var notices []notice
	defer func() { deliver(notices) }() // once the lock is released
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	s.refused, s.failing, s.logged = "", time.Time{}, false
	notices = f.refusals()
	if wanted != f.wanted || s.working {
		return
	}
	s.working = true
	if f.complete() {
		clear(f.hints) // the records replace them
		f.registry.opts.Log.Info("Watching child resource", "kind", resource.GroupVersion().WithKind(f.kind).String())
	}
}

// judge reports whether a watch that ended with err can be resumed from its last position.
func (s *stream) judge(ctx context.Context, err error) bool {
	missing := apierrors.IsNotFound(err)
	if !missing {
		s.missing = time.Time{}
	} else if s.missing.IsZero() {
		s.missing = time.Now()
	}
	switch {
	case missing && time.Since(s.missing) < absentFor:
		return false
	case missing && !s.gone(ctx):
		s.fail(err)
		return false
	case err == nil:
		return true
	case errors.Is(err, errWanted), errors.Is(err, errOld), apierrors.IsResourceExpired(err), apierrors.IsGone(err),
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge):
		return false
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err), apierrors.IsMethodNotSupported(err):
		s.deny(err)
		return false
	}
	s.fail(err)
	return true
}

// gone reports whether the API server says that it does not serve the resource. If it serves
// another version, the feed goes on with that.
func (s *stream) gone(ctx context.Context) bool {
	f := s.feed
	f.registry.mu.Lock()
	was := f.resource
	f.registry.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	is, err := f.registry.opts.Lookup(ctx, was)
	if err == nil {
		f.move(was, is.GVR)
	}
	return errors.Is(err, discovery.ErrNotFound)
}

// fail notes an error that may pass. If the API server fails for longer, that is logged, and if the objects
// were never listed, what refers to them gets the reason why it waits. Objects that are known stay so, and an
// outage does not change the status of what refers to them.
func (s *stream) fail(err error) {
	f := s.feed
	var notices []notice
	defer func() { deliver(notices) }() // once the lock is released
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	log := f.registry.opts.Log.WithValues("resource", f.resource.GroupResource().String(), "namespace", s.namespace, "error", err.Error())
	log.V(1).Info("Watch of dependents is interrupted")
	if s.failing.IsZero() {
		s.failing = time.Now()
	}
	if time.Since(s.failing) < settled {
		return
	}
	if !s.named && s.refused == "" { // the same text for all namespaces and errors: each change is written to the objects
		s.refused = "the API server cannot list or watch them; the log of the operator says why"
		notices = f.refusals()
	}
	if !s.logged {
		s.logged = true
		log.Info("Objects cannot be listed or watched, so their changes start no runs; they are watched again once the cause of the error is gone")
	}
}

// deny notes that the API server does not allow a watch at the moment.
func (s *stream) deny(err error) {
	f := s.feed
	var notices []notice
	defer func() { deliver(notices) }() // once the lock is released
	f.registry.mu.Lock()
	defer f.registry.mu.Unlock()
	s.working, s.denied, s.failing = false, true, time.Time{}
	gone := apierrors.IsNotFound(err)
	f.abandon(s, gone)
	if gone {
		notices = f.mergeVersions(s, map[types.NamespacedName]Version{}) // no objects exist
	}
	s.refused = s.why(err)
	notices = append(append(notices, f.refusals()...), f.nowKnown()...)
	if s.logged || gone && len(f.named) == 0 {
		return
	}
	s.logged = true
	if gone {
		f.registry.opts.Log.Info("A kind that watches refer to is not installed any more; its objects count as missing", "resource", f.resource.GroupResource().String())
		return
	}
	if len(f.named) > 0 {
		f.registry.opts.Log.Info("Objects that watches refer to cannot be watched, so their changes start no runs; allow the operator to list and watch them",
			"resource", f.resource.GroupResource().String(), "namespace", s.namespace, "verbs", "list,watch", "error", err.Error())
		return
	}
	f.registry.opts.Log.Info("Dependents cannot be watched; allow the operator to list and watch them",
		"resource", f.resource.GroupResource().String(), "namespace", s.namespace, "verbs", "list,watch", "error", err.Error())
}

// why returns a text about why there is no watch.
func (s *stream) why(err error) string {
	where := ""
	if s.namespace != "" {
		where = " in namespace " + s.namespace
	}
	switch {
	case apierrors.IsNotFound(err):
		return "the kind is not installed any more, and its objects count as missing"
	case apierrors.IsForbidden(err):
		return "the operator may not list and watch them" + where + ", so their changes start no runs until it is allowed to"
	}
	return "the API server refuses to list and watch them" + where + ", so their changes start no runs"
}

func (s *stream) covers(id types.NamespacedName) bool {
	return s.namespace == "" || s.namespace == id.Namespace
}
