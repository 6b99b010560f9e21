package jobs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bench is a Runner that has its own namespace.
type bench struct {
	*Runner

	client    kubernetes.Interface
	namespace string
	mu        sync.Mutex
	phase     string
}

// newBench calls prepare and then starts a Runner.
func newBench(t *testing.T, prepare func(ctx context.Context, b *bench) error) *bench {
	t.Helper()
	cfg := testenv.Config(t)
	b := &bench{client: must.Get(kubernetes.NewForConfig(cfg))(t), namespace: testenv.Namespace(t, cfg)}
	testenv.Eventually(t, "the service account of Pods", func(ctx context.Context) error {
		_, err := b.client.CoreV1().ServiceAccounts(b.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	must.Do(t, prepare(t.Context(), b))
	p := must.Get(proxy.New(t.Context(), proxy.Options{Config: cfg, Log: logr.Discard()}))(t)
	b.Runner = New(nil, Options{Client: b.client, Namespace: b.namespace, Image: "operator:1", Program: "/rolewright", URL: "https://127.0.0.1:1", Address: "127.0.0.1:0", Proxy: p, Log: logr.Discard()})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var served sync.WaitGroup
	served.Go(func() {
		if err := p.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	served.Go(func() {
		if err := b.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		served.Wait()
	})
	return b
}

// run makes a run that lasts until ctx ends.
func (b *bench) run(ctx context.Context, t *testing.T, template string) error {
	t.Helper()
	id := uuid.NewString()
	_, err := b.Run(ctx, runner.Request{ID: id, Dir: filepath.Join(t.TempDir(), id), Executor: runner.ExecutorJob, JobRun: &runner.JobRun{
		Template: []byte(template), Subject: uuid.NewString(), Token: "a token", GoesOn: func(error) bool { return false }, OnBegun: func(time.Duration) {},
		OnPhase: func(text string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.phase = text
		},
	}})
	return err
}

// waits expects a run that waits and whose phase contains the texts in want. Then it stops the run.
func (b *bench) waits(t *testing.T, template string, want ...string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var ended sync.WaitGroup
	ended.Go(func() {
		if err := b.run(ctx, t, template); !errors.Is(err, runner.ErrNoTurn) {
			t.Errorf("the run ends with %v, want that it has not begun", err)
		}
	})
	testenv.Eventually(t, "what the run waits for", func(context.Context) error {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, text := range want {
			if !strings.Contains(b.phase, text) {
				return fmt.Errorf("it waits for %q, want %q", b.phase, text)
			}
		}
		return nil
	})
	stop()
	ended.Wait()
}

func quota(what corev1.ResourceName) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		none := corev1.ResourceList{what: resource.MustParse("0")}
		_, err := b.client.CoreV1().ResourceQuotas(b.namespace).Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: none}}, metav1.CreateOptions{})
		for err == nil { // until the quota is in force
			var is *corev1.ResourceQuota
			if is, err = b.client.CoreV1().ResourceQuotas(b.namespace).Get(ctx, "none", metav1.GetOptions{}); err == nil && len(is.Status.Hard) > 0 {
				return nil
			}
		}
		return err
	}
}

func nothing(context.Context, *bench) error { return nil }

// If a quota allows no Job, the run fails. If a quota allows no Pod, the run waits. Both say what to do.
func TestQuota(t *testing.T) {
	t.Parallel()
	err := newBench(t, quota("count/jobs.batch")).run(t.Context(), t, "")
	if err == nil || !strings.Contains(err.Error(), "exceeded quota: none") || !strings.Contains(err.Error(), "raise the quota") || strings.Contains(err.Error(), grantIt) {
		t.Errorf("the run ends with %v, want the quota and what to do", err)
	}
	newBench(t, quota(corev1.ResourcePods)).waits(t, "", "FailedCreate: ", "exceeded quota: none", "raise the quota")
}

// A LimitRange or the Pod Security level of the namespace refuses the Pod.
func TestAdmission(t *testing.T) {
	t.Parallel()
	newBench(t, func(ctx context.Context, b *bench) error {
		_, err := b.client.CoreV1().LimitRanges(b.namespace).Create(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: corev1.LimitRangeSpec{
			Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Mi")}}},
		}}, metav1.CreateOptions{})
		return err
	}).waits(t, `{"spec":{"containers":[{"name":"run","resources":{"limits":{"memory":"1Gi"}}}]}}`, "FailedCreate: ", "maximum memory usage", "change job of the watch")
	newBench(t, func(ctx context.Context, b *bench) error {
		is, err := b.client.CoreV1().Namespaces().Get(ctx, b.namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		is.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
		_, err = b.client.CoreV1().Namespaces().Update(ctx, is, metav1.UpdateOptions{})
		return err
	}).waits(t, `{"spec":{"hostNetwork":true}}`, "FailedCreate: ", "violates PodSecurity", "change job of the watch")
}

// When a node is drained, its Pods are evicted. The run says that the cluster has ended it. The test plays the kubelet,
// because kwok would complete Pods of Jobs at once.
func TestEviction(t *testing.T) {
	t.Parallel()
	b := newBench(t, nothing)
	ended := make(chan error, 1)
	go func() { ended <- b.run(t.Context(), t, `{"spec":{"nodeName":"drained"}}`) }()
	pods, name := b.client.CoreV1().Pods(b.namespace), ""
	testenv.Eventually(t, "the Pod is evicted", func(ctx context.Context) error {
		there, err := pods.List(ctx, metav1.ListOptions{})
		switch {
		case err != nil:
			return err
		case len(there.Items) != 1:
			return fmt.Errorf("there are %d Pods", len(there.Items))
		}
		name = there.Items[0].Name
		return pods.EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: b.namespace}})
	})
	must.Get(pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status"))(t)
	if err := <-ended; !errors.Is(err, runner.ErrCluster) || !strings.Contains(err.Error(), "EvictionByEvictionAPI") {
		t.Errorf("the run ends with %v, want the eviction", err)
	}
}
