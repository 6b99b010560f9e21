package proxy

import (
	"io"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
)

// An eviction counts as a deletion of the Pod by the run. A scale that changes nothing is answered with a version that
// another client made, whose change starts a run.
func TestLook_AtTheObjectOfASubresource(t *testing.T) {
	t.Parallel()
	version := func(is string) string {
		return `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"ns","uid":"u","resourceVersion":"` + is + `"}}`
	}
	const (
		eviction = `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"x"}}`
		dryRun   = `{"kind":"Eviction","apiVersion":"policy/v1","metadata":{"name":"x"},"deleteOptions":{"dryRun":["All"]}}`
		scale    = `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"x","namespace":"ns","uid":"u","resourceVersion":"1"},"spec":{"replicas":2}}`
		scaled   = `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"x","namespace":"ns","uid":"u","resourceVersion":"2"},"spec":{"replicas":2}}`
		done     = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":201}`
	)
	for name, tt := range map[string]struct {
		method, subresource, body, answer string
		want                              []string
	}{
		"an eviction":            {method: http.MethodPost, subresource: "eviction", body: eviction, answer: done, want: []string{"deleted pods"}},
		"one that is a dry run":  {method: http.MethodPost, subresource: "eviction", body: dryRun, answer: done},
		"a scale":                {method: http.MethodPut, subresource: "scale", body: scale, answer: scaled, want: []string{"wrote pods"}},
		"one to the same number": {method: http.MethodPut, subresource: "scale", body: scale, answer: scale},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := script(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method == tt.method:
					_, _ = io.WriteString(w, tt.answer)
				case r.URL.Path == "/api/v1/namespaces/ns/pods/x":
					_, _ = io.WriteString(w, version("1"))
				default:
					w.WriteHeader(http.StatusNotFound)
				}
			}, plainly)
			p, tracker := startProxy(t, &rest.Config{Host: api.URL}), &tracked{}
			a, client, _ := admit(t, p, Grant{
				Inject: true, Owner: Owner{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "ns", Name: "o", UID: "u"}, Tracker: tracker,
			})
			_, _, err := send(t.Context(), client, tt.method, p.URL()+"/api/v1/namespaces/ns/pods/x/"+tt.subresource, tt.body)
			must.Do(t, err)
			a.Revoke()
			must.Be(t, "told", tt.want, tracker.calls)
		})
	}
}
