package main

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/api"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// objectList is what get objects prints for programs.
type objectList struct {
	metav1.TypeMeta
	Items []controller.Summary `json:"items"`
}

func newGetObjectsCommand() *cobra.Command {
	var o selectOptions
	var output listOutput
	watches := false
	cmd := &cobra.Command{
		Use: "objects KIND [NAME...]", Aliases: []string{"object"},
		Short: "List the objects of a kind, with the result of their last run and what the next one waits for",
		Long: `List the objects of a kind: whether they are ready, why and how long ago they last ran,
what the next run waits for, and the last message. It reads the objects with your rights,
and does not contact the operator.

NEXT is running, due, paused, window, waiting, stalled, retry or requeue. It is <none>
where only an event, or the period or schedule of the watch, starts the next run.`,
		Example: `  rolewright get objects memcached -A
  rolewright get objects memcached -l team=web -o wide -w
  rolewright get objects memcached sample -o jsonpath='{.items[0].lastRun.id}'`,
		RunE: func(cmd *cobra.Command, args []string) error { return o.getObjects(cmd, args, output, watches) },
	}
	o.bind(cmd, "List")
	cmd.ValidArgsFunction = kindsAndNames(true, &o.namespace)
	output.bind(cmd, "objects")
	bindWatch(cmd.Flags(), &watches, "object that changes")
	return cmd
}

func (o *selectOptions) getObjects(cmd *cobra.Command, args []string, output listOutput, watches bool) error {
	if err := output.checkWatch(watches); err != nil {
		return err
	}
	if len(args) == 0 {
		return usage(errors.New("give a kind, such as memcached"))
	}
	kind, names, err := parseObjects(args)
	if err != nil {
		return err
	}
	if watches && len(names) > 1 {
		return usage(errors.New("--watch is for one name, or for all objects"))
	}
	c, err := o.objects(kind)
	if err != nil {
		return err
	}
	found, err := c.list(cmd.Context(), o, names)
	if err != nil {
		return err
	}
	now, out := time.Now(), cmd.OutOrStdout()
	list := objectList{TypeMeta: metav1.TypeMeta{APIVersion: api.Version, Kind: "ObjectList"}, Items: []controller.Summary{}}
	var called []string
	for i := range found {
		s := controller.Summarize(&found[i], now)
		list.Items, called = append(list.Items, s), append(called, c.called(s.Name))
	}
	if !output.isTable() {
		return output.print(out, list, called)
	}
	if len(found) == 0 && !watches {
		return nothingFound("objects", c.namespace)
	}
	v := objectTable{wide: output.format == outputWide, namespaces: o.allNamespaces}
	tab := &table{out: out}
	if err := tab.print(append([][]string{v.header()}, v.rows(list.Items, now)...)...); err != nil || !watches {
		return err
	}
	printed := map[types.UID]string{}
	for i := range found {
		printed[found[i].GetUID()] = found[i].GetResourceVersion()
	}
	return c.follow(cmd.Context(), o.selector, strings.Join(names, ""), nil, func(e watch.Event) (bool, error) {
		obj, ok := e.Object.(*unstructured.Unstructured)
		if !ok || e.Type == watch.Added && printed[obj.GetUID()] == obj.GetResourceVersion() {
			return false, nil
		}
		s := controller.Summarize(obj, time.Now())
		if e.Type == watch.Deleted {
			s.Ready, s.Reason, s.Message = "", "Deleted", ""
		}
		return false, tab.print(v.rows([]controller.Summary{s}, time.Now())...)
	})
}

// follow passes the objects, or only the one with a name, to see, and then their changes, until see
// is done or fails. Before that, first sees all objects that exist.
func (c *objectClient) follow(ctx context.Context, selector, name string, first watchtools.PreconditionFunc, see watchtools.ConditionFunc) error {
	options := func(o metav1.ListOptions) metav1.ListOptions {
		o.LabelSelector = selector
		if name != "" {
			o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
		}
		return o
	}
	of := c.of(c.namespace)
	// The watch would retry a request that is refused, and log it.
	if _, err := of.List(ctx, options(metav1.ListOptions{Limit: 1})); err != nil {
		return cmp.Or(ctx.Err(), unreachable(err))
	}
	_, err := watchtools.UntilWithSync(ctx, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return of.List(ctx, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return of.Watch(ctx, options(o))
		},
	}, &unstructured.Unstructured{}, first, see)
	return cmp.Or(ctx.Err(), err)
}

// objectTable says which columns the table has.
type objectTable struct{ wide, namespaces bool }

func (v objectTable) header() []string {
	var row []string
	if v.namespaces {
		row = append(row, "NAMESPACE")
	}
	row = append(row, "NAME", "READY", "REASON", "CAUSE", "LAST RUN", "NEXT")
	if v.wide {
		row = append(row, "GENERATION", "RUN", "DURATION", "FAILURES", "TRIGGER")
	}
	return append(row, "MESSAGE")
}

// maxShownMessage is how much of a message a table shows.
const maxShownMessage = 100

func (v objectTable) rows(objects []controller.Summary, now time.Time) (rows [][]string) {
	for _, s := range objects {
		var row []string
		if v.namespaces {
			row = append(row, orNone(s.Namespace))
		}
		cause, ended, next := "", "", s.Next
		shown := s.Last
		if s.Last != nil {
			cause, ended = s.Last.Cause, age(now, *s.Last.Finished)
		}
		if s.Active != nil {
			shown, cause = s.Active, s.Active.Cause
			next += " " + age(now, s.Active.Started)
		}
		if s.At != nil {
			next += " " + age(*s.At, now)
		}
		row = append(row, s.Name, orNone(s.Ready), orNone(s.Reason), orNone(cause), orNone(ended), orNone(next))
		if v.wide {
			id, took, failures, trigger := "", "", "0", ""
			if shown != nil {
				id, trigger, failures = plaintext.Cut(shown.ID, shownID), shown.Trigger, strconv.FormatInt(shown.Attempts, 10)
				if shown.Finished != nil {
					took = shown.Finished.Sub(shown.Started).Round(100 * time.Millisecond).String()
				}
			}
			row = append(row, strconv.FormatInt(s.Generation, 10), orNone(id), orNone(took), failures, orNone(trigger))
		}
		rows = append(rows, append(row, plaintext.Clip(s.Message, maxShownMessage)))
	}
	return rows
}
