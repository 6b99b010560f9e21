package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/watches"
)

// all returns the kinds that are currently watched.
func (s *Set) all() []*kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kinds)
}

// Watch replaces the served watches by a list, and the content of new runs by a copy. A watch
// that has not changed continues, and its objects are queued. A changed or removed watch is
// stopped: it starts no new runs, and its runs in progress go on to their end; after that, the
// new watch of the kind is served, if there is one. Watch is safe for concurrent use.
func (s *Set) Watch(all []watches.Watch, content *contentcopy.Copy) error {
	s.change.Lock()
	defer s.change.Unlock()
	s.watched, s.copied = all, content
	for _, shard := range s.shards {
		if err := s.serve(shard, all); err != nil {
			return err
		}
	}
	return nil
}

// serve serves the watches of a list for the objects of a shard. The caller must hold s.change.
func (s *Set) serve(shard *Shard, all []watches.Watch) error {
	content := s.copied
	by, claims, err := newWatchers(all, s.watchers[shard])
	if err != nil {
		return err
	}
	names := controllerNames(all)
	var kinds, added []*kind
	of := map[*watchers][]*kind{}
	for i, w := range all {
		watchers := by[w.GVK.GroupKind()]
		if at := slices.IndexFunc(s.kinds, func(k *kind) bool { return same(k.watch, w) && k.watchers == watchers }); at >= 0 {
			s.kinds[at].change(newContentVersion(w, s.opts, content, s.encrypted))
			kinds, of[watchers] = append(kinds, s.kinds[at]), append(of[watchers], s.kinds[at])
			continue
		}
		k := s.newKind(w, names[i], content, shard)
		k.watchers, k.claimIndex = watchers, claims[i]
		kinds, added, of[watchers] = append(kinds, k), append(added, k), append(of[watchers], k)
	}
	s.watchers[shard] = by
	s.replace(shard, kinds, added)
	for watchers, kinds := range of {
		watchers.set(kinds)
	}
	for i, k := range added {
		if shard == nil {
			s.log.Info("Watching resource", "Options.Group", k.watch.GVK.Group, "Options.Version", k.watch.GVK.Version, "Options.Kind", k.watch.GVK.Kind)
		}
		if err := s.mgr.Add(k); err != nil {
			for _, never := range added[i:] {
				close(never.ended) // it is never started
			}
			return fmt.Errorf("add watch %s: %w", k.watch.GVK, err)
		}
	}
	return nil
}

// replace makes kinds the served kinds of a shard. It stops the shard's other kinds, and has those
// in added wait for the end of their predecessors. The kinds of other shards are not affected.
func (s *Set) replace(shard *Shard, kinds, added []*kind) {
	all := append([]*kind{}, kinds...)
	var stopped []*kind
	for _, k := range s.kinds {
		switch at := (ofShard{shard, k.watch.GVK}); {
		case k.shard != shard:
			all = append(all, k)
		case !slices.Contains(kinds, k):
			k.stop(errReplaced)
			stopped = append(stopped, k)
			s.ending[at] = append(slices.DeleteFunc(s.ending[at], closed), k.ended)
			if shard == nil || len(kinds) > 0 { // else the whole shard is given up
				k.log.Info("Stopped the former watch of a kind", "gvk", k.watch.GVK.String())
			}
		}
	}
	for _, k := range added {
		if k.after = slices.Clone(s.ending[ofShard{shard, k.watch.GVK}]); s.kinds != nil || shard != nil {
			k.state = errWaiting // the Pod stays ready in this state
		}
	}
	s.mu.Lock()
	s.kinds = all
	s.mu.Unlock()
	for _, k := range stopped {
		s.showReady(k.watch.GVK)
	}
}

// closed reports whether a channel is closed.
func closed(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// awaitBefore waits for the end of the kind's predecessors, which also end when the operator
// stops.
func (k *kind) awaitBefore() {
	if len(k.after) == 0 {
		return
	}
	k.opts.Metrics.KindReady(k.watch.GVK, false)
	idle := time.After(time.Second) // by then what is idle has ended
	for _, ended := range k.after {
		select {
		case <-ended:
			continue
		case <-idle:
		}
		k.log.Info("Kind is not served: its watch was changed, and its runs in progress have to end first. "+
			"They end by themselves or at their timeout and idleTimeout; restart the operator to end them now", "gvk", k.watch.GVK.String())
		break
	}
	for _, ended := range k.after {
		<-ended
	}
}

// same reports whether two watches are equal, apart from their positions in the file.
func same(a, b watches.Watch) bool {
	a.Pos, b.Pos = watches.Position{}, watches.Position{}
	return reflect.DeepEqual(a, b)
}

func (s *Set) newKind(w watches.Watch, name string, content *contentcopy.Copy, shard *Shard) *kind {
	k := &kind{
		watch: w, name: name, opts: s.opts, set: s,
		cfg: s.mgr.GetConfig(), http: s.mgr.GetHTTPClient(), scheme: s.mgr.GetScheme(),
		store: s.store, log: s.log, state: errNotStarted, ended: make(chan struct{}),
		content: newContentVersion(w, s.opts, content, s.encrypted), shard: shard,
	}
	if shard != nil {
		k.log = k.log.WithValues("shard", shard.Name)
	}
	k.stopped, k.stop = context.WithCancelCause(context.Background())
	k.leaving, k.leave = context.WithCancel(context.Background())
	return k
}

// ContentChanged makes the operator read the content again, and queues all objects; those whose
// content has changed run. It is safe for concurrent use.
func (s *Set) ContentChanged() {
	for _, k := range s.all() {
		u := k.acquireContent(context.Background())
		if u == nil {
			continue
		}
		u.inputs.files.Forget()
		k.change(u)
		u.copy.Release()
	}
}
