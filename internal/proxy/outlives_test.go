package proxy

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// A PUT removes the owner reference, so the annotations have to replace it.
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
	if _, _, err := send(t.Context(), client, http.MethodPut, p.URL()+"/api/v1/namespaces/n/configmaps/x", body); err != nil {
		t.Fatal(err)
	}
	if got := <-put; !strings.Contains(got, annotationOwner) {
		t.Errorf("the object belongs to no one: %s", got)
	}
}

// An object outlives its owner if it has helm.sh/resource-policy in the cluster, even if the body does not have it.
func TestOwn_WhatIsToOutliveItsOwnerAlready(t *testing.T) {
	const stored = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","namespace":"n","uid":"u","resourceVersion":"1",` +
		`"annotations":{"helm.sh/resource-policy":"keep"}}}`
	for contentType, body := range map[string]string{
		"application/merge-patch+json": `{"metadata":{"labels":{"a":"b"}}}`,
		"application/apply-patch+yaml": `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"b"}}}`,
	} {
		t.Run(contentType, func(t *testing.T) {
			sent := make(chan string, 2)
			s := script(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.Method == http.MethodPatch {
					body, _ := io.ReadAll(r.Body)
					sent <- string(body)
				}
				_, _ = io.WriteString(w, stored)
			}, plainly)
			p := startProxy(t, &rest.Config{Host: s.URL})
			owner := Owner{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, Namespace: "n", Name: "o", UID: "owner"}
			_, client, _ := admit(t, p, Grant{RunID: "r", Inject: true, AdoptUnowned: true, Owner: owner})
			if _, _, err := sendAs(t.Context(), client, http.MethodPatch, p.URL()+"/api/v1/namespaces/n/configmaps/x?fieldManager=m", contentType, body); err != nil {
				t.Fatal(err)
			}
			close(sent)
			var all string
			for body := range sent {
				all += body + "\n"
			}
			if !strings.Contains(all, annotationOwner) || strings.Contains(all, "ownerReferences") {
				t.Errorf("the garbage collector removes it with its owner: %s", all)
			}
		})
	}
}
