package jobs

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rolewright/rolewright/runner"
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
