package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/controller"

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
		Long: `Wait until a run of each object's generation has ended, and no other one is due or in
progress. The exit code is 0 if it has succeeded. If it has failed, the command ends with
the message of the failed task, also where the operator will repeat the run. After
--timeout it says what each object waits for, with exit code 4.

With --for condition=TYPE or condition=TYPE=STATUS, wait for a condition of the status
instead, which has to be about the current generation where it says; with --for delete,
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
			found, err := c.chosen(cmd.Context(), &o.selectOptions, names)
			if o.condition == waitsForDeletion && nothing(err) {
				return nil
			}
			if err != nil {
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

// What --for knows beside conditions.
const (
	waitsForReconcile = "reconciled"
	waitsForDeletion  = "delete"
)

func (o *waitOptions) bindTimeout(cmd *cobra.Command, timeout time.Duration) {
	cmd.Flags().DurationVar(&o.timeout, "timeout", timeout, "How long to wait for all of them; 0 for no limit.")
}

// goal tells whether an object is as it is waited for: what is to be said of it then, and what
// it waits for otherwise. The object is nil once it is gone.
type goal func(obj *unstructured.Unstructured) (done string, waitsFor string, err error)

// nothing tells that an error means that there are no such objects.
func nothing(err error) bool {
	var is codedError
	return errors.As(err, &is) && is.code == exitNothing
}

// errGone is the error of a goal that an object cannot reach any more.
var errGone = errors.New("was deleted")

// wanted is what --for asks for.
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
			return "", "it is there, with the finalizers " + orNone(strings.Join(obj.GetFinalizers(), ", ")), nil
		}, nil
	case what != "condition" || value == "":
		return nil, usage(fmt.Errorf("--for %q: it must be reconciled, condition=TYPE, condition=TYPE=STATUS or delete", o.condition))
	}
	kind, status, _ := strings.Cut(value, "=")
	status = cmp.Or(status, "True")
	return func(obj *unstructured.Unstructured) (string, string, error) {
		if obj == nil {
			return "", "", errGone
		}
		is, generation := conditionOf(obj, kind)
		if strings.EqualFold(is, status) && (generation == 0 || generation >= obj.GetGeneration()) {
			return "condition met", "", nil
		}
		return "", kind + " is " + orNone(is), nil
	}, nil
}

// conditionOf is the status of a condition, and the generation that it is about; 0 where it does
// not say.
func conditionOf(obj *unstructured.Unstructured, kind string) (status string, generation int64) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if is, _ := c["type"].(string); strings.EqualFold(is, kind) {
			status, _ = c["status"].(string)
			generation, _ = c["observedGeneration"].(int64)
			return status, generation
		}
	}
	return "", 0
}

// reconciled is the goal of an object that has been reconciled as it is now.
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

// await waits for all objects, and prints what has become of each.
func (o *waitOptions) await(cmd *cobra.Command, c *objectClient, objects []unstructured.Unstructured, met goal) error {
	ctx, cancel := cmd.Context(), func() {}
	if o.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
	}
	defer cancel()
	var failed, late []error
	for i := range objects {
		obj := &objects[i]
		name := plaintext.Plain(c.called(obj.GetName()))
		done, waitsFor, err := c.awaitOne(ctx, obj, met)
		switch {
		case err == nil:
			fmt.Fprintln(cmd.OutOrStdout(), name+" "+done)
		case cmd.Context().Err() != nil:
			return cmd.Context().Err()
		case ctx.Err() != nil:
			late = append(late, fmt.Errorf("%s: %s", name, plaintext.Plain(waitsFor)))
		default:
			failed = append(failed, fmt.Errorf("%s %w", name, err))
		}
	}
	if len(late) > 0 {
		late = append([]error{fmt.Errorf("timed out after %s", o.timeout)}, late...)
		return coded(errors.Join(append(failed, late...)...), exitTimeout)
	}
	return errors.Join(failed...)
}

// awaitOne waits for an object, and reports what it waited for last.
func (c *objectClient) awaitOne(ctx context.Context, obj *unstructured.Unstructured, met goal) (done, waitsFor string, err error) {
	look := func(obj *unstructured.Unstructured) (bool, error) {
		var bad error
		done, waitsFor, bad = met(obj)
		return done != "", bad
	}
	one := *c
	one.namespace = obj.GetNamespace()
	gone := func(store cache.Store) (bool, error) {
		if len(store.List()) > 0 {
			return false, nil // it is handed to the condition
		}
		return look(nil)
	}
	err = one.follow(ctx, "", obj.GetName(), gone, func(e watch.Event) (bool, error) {
		obj, _ := e.Object.(*unstructured.Unstructured)
		if e.Type == watch.Deleted {
			obj = nil
		}
		return look(obj)
	})
	return done, waitsFor, err
}
