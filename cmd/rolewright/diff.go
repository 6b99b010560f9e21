package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
)

// runsDiff is what differs between two runs.
type runsDiff struct {
	Runs [2]history.Brief `json:"runs"`
	// Inputs, Tasks and Writes are what differs of them.
	Inputs []difference `json:"inputs"`
	Tasks  []difference `json:"tasks"`
	Writes []difference `json:"writes"`
}

// difference is something with what it was in either run; empty where it was not there.
type difference struct {
	What string `json:"what"`
	A    string `json:"a,omitempty"`
	B    string `json:"b,omitempty"`
}

func newDiffCommand() *cobra.Command {
	var o readerOptions
	output := outputText
	cmd := &cobra.Command{
		Use:   "diff RUN RUN",
		Short: "Show in what two runs differ: inputs, results of tasks, writes",
		Long: `Show in what two runs of the history differ: why and of what they were made, the tasks
whose result differs, and the writes that differ. The beginning of an ID is enough if no
other run has it. Of values, the history has none: what a run wrote is known by names of
objects and fields. The exit code is 1 where something differs. See "rolewright get runs
--help" for how the operator is found.`,
		Example: `  rolewright diff 45f58c2c 8c51a3f0 --operator-namespace operators`,
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output); err != nil {
				return err
			}
			r, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer r.close()
			d, err := r.diff(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if output == outputJSON {
				err = printJSON(cmd.OutOrStdout(), d)
			} else {
				err = printDiff(cmd.OutOrStdout(), d)
			}
			if err == nil && len(d.Inputs)+len(d.Tasks)+len(d.Writes) > 0 {
				return errInvalid // which is not printed
			}
			return err
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", outputText, "How to print the differences: text or json.")
	return cmd
}

func (r *reader) diff(ctx context.Context, first, second string) (runsDiff, error) {
	var runs [2]history.Run
	for i, id := range []string{first, second} {
		var answer api.Run
		if err := r.get(ctx, "/runs/"+url.PathEscape(id), nil, &answer); err != nil {
			return runsDiff{}, err
		}
		runs[i] = answer.Run
	}
	return diffRuns(runs[0], runs[1]), nil
}

func diffRuns(a, b history.Run) runsDiff {
	return runsDiff{
		Runs: [2]history.Brief{a.Brief, b.Brief}, Inputs: differences(inputsOf(a), inputsOf(b)),
		Tasks: differences(tasksOf(a), tasksOf(b)), Writes: differences(writesOf(a), writesOf(b)),
	}
}

// facts are what is known of parts of a run, in the order of the run.
type facts struct {
	names []string
	of    map[string]string
}

// add adds a fact. One that is there already becomes another one, with a number.
func (f *facts) add(name, is string) {
	if f.of == nil {
		f.of = map[string]string{}
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

// differences are the facts that differ, in the order of a, and then those of b alone.
func differences(a, b facts) []difference {
	found := []difference{}
	for _, name := range a.names {
		if a.of[name] != b.of[name] {
			found = append(found, difference{name, a.of[name], b.of[name]})
		}
	}
	for _, name := range b.names {
		if _, there := a.of[name]; !there {
			found = append(found, difference{What: name, B: b.of[name]})
		}
	}
	return found
}

func inputsOf(r history.Run) (f facts) {
	f.add("object", strings.TrimPrefix(r.Namespace+"/", "/")+r.Kind+"."+r.Group+"/"+r.Name)
	f.add("generation", strconv.FormatInt(r.Generation, 10))
	f.add("cause", r.Cause)
	f.add("trigger", r.Trigger)
	f.add("mode", r.Mode)
	f.add("executor", r.Executor)
	f.add("result", r.Reason)
	for _, name := range slices.Sorted(maps.Keys(r.Versions)) {
		f.add("version of "+name, r.Versions[name])
	}
	return f
}

// tasksOf names tasks by what they are called, and not by their line, which moves.
func tasksOf(r history.Run) (f facts) {
	for _, t := range r.Tasks {
		path, _, _ := strings.Cut(t.Path, ":")
		is := t.Outcome
		if t.Outcome == "failed" {
			is += ": " + t.Message
		}
		f.add(strings.TrimSuffix(taskTitle(t.TaskName)+"  "+path, "  "), is)
	}
	return f
}

// writesOf leaves out what changed nothing.
func writesOf(r history.Run) (f facts) {
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
		f.add(writtenName(w), is)
	}
	return f
}

func printDiff(out io.Writer, d runsDiff) error {
	rows := [][]string{{"", d.Runs[0].ID, d.Runs[1].ID}, {"started", d.Runs[0].Started.UTC().Format(time.RFC3339), d.Runs[1].Started.UTC().Format(time.RFC3339)}}
	took := func(b history.Brief) string {
		if b.Finished.IsZero() {
			return "in progress"
		}
		return b.Finished.Sub(b.Started).Round(time.Millisecond).String()
	}
	rows = append(rows, []string{"took", took(d.Runs[0]), took(d.Runs[1])})
	for _, part := range []struct {
		name string
		are  []difference
	}{{"", d.Inputs}, {"TASKS", d.Tasks}, {"WRITES", d.Writes}} {
		if part.name != "" && len(part.are) > 0 {
			rows = append(rows, []string{part.name})
		}
		for _, is := range part.are {
			rows = append(rows, []string{is.What, orNone(is.A), orNone(is.B)})
		}
	}
	if err := (&table{out: out}).print(rows...); err != nil {
		return err
	}
	if len(d.Inputs)+len(d.Tasks)+len(d.Writes) == 0 {
		fmt.Fprintln(out, "they differ in nothing else")
	}
	return nil
}
