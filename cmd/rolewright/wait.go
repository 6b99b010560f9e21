package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/waitfor"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// waitOptions are the settings of commands that wait for objects.
type waitOptions struct {
	selectOptions

	condition string
	timeout   time.Duration
}

func newWaitCommand() *cobra.Command {
	var o waitOptions
	cmd := &cobra.Command{
		Use:   "wait KIND/NAME...",
		Short: "Wait until objects have been reconciled as they are now",
		Long: `Wait until a run of each object's current generation has ended, and no other run is due or
in progress. The exit code is 0 if the run succeeded. If it failed, the command ends with
the message of the failed task, even if the operator will retry the run. After --timeout it
says what each object waits for, and the exit code is 4.

With --for condition=TYPE or condition=TYPE=STATUS, wait for a condition of the status
instead; its observedGeneration, if it has one, must be current. With --for delete, wait
until the objects are gone.`,
		Example: `  rolewright wait memcached/sample --timeout 5m
  rolewright wait memcached -l team=web
  rolewright wait memcached/sample --for condition=Ready`,
		RunE: func(cmd *cobra.Command, args []string) error {
			met, err := o.wanted()
			if err != nil {
				return err
			}
			kind, names, err := parseObjects(args)
			if err != nil {
				return err
			}
			c, err := o.objects(kind)
			if err != nil {
				return err
			}
			found, err := o.there(cmd.Context(), c, names)
			if err != nil || len(found) == 0 {
				return err
			}
			return o.await(cmd, c, found, met)
		},
	}
	o.bindAll(cmd, "Wait for")
	cmd.Flags().StringVar(&o.condition, "for", waitsForReconcile, "What to wait for: reconciled, condition=TYPE[=STATUS] or delete.")
	o.bindTimeout(cmd, 30*time.Second)
	completeFlag(cmd, "for", fixed(waitsForReconcile, "condition=Ready", waitsForDeletion))
	return cmd
}

// there returns the objects to wait for; with --for delete, objects that are gone already are left out.
func (o *waitOptions) there(ctx context.Context, c *objectClient, names []string) (found []unstructured.Unstructured, err error) {
	if o.condition != waitsForDeletion {
		return c.chosen(ctx, &o.selectOptions, names)
	}
	each := [][]string{nil} // all that are selected
	if len(names) > 0 {
		each = slices.Collect(slices.Chunk(names, 1))
	}
	for _, names := range each {
		some, err := c.chosen(ctx, &o.selectOptions, names)
		if err != nil && !nothing(err) {
			return nil, err
		}
		found = append(found, some...)
	}
	return found, nil
}

// The values of --for that are not conditions.
const (
	waitsForReconcile = "reconciled"
	waitsForDeletion  = "delete"
)

func (o *waitOptions) bindTimeout(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().DurationVar(&o.timeout, "timeout", timeout, "How long to wait for all of them; 0 for no limit.")
}

// goal tells whether an object is in the state that is waited for. done is then what to say about it;
// otherwise waitsFor is what it is waiting for. obj is nil once the object is gone.
type goal func(obj *unstructured.Unstructured) (done string, waitsFor string, err error)

// nothing tells whether an error means that there are no such objects.
func nothing(err error) bool {
	var is codedError
	return errors.As(err, &is) && is.code == exitNothing
}

// errGone means that an object cannot reach its goal any more.
var errGone = errors.New("was deleted")

// wanted returns the goal that --for asks for.
func (o *waitOptions) wanted() (goal, error) {
	what, value, _ := strings.Cut(o.condition, "=")
	switch {
	case o.condition == waitsForReconcile:
		return reconciled, nil
	case o.condition == waitsForDeletion:
		return func(obj *unstructured.Unstructured) (string, string, error) {
			if obj == nil {
				return "deleted", "", nil
			}
			return "", "it still exists, with the finalizers " + orNone(strings.Join(obj.GetFinalizers(), ", ")), nil
		}, nil
	case what != "condition" || value == "":
		return nil, usage(fmt.Errorf("--for %q: it must be reconciled, condition=TYPE, condition=TYPE=STATUS or delete", o.condition))
	}
	wish, err := waitfor.Parse(o.condition)
	if err != nil {
		return nil, usage(fmt.Errorf("--for %q: %w", o.condition, err))
	}
	return func(obj *unstructured.Unstructured) (string, string, error) {
		if obj == nil {
			return "", "", errGone
		}
		if met, instead := wish.Met(obj); !met {
			return "", instead, nil
		}
		return "condition met", "", nil
	}, nil
}

