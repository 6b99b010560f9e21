package page

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/text"
)

// shownRuns is how many runs of an object are shown.
const shownRuns = 50

// objectData is what the page shows about an object.
type objectData struct {
	history.Object
	Row  *row
	Runs []history.Brief
	// Meta says which replica the runs come from.
	Meta api.ListMeta
	Bars bars
	// Missing says why there is nothing from the API server; empty if there is.
	Missing string
	Status  objectStatus
	// Said is the text about the action that led to the page; Actions are the actions with buttons.
	Said    string
	Actions []action
	// UID is empty if the object is missing.
	UID string
}

// objectStatus is what the page shows of an object's own status.
type objectStatus struct {
	Generation, Observed int64
	Deleting             bool
	Conditions           []condition
	NextRetry            time.Time
	Warnings, Dependents []string
}

type condition struct {
	Type, Status, Reason, Message string
	Since                         time.Time
}

// Limits on what is shown of an object, which may contain anything.
const (
	maxConditions = 30
	maxMessage    = 4 << 10
)

// runsOfObject returns the runs, at least one, of the object that the address of a request names.
func (s *Server) runsOfObject(r *http.Request) (runs []history.Brief, meta api.ListMeta, err error) {
	q := r.URL.Query()
	o := history.Object{Group: q.Get("group"), Kind: q.Get("kind"), Namespace: q.Get("namespace"), Name: q.Get("name")}
	if o.Kind == "" || o.Name == "" {
		return nil, meta, badRequest("give kind and name of an object")
	}
	if runs, meta, err = s.Source.Runs(r.Context()); err != nil {
		return nil, meta, err
	}
	if runs = runsOf(runs, o); len(runs) == 0 {
		return nil, meta, ErrNotFound
	}
	return runs, meta, nil
}

func (s *Server) object(r *http.Request) (view, error) {
	runs, meta, err := s.runsOfObject(r)
	if err != nil {
		return view{}, err
	}
	d := &objectData{Object: runs[0].Object, Runs: runs[:min(len(runs), shownRuns)], Meta: meta}
	d.Bars = barsOf(d.Runs, s.now())
	d.Row = &row{Object: d.Object, Last: &runs[0]}
	if rows := objectsOf(runs); len(rows) > 0 {
		d.Row = rows[0]
	}
	if s.Act != nil {
		if from := r.Header.Get("Sec-Fetch-Site"); from == "" || from == "same-origin" { // a link on another site must not claim that something was done
			d.Said = said(r.URL.Query())
		}
		d.Actions = slices.DeleteFunc(actions(), func(a action) bool { return a.Do == "cancel" && d.Row.Running == nil })
	}
	is, err := s.Source.Object(r.Context(), d.Object)
	switch {
	case errors.Is(err, ErrNotFound):
		d.Missing = "The object does not exist any more, or this page does not read the cluster."
	case err != nil:
		d.Missing = err.Error()
	default:
		d.Status = statusOf(is)
		d.UID = string((&unstructured.Unstructured{Object: is}).GetUID())
	}
	return view{template: "object.html", Title: d.Kind + " " + d.Name, Refresh: true, Data: d, Command: "get runs " + text.ShellWord(kindOf(d.Object)+"/"+d.Name)}, nil
}

// runsOf returns the runs of one object.
func runsOf(runs []history.Brief, o history.Object) (found []history.Brief) {
	for _, b := range runs {
		if b.Group == o.Group && b.Kind == o.Kind && b.Namespace == o.Namespace && b.Name == o.Name {
			found = append(found, b)
		}
	}
	return found
}

// statusOf reads the status of an object. It leaves out what does not have the form that the
// operator writes.
func statusOf(content map[string]any) objectStatus {
	u := unstructured.Unstructured{Object: content}
	s := objectStatus{Generation: u.GetGeneration(), Deleting: u.GetDeletionTimestamp() != nil}
	s.Observed, _, _ = unstructured.NestedInt64(content, "status", "observedGeneration")
	conditions, _, _ := unstructured.NestedSlice(content, "status", "conditions")
	for _, c := range conditions[:min(len(conditions), maxConditions)] {
		fields, _ := c.(map[string]any)
		field := func(name string) string {
			value, _ := fields[name].(string)
			return value
		}
		since, _ := time.Parse(time.RFC3339, field("lastTransitionTime")) // zero is not shown
		s.Conditions = append(s.Conditions, condition{field("type"), field("status"), field("reason"), field("message"), since})
	}
	next, _, _ := unstructured.NestedString(content, "status", "ansible", "nextRetry")
	s.NextRetry, _ = time.Parse(time.RFC3339, next) // as above
	s.Warnings, _, _ = unstructured.NestedStringSlice(content, "status", "ansible", "warnings")
	s.Dependents, _, _ = unstructured.NestedStringSlice(content, "status", "ansible", "dependents")
	s.Warnings, s.Dependents = s.Warnings[:min(len(s.Warnings), maxConditions)], s.Dependents[:min(len(s.Dependents), shownRuns)]
	slices.SortStableFunc(s.Conditions, func(a, b condition) int {
		return strings.Compare(readyFirst(a.Type), readyFirst(b.Type))
	})
	return s
}

func readyFirst(kind string) string {
	if kind == "Ready" {
		return ""
	}
	return kind
}
