package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/api"
)

func newGetQueueCommand() *cobra.Command {
	var o readerOptions
	var output listOutput
	limit := 0
	cmd := &cobra.Command{
		Use:   "queue [KIND[.GROUP][/NAME]]",
		Short: "List the objects whose run is due and waits, and what holds it",
		Long: `List the objects whose run is due and has to wait: the queue in the order by urgency, then
those that wait for a maintenance window or the end of a pause. You see the objects that
you may get; the position counts all. See "rolewright get runs --help" for how the
operator is found.

HELD BY is "runs of the kind" or "runs of all kinds" where there are as many as there may
be, "urgent runs" where the places that are left are kept for these, memory, rollout,
"stopped rollout", window or pause, and <none> for what runs next.`,
		Example: `  rolewright get queue -A --operator-namespace operators
  rolewright get queue memcached -n default --server http://localhost:6791`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, query, err := o.ask(cmd.Context(), args)
			if err != nil {
				return err
			}
			defer r.close()
			query.Set("limit", strconv.Itoa(limit))
			return getQueue(cmd, r, query, output)
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = onlyFirst(kindsAndNames(false, &o.namespace))
	output.bind(cmd, "queue")
	cmd.Flags().IntVar(&limit, "limit", 100, "How many objects are shown at most, up to 1000.")
	return cmd
}

func getQueue(cmd *cobra.Command, r *reader, query url.Values, output listOutput) error {
	var list api.Queue
	if err := r.get(cmd.Context(), "/queue", query, &list); err != nil {
		return err
	}
	out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if !list.Metadata.Leads {
		fmt.Fprintln(stderr, "This replica makes no runs: another one has the queue.")
	}
	if list.Metadata.LeftOut > 0 {
		fmt.Fprintf(stderr, "%d more are left out: see --limit.\n", list.Metadata.LeftOut)
	}
	if !output.isTable() {
		var names []string
		for _, is := range list.Items {
			names = append(names, calledBy(is.Kind, is.Group, is.Name))
		}
		return output.print(out, list, names)
	}
	if len(list.Items) == 0 {
		return coded(errors.New("no run waits"), exitNothing)
	}
	return (&table{out: out}).print(queueRows(list.Items, time.Now())...)
}

func queueRows(waiting []api.Waiting, now time.Time) [][]string {
	rows := [][]string{{"POSITION", "NAMESPACE", "KIND", "NAME", "CLASS", "CAUSE", "WAITS", "HELD BY", "UNTIL"}}
	for _, is := range waiting {
		position, until := "", ""
		if is.Position > 0 {
			position = strconv.Itoa(is.Position)
		}
		if !is.Until.IsZero() {
			until = is.Until.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{
			orNone(position), orNone(is.Namespace), is.Kind, is.Name, orNone(is.Class), orNone(is.Cause), age(now, is.Since), orNone(is.HeldBy()), orNone(until),
		})
	}
	return rows
}

// queuePlace is where an object stands in the queue.
type queuePlace struct {
	*api.Waiting `json:",omitempty"`
	// Unknown says why that is not known.
	Unknown string `json:"unknown,omitempty"`
}

// apiInPod is where the operator's API is in its own Pod, as the manifests have it.
const apiInPod = "http://localhost:6791"

// placeOf asks the operator for the place of an object in its queue.
func (o *readerOptions) placeOf(ctx context.Context, obj *unstructured.Unstructured) queuePlace {
	from := *o
	if from.server == "" && from.operatorNamespace == "" {
		if _, err := rest.InClusterConfig(); err != nil {
			return queuePlace{Unknown: "the operator is not asked: give --operator-namespace or --server"}
		}
		from.server = apiInPod
	}
	from.namespace, from.allNamespaces = obj.GetNamespace(), obj.GetNamespace() == ""
	gvk := obj.GroupVersionKind()
	r, query, err := from.ask(ctx, []string{gvk.Kind + "." + gvk.Group + "/" + obj.GetName()})
	if err != nil {
		return queuePlace{Unknown: err.Error()}
	}
	defer r.close()
	var list api.Queue
	if err := r.get(ctx, "/queue", query, &list); err != nil {
		return queuePlace{Unknown: err.Error()}
	}
	switch {
	case !list.Metadata.Leads:
		return queuePlace{Unknown: "the replica that was asked makes no runs"}
	case len(list.Items) == 0:
		return queuePlace{}
	}
	return queuePlace{Waiting: &list.Items[0]}
}

func (p queuePlace) String() string {
	switch is := p.Waiting; {
	case p.Unknown != "":
		return "not known: " + p.Unknown
	case is == nil:
		return "no run waits for a place"
	case is.Position == 0:
		return "waits outside of it for the " + is.HeldBy()
	default:
		return fmt.Sprintf("place %d, class %s, for %s; held by: %s", is.Position, is.Class, age(time.Now(), is.Since), cmp.Or(is.HeldBy(), "nothing, it runs next"))
	}
}
