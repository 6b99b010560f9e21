package e2e

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// startGoManager builds examples/go-manager, a separate module, and starts it instead of the operator.
func (s *stage) startGoManager() *operator {
	s.t.Helper()
	example := absolute(s.t, "examples", "go-manager")
	program := filepath.Join(s.t.TempDir(), "go-manager")
	args := []string{"build", "-buildvcs=false", "-o", program}
	if withRace {
		args = append(args, "-race")
	}
	build := exec.Command("go", args...)
	build.Dir = example
	if out, err := build.CombinedOutput(); err != nil {
		s.t.Fatalf("build examples/go-manager: %v\n%s", err, out)
	}
	s.write("watches.yaml", string(must.Get(os.ReadFile(filepath.Join(example, "watches.yaml")))(s.t)))
	must.Do(s.t, os.CopyFS(filepath.Join(s.dir, "roles"), os.DirFS(filepath.Join(example, "roles"))))
	return s.launchWith(func(o *operator) {
		address := strings.TrimSuffix(strings.TrimPrefix(o.metrics, "http://"), "/metrics")
		o.cmd.Path, o.cmd.Args = program, []string{program}
		o.cmd.Env = append(o.cmd.Env, "METRICS_ADDRESS="+address, "RUNNER_ROOT="+s.root)
	})
}

// One program has its own controller, a role with hooks, and Go code that makes runs. Each does its work, and all of it
// ends properly.
func TestGoManager(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	uninstallAfter(t, "greetings.theatre.example.com", "tickets.theatre.example.com")
	s := newStage(t)
	s.temp()
	for _, file := range must.Get(filepath.Glob(absolute(t, "examples", "go-manager", "config", "crd", "*.yaml")))(t) {
		var crd apiextensionsv1.CustomResourceDefinition
		must.Do(t, yaml.UnmarshalStrict(must.Get(os.ReadFile(file))(t), &crd))
		testenv.InstallCRD(t, s.cfg, &crd)
	}
	of := func(name string) kind {
		return s.kindOf(schema.GroupVersionKind{Group: "theatre.example.com", Version: "v1", Kind: name})
	}
	greetings, tickets := of("Greeting"), of("Ticket")
	maps := must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1().ConfigMaps(s.namespace)
	refused := func(k kind, name string) run {
		t.Helper()
		return k.await(name, "stalled", func(o object) bool { return o.condition("Stalled").Status == "True" }).lastRun()
	}
	o := s.startGoManager()

	greetings.create("hello", map[string]any{"text": "good {{ 6 * 7 }} days"})
	greetings.awaitReady("hello")
	if data := must.Get(maps.Get(t.Context(), "hello", metav1.GetOptions{}))(t).Data; data["shouted"] != "GOOD {{ 6 * 7 }} DAYS" || data["text"] != "good {{ 6 * 7 }} days" {
		t.Errorf("the role and its hook have made %v", data)
	}
	o.awaitOutput(`"Greeting has run","name":"hello","succeeded":true`)
	greetings.create("rude", map[string]any{"text": "damn"})
	if c := refused(greetings, "rude"); c.Reason != "InputRefused" || !strings.Contains(c.Message, "the hook Before of the watch of theatre.example.com/v1, Kind=Greeting: spec.text is not polite") {
		t.Errorf("what a hook refuses: %+v", c)
	}

	tickets.create("it", map[string]any{"seats": int64(3)})
	is := tickets.awaitReady("it")
	made := must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t)
	printed, _, _ := unstructured.NestedInt64(is.Object, "status", "printed")
	if len(made.OwnerReferences) != 1 || made.OwnerReferences[0].UID != is.GetUID() || made.Data["seats"] != "3" || printed != 3 || is.condition("Printed").Status != "True" {
		t.Errorf("owners %v, data %v, status %v", made.OwnerReferences, made.Data, is.Object["status"])
	}
	must.Do(t, maps.Delete(t.Context(), "it", metav1.DeleteOptions{}))
	testenv.Eventually(t, "what the handler has made to be there again", func(ctx context.Context) error {
		_, err := maps.Get(ctx, "it", metav1.GetOptions{})
		return err
	})
	tickets.create("many", map[string]any{"seats": int64(101)})
	if c := refused(tickets, "many"); c.Reason != "InputRefused" || c.Message != "spec.seats is 101, and there are 100" {
		t.Errorf("what a handler refuses: %+v", c)
	}

	must.Get(maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "own", Annotations: map[string]string{"theatre.example.com/lines": ""}}, Data: map[string]string{"text": "a\nb\n"},
	}, metav1.CreateOptions{}))(t)
	testenv.Eventually(t, "the program's own controller to count", func(ctx context.Context) error {
		m, err := maps.Get(ctx, "own", metav1.GetOptions{})
		if err == nil && m.Annotations["theatre.example.com/lines"] != "2" {
			err = errors.New("not yet")
		}
		return err
	})

	tickets.delete("it")
	tickets.awaitGone("it")
	if n, err := o.metric(t.Context(), "rolewright_decisions_total", `kind="Ticket"`); err != nil || n == 0 {
		t.Errorf("the manager's metrics have %v decisions about Tickets: %v", n, err)
	}
	o.stop()
}
