package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
)

// topOptions are the settings of top.
type topOptions struct {
	readerOptions

	by    string
	since time.Duration
	limit int
}

// What top can group by.
const (
	byKind   = "kind"
	byObject = "object"
	byRun    = "run"
)

func newTopCommand() *cobra.Command {
	var o topOptions
	var output listOutput
	cmd := &cobra.Command{
		Use:   "top [KIND[.GROUP][/NAME]]",
		Short: "Show the CPU, memory and time that runs took, by kind, object or run",
		Long: `Show the CPU, memory and time that the runs of the history took, most CPU first: by kind,
by object, or for each run. CPU is that of Ansible and all processes that it started,
MEMORY the highest use that was seen in a run. Runs in progress do not count. See
"rolewright get runs --help" for how the operator is found.`,
		Example: `  rolewright top -A --operator-namespace operators
  rolewright top memcached -n default --by object --since 1h --server http://127.0.0.1:6791`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args, output) },
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = onlyFirst(kindsAndNames(false, &o.namespace))
	output.bind(cmd, "sums")
	cmd.Flags().StringVar(&o.by, "by", byKind, "What to sum up by: kind, object or run.")
	oneOf(cmd, "by", byKind, byObject, byRun)
	cmd.Flags().DurationVar(&o.since, "since", 24*time.Hour, "Count only runs that have ended within this time.")
	cmd.Flags().IntVar(&o.limit, "limit", 20, "How many lines are shown at most; 0 for all.")
	return cmd
}

// usageList is what top prints for programs.
type usageList struct {
	Items []taken `json:"items"`
}

// taken is what some runs have used together.
type taken struct {
	history.Object
	// Run is the ID of the run if top groups by run.
	Run    string `json:"run,omitempty"`
	Runs   int    `json:"runs"`
	Failed int    `json:"failed"`
	// CPU and Seconds are sums, in seconds; Memory is the most of one run, in bytes.
	CPU     float64 `json:"cpu"`
	Seconds float64 `json:"seconds"`
	Memory  int64   `json:"memory"`
}

func (o *topOptions) run(cmd *cobra.Command, args []string, output listOutput) error {
	r, query, err := o.ask(cmd.Context(), args)
	if err != nil {
		return err
	}
	defer r.close()
	runs, meta, whole, err := r.ended(cmd.Context(), query, time.Now().Add(-o.since))
	if err != nil {
		return err
	}
	noteHistory(cmd.ErrOrStderr(), meta)
	if !whole {
		fmt.Fprintf(cmd.ErrOrStderr(), "Only the newest %d runs count: see --since.\n", maxCounted)
	}
	list := usageList{Items: sumUp(runs, o.by)}
	if o.limit > 0 && len(list.Items) > o.limit {
		fmt.Fprintf(cmd.ErrOrStderr(), "%d more are left out: see --limit.\n", len(list.Items)-o.limit)
		list.Items = list.Items[:o.limit]
	}
	if !output.isTable() {
		var names []string
		for _, is := range list.Items {
			names = append(names, calledBy(is.Kind, is.Group, cmp.Or(is.Run, is.Name)))
		}
		return output.print(cmd.OutOrStdout(), list, names)
	}
	if len(list.Items) == 0 {
		return coded(errors.New("no runs found"), exitNothing)
	}
	return (&table{out: cmd.OutOrStdout()}).print(topRows(list.Items, o.by, &kindNames{wide: output.format == outputWide || o.by == byKind})...)
}

// maxCounted limits how many runs are read.
const maxCounted = 10_000

// ended returns the runs that have ended since a time, the newest first, and the metadata of their history. whole is
// false if there are more.
func (r *reader) ended(ctx context.Context, query url.Values, since time.Time) (runs []history.Brief, meta api.ListMeta, whole bool, err error) {
	query.Set("limit", "1000")
	for len(runs) < maxCounted {
		var list api.RunList
		if err := r.get(ctx, "/runs", query, &list); err != nil {
			return nil, meta, false, err
		}
		if !query.Has("continue") {
			meta = list.Metadata
		}
		for _, b := range list.Items {
			switch {
			case b.Finished.IsZero(): // it is in progress
			case b.Finished.Before(since):
				return runs, meta, true, nil
			default:
				runs = append(runs, b)
			}
		}
		if list.Metadata.Continue == "" {
			return runs, meta, true, nil
		}
		query.Set("continue", list.Metadata.Continue)
	}
	return runs, meta, false, nil
}

// sumUp returns what runs have used, grouped by by, the most CPU first.
func sumUp(runs []history.Brief, by string) []taken {
	at := map[taken]int{}
	sums := []taken{}
	for _, b := range runs {
		key := taken{Object: b.Object}
		switch by {
		case byKind:
			key.Version, key.Namespace, key.Name = "", "", ""
		case byRun:
			key.Run = b.ID
		}
		i, there := at[key]
		if !there {
			i = len(sums)
			at[key], sums = i, append(sums, key)
		}
		s := &sums[i]
		s.Runs++
		if b.Result == "Failed" {
			s.Failed++
		}
		s.CPU, s.Seconds, s.Memory = s.CPU+b.CPU, s.Seconds+b.Finished.Sub(b.Started).Seconds(), max(s.Memory, b.Memory)
	}
	slices.SortStableFunc(sums, func(a, b taken) int { return cmp.Or(cmp.Compare(b.CPU, a.CPU), cmp.Compare(b.Seconds, a.Seconds)) })
	return sums
}

func topRows(sums []taken, by string, kinds *kindNames) [][]string {
	header := []string{"KIND"}
	switch by {
	case byObject:
		header = []string{"NAMESPACE", "KIND", "NAME"}
	case byRun:
		header = []string{"NAMESPACE", "KIND", "NAME", "RUN"}
	}
	rows := [][]string{append(header, "RUNS", "FAILED", "CPU", "CPU/RUN", "TIME", "MEMORY")}
	for _, s := range sums {
		kinds.see(s.Object)
	}
	for _, s := range sums {
		row := []string{kinds.of(s.Object)}
		switch by {
		case byObject:
			row = []string{orNone(s.Namespace), row[0], s.Name}
		case byRun:
			row = []string{orNone(s.Namespace), row[0], s.Name, fmt.Sprintf("%.*s", shownID, s.Run)}
		}
		rows = append(rows, append(row, strconv.Itoa(s.Runs), strconv.Itoa(s.Failed), fmt.Sprintf("%.1fs", s.CPU), fmt.Sprintf("%.1fs", s.CPU/float64(s.Runs)),
			(time.Duration(s.Seconds*float64(time.Second))).Round(100*time.Millisecond).String(), fmt.Sprintf("%dMi", s.Memory>>20)))
	}
	return rows
}
