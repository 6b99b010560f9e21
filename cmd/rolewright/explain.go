package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/lint"
	"github.com/rolewright/rolewright/internal/migrate"
	"github.com/rolewright/rolewright/internal/watches"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// explainOptions are the settings of explain: those of run that it needs to know, and its own.
type explainOptions struct {
	runOptions

	namespace, output string
	operator          readerOptions
}

func newExplainCommand() *cobra.Command {
	var o explainOptions
	cmd := &cobra.Command{
		Use:   "explain RULE|KIND/NAME",
		Short: "Explain a rule, or why an object ran and when it runs next",
		Long: `Explain a rule of lint or migrate report.

Or explain an object of a watched kind: why it ran last, whether a run is in progress,
when the next one is due and why, and what holds it back. It reads the object and
the watches file, so run it in the operator's Pod or in its project. Only the operator
knows whether the role, the operator's environment or another object that starts
runs has changed: see its log. The position in the queue comes from the operator: in its Pod,
from the --api-port of the manifests; elsewhere, give --server or --operator-namespace.`,
		Example: `  rolewright explain RW103
  kubectl exec deployment/memcached-operator-controller-manager -n memcached-operator-system -- rolewright explain memcached/sample -n default`,
		Args: oneArgument("give the ID of a rule, such as RW103, or an object, such as memcached/sample"),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var ids []string
			for _, r := range explainedRules() {
				ids = append(ids, r.ID+"\t"+r.Title)
			}
			return ids, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if strings.Contains(args[0], "/") {
				return o.run(cmd, args[0])
			}
			text, err := lint.Explain(explainedRules(), args[0])
			if err != nil {
				return usage(err)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), text)
			return err
		},
	}
	fs := cmd.Flags()
	o.bindReconcile(pflag.NewFlagSet("", pflag.ContinueOnError)) // for their defaults
	fs.StringVarP(&o.namespace, "namespace", "n", "", "The namespace of the object. The default is WATCH_NAMESPACE, or the namespace of the kubeconfig.")
	fs.StringVarP(&o.output, "output", "o", outputText, "How to print the explanation of an object: text or json.")
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	fs.DurationVar(&o.reconcilePeriod, "reconcile-period", o.reconcilePeriod, "The --reconcile-period of the operator.")
	fs.DurationVar(&o.retryMin, "retry-min", o.retryMin, "The --retry-min of the operator.")
	o.operator.bindOperator(fs)
	fs.DurationVar(&o.retryMax, "retry-max", o.retryMax, "The --retry-max of the operator.")
	return cmd
}

// explainedRules returns the rules of all commands that have findings.
func explainedRules() []lint.Rule { return append(lint.Rules(), migrate.LintRules()...) }

// run explains an object, given as KIND/NAME.
func (o *explainOptions) run(cmd *cobra.Command, object string) error {
	if err := among("output", o.output, outputText, outputJSON); err != nil {
		return err
	}
	obj, w, _, err := o.find(cmd.Context(), object)
	if err != nil {
		return err
	}
	now := time.Now()
	e := controller.Explain(obj, w, controller.Options{
		ReconcilePeriod: o.reconcilePeriod, RetryMin: o.retryMin, RetryMax: o.retryMax,
	}, now)
	place := o.operator.placeOf(cmd.Context(), obj)
	if o.output == outputJSON {
		return printJSON(cmd.OutOrStdout(), struct {
			controller.Explanation
			Queue queuePlace `json:"queue"`
		}{e, place})
	}
	return printExplanation(cmd.OutOrStdout(), obj, e, place, now)
}

