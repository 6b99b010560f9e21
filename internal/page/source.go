package page

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
)

// ErrNotFound is in the chain of a source's error if the thing does not exist, or the
// reader may not see it.
var ErrNotFound = errors.New("not found")

// ErrForbidden is in the chain of a source's error if the reader may not see what was asked for.
var ErrForbidden = errors.New("forbidden")

// Source is what a page reads from. It returns what the reader of the page may see.
type Source interface {
	// Runs returns all runs: those in progress first, then the others, the newest first. The
	// caller must not change them. The cursor in meta is as for Run; meta also says which
	// replica the runs come from.
	Runs(ctx context.Context) (runs []history.Brief, meta api.ListMeta, err error)
	// Run returns one run, and the cursor of the first event that the run does not include.
	Run(ctx context.Context, id string) (run history.Run, cursor string, err error)
	// Queue returns what waits for its run.
	Queue(ctx context.Context) (api.Queue, error)
	// Object returns an object as the API server has it.
	Object(ctx context.Context, o history.Object) (map[string]any, error)
	// Events returns a stream of Server-Sent Events in the form of internal/api.
	Events(ctx context.Context, query url.Values) (io.ReadCloser, error)
}

// Objects reads and changes objects of the cluster with the rights of one reader.
type Objects interface {
	// Get is Get of [Remote], and Act is Act of [Options].
	Get(ctx context.Context, o history.Object) (map[string]any, error)
	Act(ctx context.Context, o history.Object, asked Asked) (changed bool, err error)
}

// Remote is a source that asks an operator's API.
type Remote struct {
	// Ask sends a request for a path below the root of the API. An answer other than success
	// is an error.
	Ask func(ctx context.Context, path string, query url.Values) (*http.Response, error)
	// Get reads an object of the cluster; nil if the page does not read the cluster.
	Get func(ctx context.Context, o history.Object) (map[string]any, error)
	// Namespace is the namespace of the objects; empty for all.
	Namespace string

	mu sync.Mutex
	// ended has the known runs that have ended, the newest first, and known their IDs.
	ended []history.Brief
	known map[string]bool
}

// How many runs are shown at most, and how many are requested at a time.
const (
	maxRuns   = 20_000
	firstPage = 200
	nextPage  = 1000
)

// settled is the longest time from the end of a run until it is recorded.
const settled = time.Minute

func (s *Remote) query() url.Values {
	q := url.Values{}
	if s.Namespace != "" {
		q.Set("namespace", s.Namespace)
	}
	return q
}

func (s *Remote) read(ctx context.Context, path string, q url.Values, into any) error {
	resp, err := s.Ask(ctx, path, q)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("answer of the operator: %w", err)
	}
	return nil
}

// Runs implements [Source]. It requests only the runs that are not known yet.
func (s *Remote) Runs(ctx context.Context) (_ []history.Brief, meta api.ListMeta, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var running, newer []history.Brief
	var since time.Time // all runs that ended before are known
	if len(s.ended) > 0 {
		since = s.ended[0].Finished.Add(-settled)
	}
	q := s.query()
	q.Set("limit", strconv.Itoa(firstPage))
	for more := true; more; q.Set("limit", strconv.Itoa(nextPage)) {
		var list api.RunList
		if err := s.read(ctx, "/runs", q, &list); err != nil {
			return nil, meta, err
		}
		if !q.Has("continue") {
			meta = list.Metadata // the first page is the oldest state
		}
		more = list.Metadata.Continue != "" && len(newer)+len(list.Items) < maxRuns
		for _, b := range list.Items {
			switch {
			case b.Finished.IsZero():
				running = append(running, b)
			case s.known[b.ID]:
				more = more && !b.Finished.Before(since)
			default:
				newer = append(newer, b)
			}
		}
		q.Set("continue", list.Metadata.Continue)
	}
	s.add(newer)
	running = slices.DeleteFunc(running, func(b history.Brief) bool { return s.known[b.ID] }) // it has ended meanwhile
	return slices.Concat(running, s.ended), meta, nil
}

// add adds runs to those that are known.
func (s *Remote) add(newer []history.Brief) {
	if s.known == nil {
		s.known = map[string]bool{}
	}
	added := false
	for _, b := range newer {
		if !s.known[b.ID] { // a run that ends between two requests shifts runs of the first page to the second
			s.known[b.ID], added = true, true
			s.ended = append(s.ended, b)
		}
	}
	if !added {
		return
	}
	slices.SortStableFunc(s.ended, func(a, b history.Brief) int { return b.Finished.Compare(a.Finished) })
	for len(s.ended) > maxRuns {
		delete(s.known, s.ended[len(s.ended)-1].ID)
		s.ended = s.ended[:len(s.ended)-1]
	}
}

// Run implements [Source].
func (s *Remote) Run(ctx context.Context, id string) (history.Run, string, error) {
	var answer api.Run
	err := s.read(ctx, "/runs/"+url.PathEscape(id), nil, &answer)
	return answer.Run, answer.Metadata.Cursor, err
}

// Queue implements [Source]. It requests maxObjects entries at most.
func (s *Remote) Queue(ctx context.Context) (list api.Queue, err error) {
	q := s.query()
	q.Set("limit", strconv.Itoa(maxObjects))
	return list, s.read(ctx, "/queue", q, &list)
}

// Object implements [Source].
func (s *Remote) Object(ctx context.Context, o history.Object) (map[string]any, error) {
	if s.Get == nil {
		return nil, ErrNotFound
	}
	return s.Get(ctx, o)
}

// Events implements [Source].
func (s *Remote) Events(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	q := s.query()
	for _, key := range []string{"run", "cursor"} {
		if value := query.Get(key); value != "" {
			q.Set(key, value)
		}
	}
	resp, err := s.Ask(ctx, "/events", q)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// find returns the index of the run with the ID; -1 if there is none.
func find(runs []history.Brief, id string) int {
	return slices.IndexFunc(runs, func(b history.Brief) bool { return b.ID == id })
}

// endOf returns when a run ended; now for a run in progress.
func endOf(b history.Brief, now time.Time) time.Time { return cmp.Or(b.Finished, now) }
