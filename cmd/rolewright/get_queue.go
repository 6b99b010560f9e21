package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/shard"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

func newGetQueueCommand() *cobra.Command {
	o := readerOptions{several: true}
	var output listOutput
	limit, watch := 0, false
	cmd := &cobra.Command{
		Use:   "queue [KIND[.GROUP][/NAME]]",
		Short: "List the objects whose run is due but has to wait, and why",
		Long: `List the objects whose run is due and has to wait: the queue in the order by urgency, then
those that wait for a maintenance window or the end of a pause. You see the objects that
you may get; the position counts all. See "rolewright get runs --help" for how the
operator is found.

HELD BY is "runs of the kind" or "runs of all kinds" if that limit is reached, "urgent
runs" if the remaining places are reserved for urgent runs, memory, rollout, "stopped
rollout", window or pause; it is <none> if the object runs next.

With -w, an object is shown again when HELD BY, its cause or its class changes, or when it
no longer waits; with KIND/NAME, also when its position changes. The operator is asked
every two seconds.`,
		Example: `  rolewright get queue -A --operator-namespace operators
  rolewright get queue memcached -n default --server http://127.0.0.1:6791`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.checkWatch(watch); err != nil {
				return err
			}
			r, query, err := o.ask(cmd.Context(), args)
			if err != nil {
				return err
			}
			defer r.close()
			query.Set("limit", strconv.Itoa(limit))
			every := time.Duration(0)
			if watch {
				every = queueInterval
			}
			return getQueue(cmd, r, query, output, every)
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = onlyFirst(kindsAndNames(false, &o.namespace))
	output.bind(cmd, "queue")
	cmd.Flags().IntVar(&limit, "limit", 100, "How many objects are shown at most, up to 1000.")
	bindWatch(cmd.Flags(), &watch, "object that is added, is held by something else, or no longer waits")
	return cmd
}

// queueInterval is how often get queue -w asks.
const queueInterval = 2 * time.Second

// getQueue prints the queue. Unless every is zero, it then prints what changes in the queue.
func getQueue(cmd *cobra.Command, r *reader, query url.Values, output listOutput, every time.Duration) error {
	list, err := r.queue(cmd.Context(), query)
	if err != nil {
		return err
	}
	out, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	if !list.Metadata.Leads {
		fmt.Fprintln(stderr, notLeading)
	}
	noteShards(stderr, "queue", list.Metadata.Shards)
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
	if len(list.Items) == 0 && every == 0 {
		_, err := fmt.Fprintln(stderr, "no run waits")
		return err
	}
	kinds, tab := &kindNames{wide: output.format == outputWide}, &table{out: out}
	if err := tab.print(append([][]string{queueHeader()}, queueRows(list.Items, kinds, time.Now())...)...); err != nil || every == 0 {
		return err
	}
	return followQueue(cmd, r, query, tab, kinds, list, every)
}

// notLeading is what is printed about a replica that has no queue.
const notLeading = "This replica makes no runs: another one has the queue."

// noteShards says which replica a queue or a history belongs to, if the replicas share the objects.
func noteShards(stderr io.Writer, what string, is *api.Shards) {
	switch {
	case is == nil:
	case is.Replica == "":
		fmt.Fprintf(stderr, "This is the combined %s of all replicas, which share the objects.\n", what)
	default:
		fmt.Fprintf(stderr, "This is the %s of the replica %s, which holds %d of %d shards: each replica has its own.\n",
			what, plaintext.OneLine(is.Replica), is.Held(), len(is.Holders))
	}
}

// followQueue prints what changes in the queue since last, until the command ends.
func followQueue(cmd *cobra.Command, r *reader, query url.Values, tab *table, kinds *kindNames, last api.Queue, every time.Duration) error {
	ctx := cmd.Context()
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticks.C:
		}
		list, err := r.queue(ctx, query)
		if err != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if last.Metadata.Leads && !list.Metadata.Leads {
			fmt.Fprintln(cmd.ErrOrStderr(), notLeading)
		}
		now := time.Now()
		changed, gone := queueChanges(last, list, query.Has("name"))
		rows := queueRows(changed, kinds, now)
		for _, row := range queueRows(gone, kinds, now) {
			row[0], row[7], row[8] = orNone(""), "waits no more", orNone("")
			rows = append(rows, row)
		}
		if err := tab.print(rows...); err != nil {
			return err
		}
		last = list
	}
}

