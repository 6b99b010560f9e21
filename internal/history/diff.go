package history

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Title returns the name of the task as Ansible prints it: "role : name".
func (t TaskName) Title() string { return strings.TrimPrefix(t.Role+" : "+t.Name, " : ") }

// Target returns what was written, as in "deployments.apps shop/web (scale)".
func (w Write) Target() string {
	name := strings.TrimSuffix(w.Resource+" "+strings.TrimPrefix(w.Namespace+"/"+w.Name, "/"), " ")
	if w.Subresource != "" {
		name += " (" + w.Subresource + ")"
	}
	return name
}

// Phase is a phase of a run, with the time that it took.
type Phase struct {
	Name string
	Took time.Duration
}

// Phases returns the phases of a run that have ended: it waited in the queue, was prepared, Ansible
// or the command ran, and its end was recorded.
func (r Run) Phases() (phases []Phase) {
	add := func(name string, from, to time.Time) {
		if !from.IsZero() && !to.IsZero() {
			phases = append(phases, Phase{name, max(to.Sub(from), 0)})
		}
	}
	add("queue", r.Due, r.Started)
	add("start", r.Started, r.Prepared)
	add("run", r.Prepared, r.Ended)
	add("end", r.Ended, r.Finished)
	return phases
}

// Diff is what differs between two runs. What differs between any two runs, such as the
// times, is left out.
type Diff struct {
	// Inputs are the differences of the runs as a whole: the causes, inputs and results.
	Inputs []Difference `json:"inputs"`
	// Tasks are the tasks with different outcomes, or that took much longer in one of the runs.
	Tasks []Difference `json:"tasks"`
	// Writes are the writes that differ, without those that changed nothing.
	Writes []Difference `json:"writes"`
}

// Difference is something that differs, with its value in each run; empty if a run does not have it.
type Difference struct {
	What string `json:"what"`
	A    string `json:"a,omitempty"`
	B    string `json:"b,omitempty"`
}

// None reports whether nothing differs.
func (d Diff) None() bool { return len(d.Inputs)+len(d.Tasks)+len(d.Writes) == 0 }

// Compare returns the differences between two runs, in the order of a, and then what only b has.
func Compare(a, b Run) Diff {
	return Diff{
		Inputs: differences(inputsOf(a), inputsOf(b)), Tasks: differences(tasksOf(a), tasksOf(b)), Writes: differences(writesOf(a), writesOf(b)),
	}
}

// facts are the comparable parts of a run by name, in the order of the run.
type facts struct {
	names []string
	of    map[string]fact
}

type fact struct {
	is   string
	took time.Duration
}

// add adds a fact. If there are several with one name, the later ones get a number.
func (f *facts) add(name string, is fact) {
	if f.of == nil {
		f.of = map[string]fact{}
	}
	key := name
	for n := 2; ; n++ {
		if _, there := f.of[key]; !there {
			break
		}
		key = name + " #" + strconv.Itoa(n)
	}
	f.names, f.of[key] = append(f.names, key), is
}

// A task differs if it took at least slowerThan, and at least slowerTimes as long as in the other run.
const (
	slowerTimes = 2
	slowerThan  = time.Second
)

func slower(a, b time.Duration) bool { return a >= slowerThan && a >= slowerTimes*b }

func differences(a, b facts) []Difference {
	found := []Difference{}
	for _, name := range a.names {
		x, y := a.of[name], b.of[name]
		_, both := b.of[name]
		if both && (slower(x.took, y.took) || slower(y.took, x.took)) {
			x.is, y.is = fmt.Sprintf("%s in %.1f s", x.is, x.took.Seconds()), fmt.Sprintf("%s in %.1f s", y.is, y.took.Seconds())
		}
		if x.is != y.is {
			found = append(found, Difference{name, x.is, y.is})
		}
	}
	for _, name := range b.names {
		if _, there := a.of[name]; !there {
			found = append(found, Difference{What: name, B: b.of[name].is})
		}
	}
	return found
}

func inputsOf(r Run) (f facts) {
	add := func(name, is string) { f.add(name, fact{is: is}) }
	add("object", strings.TrimPrefix(r.Namespace+"/", "/")+r.Kind+"."+r.Group+"/"+r.Name)
	add("generation", strconv.FormatInt(r.Generation, 10))
	add("cause", r.Cause)
	add("trigger", r.Trigger)
	add("mode", r.Mode)
	add("executor", r.Executor)
	add("result", r.Reason)
	add("message", r.Message)
	add("warnings", strings.Join(r.Warnings, "\n"))
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		add("version of "+name, r.Versions[name])
	}
	return f
}

// tasksOf identifies tasks by their names and not by their lines, which move.
func tasksOf(r Run) (f facts) {
	for _, t := range r.Tasks {
		path, _, _ := strings.Cut(t.Path, ":")
		is := fact{is: t.Outcome}
		if t.Outcome == "failed" {
			is.is += ": " + t.Message
		}
		if !t.Started.IsZero() {
			is.took = t.Finished.Sub(t.Started)
		}
		name := slices.DeleteFunc([]string{t.Title(), path, t.Host}, func(s string) bool { return s == "" })
		f.add(strings.Join(name, "  "), is)
	}
	return f
}

func writesOf(r Run) (f facts) {
	for _, w := range r.Writes {
		if w.Result == "unchanged" {
			continue
		}
		is := w.Result
		if w.Result == "refused" {
			is += " with " + strconv.Itoa(w.Code)
		}
		if len(w.Fields) > 0 {
			is += ": " + strings.Join(w.Fields, ", ")
		}
		f.add(w.Target(), fact{is: is})
	}
	return f
}
