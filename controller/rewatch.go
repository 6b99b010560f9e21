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

// all are the kinds that are watched at the moment.
func (s *Set) all() []*kind {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kinds)
}

// Watch has the watches of a list served, and runs made of a copy of the content from now
// on. A kind whose watch is as it was goes on, and its objects are looked at; another
// one is stopped: its runs end as they have begun, no new one starts, and then it is
// served as the list says, if it is in it. Safe for concurrent use.
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

// serve has the watches of a list served for the objects of a shard.
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
	for _, k := range added {
		if shard == nil {
			s.log.Info("Watching resource", "Options.Group", k.watch.GVK.Group, "Options.Version", k.watch.GVK.Version, "Options.Kind", k.watch.GVK.Kind)
		}
		if err := s.mgr.Add(k); err != nil {
			return fmt.Errorf("add watch %s: %w", k.watch.GVK, err)
		}
	}
	return nil
}

// replace stops those that are not among kinds, and has those that were added wait for the
// end of what was served of the same kind. The kinds of other shards stay.
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
			k.state = errWaiting // which leaves a Pod ready
		}
	}
	s.mu.Lock()
	s.kinds = all
	s.mu.Unlock()
	for _, k := range stopped {
		s.showReady(k.watch.GVK)
	}
}

// closed is true if nothing is left of a kind that was stopped.
func closed(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}

// awaitBefore waits for the end of what was served of the kind before, which comes with
// the end of the operator, too.
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

// same tells whether two watches are, wherever they stand in the file.
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

// ContentChanged has all objects looked at whose roles or playbooks may have changed:
// those run for which they have. Safe for concurrent use.
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
