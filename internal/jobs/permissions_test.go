package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
)

// Without the permissions of config/jobs the operator ends and names them, instead of waiting for its caches.
func TestStart_WithoutPermissions(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("list", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "", nil)
	})
	err := New(nil, Options{Client: client, Namespace: "system"}).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), grantIt) {
		t.Errorf("error = %v, want what to grant", err)
	}
}

// A Secret that could not be given to its Job is removed with it.
func TestSecret_GoesWithItsJob(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewServiceUnavailable("busy")
	})
	e := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	req := runner.Request{ID: "an-id", Dir: "/runs/uid/an-id", Apart: &runner.Apart{Subject: "uid"}}
	if err := e.begin(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	if err := e.deleteJob(t.Context(), req.ID); err != nil {
		t.Fatal(err)
	}
	if left, err := client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("%d Secrets are left, %v", len(left.Items), err)
	}
}

// Thousands of Jobs may wait for a quota: their events are asked for together, and what is said of a Job is the same for
// each try, which has another Pod.
func TestAbsence_AsksOnceForAllJobs(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	var lists atomic.Int64
	client.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		events := &corev1.EventList{}
		for n := range 100 {
			for try := range 2 {
				events.Items = append(events.Items, corev1.Event{
					InvolvedObject: corev1.ObjectReference{UID: types.UID(strconv.Itoa(n))}, Reason: "FailedCreate", LastTimestamp: metav1.NewTime(time.Unix(int64(try), 0)),
					Message: fmt.Sprintf(`Error creating: pods "run-%d-%d" is forbidden: exceeded quota: none, used: pods=%d`, n, lists.Load(), try),
				})
			}
		}
		lists.Add(1)
		return true, events, nil
	})
	e := New(nil, Options{Client: client, Namespace: "system"})
	const want = "there is no Pod yet: FailedCreate: Error creating: the Pod is forbidden: exceeded quota: none, used: pods=1; raise the quota"
	for n := range 100 {
		if got := e.absence(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(n))}}); !strings.HasPrefix(got, want) {
			t.Fatalf("of Job %d is said %q, want %s", n, got, want)
		}
	}
	if lists.Load() != 1 {
		t.Errorf("the events were listed %d times, want once", lists.Load())
	}
}

// A run whose ID stands in the status of another object is not adopted, and nothing of it is removed.
func TestForget_LeavesTheRunsOfOtherObjects(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id, objectLabel: "victim"}}
	client := fake.NewClientset(&batchv1.Job{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta})
	e := New(nil, Options{Client: client, Namespace: "system"})
	if err := e.jobs.GetStore().Add(&batchv1.Job{ObjectMeta: meta}); err != nil {
		t.Fatal(err)
	}
	close(e.ready)
	there := func() bool {
		_, err := client.BatchV1().Jobs("system").Get(t.Context(), id, metav1.GetOptions{})
		return err == nil
	}
	if _, _, ok, err := e.Held(t.Context(), id, "attacker"); ok || err != nil {
		t.Errorf("the run is adopted: %v, %v", ok, err)
	}
	if e.Forget(id, "attacker"); !there() {
		t.Error("the Job of another object is deleted")
	}
	if e.Forget(id, "victim"); there() {
		t.Error("the Job is not deleted for its own object")
	}
}

// A run begins when no Pod of an earlier one of its object runs, also where the caches know of none, and the Job of that is gone.
func TestBegin_WaitsForPodsOfEarlierRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const earlier, id = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "earlier", Namespace: "system", Labels: map[string]string{runLabel: earlier, objectLabel: "object"}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
		client := fake.NewClientset(pod)
		var deleted atomic.Bool
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			deleted.Store(true)
			return true, nil, nil // it has time to end
		})
		e := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
		began := make(chan error, 1)
		go func() {
			began <- e.begin(t.Context(), runner.Request{ID: id, Dir: "/runs/uid/" + id, Apart: &runner.Apart{Subject: "object"}})
		}()
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