// find reads an object of a watched kind, given as KIND/NAME, and finds the watch that runs it.
func (o *explainOptions) find(ctx context.Context, object string) (*unstructured.Unstructured, watches.Watch, *applier, error) {
	failed := func(err error) (*unstructured.Unstructured, watches.Watch, *applier, error) {
		return nil, watches.Watch{}, nil, err
	}
	kind, name, _ := strings.Cut(object, "/")
	watched, err := o.loadWatches(logr.Discard())
	if err != nil {
		return failed(usage(err))
	}
	all, err := kindOf(watched, kind)
	if err != nil {
		return failed(usage(fmt.Errorf("%s: %w", o.watchesFile, err)))
	}
	objects, err := o.connect()
	if err != nil {
		return failed(err)
	}
	all = servedOf(objects.client, all)
	obj, err := objects.read(ctx, all[0].GVK, name)
	if err != nil {
		return failed(err)
	}
	w, err := watches.For(all, obj)
	if err != nil {
		return failed(usage(fmt.Errorf("%s: %w", o.watchesFile, err)))
	}
	if err := watchedNamespace(obj.GetNamespace()); err != nil {
		return failed(usage(err))
	}
	if w.GVK != obj.GroupVersionKind() {
		obj, err = objects.read(ctx, w.GVK, name)
	}
	return obj, w, objects, err
}

// watchedNamespace returns an error if an operator with this environment does not watch the namespace; "" is that of
// objects without one, which it always watches.
func watchedNamespace(namespace string) error {
	watched := splitNamespaces(os.Getenv(envWatchNamespace))
	if namespace == "" || len(watched) == 0 || slices.Contains(watched, namespace) {
		return nil
	}
	return fmt.Errorf("no watch runs objects in namespace %s: %s is %s; if the operator has another value, set that", namespace, envWatchNamespace, strings.Join(watched, ", "))
}

// kindOf returns the watches of a kind, given in any case as KIND or KIND.GROUP.
func kindOf(watched []watches.Watch, kind string) ([]watches.Watch, error) {
	kind, group, grouped := strings.Cut(kind, ".")
	var found []watches.Watch
	var kinds []string
	for _, w := range watched {
		if strings.EqualFold(w.GVK.Kind, kind) && (!grouped || w.GVK.Group == group) {
			found = append(found, w)
		}
		if name := w.GVK.GroupKind().String(); !slices.Contains(kinds, name) {
			kinds = append(kinds, name)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("there is no watch of %q; there are watches of %s", kind, strings.Join(kinds, ", "))
	case slices.ContainsFunc(found, func(w watches.Watch) bool { return w.GVK.GroupKind() != found[0].GVK.GroupKind() }):
		return nil, fmt.Errorf("%q is a kind of several groups: give KIND.GROUP/NAME, of %s", kind, strings.Join(kinds, ", "))
	}
	return found, nil
}

// connect returns an applier that reads the objects in the cluster.
func (o *explainOptions) connect() (*applier, error) {
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		return nil, unreachable(err)
	}
	objects, err := newApplier(found, splitNamespaces(cmp.Or(o.namespace, os.Getenv(envWatchNamespace))))
	if err != nil {
		return nil, unreachable(err)
	}
	return objects, nil
}

// servedOf returns those watches of a kind whose version the API server serves. If it serves
// none of them, it returns the first.
func servedOf(c client.Client, all []watches.Watch) []watches.Watch {
	served := slices.DeleteFunc(slices.Clone(all), func(w watches.Watch) bool {
		_, err := c.RESTMapper().RESTMapping(w.GVK.GroupKind(), w.GVK.Version)
		return meta.IsNoMatchError(err)
	})
	if len(served) == 0 {
		return all[:1]
	}
	return served
}

// read reads an object by its name. If it does not exist, the error comes with an object that has its namespace only.
func (a *applier) read(ctx context.Context, gvk schema.GroupVersionKind, name string) (*unstructured.Unstructured, error) {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(gvk)
	namespaced, err := a.client.IsObjectNamespaced(obj)
	if meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("the cluster has no kind %s: install its CustomResourceDefinition; in a project: kubectl apply -f %s", gvk, defaultDefinitions+"/bases")
	}
	if err != nil {
		return nil, unreachable(err)
	}
	key := types.NamespacedName{Name: name}
	if namespaced {
		key.Namespace = a.namespace
	}
	err = a.client.Get(ctx, key, obj)
	if apierrors.IsNotFound(err) {
		obj.SetNamespace(key.Namespace)
		return obj, coded(fmt.Errorf("there is no %s %s: create it, or set its namespace with --namespace", gvk.Kind, strings.TrimPrefix(key.String(), "/")), exitNothing)
	}
	if err != nil {
		return nil, unreachable(err)
	}
	return obj, nil
}

