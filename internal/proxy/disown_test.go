package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The API server says that an object does not exist, and then that a write has changed it. The mark is taken off only if
// another client has created the object, and not, for example, an earlier request whose answer was lost.
func TestDisown_OnlyWhatAnotherClientHasCreated(t *testing.T) {
	t.Parallel()
	const (
		ours    = `{"manager":"run","operation":"Apply","fieldsV1":{"f:metadata":{"f:ownerReferences":{"k:{\"uid\":\"owner\"}":{}}}}}`
		status  = `{"manager":"kubelet","operation":"Update","subresource":"status","fieldsV1":{"f:status":{}}}`
		another = `{"manager":"kubectl","operation":"Update","fieldsV1":{"f:data":{}}}`
	)
	for name, tc := range map[string]struct {
		managed string
		patches int64
	}{
		"the run":        {ours, 0},
		"with a status":  {ours + "," + status, 0},
		"another client": {another + "," + ours, 1},
		"not known":      {"", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var patches atomic.Int64
			api := script(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodGet {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				if r.Method == http.MethodPatch {
					patches.Add(1)
				}
				_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"1",`+
					`"managedFields":[`+tc.managed+`],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"owner"}]}}`)
			}, plainly)
			p, written := startProxy(t, &rest.Config{Host: api.URL}), make(chan Written, 1)
			owner := Owner{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "n", Name: "o", UID: "owner"}
			_, client, _ := admit(t, p, Grant{Inject: true, Owner: owner, Written: func(w Written) { written <- w }})
			_, _, err := send(t.Context(), client, http.MethodPut, p.URL()+"/api/v1/namespaces/n/configmaps/x", `{"metadata":{"name":"x"}}`)
			must.Do(t, err)
			must.Be(t, "code", http.StatusOK, (<-written).Code)
			must.Be(t, "patches that take the mark off", tc.patches, patches.Load())
		})
	}
}

// The same with the entries that a real API server makes, for an apply.
func TestDisown_ByManagedFields(t *testing.T) {
	t.Parallel()
	cfg, client := administrator(t)
	home := testenv.Namespace(t, cfg)
	owner := newOwner(t, cfg, testenv.CRD(t, cfg), home)
	hidden := rest.CopyConfig(cfg)
	hidden.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/configmaps/") {
				return &http.Response{StatusCode: http.StatusNotFound, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
			}
			return next.RoundTrip(r)
		})
	})
	p := startProxy(t, hidden)
	apply := func(name, value string) {
		t.Helper()
		body := []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"` + value + `"}}`)
		run := runOf(t, p, Grant{Owner: owner, Inject: true}) // each time another one
		must.Get(run.CoreV1().ConfigMaps(home).Patch(t.Context(), name, types.ApplyYAMLPatchType, body, metav1.PatchOptions{FieldManager: "run"}))(t)
	}
	maps := client.CoreV1().ConfigMaps(home)
	apply("own", "1")
	apply("own", "2")
	must.Get(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "another"}, Data: map[string]string{"b": "1"}}, metav1.CreateOptions{}))(t)
	apply("another", "2")
	for name, owners := range map[string]int{"own": 1, "another": 0} {
		testenv.Eventually(t, "the mark of "+name, func(ctx context.Context) error {
			is, err := maps.Get(ctx, name, metav1.GetOptions{})
			if err != nil || is.Data["a"] != "2" || len(is.OwnerReferences) != owners {
				return fmt.Errorf("%v, owners: %v, %w", is.Data, is.OwnerReferences, err)
			}
			return nil
		})
	}
}

// Two requests of one run find that an object does not exist, and both write it. The run has created the object, so it keeps
// its mark.
func TestDisown_WhatTheSameRunHasCreatedStaysTheOwners(t *testing.T) {
	t.Parallel()
	const stored = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"1",` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"owner"}]}}`
	codes := make(chan int, 2)
	codes <- http.StatusCreated
	codes <- http.StatusOK
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		select {
		case code := <-codes:
			w.WriteHeader(code)
		default:
			t.Error("the mark is taken off")
		}
		_, _ = io.WriteString(w, stored)
	}, plainly)
	p, written := startProxy(t, &rest.Config{Host: api.URL}), make(chan Written, 2)
	owner := Owner{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "n", Name: "o", UID: "owner"}
	_, client, _ := admit(t, p, Grant{Inject: true, Owner: owner, Written: func(w Written) { written <- w }})
	for _, code := range []int{http.StatusCreated, http.StatusOK} {
		_, _, err := send(t.Context(), client, http.MethodPut, p.URL()+"/api/v1/namespaces/n/configmaps/x", stored)
		must.Do(t, err)
		must.Be(t, "code", code, (<-written).Code)
	}
}
