package proxy

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/testenv"
)

// unreading is a transport to an API server that fails all reads of ConfigMaps.
type unreading struct{ http.RoundTripper }

func (u unreading) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, "/configmaps/") {
		return u.RoundTripper.RoundTrip(r)
	}
	return &http.Response{
		StatusCode: http.StatusInternalServerError, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: io.NopCloser(strings.NewReader("no")), Request: r,
	}, nil
}

// meddling is a transport that has another client add an owner to each ConfigMap right before its first patch.
type meddling struct {
	http.RoundTripper
	meddle func(name string)
	seen   *sync.Map
}

func (m meddling) RoundTrip(r *http.Request) (*http.Response, error) {
	if _, name, ok := strings.Cut(r.URL.Path, "/configmaps/"); ok && r.Method == http.MethodPatch {
		if _, seen := m.seen.LoadOrStore(name, true); !seen {
			m.meddle(name)
		}
	}
	return m.RoundTripper.RoundTrip(r)
}

func TestMatrix_AMarkThatIsAddedLaterTakesNoOwnerAway(t *testing.T) {
	t.Parallel()
	cfg, client := administrator(t)
	home := testenv.Namespace(t, cfg)
	gvk := testenv.CRD(t, cfg)
	owner, other := newOwner(t, cfg, gvk, home), newOwner(t, cfg, gvk, home)
	maps := client.CoreV1().ConfigMaps(home)
	between := rest.CopyConfig(cfg)
	between.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return meddling{rt, func(name string) {
			patch := []byte(`{"metadata":{"ownerReferences":[` + referenceTo(other, "") + `]}}`)
			if _, err := maps.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				t.Error(err)
			}
		}, &sync.Map{}}
	})
	inside := runOf(t, startProxy(t, between), Grant{Owner: owner, Inject: true}).CoreV1().ConfigMaps(home)
	created, err := inside.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create the object, in protobuf: %v", err)
	}
	var uids []types.UID
	for _, ref := range created.OwnerReferences {
		uids = append(uids, ref.UID)
	}
	if !slices.Equal(uids, []types.UID{other.UID, owner.UID}) {
		t.Errorf("owners = %q, want the other one and the run's", uids)
	}
}

func TestMatrix_AnObjectThatCannotBeReadNowIsNotReplaced(t *testing.T) {
	t.Parallel()
	cfg, client := administrator(t)
	home := testenv.Namespace(t, cfg)
	owner := newOwner(t, cfg, testenv.CRD(t, cfg), home)
	deaf := rest.CopyConfig(cfg)
	deaf.Wrap(func(rt http.RoundTripper) http.RoundTripper { return unreading{rt} })
	inside := runOf(t, startProxy(t, deaf), Grant{Owner: owner, Inject: true}).CoreV1().ConfigMaps(home)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	if _, err := inside.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the object, for which nothing is read: %v", err)
	}
	object.Data = map[string]string{"a": "b"}
	if _, err := inside.Update(t.Context(), object, metav1.UpdateOptions{}); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("replace the object: error %v, want unavailable", err)
	}
	got, err := client.CoreV1().ConfigMaps(home).Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get the object: %v", err)
	}
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].UID != owner.UID || len(got.Data) != 0 {
		t.Errorf("references = %v, data = %v, want the owner and no data", got.OwnerReferences, got.Data)
	}
}

func TestMatrix_AnOperatorThatMayNotReadWritesAllTheSame(t *testing.T) {
	t.Parallel()
	cfg, client := administrator(t)
	home := testenv.Namespace(t, cfg)
	owner := newOwner(t, cfg, testenv.CRD(t, cfg), home)
	operator := testenv.User(t, cfg, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create", "update", "patch"}},
	})
	inside := runOf(t, startProxy(t, operator), Grant{Owner: owner, Inject: true}).CoreV1().ConfigMaps(home)
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}
	created, err := inside.Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create the object: %v", err)
	}
	if len(created.OwnerReferences) != 1 || created.OwnerReferences[0].UID != owner.UID {
		t.Errorf("references of the new object = %v, want the owner", created.OwnerReferences)
	}
	created.Data = map[string]string{"a": "b"}
	if _, err := inside.Update(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatalf("replace the object: %v", err)
	}
	got, err := client.CoreV1().ConfigMaps(home).Get(t.Context(), "x", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get the object: %v", err)
	}
	if got.Data["a"] != "b" || len(got.OwnerReferences) != 1 {
		t.Errorf("data = %v, references = %v, want what was written", got.Data, got.OwnerReferences)
	}
}

// An owner that is deleted and created again under the same name takes over the objects that garbage collection has not
// deleted yet.
func TestMatrix_WhatAPredecessorHasLeftIsTheOwners(t *testing.T) {
	t.Parallel()
	cfg, client := administrator(t)
	home := testenv.Namespace(t, cfg)
	owner := newOwner(t, cfg, testenv.CRD(t, cfg), home)
	inside := runOf(t, startProxy(t, cfg), Grant{Owner: owner, Inject: true}).CoreV1().ConfigMaps(home)
	maps := client.CoreV1().ConfigMaps(home)
	for verb, write := range map[string]func(name string) error{
		"apply": func(name string) error {
			body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"b"}}`)
			_, err := inside.Patch(t.Context(), name, types.ApplyYAMLPatchType, body, metav1.PatchOptions{FieldManager: "test"})
			return err
		},
		"patch": func(name string) error {
			_, err := inside.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{})
			return err
		},
	} {
		predecessor := metav1.OwnerReference{
			APIVersion: owner.GVK.GroupVersion().String(), Kind: owner.GVK.Kind, Name: owner.Name, UID: "00000000-dead-0000-0000-000000000000",
		}
		// The finalizer keeps garbage collection from deleting the object first.
		left := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Name: verb, OwnerReferences: []metav1.OwnerReference{predecessor}, Finalizers: []string{"test.rolewright.dev/stay"},
		}}
		if _, err := maps.Create(t.Context(), left, metav1.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		if err := write(verb); err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		got, err := maps.Get(t.Context(), verb, metav1.GetOptions{})
		if err != nil {
			t.Fatalf("%s: %v", verb, err)
		}
		if !slices.ContainsFunc(got.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == owner.UID }) {
			t.Errorf("%s: references = %v, want the owner", verb, got.OwnerReferences)
		}
		release := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := maps.Patch(t.Context(), verb, types.MergePatchType, release, metav1.PatchOptions{}); err != nil {
			t.Errorf("%s: release: %v", verb, err)
		}
	}
}
