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
	// Running is the run in progress, and Last the run that ended last; nil for none.
	Running, Last *history.Brief
	// Failed is how many runs have failed since the last known success, and Since when the
	// first of them ended.
	Failed int
	Since  time.Time

	settled bool // the last known success was reached, and earlier runs do not count
}

// State returns one of the states.
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

// Newest returns the run in progress, else the run that ended last.
func (r *row) Newest() *history.Brief {
	if r.Running != nil {
		return r.Running
	}
	return r.Last
}

// objectsOf returns the objects of runs, in the order of their states, without deleted ones.
// The runs must be sorted with the newest first.
func objectsOf(runs []history.Brief) []*row {
	type key struct{ group, kind, namespace, name string } // without the version: an object is the same in all versions
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

// has reports whether an object has the kind and namespace of the filter.
func (f filter) has(o history.Object) bool {
	return (f.Kind == "" || f.Kind == kindOf(o)) && (f.Namespace == "" || f.Namespace == o.Namespace)
}

func (f filter) wants(r *row) bool {
	return f.has(r.Object) && (f.State == "" || f.State == strconv.Itoa(r.State())) && (f.Text == "" || r.mentions(strings.ToLower(f.Text)))
}

// mentions reports whether text, in lower case, occurs in what the overview shows of an object.
func (r *row) mentions(text string) bool {
	b := r.Newest()
	parts := []string{kindOf(r.Object), r.Namespace, r.Name, b.Reason, b.Cause, b.Trigger}
	if b.Task != nil {
		parts = append(parts, b.Task.Name, b.Task.Role, b.Task.Path)
	}
	return strings.Contains(strings.ToLower(strings.Join(parts, "\n")), text)
}

// kindsOf returns the kinds of the runs' objects, at most maxKinds.
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

// Limits on what one view shows.
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
	// Shown is how many objects match the filter. From and Next are the indices at which this
	// page and the next one begin; Next is 0 on the last page.
	Shown, From, Next int
	// Meta says which replica the runs come from, and has the cursor of the next event.
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

// fromOf returns the index at which the requested page of a list with the length begins.
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
