package rolewright

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) {
	testenv.Main(m)
}

// inProgress is a manager with one run of a handler in progress, which ends with its context.
type inProgress struct {
	mgr       ctrl.Manager
	namespace string
	kind      schema.GroupVersionKind
	begun     chan *Run
	cause     chan error // why its context has ended
}

func withHandler(t *testing.T, cfg *rest.Config, grace time.Duration, adjust func(*ctrl.Options)) *inProgress {
	t.Helper()
	p := &inProgress{namespace: testenv.Namespace(t, cfg), kind: testenv.CRD(t, cfg), begun: make(chan *Run, 1), cause: make(chan error, 1)}
	file := filepath.Join(t.TempDir(), "watches.yaml")
	must.Do(t, os.WriteFile(file, fmt.Appendf(nil, "- {group: %s, version: %s, kind: %s, handler: hold}\n", p.kind.Group, p.kind.Version, p.kind.Kind), 0o600))
	options := ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, LeaderElectionNamespace: p.namespace, LeaderElectionID: "lead",
		Controller: config.Controller{SkipNameValidation: new(true)},
	}
	adjust(&options)
	p.mgr = must.Get(ctrl.NewManager(cfg, options))(t)
	hold := HandlerFunc(func(ctx context.Context, run *Run) error {
		p.begun <- run
		<-ctx.Done()
		p.cause <- context.Cause(ctx)
		return context.Cause(ctx)
	})
	must.Do(t, Add(p.mgr, Options{
		Handlers: map[string]Handler{"hold": hold}, Namespaces: []string{p.namespace},
		RunnerRoot: filepath.Join(t.TempDir(), "runner"), GracefulShutdown: grace,
	}, must.Get(LoadWatches(file))(t)...))
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "it"}}}
	obj.SetGroupVersionKind(p.kind)
	must.Get(p.objects(t, cfg).Create(t.Context(), obj, metav1.CreateOptions{}))(t)
	return p
}

func (p *inProgress) objects(t *testing.T, cfg *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	return must.Get(dynamic.NewForConfig(cfg))(t).Resource(p.kind.GroupVersion().WithResource("widgets")).Namespace(p.namespace)
}

func lastResult(t *testing.T, objects dynamic.ResourceInterface) string {
	t.Helper()
	obj := must.Get(objects.Get(t.Context(), "it", metav1.GetOptions{}))(t)
	result, _, _ := unstructured.NestedString(obj.Object, "status", "ansible", "lastRun", "result")
	return result
}

// Namespaces as managers take them from WATCH_NAMESPACE: an empty name means all, and a list in one name is an error.
func TestOptions_Namespaces(t *testing.T) {
	t.Parallel()
	for name, all := range map[string]bool{"": true, "a": false} {
		s := &service{opts: Options{Namespaces: []string{name}}}
		if got := s.settings().Namespaces; s.opts.check() != nil || (len(got) == 0) != all {
			t.Errorf("%q: %q, %v", name, got, s.opts.check())
		}
	}
	if err := Add(nil, Options{Namespaces: []string{"a,b"}}, Watch{}); err == nil || !strings.Contains(err.Error(), `"a,b" in Options.Namespaces is not the name of a namespace`) {
		t.Error(err)
	}
}

// A manager that stops waits for the run and for the record of its end; one after the other may serve watches.
func TestService_StopsInOrder(t *testing.T) {
	cfg := testenv.Config(t)
	for range 2 {
		p := withHandler(t, cfg, -1, func(*ctrl.Options) {})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- p.mgr.Start(ctx) }()
		run := <-p.begun
		cancel()
		must.Do(t, <-ended)
		if cause := <-p.cause; !errors.Is(cause, controller.ErrShutdown) || run.Action != Reconcile {
			t.Errorf("run %+v has ended: %v", run, cause)
		}
		must.Be(t, "result", "Interrupted", lastResult(t, p.objects(t, cfg)))
	}
}

// A manager that has lost its Lease does not wait: the run ends at once and neither it nor the operator writes anything.
func TestService_EndsWithTheLease(t *testing.T) {
	cfg := testenv.Config(t)
	p := withHandler(t, cfg, time.Hour, func(o *ctrl.Options) {
		o.LeaderElection = true
	})
	ended := make(chan error, 1)
	go func() { ended <- p.mgr.Start(t.Context()) }()
	var run *Run
	select {
	case run = <-p.begun:
	case err := <-ended:
		t.Fatalf("the manager has ended before the run: %v", err)
	}
	leases := must.Get(kubernetes.NewForConfig(cfg))(t).CoordinationV1().Leases(p.namespace)
	testenv.Eventually(t, "the Lease to be another's", func(ctx context.Context) error {
		lease, err := leases.Get(ctx, "lead", metav1.GetOptions{})
		if err != nil {
			return err
		}
		now := metav1.NowMicro()
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("another"), LeaseDurationSeconds: new(int32(600)), AcquireTime: &now, RenewTime: &now}
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		return err
	})
	if err := <-ended; err == nil {
		t.Error("the manager has ended in order")
	}
	if cause := <-p.cause; !errors.Is(cause, controller.ErrLeadershipLost) {
		t.Errorf("the run has ended: %v", cause)
	}
	if _, err := must.Get(kubernetes.NewForConfig(run.Config))(t).CoreV1().Namespaces().Get(t.Context(), p.namespace, metav1.GetOptions{}); err == nil {
		t.Error("the run reaches the API server")
	}
	testenv.Eventually(t, "the service to end", func(context.Context) error {
		if serving.Load() {
			return errors.New("it serves")
		}
		return nil
	})
	must.Be(t, "result", "", lastResult(t, p.objects(t, cfg)))
}
