package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get", Short: "List objects with their state, or the runs or the queue of an operator",
		Args: explainArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGetObjectsCommand(), newGetRunsCommand(), newGetQueueCommand())
	return cmd
}

// runResults returns the results that a run can have.
func runResults() []string { return []string{"Succeeded", "Failed", "Interrupted"} }

// runsOptions are the settings of get runs.
type runsOptions struct {
	readerOptions

	output listOutput
	result string
	limit  int
	watch  bool
}

func newGetRunsCommand() *cobra.Command {
	var o runsOptions
	cmd := &cobra.Command{
		Use: "runs [KIND[.GROUP][/NAME]]", Aliases: []string{"run"},
		Short: "List runs: those in progress first, then the newest",
		Long: `List the runs of an operator, as its history has them: those in progress first, then
the newest. The operator needs --api-port. Its Pods are found in --operator-namespace by
the container port rolewright-api, which is forwarded with your rights: all replicas are
asked, and get your token. You see the runs of objects that you may get.

Give the kind as memcached or Memcached; if the operator watches several kinds of that
name, add the group, such as memcached.cache.example.com.`,
		Example: `  rolewright get runs -A --operator-namespace operators
  rolewright get runs memcached/sample -n default -o wide --server http://127.0.0.1:6791
  rolewright get runs --result Failed -o jsonpath='{.items[*].id}' --operator-namespace operators`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	fs := cmd.Flags()
	o.bind(fs)
	cmd.ValidArgsFunction = onlyFirst(kindsAndNames(false, &o.namespace))
	completeFlag(cmd, "result", fixed(runResults()...))
	o.output.bind(cmd, "runs")
	fs.StringVar(&o.result, "result", "", "Show only runs with this result: Succeeded, Failed (the column RESULT has the reason) or Interrupted.")
	fs.IntVar(&o.limit, "limit", 50, "How many runs that have ended are shown at most, up to 1000.")
	bindWatch(fs, &o.watch, "run that begins or ends")
	return cmd
}

func (o *runsOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.output.checkWatch(o.watch); err != nil {
		return err
	}
	if o.result != "" {
		known := runResults()
		i := slices.IndexFunc(known, func(is string) bool { return strings.EqualFold(is, o.result) })
		if i < 0 {
			return usage(fmt.Errorf("--result %q: it must be one of %s", o.result, strings.Join(known, ", ")))
		}
		o.result = known[i]
	}
	o.several = !o.watch // only one replica's events can be followed
	r, query, err := o.ask(cmd.Context(), args)
	if err != nil {
		return err
	}
	defer r.close()
	setQuery(query, "result", o.result)
	query.Set("limit", strconv.Itoa(o.limit))
	list, err := r.runs(cmd.Context(), query)
	if err != nil {
		return err
	}
	noteHistory(cmd.ErrOrStderr(), list.Metadata)
	out := cmd.OutOrStdout()
	if !o.output.isTable() {
		var names []string
		for _, b := range list.Items {
			names = append(names, "run/"+b.ID)
		}
		return o.output.print(out, list, names)
	}
	if len(list.Items) == 0 && !o.watch {
		return nothingFound("runs", r.namespace)
	}
	kinds, tab := &kindNames{wide: o.output.format == outputWide}, &table{out: out}
	if err := tab.print(runRows(list.Items, kinds, time.Now(), true)...); err != nil || !o.watch {
		return err
	}
	return r.events(cmd.Context(), query, &list.Metadata.Cursor, func(kind string, data []byte) bool {
		var e history.Event
		if (kind == string(history.RunStarted) || kind == string(history.RunEnded)) && json.Unmarshal(data, &e) == nil {
			err = tab.print(runRows([]history.Brief{e.Run}, kinds, time.Now(), false)...)
		}
		return err == nil
	})
}

// noteHistory says what is missing from the history of a replica.
func noteHistory(stderr io.Writer, is api.ListMeta) {
	if !is.Leads {
		fmt.Fprintln(stderr, "This replica makes no runs: another one has the history of current runs. Name its Pod with --operator-pod.")
	}
	noteShards(stderr, "history", is.Shards)
}

func setQuery(query url.Values, key, value string) {
	if value != "" {
		query.Set(key, value)
	}
}

// objectQuery adds KIND[.GROUP][/NAME] to a query.
func objectQuery(query url.Values, object string) error {
	kind, name, named := strings.Cut(object, "/")
	kind, group, _ := strings.Cut(kind, ".")
	if kind == "" || named && name == "" {
		return usage(fmt.Errorf("%q: give KIND or KIND/NAME, such as memcached/sample", object))
	}
	query.Set("kind", kind)
	setQuery(query, "group", group)
	setQuery(query, "name", name)
	return nil
}

// runRows returns the lines of a table of runs.
func runRows(runs []history.Brief, kinds *kindNames, now time.Time, header bool) (rows [][]string) {
	if header {
		rows = append(rows, []string{"NAMESPACE", "KIND", "NAME", "RUN", "RESULT", "CAUSE", "AGE", "DURATION", "CHANGED"})
		if kinds.wide {
			rows[0] = append(rows[0], "TRIGGER", "TASK")
		}
	}
	for _, b := range runs {
		kinds.see(b.Object)
	}
	for _, b := range runs {
		result, end := b.Reason, b.Finished
		if end.IsZero() {
			result, end = "Running", now
		}
		c := b.Counts
		row := []string{
			orNone(b.Namespace), kinds.of(b.Object), b.Name, plaintext.Cut(b.ID, shownID), result, b.Cause, age(now, b.Started),
			end.Sub(b.Started).Round(100 * time.Millisecond).String(), fmt.Sprintf("%d/%d", c.Changed, c.OK+c.Failed+c.Unreachable),
		}
		if kinds.wide {
			at := ""
			if b.Task != nil {
				at = b.Task.Path
			}
			row = append(row, orNone(b.Trigger), orNone(at))
		}
		rows = append(rows, row)
	}
	return rows
}

// shownID is how many characters of a run's ID a table shows.
const shownID = 8

// kindNames decides how a table names kinds: with their group if the table is wide, or once it has had kinds with the
// same name in several groups.
type kindNames struct {
	wide    bool
	groups  map[string]string // by the name of the kind
	several map[string]bool
}

// see takes note of the kind of an object in the table.
func (k *kindNames) see(o history.Object) {
	if k.groups == nil {
		k.groups, k.several = map[string]string{}, map[string]bool{}
	}
	group, seen := k.groups[o.Kind]
	k.groups[o.Kind] = o.Group
	k.several[o.Kind] = k.several[o.Kind] || seen && group != o.Group
}

func (k *kindNames) of(o history.Object) string {
	if k.wide || k.several[o.Kind] {
		return schema.GroupKind{Group: o.Group, Kind: o.Kind}.String()
	}
	return o.Kind
}

// orNone is what kubectl prints for nothing.
func orNone(s string) string { return cmp.Or(s, "<none>") }
