package page

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
)

// States of an object, by its runs, in the order of the overview.
const (
	stateFailing = iota
	stateRunning
	stateInterrupted
	stateFine
)

// row is an object with the newest of its runs.
type row struct {
	history.Object
	// Running is the run in progress, and Last the one that ended last; nil for none.
	Running, Last *history.Brief
	// Failed is how many runs have failed since the last success that is known, and Since
	// when the first of them ended.
	Failed int
	Since  time.Time

	settled bool // a run that has not failed is among those that were counted
}

// State is one of the states.
func (r *row) State() int {
	switch {
	case r.Last != nil && r.Last.Result == "Failed":
		return stateFailing
	case r.Running != nil:
		return stateRunning
	case r.Last != nil && r.Last.Result == "Interrupted":
		return stateInterrupted
	}
	return stateFine
}

// Newest is the run in progress, else the one that ended last.
func (r *row) Newest() *history.Brief {
	if r.Running != nil {
		return r.Running
	}
	return r.Last
}

// objectsOf are the objects of runs, which come with the newest first. Those that are
// deleted are left out.
func objectsOf(runs []history.Brief) []*row {
	type key struct{ group, kind, namespace, name string } // an object stays the same in all versions
	rows := map[key]*row{}
	var order []*row
	for i := range runs {
		b := &runs[i]
		at := key{b.Group, b.Kind, b.Namespace, b.Name}
		r := rows[at]
		if r == nil {
			r = &row{Object: b.Object}
			rows[at], order = r, append(order, r)
		}
		switch {
		case b.Finished.IsZero():
			r.Running = b
			continue
		case r.Last == nil:
			r.Last = b
		}
		switch {
		case r.settled:
		case b.Result == "Failed":
			r.Failed, r.Since = r.Failed+1, b.Finished
		case b.Result == "Succeeded":
			r.settled = true
		}
	}
	order = slices.DeleteFunc(order, func(r *row) bool {
		return r.Running == nil && r.Last.Cause == "deleted" && r.Last.Result == "Succeeded"
	})
	slices.SortStableFunc(order, func(a, b *row) int { return cmp.Compare(a.State(), b.State()) })
	return order
}

// filter is what a reader has chosen to see.
type filter struct {
	Kind, Namespace, Text, State string
}

func filterOf(r *http.Request) filter {
	q := r.URL.Query()
	return filter{q.Get("kind"), q.Get("namespace"), q.Get("q"), q.Get("state")}
}

func kindOf(o history.Object) string { return strings.TrimSuffix(o.Kind+"."+o.Group, ".") }

// has reports whether an object is one of them, whatever its state.
func (f filter) has(o history.Object) bool {
	return (f.Kind == "" || f.Kind == kindOf(o)) && (f.Namespace == "" || f.Namespace == o.Namespace)
}

func (f filter) wants(r *row) bool {
	return f.has(r.Object) && (f.State == "" || f.State == strconv.Itoa(r.State())) && (f.Text == "" || r.mentions(strings.ToLower(f.Text)))
}

// mentions reports whether the text is in what the overview shows of an object.
func (r *row) mentions(text string) bool {
	b := r.Newest()
	parts := []string{kindOf(r.Object), r.Namespace, r.Name, b.Reason, b.Cause, b.Trigger}
	if b.Task != nil {
		parts = append(parts, b.Task.Name, b.Task.Role, b.Task.Path)
	}
	return strings.Contains(strings.ToLower(strings.Join(parts, "\n")), text)
}

// kindsOf are the kinds of runs, at most maxKinds.
func kindsOf(runs []history.Brief) (kinds []string) {
	seen := map[string]bool{}
	for _, b := range runs {
		if k := kindOf(b.Object); !seen[k] && len(kinds) < maxKinds {
			seen[k], kinds = true, append(kinds, k)
		}
	}
	slices.Sort(kinds)
	return kinds
}

// The most that one view shows.
const (
	maxKinds   = 200
	maxObjects = 100
)

// overviewData is what the overview shows.
type overviewData struct {
	Filter filter
	Kinds  []string
	Counts [stateFine + 1]int // by state
	All    int
	Rows   []*row
	// Shown is how many there are with this filter, From and Next where this page and the
	// next one begin; Next is 0 on the last.
	Shown, From, Next int
	// Meta says whose runs they are, and where events begin that are not shown.
	Meta api.ListMeta
}

func (s *Server) overview(r *http.Request) (view, error) {
	runs, meta, err := s.Source.Runs(r.Context())
	if err != nil {
		return view{}, err
	}
	d := overviewData{Meta: meta, Filter: filterOf(r), Kinds: kindsOf(runs)}
	var rows []*row
	for _, o := range objectsOf(runs) {
		d.Counts[o.State()]++
		d.All++
		if d.Filter.wants(o) {
			rows = append(rows, o)
		}
	}
	d.Shown = len(rows)
	if d.From, err = fromOf(r, len(rows)); err != nil {
		return view{}, err
	}
	d.Rows = rows[d.From:min(d.From+maxObjects, len(rows))]
	if next := d.From + len(d.Rows); next < len(rows) {
		d.Next = next
	}
	return view{template: "overview.html", Title: "Objects", Command: "get runs", Refresh: true, Data: d}, nil
}

// fromOf is where in a list of some length a page of it begins.
func fromOf(r *http.Request, length int) (int, error) {
	text := r.URL.Query().Get("from")
	if text == "" {
		return 0, nil
	}
	from, err := strconv.Atoi(text)
	if err != nil || from < 0 {
		return 0, badRequest("from: give a number that is not negative")
	}
	return min(from, length), nil
}
