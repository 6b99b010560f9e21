package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/api"
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
	var o readerOptions
	output := outputText
	cmd := &cobra.Command{
		Use: "run ID|KIND[.GROUP]/NAME", Aliases: []string{"runs"},
		Short: "Show why a run was made, what failed, what it wrote, and its slowest tasks",
		Long: `Show a run of the history: why it was made, how long each part of it took, the task that
failed, what it wrote to the cluster, and its slowest tasks. The beginning of an ID is
enough if no other run has it; of an object, it is the newest run. See "rolewright get runs --help" for how the operator is
found.`,
		Example: `  rolewright describe run 8c51a3f0 --operator-namespace operators
  rolewright describe run memcached/sample -n default --operator-namespace operators
  rolewright describe run 8c51a3f0 -o json --server http://127.0.0.1:6791`,
		Args: oneArgument("give the ID of a run, as rolewright get runs shows it, or an object, such as memcached/sample"),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, query := args[0], url.Values{}
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

// The most that is shown of one run.
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

// runsObject names the object of a run as no other one is named.
func runsObject(b history.Brief) string {
	if b.Namespace == "" {
		return b.Kind + "." + b.Group + "/" + b.Name
	}
	return b.Kind + "." + b.Group + "/" + b.Name + " in " + b.Namespace
}

// why is the cause of a run and what has led to it, which may begin with the same word.
func why(cause, trigger, both string) string {
	switch {
	case trigger == "":
		return cause
	case strings.HasPrefix(trigger, cause+":"):
		return trigger
	}
	return fmt.Sprintf(both, cause, trigger)
}

// phases are how long the parts of a run took.
func phases(r history.Run) string {
	var all []string
	for _, p := range r.Phases() {
		all = append(all, p.Name+" "+p.Took.Round(10*time.Millisecond).String())
	}
	return strings.Join(all, ", ")
}

// slowest are the tasks that took longest.
func slowest(tasks []history.Task) []history.Task {
	sorted := slices.DeleteFunc(slices.Clone(tasks), func(t history.Task) bool { return t.Started.IsZero() || t.Outcome == "skipped" })
	slices.SortStableFunc(sorted, func(a, b history.Task) int { return int(b.Finished.Sub(b.Started) - a.Finished.Sub(a.Started)) })
	return sorted[:min(len(sorted), shownSlowest)]
}

// wrote shows what a run wrote, but for what changed nothing.
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

func newLogsCommand() *cobra.Command {
	var o readerOptions
	var run string
	follow := false
	cmd := &cobra.Command{
		Use:   "logs KIND[.GROUP]/NAME",
		Short: "Show the tasks of an object's newest run",
		Long: `Show the tasks of an object's newest run, or of the run that --run names, a line for each
task that has ended. With -f, show the tasks of a run in progress while they end, and
those of the runs that follow, until the command is interrupted.`,
		Example: `  rolewright logs memcached/sample -n default -f --operator-namespace operators
  rolewright logs memcached/sample --run 8c51a3f0 --server http://127.0.0.1:6791`,
		Args: oneArgument("give an object, such as memcached/sample"),
		RunE: func(cmd *cobra.Command, args []string) error {
			query := url.Values{}
			if err := objectQuery(query, args[0]); err != nil {
				return err
			}
			if !query.Has("name") {
				return usage(fmt.Errorf("%q: give KIND/NAME", args[0]))
			}
			r, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer r.close()
			setQuery(query, "namespace", r.namespace)
			l := tasksLog{reader: r, query: query, out: cmd.OutOrStdout(), stderr: cmd.ErrOrStderr(), follow: follow}
			return l.show(cmd.Context(), run)
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = onlyFirst(kindsAndNames(false, &o.namespace))
	cmd.Flags().StringVar(&run, "run", "", "The ID of the run, or the beginning of it.")
	completeFlag(cmd, "run", o.completeRunIDsOf)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "Go on while runs are in progress.")
	return cmd
}

// tasksLog prints the tasks of runs, each once.
type tasksLog struct {
	reader      *reader
	query       url.Values
	out, stderr io.Writer
	follow      bool

	// run is the run that is shown, tasks how many of its tasks were, and ended is true
	// once its end was.
	run   string
	tasks int
	ended bool
}

func (l *tasksLog) show(ctx context.Context, id string) error {
	for {
		cursor, err := l.catchUp(ctx, id)
		if err != nil || !l.follow {
			return err
		}
		err = l.reader.events(ctx, l.query, &cursor, func(_ string, data []byte) bool {
			var e history.Event
			if json.Unmarshal(data, &e) == nil {
				l.event(e)
			}
			return true
		})
		if !errors.Is(err, errResync) {
			return err
		}
		id = ""
	}
}

// catchUp prints what there is of a run, the newest where id is empty, and returns from
// where on events go on. The query is of the object of that run only then: several may have the name.
func (l *tasksLog) catchUp(ctx context.Context, id string) (cursor string, err error) {
	if id != "" {
		is, err := l.reader.run(ctx, id)
		if err != nil {
			return "", err
		}
		l.query.Set("run", is.Run.ID)
		id = runsObject(is.Run.Brief)
	}
	list, err := l.reader.newest(ctx, l.query)
	l.query.Del("run")
	if err != nil {
		return "", err
	}
	noteHistory(l.stderr, list.Metadata)
	if len(list.Items) == 0 {
		switch {
		case id != "":
			return "", coded(fmt.Errorf("the run is one of %s", id), exitNothing)
		case l.follow:
			return list.Metadata.Cursor, nil
		}
		return "", errNoRun()
	}
	is, err := l.reader.run(ctx, list.Items[0].ID)
	if err != nil {
		return "", err
	}
	l.query.Set("kind", is.Run.Kind)
	setQuery(l.query, "group", is.Run.Group)
	setQuery(l.query, "namespace", is.Run.Namespace)
	l.begin(is.Run.Brief)
	for n, t := range is.Run.Tasks {
		l.task(n, t)
	}
	if !is.Run.Finished.IsZero() {
		l.end(is.Run.Brief)
	}
	return is.Metadata.Cursor, nil
}

// newest lists the newest run of the object of a query, if one is known.
func (r *reader) newest(ctx context.Context, query url.Values) (list api.RunList, err error) {
	query.Set("limit", "1")
	return list, r.get(ctx, "/runs", query, &list)
}

func errNoRun() error { return coded(errors.New("no run of the object is known"), exitNothing) }

func (l *tasksLog) event(e history.Event) {
	l.begin(e.Run)
	switch e.Kind {
	case history.TaskEnded:
		l.task(e.Number, *e.Task)
	case history.RunEnded:
		l.end(e.Run)
	}
}

// print prints a line, in which nothing controls the terminal.
func (l *tasksLog) print(format string, args ...any) {
	fmt.Fprintln(l.out, plaintext.Plain(fmt.Sprintf(format, args...)))
}

// begin prints the first line of another run than the one that is shown.
func (l *tasksLog) begin(b history.Brief) {
	if l.run == b.ID {
		return
	}
	l.run, l.tasks, l.ended = b.ID, 0, false
	l.print("run %.8s of %s, %s: %s", b.ID, runsObject(b), b.Started.Local().Format(time.DateTime), why(b.Cause, b.Trigger, "%s %s"))
}

func (l *tasksLog) task(n int, t history.Task) {
	if n < l.tasks {
		return // an event of what was in the list already
	}
	l.tasks = n + 1
	took := ""
	if !t.Started.IsZero() {
		took = t.Finished.Sub(t.Started).Round(10 * time.Millisecond).String()
	}
	l.print("%s", strings.TrimRight(fmt.Sprintf("  %-11s %8s  %s  %s", t.Outcome, took, t.Title(), t.Path), " "))
	if t.Message != "" {
		l.print("      %s", strings.ReplaceAll(t.Message, "\n", "\n      "))
	}
}

func (l *tasksLog) end(b history.Brief) {
	if !l.ended {
		l.print("  %s after %s", b.Reason, b.Finished.Sub(b.Started).Round(10*time.Millisecond))
	}
	l.ended = true
}
