package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
)

func newGetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "get", Short: "List the runs of an operator",
		Args: explainArgument,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGetRunsCommand())
	return cmd
}

// Formats of lists, beside outputJSON.
const (
	outputTable = "table"
	outputWide  = "wide"
	outputName  = "name"
)

// runsOptions are the settings of get runs.
type runsOptions struct {
	readerOptions

	output, result string
	limit          int
	watch          bool
}

func newGetRunsCommand() *cobra.Command {
	var o runsOptions
	cmd := &cobra.Command{
		Use:   "runs [KIND.GROUP[/NAME]]",
		Short: "List runs: those in progress first, then the newest",
		Long: `List the runs of an operator, as its history has them: those in progress first, then
the newest. The operator needs --api-port. Its Pod is found in --operator-namespace by
the container port with the name rolewright-api, which is forwarded with your rights.
The Pod gets your token. You see the runs of objects that you may get.

The kind is given with its group, such as memcached.cache.example.com.`,
		Example: `  rolewright get runs -A --operator-namespace operators
  rolewright get runs memcached.cache.example.com/sample -n default -o wide --server http://localhost:6791
  rolewright get runs --result Failed -o json --operator-namespace operators`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	fs := cmd.Flags()
	o.bind(fs)
	fs.StringVarP(&o.output, "output", "o", outputTable, "How to print the runs: table, wide, json, yaml or name.")
	fs.StringVar(&o.result, "result", "", "Only runs that have Succeeded, Failed or were Interrupted.")
	fs.IntVar(&o.limit, "limit", 50, "How many runs that have ended are shown at most, up to 1000.")
	fs.BoolVarP(&o.watch, "watch", "w", false, "Go on, and show each run that begins or ends.")
	return cmd
}

func (o *runsOptions) run(cmd *cobra.Command, args []string) error {
	switch o.output {
	case outputTable, outputWide, outputJSON, outputYAML, outputName:
	default:
		return usage(fmt.Errorf("--output must be table, wide, json, yaml or name, not %q", o.output))
	}
	if o.watch && o.output != outputTable && o.output != outputWide {
		return usage(errors.New("--watch prints a table: leave --output away, or say wide"))
	}
	query := url.Values{}
	if len(args) > 0 {
		if err := objectQuery(query, args[0]); err != nil {
			return err
		}
	}
	r, err := o.connect(cmd.Context())
	if err != nil {
		return err
	}
	defer r.close()
	setQuery(query, "namespace", r.namespace)
	setQuery(query, "result", o.result)
	query.Set("limit", strconv.Itoa(o.limit))
	var list api.RunList
	if err := r.get(cmd.Context(), "/runs", query, &list); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	switch o.output {
	case outputJSON:
		return printJSON(out, list)
	case outputYAML:
		text, err := yaml.Marshal(list)
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	case outputName:
		for _, b := range list.Items {
			fmt.Fprintln(out, "run/"+b.ID)
		}
		return nil
	}
	if len(list.Items) == 0 && !o.watch {
		return coded(errors.New("no runs found"), exitNothing)
	}
	if err := printRuns(out, list.Items, o.output == outputWide, time.Now()); err != nil || !o.watch {
		return err
	}
	return o.follow(cmd.Context(), r, query, list.Metadata.Cursor, out)
}

// follow prints a line for each run that begins or ends.
func (o *runsOptions) follow(ctx context.Context, r *reader, query url.Values, cursor string, out io.Writer) error {
	return r.events(ctx, query, &cursor, func(kind string, data []byte) bool {
		var e history.Event
		if (kind == string(history.RunStarted) || kind == string(history.RunEnded)) && json.Unmarshal(data, &e) == nil {
			_ = printRunLines(out, []history.Brief{e.Run}, o.output == outputWide, time.Now(), false) // as the table above
		}
		return true
	})
}

func setQuery(query url.Values, key, value string) {
	if value != "" {
		query.Set(key, value)
	}
}

// objectQuery adds KIND.GROUP[/NAME] to a query.
func objectQuery(query url.Values, object string) error {
	kind, name, named := strings.Cut(object, "/")
	kind, group, grouped := strings.Cut(kind, ".")
	if kind == "" || !grouped || named && name == "" {
		return usage(fmt.Errorf("%q: give KIND.GROUP or KIND.GROUP/NAME, such as memcached.cache.example.com/sample", object))
	}
	query.Set("kind", kind)
	query.Set("group", group)
	setQuery(query, "name", name)
	return nil
}

func printRuns(out io.Writer, runs []history.Brief, wide bool, now time.Time) error {
	return printRunLines(out, runs, wide, now, true)
}

func printRunLines(out io.Writer, runs []history.Brief, wide bool, now time.Time, header bool) error {
	tab := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	if header {
		text := "NAMESPACE\tKIND\tNAME\tRUN\tRESULT\tCAUSE\tAGE\tDURATION\tCHANGED"
		if wide {
			text += "\tTRIGGER\tTASK"
		}
		fmt.Fprintln(tab, text)
	}
	for _, b := range runs {
		result, end := b.Reason, b.Finished
		if end.IsZero() {
			result, end = "Running", now
		}
		c := b.Counts
		fmt.Fprintf(tab, "%s\t%s\t%s\t%.8s\t%s\t%s\t%s\t%s\t%d/%d", orNone(b.Namespace), b.Kind, b.Name, b.ID, result, b.Cause,
			age(now, b.Started), end.Sub(b.Started).Round(100*time.Millisecond), c.Changed, c.OK+c.Failed+c.Unreachable)
		if wide {
			at := ""
			if b.Task != nil {
				at = b.Task.Path
			}
			fmt.Fprintf(tab, "\t%s\t%s", orNone(b.Trigger), orNone(at))
		}
		fmt.Fprintln(tab)
	}
	return tab.Flush()
}

// orNone is what kubectl prints for nothing.
func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}