// reconciled is the goal that an object has been reconciled in its current state.
func reconciled(obj *unstructured.Unstructured) (string, string, error) {
	if obj == nil {
		return "", "", errGone
	}
	done, waitsFor, err := controller.Settled(obj, time.Now())
	if !done || err != nil {
		return "", waitsFor, err
	}
	said := "reconciled"
	if last := controller.Summarize(obj, time.Now()).Last; last != nil {
		said += fmt.Sprintf(" (run %s, %s, took %s)", plaintext.Cut(last.ID, shownID), last.Cause, last.Finished.Sub(last.Started).Round(100*time.Millisecond))
	}
	return said, "", nil
}

// requested is the goal that a requested run has ended. If the status has no record of runs, the end cannot be seen.
func requested(obj *unstructured.Unstructured) (string, string, error) {
	if obj != nil {
		observed, _, _ := unstructured.NestedInt64(obj.Object, "status", "observedGeneration")
		if _, records, _ := unstructured.NestedFieldNoCopy(obj.Object, "status", "ansible"); !records && observed > 0 {
			return "", "", errors.New("its status has no record of runs (status.ansible), so the end of the run that was asked for cannot be seen here: see \"rolewright get runs\"")
		}
	}
	return reconciled(obj)
}

// awaited is an object that is waited for.
type awaited struct {
	name     string
	waitsFor string
	over     bool // it is done, or has failed
}

// await waits for all objects with one watch, and prints the outcome of each.
func (o *waitOptions) await(cmd *cobra.Command, c *objectClient, objects []unstructured.Unstructured, met goal) error {
	ctx, cancel := cmd.Context(), func() {}
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()
	var failed []error
	left, all := 0, map[string]*awaited{}
	look := func(key string, obj *unstructured.Unstructured) {
		is := all[key]
		if is == nil || is.over {
			return
		}
		done, waitsFor, err := met(obj)
		is.waitsFor, is.over = waitsFor, done != "" || err != nil
		if err != nil {
			failed = append(failed, fmt.Errorf("%s %w", is.name, err))
		} else if is.over {
			fmt.Fprintln(cmd.OutOrStdout(), is.name+" "+done)
		}
		if is.over {
			left--
		}
	}
	objects = once(objects)
	for i := range objects {
		left++
		all[keyOf(&objects[i])] = &awaited{name: c.shown(&objects[i])}
		look(keyOf(&objects[i]), &objects[i])
	}
	if left > 0 {
		err := c.followAll(ctx, objects, all, func() bool { return left == 0 }, look)
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	if cmd.Context().Err() != nil {
		return cmd.Context().Err()
	}
	if left == 0 {
		return errors.Join(failed...)
	}
	failed = append(failed, fmt.Errorf("timed out after %s", o.timeout))
	for i := range objects {
		if is := all[keyOf(&objects[i])]; !is.over {
			failed = append(failed, fmt.Errorf("%s: %s", is.name, plaintext.Plain(is.waitsFor)))
		}
	}
	return coded(errors.Join(failed...), exitTimeout)
}

// once returns the objects without duplicates.
func once(objects []unstructured.Unstructured) []unstructured.Unstructured {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(objects), func(obj unstructured.Unstructured) bool {
		twice := seen[keyOf(&obj)]
		seen[keyOf(&obj)] = true
		return twice
	})
}

// keyOf returns a key that is unique among the objects of a kind.
func keyOf(obj *unstructured.Unstructured) string { return obj.GetNamespace() + "/" + obj.GetName() }

// followAll calls look for each object, now and at each change, until over returns true. For an object
// that is gone, obj is nil.
func (c *objectClient) followAll(ctx context.Context, objects []unstructured.Unstructured, all map[string]*awaited, over func() bool, look func(string, *unstructured.Unstructured)) error {
	one, name := *c, ""
	if len(objects) == 1 {
		one.namespace, name = objects[0].GetNamespace(), objects[0].GetName()
	}
	gone := func(store cache.Store) (bool, error) {
		there := map[string]bool{}
		for _, item := range store.List() {
			if obj, ok := item.(*unstructured.Unstructured); ok {
				there[keyOf(obj)] = true
			}
		}
		for key := range all {
			if !there[key] {
				look(key, nil)
			}
		}
		return over(), nil
	}
	return one.follow(ctx, "", name, gone, func(e watch.Event) (bool, error) {
		obj, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case !ok:
		case e.Type == watch.Deleted:
			look(keyOf(obj), nil)
		default:
			look(keyOf(obj), obj)
		}
		return over(), nil
	})
}
