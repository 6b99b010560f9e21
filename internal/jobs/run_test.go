package jobs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// If a Secret could not get its Job as owner, it is removed together with the Job.
func TestSecret_GoesWithItsJob(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("busy")
	})
	r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	req := runner.Request{ID: "an-id", Dir: "/runs/uid/an-id", JobRun: &runner.JobRun{Subject: "uid"}}
	must.Do(t, r.begin(t.Context(), req))
	must.Do(t, r.deleteJob(t.Context(), req.ID))
	if left, err := client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("%d Secrets are left, %v", len(left.Items), err)
	}
}

// If the answer to the creation of a Job is lost, the run may have begun: it is followed if the Job is there, or if that
// cannot be found out now.
func TestBegin_WithoutAnAnswer(t *testing.T) {
	t.Parallel()
	lost := errors.New("http2: client connection lost")
	repeated := apierrors.NewAlreadyExists(batchv1.Resource("jobs"), "an-id")
	for name, tt := range map[string]struct {
		made    bool
		err     error
		lookErr error
		want    error
	}{
		"it is made": {true, lost, nil, nil},
		"it is made, and client-go has asked again": {true, repeated, nil, nil},
		"it is not made":      {false, lost, nil, lost},
		"that cannot be seen": {true, lost, lost, nil},
	} {
		client := fake.NewClientset()
		client.PrependReactor("create", "jobs", func(a clienttesting.Action) (bool, runtime.Object, error) {
			if create, ok := a.(clienttesting.CreateAction); ok && tt.made {
				must.Do(t, client.Tracker().Create(batchv1.SchemeGroupVersion.WithResource("jobs"), create.GetObject(), "system"))
			}
			return true, nil, tt.err
		})
		client.PrependReactor("get", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { return tt.lookErr != nil, nil, tt.lookErr })
		r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
		err := r.begin(t.Context(), runner.Request{ID: "an-id", Dir: "/runs/uid/an-id", JobRun: &runner.JobRun{Subject: "uid"}})
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: the run begins with %v, want %v", name, err, tt.want)
		}
		left := must.Get(client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}))(t)
		must.Be(t, name+": its Secret is kept", tt.want == nil, len(left.Items) == 1)
	}
}

// The operator is told to end while it takes over a run. The run goes on and must not count as ended. The test tries this
// twenty times, because select once chose at random between two channels that were both ready.
func TestRun_ThatIsAdoptedIsLeftByAnOperatorThatEnds(t *testing.T) {
	t.Parallel()
	shutdown := errors.New("the operator stops")
	for range 20 {
		r, req, _ := aRun(t)
		close(r.ready)
		close(r.drained)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(shutdown)
		req.Dir, req.Executor = filepath.Join(t.TempDir(), "run"), runner.ExecutorJob
		req.JobRun.Token, req.JobRun.Subject, req.JobRun.Adopted = "token", "uid", true
		req.JobRun.GoesOn = func(cause error) bool { return errors.Is(cause, shutdown) }
		if _, err := r.Run(ctx, req); !errors.Is(err, runner.ErrHandedOver) {
			t.Fatalf("the run that goes on is taken for ended: %v", err)
		}
	}
}

