package jobs

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
)

// New runs wait until those of an earlier process have been asked for, ended, or waited for long enough; the Pods of the rest
// are told to end, but not while others are followed.
func TestAdoption(t *testing.T) {
	t.Parallel()
	p, err := proxy.New(t.Context(), proxy.Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ids := []string{"11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333"}
		client := fake.NewClientset()
		e := New(nil, Options{Client: client, Namespace: "system", Proxy: p, Log: logr.Discard()})
		for _, id := range ids {
			meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}}
			if err := client.Tracker().Add(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{tokenKey: []byte("token of " + id)}}); err != nil {
				t.Fatal(err)
			}
			if err := e.jobs.GetStore().Add(&batchv1.Job{ObjectMeta: meta}); err != nil {
				t.Fatal(err)
			}
		}
		if !e.Adopting() {
			t.Error("new runs begin before it is known which there are")
		}
		if err := e.findRuns(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer e.forgetLater().Stop()
		close(e.ready)
		for _, id := range ids[:2] {
			if !e.Adopting() {
				t.Errorf("new runs do not wait for run %s", id)
			}
			if token, _, ok, err := e.Held(t.Context(), id); err != nil || !ok || !strings.HasSuffix(token, id) {
				t.Errorf("run %s is %v with token %q, %v", id, ok, token, err)
			}
		}
		e.claim(ids[0])
		e.adopted.Add(1)
		e.kill(t.Context(), ids[1])
		if !e.Adopting() || len(e.waiting) != 1 {
			t.Errorf("one run is left, and %d wait", len(e.waiting))
		}
		time.Sleep(adoption)
		if e.Adopting() {
			t.Error("new runs wait without end for a run that no object has")
		}
		time.Sleep(unclaimed)
		synctest.Wait()
		if len(e.waiting) != 1 {
			t.Error("a run is forgotten while there may have been no worker for it")
		}
		e.adopted.Add(-1)
		time.Sleep(unclaimed)
		synctest.Wait()
		if len(e.waiting) != 0 {
			t.Error("a run that no object has is never forgotten")
		}
	})
}

// A Pod that waits for its image has begun nothing, though its node has taken it.
func TestBegun(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for want, state := range map[bool]corev1.ContainerState{
		false: {Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		true:  {Running: &corev1.ContainerStateRunning{}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{{Name: watches.JobContainer, State: state}}}}
		if begun(pod) != want {
			t.Errorf("begun is %v with %+v", !want, state)
		}
	}
}
