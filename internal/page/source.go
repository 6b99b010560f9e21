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

// ErrNotFound is in the chain of a source's error where there is no such thing, or the
// reader may not see it.
var ErrNotFound = errors.New("not found")

// ErrForbidden is in the chain of a source's error where the reader may not see what is asked for.
var ErrForbidden = errors.New("forbidden")

// Source is where a page reads. It returns what the reader of the page may see.
type Source interface {
	// Runs are all runs: those in progress first, then the newest. The caller changes
	// nothing of them. The cursor in meta is as for Run; meta says whose runs they are, too.
	Runs(ctx context.Context) (runs []history.Brief, meta api.ListMeta, err error)
	// Run is one run, and the cursor from which on events tell what it does not have.
	Run(ctx context.Context, id string) (run history.Run, cursor string, err error)
	// Queue is what waits for its run.
	Queue(ctx context.Context) (api.Queue, error)
	// Object is an object as the API server has it.
	Object(ctx context.Context, o history.Object) (map[string]any, error)
	// Events are Server-Sent Events as internal/api has them.
	Events(ctx context.Context, query url.Values) (io.ReadCloser, error)
}

// Objects reads and changes objects of the cluster with the rights of one reader.
type Objects interface {
	// Get is for [Remote], and Act for [Options].
	Get(ctx context.Context, o history.Object) (map[string]any, error)
	Act(ctx context.Context, o history.Object, asked Asked) (changed bool, err error)
}

// Remote is a source that asks an operator's API.
type Remote struct {
	// Ask sends a request for a path below the root of the API. The answer is one of success.
	Ask func(ctx context.Context, path string, query url.Values) (*http.Response, error)
	// Get reads an object of the cluster.
	Get func(ctx context.Context, o history.Object) (map[string]any, error)
	// Namespace is that of the objects; empty for all.
	Namespace string

	mu sync.Mutex
	// ended are the runs that have ended and are known, the newest first, and known their IDs.
	ended []history.Brief
	known map[string]bool
}

// The most runs that are shown, and how many are asked for at a time.
const (
	maxRuns   = 20_000
	firstPage = 200
	nextPage  = 1000
)

// settled is the time after which no earlier end of a run is recorded any more.
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
	defer func() { _ = resp.Body.Close() }() // it was read
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("answer of the operator: %w", err)
	}
	return nil
}

// Runs asks for the runs that are not known yet.
func (s *Remote) Runs(ctx context.Context) (_ []history.Brief, meta api.ListMeta, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var running, newer []history.Brief
	var since time.Time // all that ended before is known
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
			meta = list.Metadata // the first page is of before the others
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
		if !s.known[b.ID] { // a run that ends between two pages moves those of the first into the second
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

// Run asks for a run.
func (s *Remote) Run(ctx context.Context, id string) (history.Run, string, error) {
	var answer api.Run
	err := s.read(ctx, "/runs/"+url.PathEscape(id), nil, &answer)
	return answer.Run, answer.Metadata.Cursor, err
}

// Queue asks for what waits, at most maxObjects.
func (s *Remote) Queue(ctx context.Context) (list api.Queue, err error) {
	q := s.query()
	q.Set("limit", strconv.Itoa(maxObjects))
	return list, s.read(ctx, "/queue", q, &list)
}

// Object reads an object with the rights of the reader.
func (s *Remote) Object(ctx context.Context, o history.Object) (map[string]any, error) {
	if s.Get == nil {
		return nil, ErrNotFound
	}
	return s.Get(ctx, o)
}

// Events asks for events.
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

// find is the brief of a run, and the index of it.
func find(runs []history.Brief, id string) int {
	return slices.IndexFunc(runs, func(b history.Brief) bool { return b.ID == id })
}

// endOf is when a run ended, now for one in progress.
func endOf(b history.Brief, now time.Time) time.Time { return cmp.Or(b.Finished, now) }
