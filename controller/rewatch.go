package controller

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
// served as the list says, if it is in it. It is not safe for concurrent use.
func (s *Set) Watch(all []watches.Watch, content *contentcopy.Copy) error {
	names := controllerNames(all)
	var kinds, added []*kind
	for i, w := range all {
		if at := slices.IndexFunc(s.kinds, func(k *kind) bool { return same(k.watch, w) }); at >= 0 {
			s.kinds[at].change(newUse(w, s.opts, content, s.encrypted))
			kinds = append(kinds, s.kinds[at])
			continue
		}
		k, err := s.newKind(w, names[i], content)
		if err != nil {
			return err
		}
		kinds, added = append(kinds, k), append(added, k)
	}
	for _, k := range s.kinds {
		if !slices.Contains(kinds, k) {
			k.stop(errReplaced)
			s.ending[k.watch.GVK] = k.ended
			s.opts.Metrics.KindRemoved(k.watch.GVK)
			s.log.Info("Not watching resource any more as it was", "gvk", k.watch.GVK.String())
		}
	}
	for _, k := range added {
		if k.after = s.ending[k.watch.GVK]; s.kinds != nil {
			k.state = errWaiting // which leaves a Pod ready
		}
	}
	s.mu.Lock()
	s.kinds = append([]*kind{}, kinds...)
	s.mu.Unlock()
	for _, k := range added {
		s.log.Info("Watching resource", "Options.Group", k.watch.GVK.Group, "Options.Version", k.watch.GVK.Version, "Options.Kind", k.watch.GVK.Kind)
		if err := s.mgr.Add(k); err != nil {
			return fmt.Errorf("add watch %s: %w", k.watch.GVK, err)
		}
	}
	return nil
}

// awaitBefore waits for the end of what was served under the name before, which comes with
// the end of the operator, too.
func (k *kind) awaitBefore() {
	if k.after == nil {
		return
	}
	k.opts.Metrics.KindReady(k.watch.GVK, false)
	select {
	case <-k.after:
		return
	case <-time.After(time.Second): // what is idle has ended by then
	}
	k.log.Info("Kind is not served: its watch was changed, and its runs in progress have to end first. "+
		"They end by themselves or at their timeout and idleTimeout; restart the operator to end them now", "gvk", k.watch.GVK.String())
	<-k.after
}

// same tells whether two watches are, wherever they stand in the file.
func same(a, b watches.Watch) bool {
	a.Pos, b.Pos = watches.Position{}, watches.Position{}
	return reflect.DeepEqual(a, b)
}

func (s *Set) newKind(w watches.Watch, name string, content *contentcopy.Copy) (*kind, error) {
	selector, err := metav1.LabelSelectorAsSelector(&w.Selector)
	if err != nil {
		return nil, fmt.Errorf("selector of watch %s: %w", w.GVK, err)
	}
	k := &kind{
		watch: w, name: name, opts: s.opts, set: s,
		cfg: s.mgr.GetConfig(), http: s.mgr.GetHTTPClient(), scheme: s.mgr.GetScheme(),
		selector: selector, store: s.store, log: s.log, state: errNotStarted, ended: make(chan struct{}),
		use: newUse(w, s.opts, content, s.encrypted),
	}
	k.stopped, k.stop = context.WithCancelCause(context.Background())
	return k, nil
}

// ContentChanged has all objects looked at whose roles or playbooks may have changed:
// those run for which they have. Safe for concurrent use.
func (s *Set) ContentChanged() {
	for _, k := range s.all() {
		u := k.take(context.Background())
		if u == nil {
			continue
		}
		u.content.files.Forget()
		k.change(u)
		u.copy.Release()
	}
}