func printExplanation(out io.Writer, obj *unstructured.Unstructured, e controller.Explanation, place queuePlace, now time.Time) error {
	tab := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(what, format string, args ...any) {
		_, _ = fmt.Fprintf(tab, "%s\t%s\n", what, plaintext.OneLine(fmt.Sprintf(format, args...)))
	}
	line("object", "%s/%s, generation %d", obj.GetKind(), obj.GetName(), obj.GetGeneration())
	explainRuns(line, e, now)
	explainNext(line, e, now)
	switch {
	case place.Replica != "":
		line("replica", "%s, which holds the shard %s", place.Replica, place.Shard)
	case place.Shard != "":
		line("replica", "no replica holds the shard %s at the moment, or the holder is not known", place.Shard)
	}
	line("queue", "%s", place)
	for _, held := range e.Held {
		line("held", "%s", held)
	}
	for _, w := range e.Warnings {
		line("warning", "%s", w)
	}
	return tab.Flush()
}

// explainRuns says what has run, and what is running.
func explainRuns(line func(what, format string, args ...any), e controller.Explanation, now time.Time) {
	why := func(r *controller.ExplainedRun) string { return why(r.Cause, r.Trigger, "%s (%s)") }
	if last := e.Last; last != nil {
		line("last run", "%s, ended %s ago after %s", last.ID, age(now, *last.Finished), last.Finished.Sub(last.Started).Round(time.Millisecond))
		line("  why", "%s; generation %d", why(last), last.Generation)
		result := last.Result
		if last.Reason != last.Result {
			result += ": " + last.Reason
		}
		if last.Attempts > 1 {
			result += fmt.Sprintf("; %d failures in a row", last.Attempts)
		}
		if last.Losses > 1 {
			result += fmt.Sprintf("; %d lost in a row", last.Losses)
		}
		line("  result", "%s", result)
		if last.Message != "" && last.Result != string(status.Succeeded) {
			line("  message", "%s", last.Message)
		}
	} else {
		line("last run", "none is recorded")
	}
	if e.Active != nil {
		line("in progress", "%s, since %s; why: %s", e.Active.ID, age(now, e.Active.Started), why(e.Active))
	}
}

// explainNext says when the next run is due, as far as the clock decides it.
func explainNext(line func(what, format string, args ...any), e controller.Explanation, now time.Time) {
	switch {
	case e.At != nil && !e.At.After(now) && e.Active != nil:
		line("next run", "is decided when the one in progress has ended")
	case e.At != nil && !e.At.After(now):
		line("next run", "is due: %s. If it does not start, see the operator's log", e.Cause)
	case e.At != nil:
		line("next run", "in %s (%s): %s", age(*e.At, now), e.At.UTC().Format(time.RFC3339), e.Cause)
	case e.Cause != "":
		line("next run", "%s, but is held", e.Cause)
	case len(e.Held) == 0:
		line("next run", "only after a change")
	}
	if e.Firing != nil {
		line("schedule", "fires in %s (%s)", age(*e.Firing, now), e.Firing.UTC().Format(time.RFC3339))
	}
	if e.Window != nil && e.Window.After(now) {
		line("window", "is closed, and opens in %s (%s)", age(*e.Window, now), e.Window.UTC().Format(time.RFC3339))
	} else if e.Window != nil {
		line("window", "is open")
	}
}

// age returns the time from one moment to another in the form for people.
func age(now, then time.Time) string { return duration.HumanDuration(now.Sub(then)) }
