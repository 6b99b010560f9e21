// Command go-manager is an operator of its own with a controller of its own, which has
// Rolewright run a role for one kind and Go code for another.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rolewright/rolewright"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(ctrl.SetupSignalHandler(), os.Getenv("WATCH_NAMESPACE")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string) error {
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: os.Getenv("METRICS_ADDRESS")},
	})
	if err != nil {
		return err
	}
	// A controller of the program.
	lines := &lineCounter{mgr.GetClient()}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.ConfigMap{}).Complete(lines); err != nil {
		return err
	}
	// And the kinds of the watches file.
	watches, err := rolewright.LoadWatches("watches.yaml")
	if err != nil {
		return err
	}
	for i := range watches {
		if watches[i].GroupVersionKind().Kind == "Greeting" {
			watches[i].Hooks = rolewright.Hooks{Before: polite, Vars: shouted, After: told}
		}
	}
	err = rolewright.Add(mgr, rolewright.Options{
		Handlers:   map[string]rolewright.Handler{"tickets": rolewright.HandlerFunc(ticket)},
		Namespaces: []string{namespace},
		RunnerRoot: os.Getenv("RUNNER_ROOT"),
	}, watches...)
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// polite refuses objects before anything runs for them.
func polite(_ context.Context, greeting *unstructured.Unstructured) error {
	if text, _, _ := unstructured.NestedString(greeting.Object, "spec", "text"); strings.Contains(text, "damn") {
		return rolewright.Refuse(errors.New("spec.text is not polite"))
	}
	return nil
}

// shouted gives the role a variable that only Go knows how to make.
func shouted(_ context.Context, greeting *unstructured.Unstructured) (map[string]any, error) {
	text, _, _ := unstructured.NestedString(greeting.Object, "spec", "text")
	return map[string]any{"shouted": strings.ToUpper(text)}, nil
}

// told is told how each run has ended.
func told(ctx context.Context, greeting *unstructured.Unstructured, result rolewright.Result) error {
	ctrl.Log.Info("Greeting has run", "name", greeting.GetName(), "succeeded", result.Succeeded, "reason", result.Reason)
	return nil
}

// ticket makes a ConfigMap of a Ticket, with the run's own way to the API server: it becomes
// the Ticket's, and when another client changes it, the Ticket runs again.
func ticket(ctx context.Context, run *rolewright.Run) error {
	if run.Action == rolewright.Finalize {
		return nil // what is elsewhere would be removed here
	}
	seats, _, _ := unstructured.NestedInt64(run.Object.Object, "spec", "seats")
	if seats > 100 {
		return rolewright.Refuse(fmt.Errorf("spec.seats is %d, and there are 100", seats))
	}
	api, err := kubernetes.NewForConfig(run.Config)
	if err != nil {
		return err
	}
	run.Progress("Print the ticket", 0, 0)
	name, namespace := run.Object.GetName(), run.Object.GetNamespace()
	wanted := applycorev1.ConfigMap(name, namespace).WithData(map[string]string{"seats": strconv.FormatInt(seats, 10)})
	if _, err := api.CoreV1().ConfigMaps(namespace).Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: "tickets", Force: true}); err != nil {
		return err
	}
	run.Status(map[string]any{"printed": seats})
	run.Condition(metav1.Condition{Type: "Printed", Status: metav1.ConditionTrue, Reason: "Printed", Message: "It can be fetched"})
	return nil
}

// lineCounter is a controller as any other: it counts the lines of ConfigMaps that ask for it.
type lineCounter struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (c *lineCounter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var m corev1.ConfigMap
	if err := c.Get(ctx, req.NamespacedName, &m); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	lines := strconv.Itoa(strings.Count(m.Data["text"], "\n"))
	if _, asks := m.Annotations["theatre.example.com/lines"]; !asks || m.Annotations["theatre.example.com/lines"] == lines {
		return ctrl.Result{}, nil
	}
	before := m.DeepCopy()
	m.Annotations["theatre.example.com/lines"] = lines
	return ctrl.Result{}, c.Patch(ctx, &m, client.MergeFrom(before))
}
