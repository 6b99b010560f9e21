package proxy

import (
	"io"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
)

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
