package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/act"
)

// act performs an action on the objects that the arguments name, and returns the objects.
func (o *selectOptions) act(cmd *cobra.Command, args []string, do act.Action) (*objectClient, []unstructured.Unstructured, error) {
	kind, names, err := parseObjects(args)
	if err != nil {
		return nil, nil, err
	}
	c, err := o.objects(kind)
	if err != nil {
		return nil, nil, err
	}
	objects, err := c.chosen(cmd.Context(), o, names)
	if err != nil {
		return nil, nil, err
	}
	var failed []error
	changed, ran := objects[:0], false
	for i := range objects {
		name := c.shown(&objects[i])
		is := controller.Summarize(&objects[i], time.Now())
		ran = ran || is.Last != nil || is.Active != nil
		changes, said := do(&objects[i])
		if len(changes) > 0 {
			is, err := act.Annotate(cmd.Context(), c.of(objects[i].GetNamespace()), &objects[i], changes)
			if err != nil {
				failed = append(failed, unreachable(fmt.Errorf("%s: %w", name, err)))
				continue
			}
			changed = append(changed, *is)
		}
		fmt.Fprintln(cmd.OutOrStdout(), name+" "+said)
	}
	if len(changed) > 0 && !ran {
		fmt.Fprintf(cmd.ErrOrStderr(), "No run is recorded after the annotation: is an operator running that watches %s?\n", c.resource.GroupResource())
	}
	return c, changed, errors.Join(failed...)
}

func newReconcileCommand() *cobra.Command {
	var o waitOptions
	waits := false
	cmd := &cobra.Command{
		Use:   "reconcile KIND/NAME...",
		Short: "Ask for a run of objects now",
		Long: `Ask for a run of each object, with the annotation rolewright.dev/reconcile-at. Its cause
is "manual". It starts even if nothing has changed or the object has stalled, but not while
the object is paused. With --wait, wait until the run has ended, as "rolewright wait" does.`,
		Example: `  rolewright reconcile memcached/sample --wait
  rolewright reconcile memcached --all -n default`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, objects, err := o.act(cmd, args, act.Reconcile(time.Now()))
			if err != nil || !waits {
				return err
			}
			return o.await(cmd, c, objects, requested)
		},
	}
	o.bindAll(cmd, "Reconcile")
	cmd.Flags().BoolVar(&waits, "wait", false, "Wait until the run has ended.")
	o.bindTimeout(cmd, 5*time.Minute)
	return cmd
}

func newSuspendCommand() *cobra.Command {
	var o selectOptions
	var lasts time.Duration
	cmd := &cobra.Command{
		Use:   "suspend KIND/NAME...",
		Short: "Suspend the runs of objects",
		Long: `Suspend the runs of each object, with the annotation rolewright.dev/paused, until
"rolewright resume", or for the time of --for. A run in progress continues, and a deletion
does not wait. If runs become due during the pause, one run is made after it.`,
		Example: `  rolewright suspend memcached/sample --for 2h
  rolewright suspend memcached --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if lasts < 0 {
				return usage(fmt.Errorf("--for %s must not be negative", lasts))
			}
			_, _, err := o.act(cmd, args, act.Suspend(time.Now(), lasts))
			return err
		},
	}
	o.bindAll(cmd, "Suspend")
	cmd.Flags().DurationVar(&lasts, "for", 0, "For how long, such as 2h; 0 until rolewright resume.")
	return cmd
}

func newResumeCommand() *cobra.Command {
	var o selectOptions
	cmd := &cobra.Command{
		Use:     "resume KIND/NAME...",
		Short:   "Resume the runs of suspended objects",
		Long:    "Take the annotation rolewright.dev/paused away, and that of ansible-operator's prefix. What is due runs now.",
		Example: "  rolewright resume memcached/sample",
		RunE: func(cmd *cobra.Command, args []string) error {
			_, _, err := o.act(cmd, args, act.Resume())
			return err
		},
	}
	o.bindAll(cmd, "Resume")
	return cmd
}

func newCancelCommand() *cobra.Command {
	var o selectOptions
	run := ""
	cmd := &cobra.Command{
		Use:   "cancel KIND/NAME...",
		Short: "Cancel runs in progress",
		Long: `Cancel each object's run in progress, with the annotation rolewright.dev/cancel. Nothing
is rolled back. The run fails with the reason Cancelled, and no other run starts until an
input changes or "rolewright reconcile" asks for one.

With manageStatus: false the status does not record the run in progress. Give its ID with
--run then; "rolewright get runs -o name" shows it.`,
		Example: "  rolewright cancel memcached/sample",
		RunE: func(cmd *cobra.Command, args []string) error {
			run = runID(run)
			if run != "" && uuid.Validate(run) != nil {
				return usage(fmt.Errorf("--run %q is not a complete run ID: \"rolewright get runs -o name\" prints complete IDs", run))
			}
			_, objects, err := o.act(cmd, args, act.Cancel(run))
			if err == nil && len(objects) == 0 {
				return coded(errors.New("there was nothing to cancel"), exitNothing)
			}
			return err
		},
	}
	o.bindAll(cmd, "Cancel runs of")
	cmd.Flags().StringVar(&run, "run", "", "The ID of the run; it is cancelled only if it is in progress.")
	return cmd
}