// queueChanges returns what differs in a queue, including the position if positions is true, and
// what has left the queue. If only a part of the queue is shown, what has left it is not known.
func queueChanges(last, list api.Queue, positions bool) (changed, gone []api.Waiting) {
	before := map[history.Object]api.Waiting{}
	for _, is := range last.Items {
		before[is.Object] = is
	}
	for _, is := range list.Items {
		was, there := before[is.Object]
		delete(before, is.Object)
		if there && is.Cause == was.Cause && is.Class == was.Class && is.Held == was.Held && is.Until.Equal(was.Until) && (!positions || is.Position == was.Position) {
			continue
		}
		changed = append(changed, is)
	}
	for _, was := range last.Items {
		if _, left := before[was.Object]; left && list.Metadata.LeftOut == 0 && list.Metadata.Leads {
			gone = append(gone, was)
		}
	}
	return changed, gone
}

func queueHeader() []string {
	return []string{"POSITION", "NAMESPACE", "KIND", "NAME", "CLASS", "CAUSE", "WAITS", "HELD BY", "UNTIL"}
}

func queueRows(waiting []api.Waiting, kinds *kindNames, now time.Time) (rows [][]string) {
	for _, is := range waiting {
		kinds.see(is.Object)
	}
	for _, is := range waiting {
		position, until := "", ""
		if is.Position > 0 {
			position = strconv.Itoa(is.Position)
		}
		if !is.Until.IsZero() {
			until = is.Until.UTC().Format(time.RFC3339)
		}
		rows = append(rows, []string{
			orNone(position), orNone(is.Namespace), kinds.of(is.Object), is.Name, orNone(is.Class), orNone(is.Cause), age(now, is.Since), orNone(is.HeldBy()), orNone(until),
		})
	}
	return rows
}

// queuePlace is where an object stands in the queue.
type queuePlace struct {
	*api.Waiting `json:",omitempty"`
	// Replica is the Pod that runs the object, and Shard is the object's shard. Both are empty
	// if the replicas do not share the objects.
	Replica string `json:"replica,omitempty"`
	Shard   string `json:"shard,omitempty"`
	// Unknown says why the place is not known.
	Unknown string `json:"unknown,omitempty"`
}

// apiInPod is the address of the operator's API in its own Pod, as in the manifests.
const apiInPod = "http://127.0.0.1:6791"

// placePatience bounds the request for the place in the queue.
const placePatience = 5 * time.Second

// placeOf asks the operator for the place of an object in its queue.
func (o *readerOptions) placeOf(ctx context.Context, obj *unstructured.Unstructured) queuePlace {
	from := *o
	from.several = true
	if from.server == "" && from.operatorNamespace == "" {
		if _, err := rest.InClusterConfig(); err != nil {
			return queuePlace{Unknown: "the operator is not asked: give --operator-namespace or --server"}
		}
		from.server = apiInPod
	}
	ctx, cancel := context.WithTimeout(ctx, placePatience)
	defer cancel()
	from.namespace, from.allNamespaces = obj.GetNamespace(), obj.GetNamespace() == ""
	gvk := obj.GroupVersionKind()
	r, query, err := from.ask(ctx, []string{gvk.Kind + "." + gvk.Group + "/" + obj.GetName()})
	if err != nil {
		return queuePlace{Unknown: err.Error()}
	}
	defer r.close()
	var place queuePlace
	for _, one := range r.replicas() {
		var list api.Queue
		if err := one.get(ctx, "/queue", query, &list); err != nil {
			place = queuePlace{Unknown: err.Error()}
		} else if place = placeIn(list, obj.GetUID()); place.Unknown == "" {
			break
		}
	}
	return place
}

// placeIn returns the place of an object in a queue that was asked for this object only.
func placeIn(list api.Queue, uid types.UID) (place queuePlace) {
	is := list.Metadata.Shards
	if is != nil && len(is.Holders) > 0 {
		i := shard.Of(uid, len(is.Holders))
		place.Replica, place.Shard = is.Holders[i], fmt.Sprintf("%d/%d", i, len(is.Holders))
	}
	switch {
	case !list.Metadata.Leads:
		place.Unknown = "the replica that was asked makes no runs"
	case is != nil && place.Replica != is.Replica:
		place.Unknown = "the replica " + is.Replica + " was asked, which does not run the object"
	case len(list.Items) > 0:
		place.Waiting = &list.Items[0]
	}
	return place
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
