package jobs

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Without the permissions of config/jobs, the operator ends and names them, instead of waiting for its caches.
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
