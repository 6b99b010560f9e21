package jobs

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
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

// An operator that takes over while the API server fails tries again.
func TestStart_WhileTheAPIServerFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		var failed []string
		for _, what := range []struct{ verb, resource string }{{"get", "secrets"}, {"list", "jobs"}} {
			client.PrependReactor(what.verb, what.resource, func(a clienttesting.Action) (bool, runtime.Object, error) {
				list, is := a.(clienttesting.ListActionImpl)
				if is && (list.ListOptions.Limit != 500 || list.ListOptions.ResourceVersion != "") || slices.Contains(failed, what.resource) {
					return false, nil, nil // of the cache, for instance
				}
				failed = append(failed, what.resource)
				return true, nil, apierrors.NewInternalError(errors.New("etcd has no leader"))
			})
		}
		err := New(nil, Options{Client: client, Namespace: "system", Address: "none", Log: logr.Discard()}).Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), "listen") || len(failed) != 2 {
			t.Errorf("error = %v after failed requests for %q, want that there is no address to listen on", err, failed)
		}
	})
}