// A run begins only when the object's earlier run has no Pod and no Job any more, even if the caches know of none.
func TestBegin_WaitsForPodsOfEarlierRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const earlier, id = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: earlier + "-x7k2p", Namespace: "system", Labels: map[string]string{runLabel: earlier, objectLabel: "object"},
				DeletionTimestamp: new(metav1.NewTime(time.Now().Add(10 * time.Second))), Finalizers: []string{"kubelet/of-a-dead-node"},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning},
		}
		client := fake.NewClientset(pod)
		var deleted atomic.Bool
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			deleted.Store(true)
			return true, nil, nil // the Pod takes time to end
		})
		r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
		began, replaced, phase := make(chan error, 1), make(chan struct{}), atomic.Value{}
		begin := func(replaced <-chan struct{}) {
			apart := &runner.JobRun{Subject: "object", Replaced: replaced, OnPhase: func(now string) { phase.Store(now) }}
			began <- r.begin(t.Context(), runner.Request{ID: id, Dir: "/runs/uid/" + id, JobRun: apart})
		}
		go begin(replaced)
		time.Sleep(time.Minute)
		synctest.Wait()
		if said, _ := phase.Load().(string); !strings.HasSuffix(said, "Pods "+pod.Name) {
			t.Errorf("while the Pod has time to end, the status says %q", said)
		}
		time.Sleep(time.Minute)
		asked := len(client.Actions())
		close(replaced)
		if err := <-began; !errors.Is(err, runner.ErrNoTurn) {
			t.Errorf("where another replica is to have the object, the run ends with %v", err)
		}
		if said, _ := phase.Load().(string); asked > 120 || !strings.Contains(said, "Pods "+pod.Name+"; ") || !strings.Contains(said, "--force") {
			t.Errorf("%d requests in two minutes; the status says %q", asked, said)
		}
		go begin(nil)
		time.Sleep(time.Minute)
		if jobs, err := client.BatchV1().Jobs("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(jobs.Items) > 0 || !deleted.Load() {
			t.Errorf("%d Jobs are made while an earlier Pod runs, %v; it is to end: %v", len(jobs.Items), err, deleted.Load())
		}
		pod = pod.DeepCopy()
		pod.Status.Phase = corev1.PodFailed
		if err := client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), pod, "system"); err != nil {
			t.Error(err)
		}
		if err := <-began; err != nil {
			t.Errorf("the run begins with %v", err)
		}
	})
}

// If the API server does not say what is left of an earlier run, the status has the API server's error, and no advice
// about nodes.
func TestBegin_SaysWhyItIsNotKnownWhatIsLeft(t *testing.T) {
	t.Parallel()
	const earlier, id = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: earlier + "-x7k2p", Namespace: "system", Labels: map[string]string{runLabel: earlier, objectLabel: "object"}}})
	client.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		list, _ := a.(clienttesting.ListAction)
		ofOne := strings.HasPrefix(list.GetListRestrictions().Labels.String(), runLabel)
		return ofOne, nil, apierrors.NewServiceUnavailable("etcd is away")
	})
	r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	phase := ""
	err := r.begin(ctx, runner.Request{ID: id, JobRun: &runner.JobRun{Subject: "object", OnPhase: func(now string) {
		phase = now
		cancel() // it would wait on
	}}})
	for _, said := range []string{phase, fmt.Sprint(err)} {
		if !strings.Contains(said, "etcd is away") || strings.Contains(said, "--force") {
			t.Errorf("said: %s", said)
		}
	}
}

