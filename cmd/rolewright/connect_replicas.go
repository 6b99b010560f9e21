package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
)

// replicas returns all replicas of the operator that were found: each has a queue and a history of its own.
func (r *reader) replicas() []*reader { return append([]*reader{r}, r.others...) }

// ofReplica adds to an error which of several replicas it came from.
func (r *reader) ofReplica(one *reader, err error) error {
	if len(r.others) > 0 {
		return fmt.Errorf("ask Pod %s: %w", one.pod, err)
	}
	return err
}

// run returns the run whose ID begins with id. It fails if different runs match. If several replicas have
// the run, the answer is the first one's.
func (r *reader) run(ctx context.Context, id string) (answer api.Run, err error) {
	answer, _, err = r.runAt(ctx, id)
	return answer, err
}

// runAt is like run, and also returns the replica.
func (r *reader) runAt(ctx context.Context, id string) (answer api.Run, at *reader, err error) {
	var failed error
	var others []string
	for _, one := range r.replicas() {
		var is api.Run
		err := one.get(ctx, "/runs/"+url.PathEscape(runID(id)), nil, &is)
		known, _ := errors.AsType[codedError](err)
		switch {
		case err == nil && is.Run.ID == runID(id):
			return is, one, nil
		case err == nil && at == nil:
			answer, at = is, one
		case err == nil && is.Run.ID != answer.Run.ID:
			others = append(others, is.Run.ID)
		case known.code == exitUsage: // several runs of this replica match
			return api.Run{}, nil, r.ofReplica(one, err)
		case err != nil && (len(r.others) == 0 || known.code != exitNothing):
			failed = cmp.Or(failed, r.ofReplica(one, err))
		}
	}
	switch {
	case len(others) > 0:
		return api.Run{}, nil, usage(fmt.Errorf("run %.40q: several IDs start with this, give more characters: %s, %s", id, answer.Run.ID, strings.Join(others, ", ")))
	case at != nil:
		return answer, at, nil
	}
	return answer, nil, cmp.Or(failed, coded(fmt.Errorf("none of %d replicas has the run %.40q", len(r.replicas()), id), exitNothing))
}

// answers asks the replicas for their lists. It returns the list of the leader, or the lists of all that share the objects.
func answers[T any](ctx context.Context, r *reader, path string, query url.Values, state func(T) (leads bool, shards *api.Shards)) ([]T, error) {
	var all, leading []T
	var failed error
	alone := false
	for _, one := range r.replicas() {
		var list T
		if err := one.get(ctx, path, query, &list); err != nil {
			failed = cmp.Or(failed, r.ofReplica(one, err))
			continue
		}
		all = append(all, list)
		if leads, shards := state(list); leads {
			leading, alone = append(leading, list), alone || shards == nil
		}
	}
	switch {
	case alone && len(leading) == 1: // the others stand by
		return leading, nil
	case alone:
		return nil, usage(errors.New("several Pods start runs and do not share the objects: name your operator's Pod with --operator-pod"))
	case failed != nil:
		return nil, failed
	case len(leading) > 0:
		return leading, nil
	}
	return all[:1], nil
}

// runs lists runs: those in progress, then the newest.
func (r *reader) runs(ctx context.Context, query url.Values) (list api.RunList, err error) {
	lists, err := answers(ctx, r, "/runs", query, func(l api.RunList) (bool, *api.Shards) { return l.Metadata.Leads, l.Metadata.Shards })
	if err != nil {
		return list, err
	}
	if list = lists[0]; len(lists) == 1 {
		return list, nil
	}
	list.Metadata = api.ListMeta{Leads: true, Shards: &api.Shards{Holders: list.Metadata.Shards.Holders}}
	for _, more := range lists[1:] {
		list.Items = append(list.Items, more.Items...)
	}
	var running, ended []history.Brief
	for _, run := range list.Items {
		if run.Finished.IsZero() {
			running = append(running, run)
		} else {
			ended = append(ended, run)
		}
	}
	slices.SortStableFunc(running, func(a, b history.Brief) int { return a.Started.Compare(b.Started) })
	slices.SortStableFunc(ended, func(a, b history.Brief) int { return b.Finished.Compare(a.Finished) })
	list.Items = append(running, ended[:min(len(ended), limitIn(query))]...)
	return list, nil
}

// limitIn returns how many items are requested, from each replica and in all.
func limitIn(query url.Values) int {
	limit, _ := strconv.Atoi(query.Get("limit")) // the replicas have accepted it
	return limit
}

// queue lists what is waiting, by the position in each replica's queue.
func (r *reader) queue(ctx context.Context, query url.Values) (list api.Queue, err error) {
	lists, err := answers(ctx, r, "/queue", query, func(l api.Queue) (bool, *api.Shards) { return l.Metadata.Leads, l.Metadata.Shards })
	if err != nil {
		return list, err
	}
	if list = lists[0]; len(lists) == 1 {
		return list, nil
	}
	list.Metadata.Shards = &api.Shards{Holders: list.Metadata.Shards.Holders}
	for _, more := range lists[1:] {
		list.Items, list.Metadata.LeftOut = append(list.Items, more.Items...), list.Metadata.LeftOut+more.Metadata.LeftOut
	}
	slices.SortStableFunc(list.Items, func(a, b api.Waiting) int {
		if (a.Position == 0) != (b.Position == 0) { // an object that is in no queue comes last
			return cmp.Compare(b.Position, a.Position)
		}
		return cmp.Or(cmp.Compare(a.Position, b.Position), a.Since.Compare(b.Since))
	})
	if beyond := len(list.Items) - limitIn(query); beyond > 0 {
		list.Items, list.Metadata.LeftOut = list.Items[:limitIn(query)], list.Metadata.LeftOut+beyond
	}
	return list, nil
}
