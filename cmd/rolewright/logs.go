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
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

func newLogsCommand() *cobra.Command {
	o := readerOptions{several: true}
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
	cmd.Flags().StringVar(&run, "run", "", "The ID of the run, or a unique prefix of it.")
	completeFlag(cmd, "run", o.completeRunIDsOf)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "Keep showing tasks while runs are in progress.")
	return cmd
}

// tasksLog prints the tasks of runs, each once.
type tasksLog struct {
	reader      *reader
	query       url.Values
	out, stderr io.Writer
	follow      bool

	// run is the ID of the run that is shown, tasks is how many of its tasks have been shown, and ended is
	// true once its end has. left is true once its replica no longer follows the run although it goes on.
	run   string
	tasks int
	ended bool
	left  bool
	// object is the one whose runs are shown: several may have the name. Its name is empty until a run is known.
	object history.Object
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
			return !l.left
		})
		if l.left {
			return unreachable(fmt.Errorf("run %.8s continues, but its replica no longer follows it, for example because another replica has taken its shard: in a few seconds, ask all replicas with -f --run %.8s and without --operator-pod", l.run, l.run))
		}
		if !errors.Is(err, errResync) {
			return err
		}
		id = ""
	}
}

// catchUp prints what is known of a run, or of the newest if id is empty. It returns the cursor
// from which events continue. From then on, only runs of that run's object are shown.
func (l *tasksLog) catchUp(ctx context.Context, id string) (cursor string, err error) {
	if id != "" {
		is, err := l.reader.run(ctx, id)
		if err != nil {
			return "", err
		}
		l.query.Set("run", is.Run.ID)
		l.query.Del("namespace") // the ID determines it
		setQuery(l.query, "namespace", is.Run.Namespace)
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
		case l.follow && len(l.reader.others) == 0: // with several replicas it is not known which one makes the first run
			return list.Metadata.Cursor, nil
		}
		return "", errNoRun()
	}
	is, at, err := l.reader.runAt(ctx, list.Items[0].ID)
	if err != nil {
		return "", err
	}
	l.reader = at
	l.only(is.Run.Object)
	l.begin(is.Run.Brief)
	for n, t := range is.Run.Tasks {
		l.task(n, t)
	}
	if !is.Run.Finished.IsZero() {
		l.end(is.Run.Brief)
	}
	return is.Metadata.Cursor, nil
}

// only shows the runs of one object from now on.
func (l *tasksLog) only(o history.Object) {
	o.Version = "" // the object is the same in all versions
	l.object = o
	l.query.Set("kind", o.Kind)
	setQuery(l.query, "group", o.Group)
	setQuery(l.query, "namespace", o.Namespace)
}

// newest lists the newest run of a query, if one is known: of the runs in progress, the API lists the oldest first.
func (r *reader) newest(ctx context.Context, query url.Values) (list api.RunList, err error) {
	query.Set("limit", "1") // of the runs that have ended
	if list, err = r.runs(ctx, query); err == nil && len(list.Items) > 0 {
		list.Items = []history.Brief{slices.MaxFunc(list.Items, func(a, b history.Brief) int { return a.Started.Compare(b.Started) })}
	}
	return list, err
}

func errNoRun() error { return coded(errors.New("no run of the object is known"), exitNothing) }

func (l *tasksLog) event(e history.Event) {
	if l.object.Name == "" {
		l.only(e.Run.Object)
	}
	if o := e.Run.Object; o.Group != l.object.Group || o.Kind != l.object.Kind || o.Namespace != l.object.Namespace || o.Name != l.object.Name {
		return
	}
	l.begin(e.Run)
	switch e.Kind {
	case history.TaskEnded:
		l.task(e.Number, *e.Task)
	case history.RunEnded:
		l.end(e.Run)
	case history.RunLeft:
		l.left = true
	}
}

// print prints a line without characters that control the terminal.
func (l *tasksLog) print(format string, args ...any) {
	fmt.Fprintln(l.out, plaintext.Plain(fmt.Sprintf(format, args...)))
}

// begin prints the first line of a run, unless it is the run that is shown already.
func (l *tasksLog) begin(b history.Brief) {
	if l.run == b.ID {
		return
	}
	l.run, l.tasks, l.ended = b.ID, 0, false
	l.print("run %.8s of %s, %s: %s", b.ID, runsObject(b), b.Started.Local().Format(time.DateTime), why(b.Cause, b.Trigger, "%s %s"))
}

func (l *tasksLog) task(n int, t history.Task) {
	if n < l.tasks {
		return // the list contained the task of this event already
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
