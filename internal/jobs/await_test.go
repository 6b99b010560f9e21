package jobs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
)

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
