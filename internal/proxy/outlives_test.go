package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
)

// A PUT takes the owner reference away, and the annotations have to take its place.
func TestOwn_WhatIsToOutliveItsOwnerFromNowOn(t *testing.T) {
	const stored = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"1",` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"o","uid":"owner"}]}}`
	put := make(chan string, 1)
	s := script(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPut {
			body, _ := io.ReadAll(r.Body)
			put <- string(body)
		}
		_, _ = io.WriteString(w, stored)
	}, plainly)
	p := startProxy(t, &rest.Config{Host: s.URL})
	owner := Owner{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "n", Name: "o", UID: "owner"}
	_, client, _ := admit(t, p, Grant{RunID: "r", Inject: true, Owner: owner})
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","annotations":{"helm.sh/resource-policy":"keep"}}}`
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, p.URL()+"/api/v1/namespaces/n/configmaps/x", strings.NewReader(body)))(t)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	must.Do(t, resp.Body.Close())
	if got := <-put; !strings.Contains(got, annotationOwner) {
		t.Errorf("the object belongs to no one: %s", got)
	}
}