// What is left of a run is deleted. If its node does not answer, nothing waits for that. The object's next run waits, and
// says why.
func TestReap_LeavesAPodThatDoesNotEndToTheNextRun(t *testing.T) {
	t.Parallel()
	const earlier, id = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: earlier + "-x7k2p", Namespace: "system", Labels: map[string]string{runLabel: earlier, objectLabel: "object"},
			DeletionTimestamp: new(metav1.Now()), Finalizers: []string{"kubelet/of-a-dead-node"},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	client := fake.NewClientset(pod)
	var refused atomic.Bool
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if refused.Load() {
			return true, nil, errors.New("refused")
		}
		return true, nil, nil
	})
	local := runner.New(runner.Options{})
	t.Cleanup(local.Close)
	r := New(local, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	must.Do(t, r.pods.GetIndexer().Add(pod))
	close(r.ready)
	began := time.Now()
	must.Do(t, r.Reap(earlier))
	if took := time.Since(began); took > forgetTimeout {
		t.Errorf("it takes %s", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.begin(ctx, runner.Request{ID: id, JobRun: &runner.JobRun{Subject: "object"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the next run does not wait for the Pod: %v", err)
	}
	refused.Store(true)
	if err := r.Reap(earlier); err == nil {
		t.Error("a Pod that cannot be deleted counts as ended")
	}
}

// Only the Pod that the Job has made counts as the Pod of the run. Other Pods with the run's label are ignored, and
// nothing waits for them.
func TestPodOf_IsMadeByTheJob(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	of := func(name, kind, controller string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "system", Labels: map[string]string{runLabel: id, objectLabel: "object"},
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: controller, Controller: new(true)}},
		}}
	}
	client := fake.NewClientset()
	r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	for _, pod := range []*corev1.Pod{of("forged", "Job", id), of(id+"-x7k2p", "ReplicaSet", id), of(id+"-29412345", "Job", "another")} {
		must.Do(t, errors.Join(r.pods.GetIndexer().Add(pod), client.Tracker().Add(pod)))
	}
	if is := r.podOf(id); is != nil {
		t.Errorf("Pod %s stands for the run", is.Name)
	}
	must.Be(t, "what is left of runs of the object", "", must.Get(r.EndJobRuns(t.Context(), "object"))(t))
	own := of(id+"-abcde", "Job", id)
	must.Do(t, r.pods.GetIndexer().Add(own))
	must.Be(t, "the Pod of the run", own, r.podOf(id))
}

// A Job may have the labels of a run, but not the name of one. It delays no run of the object, is not adopted, and is left
// alone together with the Secret of the same name.
func TestEnd_LeavesWhatIsNoRun(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{Name: "hold", Namespace: "system", Labels: map[string]string{runLabel: "hold", objectLabel: "object"}, Finalizers: []string{"example.com/hold"}}
	client := fake.NewClientset(&batchv1.Job{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "hold", Namespace: "system"}})
	r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	must.Be(t, "what is left", "", must.Get(r.EndJobRuns(t.Context(), "object"))(t))
	must.Be(t, "runs of an earlier process", 0, len(must.Get(r.list(t.Context()))(t)))
	must.Be(t, "Secrets", 1, len(must.Get(client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}))(t).Items))
}

// EndJobRuns ends all runs of an object that have a Pod or a Job, and says what is left of them. It does not end runs of
// other objects.
func TestEnd(t *testing.T) {
	t.Parallel()
	const earlier, other = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	of := func(id, object string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id, objectLabel: object}}
	}
	client := fake.NewClientset(&batchv1.Job{ObjectMeta: of(earlier, "object")}, &batchv1.Job{ObjectMeta: of(other, "another")}, &corev1.Pod{ObjectMeta: of(earlier, "object")})
	var asked atomic.Bool
	client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !asked.Swap(true), nil, nil // the Pod takes time to end
	})
	r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	if left := must.Get(r.EndJobRuns(t.Context(), "object"))(t); !strings.Contains(left, "has not ended: Pods "+earlier) {
		t.Errorf("left is %q while the Pod has time to end", left)
	}
	_ = must.Get(r.EndJobRuns(t.Context(), "object"))(t) // this ends the Pod
	must.Be(t, "what is left when it has ended", "", must.Get(r.EndJobRuns(t.Context(), "object"))(t))
	must.Be(t, "Jobs of others", 1, len(must.Get(client.BatchV1().Jobs("system").List(t.Context(), metav1.ListOptions{}))(t).Items))
}

// If the answer to the creation of the Secret does not arrive, the Secret is removed.
func TestBegin_LeavesNoSecret(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		made, _ := a.(clienttesting.CreateAction)
		return true, nil, errors.Join(client.Tracker().Add(made.GetObject()), apierrors.NewTimeoutError("late", 1))
	})
	r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	if err := r.begin(t.Context(), runner.Request{ID: "an-id", Dir: "/runs/uid/an-id", JobRun: &runner.JobRun{Subject: "uid"}}); err == nil {
		t.Error("the run has begun")
	}
	if left, err := client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("%d Secrets are left, %v", len(left.Items), err)
	}
}