// What another operator in the namespace has made is neither waited for nor removed.
func TestAdopt_LeavesOtherOperatorsAlone(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	theirs := New(nil, Options{Client: client, Namespace: "system", URL: "https://theirs:8444", Log: logr.Discard()})
	for _, id := range []string{"with-a-job", "without"} {
		req := runner.Request{ID: id, Dir: "/runs/uid/" + id, Apart: &runner.Apart{Subject: "of-" + id}}
		if err := theirs.begin(t.Context(), req); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.BatchV1().Jobs("system").Delete(t.Context(), "without", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	ours := New(nil, Options{Client: client, Namespace: "system", URL: "https://ours:8444", Log: logr.Discard()})
	if err := ours.adopt(t.Context(), func(types.UID) bool { return true }); err != nil || len(ours.found) > 0 {
		t.Errorf("the runs %v are found, %v", ours.found, err)
	}
	if left, err := client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 2 {
		t.Errorf("%d Secrets are left of two, %v", len(left.Items), err)
	}
}

// A run whose node does not answer goes on at the replica that has the object next, which has to wait for its end as well.
func TestAwait_HandsOverWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "11111111-1111-4111-8111-111111111111"
		meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}, DeletionTimestamp: ptr(metav1.Now())}
		e := New(nil, Options{Client: fake.NewClientset(), Namespace: "system", Log: logr.Discard()})
		if err := errors.Join(e.jobs.GetStore().Add(&batchv1.Job{ObjectMeta: meta}), e.pods.GetIndexer().Add(&corev1.Pod{ObjectMeta: meta})); err != nil {
			t.Fatal(err)
		}
		replaced := make(chan struct{})
		req := runner.Request{ID: id, Apart: &runner.Apart{Replaced: replaced, OnPhase: func(string) {}}}
		why := make(chan error, 1)
		go func() {
			_, err, _ := e.await(t.Context(), req, &remote.Session{})
			why <- err
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-why:
			t.Fatalf("the run is left while no other replica wants the object: %v", err)
		default:
		}
		close(replaced)
		if err := <-why; !errors.Is(err, runner.ErrHandedOver) {
			t.Errorf("the run ends with %v", err)
		}
	})
}

// A run that was stopped does not hold up the end of the operator: its Pod may take long to end, and the operator does not see it any more.
func TestAwait_EndsWithTheOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "11111111-1111-4111-8111-111111111111"
		meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}}
		pod, job := &corev1.Pod{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta}
		client := fake.NewClientset(pod, job)
		e := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
		if err := errors.Join(e.jobs.GetStore().Add(job), e.pods.GetIndexer().Add(pod)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("the object was deleted")
		cancel(stopped)
		req := runner.Request{ID: id, Apart: &runner.Apart{OnPhase: func(string) {}, GoesOn: func(error) bool { return false }}}
		ended := make(chan error, 1)
		go func() {
			_, why, lost := e.await(ctx, req, &remote.Session{})
			if lost == nil {
				t.Error("the run has an outcome")
			}
			ended <- why
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Errorf("it has ended while its Pod is there: %v", err)
		default:
		}
		if _, err := client.BatchV1().Jobs("system").Get(t.Context(), id, metav1.GetOptions{}); err == nil {
			t.Error("its Job is not deleted")
		}
		close(e.drained)
		if err := <-ended; !errors.Is(err, stopped) {
			t.Errorf("it ends with %v, want why it was stopped", err)
		}
	})
}

// An answer that does not come leaves no Secret behind.
func TestBegin_LeavesNoSecret(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
		made, _ := a.(clienttesting.CreateAction)
		return true, nil, errors.Join(client.Tracker().Add(made.GetObject()), apierrors.NewTimeoutError("late", 1))
	})
	e := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	if err := e.begin(t.Context(), runner.Request{ID: "an-id", Dir: "/runs/uid/an-id", Apart: &runner.Apart{Subject: "uid"}}); err == nil {
		t.Error("the run has begun")
	}
	if left, err := client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 0 {
		t.Errorf("%d Secrets are left, %v", len(left.Items), err)
	}
}

// Only where permissions are missing, the Role is what to do.
func TestRemedyOf(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		`User "operator" cannot create resource "jobs" in API group "batch" in the namespace "system"`: grantIt,
		"exceeded quota: runs, requested: pods=1, used: pods=2, limited: pods=2":                       "raise the quota of the namespace system",
		"violates PodSecurity": "change job of the watch, or what the namespace system allows",
	} {
		err := apierrors.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs"}, "a-run", errors.New(said))
		if got := remedyOf(err, "system"); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
	if err := apierrors.NewServiceUnavailable("busy"); !errors.Is(refusedWith(err, "system"), err) || strings.Contains(refusedWith(err, "system").Error(), "change job") {
		t.Errorf("a server that is busy: %v", refusedWith(err, "system"))
	}
}
