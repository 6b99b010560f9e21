package page

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rolewright/rolewright/internal/history"
)

// difference is what is not the same in two runs.
type difference struct{ What, A, B string }

// compareData is what is shown of two runs.
type compareData struct {
	A, B history.Run
	// Same is true where both are of the same object.
	Same                   bool
	Facts, Tasks, Wrote    []difference
	MoreTasks, MoreWritten int
}

// maxDifferences is how many bytes the differences of each kind may take.
const maxDifferences = 45 << 10

func (s *server) compare(r *http.Request) (view, error) {
	q := r.URL.Query()
	a, _, err := s.Source.Run(r.Context(), q.Get("a"))
	if err != nil {
		return view{}, err
	}
	b, _, err := s.Source.Run(r.Context(), q.Get("b"))
	if err != nil {
		return view{}, err
	}
	d := compareData{A: a, B: b, Same: a.Object == b.Object, Facts: facts(a, b)}
	d.Tasks, d.MoreTasks = cut(differ(tasksOf(a), tasksOf(b)))
	d.Wrote, d.MoreWritten = cut(differ(writesOf(a), writesOf(b)))
	return view{template: "compare.html", Title: "Two runs of " + a.Kind + " " + a.Name, Data: d, Command: "describe run " + quoted(a.ID)}, nil
}

// cut are the first differences, and how many more there are.
func cut(all []difference) ([]difference, int) {
	size := 0
	for i, d := range all {
		if size += rowBytes/2 + bytesOf(maxLine, d.What, d.A, d.B); size > maxDifferences {
			return all[:i], len(all) - i
		}
	}
	return all, 0
}

// facts are what is known of the runs as a whole, where it is not the same.
func facts(a, b history.Run) []difference {
	of := func(r history.Run) []fact {
		f := []fact{
			{"result", strings.TrimSpace(r.Result + " " + r.Reason)}, {"cause", r.Cause}, {"trigger", r.Trigger}, {"generation", fmt.Sprint(r.Generation)},
			{"mode", r.Mode}, {"executor", r.Executor}, {"message", r.Message}, {"warnings", strings.Join(r.Warnings, "\n")},
			{"duration", seconds(max(r.Finished.Sub(r.Started), 0))}, {"CPU", fmt.Sprintf("%.2f s", r.CPU)}, {"memory", fmt.Sprintf("%d MiB", r.Memory>>20)},
		}
		for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
			f = append(f, fact{"version of " + name, r.Versions[name]})
		}
		return f
	}
	return differ(of(a), of(b))
}

// fact is something of a run, by a name that the same thing of another run has, too.
type fact struct{ name, value string }

// slower is by how much a task has to take longer than in the other run to be named.
const (
	slowerTimes = 2
	slowerBy    = time.Second
)

// took is a time, rounded so that only what is much slower is different.
func took(t history.Task) string {
	d := max(t.Finished.Sub(t.Started), 0)
	if t.Started.IsZero() || d < slowerBy {
		return ""
	}
	rounded := slowerBy
	for rounded*slowerTimes <= d {
		rounded *= slowerTimes
	}
	return ", more than " + seconds(rounded)
}

// tasksOf are the outcomes of tasks. Of several with the same name, each has its number.
func tasksOf(r history.Run) (facts []fact) {
	times := map[string]int{}
	for _, t := range r.Tasks {
		path, _, _ := strings.Cut(t.Path, ":")
		name := strings.Join(slices.DeleteFunc([]string{titleOf(t.TaskName), path, t.Host}, func(s string) bool { return s == "" }), ", ")
		if times[name]++; times[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, times[name])
		}
		facts = append(facts, fact{name, t.Outcome + took(t)})
	}
	return facts
}

// writesOf are the results of writes.
func writesOf(r history.Run) (facts []fact) {
	times := map[string]int{}
	for _, w := range r.Writes {
		name := targetOf(w)
		if times[name]++; times[name] > 1 {
			name = fmt.Sprintf("%s (%d)", name, times[name])
		}
		value := w.Result
		if len(w.Fields) > 0 {
			value += ": " + strings.Join(w.Fields, ", ")
		}
		facts = append(facts, fact{name, value})
	}
	return facts
}

// targetOf is what a write was for.
func targetOf(w history.Write) string {
	name := strings.TrimSuffix(w.Resource+" "+strings.TrimPrefix(w.Namespace+"/"+w.Name, "/"), " ")
	if w.Subresource != "" {
		name += " (" + w.Subresource + ")"
	}
	return name
}

// differ are the facts that are not the same, in the order of b, then those of a alone.
func differ(a, b []fact) (all []difference) {
	before := make(map[string]string, len(a))
	for _, f := range a {
		before[f.name] = f.value
	}
	for _, f := range b {
		if value, known := before[f.name]; !known || value != f.value {
			all = append(all, difference{f.name, value, f.value})
		}
		delete(before, f.name)
	}
	for _, f := range a {
		if _, left := before[f.name]; left {
			all = append(all, difference{f.name, f.value, ""})
		}
	}
	return all
}
