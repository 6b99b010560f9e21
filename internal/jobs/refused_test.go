package jobs

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Thousands of Jobs may wait for a quota, so one request gets the events of all. What the events say about a Job does not
// change with the Pod of each try.
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
	r := New(nil, Options{Client: client, Namespace: "system"})
	const want = "there is no Pod yet: FailedCreate: Error creating: the Pod is forbidden: exceeded quota: none, used: pods=1; raise the quota"
	for n := range 100 {
		if got := r.absence(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(n))}}); !strings.HasPrefix(got, want) {
			t.Fatalf("of Job %d is said %q, want %s", n, got, want)
		}
	}
	if lists.Load() != 1 {
		t.Errorf("the events were listed %d times, want once", lists.Load())
	}
}

// Each try of the Job controller makes an event, so the events of thousands of Jobs come in several pages.
func TestAbsence_ReadsAllPages(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	client.PrependReactor("list", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		asked, _ := action.(clienttesting.ListActionImpl)
		page, _ := strconv.Atoi(asked.ListOptions.Continue)
		events := &corev1.EventList{Items: []corev1.Event{{InvolvedObject: corev1.ObjectReference{UID: types.UID(strconv.Itoa(page))}, Message: "exceeded quota"}}}
		if page < 2 {
			events.Continue = strconv.Itoa(page + 1)
		}
		return true, events, nil
	})
	r := New(nil, Options{Client: client, Namespace: "system"})
	for n := range 3 {
		if got := r.absence(t.Context(), &batchv1.Job{ObjectMeta: metav1.ObjectMeta{UID: types.UID(strconv.Itoa(n))}}); !strings.Contains(got, "raise the quota") {
			t.Errorf("of the Job on page %d is said %q", n, got)
		}
	}
}

// Only if permissions are missing, the advice names the Role.
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
