package main

import (
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/history"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

func newDescribeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "describe", Short: "Show a run",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && strings.Contains(args[0], "/") {
				return fmt.Errorf("%q: did you mean %q?", args[0], cmd.CommandPath()+" run "+args[0])
			}
			return explainArgument(cmd, args)
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDescribeRunCommand())
	return cmd
}

func newDescribeRunCommand() *cobra.Command {
	o := readerOptions{several: true}
	output := outputText
	cmd := &cobra.Command{
		Use: "run ID|KIND[.GROUP]/NAME", Aliases: []string{"runs"},
		Short: "Show why a run was made, what failed, what it wrote, and its slowest tasks",
		Long: `Show a run of the history: why it was made, how long each part of it took, the task that
failed, what it wrote to the cluster, and its slowest tasks. A unique prefix of an ID is
enough; KIND/NAME shows the object's newest run. See "rolewright get runs --help" for how
the operator is found.`,
		Example: `  rolewright describe run 8c51a3f0 --operator-namespace operators
  rolewright describe run memcached/sample -n default --operator-namespace operators
  rolewright describe run 8c51a3f0 -o json --server http://127.0.0.1:6791`,
		Args: oneArgument("give the ID of a run, as rolewright get runs shows it, or an object, such as memcached/sample"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, query := runID(args[0]), url.Values{}
			if strings.Contains(id, "/") {
				if err := objectQuery(query, id); err != nil {
					return err
				}
			}
			r, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer r.close()
			if query.Has("name") {
				setQuery(query, "namespace", r.namespace)
				list, err := r.newest(cmd.Context(), query)
				if err != nil {
					return err
				}
				noteHistory(cmd.ErrOrStderr(), list.Metadata)
				if len(list.Items) == 0 {
					return errNoRun()
				}
				id = list.Items[0].ID
			}
			answer, err := r.run(cmd.Context(), id)
			if err != nil {
				return err
			}
			if output == outputJSON {
				return printJSON(cmd.OutOrStdout(), answer)
			}
			return describeRun(cmd.OutOrStdout(), answer.Run, time.Now())
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = onlyFirst(o.completeRunIDs)
	textOrJSON(cmd, &output, "run")
	return cmd
}

// How much is shown of one run at most.
const (
	shownWrites  = 20
	shownSlowest = 5
)

// describeRun prints a run for people.
func describeRun(out io.Writer, r history.Run, now time.Time) error {
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) {
		_, _ = fmt.Fprintf(tab, "%s\t%s\n", what, strings.ReplaceAll(plaintext.Plain(fmt.Sprintf(format, args...)), "\n", "\n\t"))
	}
	line("run", "%s", r.ID)
	line("object", "%s, generation %d", runsObject(r.Brief), r.Generation)
	line("why", "%s", why(r.Cause, r.Trigger, "%s: %s"))
	if r.Mode != "" {
		line("mode", "%s", r.Mode)
	}
	if r.Finished.IsZero() {
		line("result", "in progress, since %s", age(now, r.Started))
	} else {
		line("result", "%s %s ago after %s (%s)", r.Reason, age(now, r.Finished), r.Finished.Sub(r.Started).Round(time.Millisecond), phases(r))
	}
	c := r.Counts
	line("tasks", "ok %d, changed %d, skipped %d, failed %d, unreachable %d, rescued %d, ignored %d", c.OK, c.Changed, c.Skipped, c.Failed, c.Unreachable, c.Rescued, c.Ignored)
	if r.Task != nil {
		name := "task"
		if r.Result == "Failed" {
			name = "failed"
		}
		line(name, "%s  TASK [%s]", r.Task.Path, r.Task.Title())
	}
	if r.Message != "" && r.Result != "Succeeded" {
		line("message", "%s", r.Message)
	}
	for _, w := range r.Warnings {
		line("warning", "%s", w)
	}
	switch {
	case r.Memory > 0:
		line("used", "%.2f s of CPU, %d MiB of memory", r.CPU, r.Memory>>20)
	case r.CPU > 0:
		line("used", "%.2f s of CPU", r.CPU)
	}
	for i, t := range slowest(r.Tasks) {
		what := ""
		if i == 0 {
			what = "slowest"
		}
		line(what, "%s", strings.TrimRight(fmt.Sprintf("%s  %s  %s", t.Finished.Sub(t.Started).Round(10*time.Millisecond), t.Title(), t.Path), " "))
	}
	wrote(line, r)
	return tab.Flush()
}

// runsObject returns a name for the object of a run that no other object has.
func runsObject(b history.Brief) string {
	if b.Namespace == "" {
		return b.Kind + "." + b.Group + "/" + b.Name
	}
	return b.Kind + "." + b.Group + "/" + b.Name + " in " + b.Namespace
}

// why returns the cause of a run and what led to it, formatted with both. The trigger may already begin with the cause.
func why(cause, trigger, both string) string {
	switch {
	case trigger == "":
		return cause
	case strings.HasPrefix(trigger, cause+":"):
		return trigger
	}
	return fmt.Sprintf(both, cause, trigger)
}

// phases says how long the parts of a run took.
func phases(r history.Run) string {
	var all []string
	for _, p := range r.Phases() {
		all = append(all, p.Name+" "+p.Took.Round(10*time.Millisecond).String())
	}
	return strings.Join(all, ", ")
}

// slowest returns the tasks that took longest.
func slowest(tasks []history.Task) []history.Task {
	sorted := slices.DeleteFunc(slices.Clone(tasks), func(t history.Task) bool { return t.Started.IsZero() || t.Outcome == "skipped" })
	slices.SortStableFunc(sorted, func(a, b history.Task) int { return int(b.Finished.Sub(b.Started) - a.Finished.Sub(a.Started)) })
	return sorted[:min(len(sorted), shownSlowest)]
}

// wrote shows what a run wrote, leaving out writes that changed nothing.
func wrote(line func(what, format string, args ...any), r history.Run) {
	unchanged, shown := 0, 0
	for _, w := range r.Writes {
		if w.Result == "unchanged" {
			unchanged++
			continue
		}
		if shown++; shown > shownWrites {
			continue
		}
		what := ""
		if shown == 1 {
			what = "wrote"
		}
		name := w.Target()
		if len(w.Fields) > 0 {
			name += ": " + strings.Join(w.Fields, ", ")
		}
		task := ""
		if w.Task >= 0 && w.Task < len(r.Tasks) {
			task = "  by " + r.Tasks[w.Task].Title()
		}
		if w.DryRun {
			name += " (dry run)"
		}
		if w.Result == "refused" {
			line(what, "%s refused with %d: %s%s", w.Verb, w.Code, name, task)
		} else {
			line(what, "%s %s%s", w.Result, name, task)
		}
	}
	if more := max(0, shown-shownWrites) + r.WritesLeftOut; more > 0 {
		line("", "and %d more", more)
	}
	switch {
	case shown == 0 && unchanged == 0:
		line("wrote", "nothing")
	case unchanged > 0:
		line("", "%s changed nothing", counted(unchanged, "write", "writes"))
	}
}
