package proxy

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestRecord_TellsWhatHasToBePermitted(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	gvk := testenv.CRD(t, cfg)
	var mu sync.Mutex
	var calls []string
	p := startProxy(t, cfg, func(o *Options) {
		o.Record = func(c Call) {
			mu.Lock()
			defer mu.Unlock()
			calls = append(calls, fmt.Sprintf("%s %s/%s/%s namespaced=%v owned=%v %s", c.Verb, c.Resource.Group, c.Resource.Resource, c.Subresource, c.Namespaced, c.Owned, c.Owner.Kind))
		}
	})
	_, client, _ := admit(t, p, Grant{RunID: "record", Owner: newOwner(t, cfg, gvk, ns), Inject: true})
	maps := "/api/v1/namespaces/" + ns + "/configmaps"
	const named = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"it"}}`
	for _, tt := range []struct {
		method, path, contentType, body string
		want                            []string
	}{
		{"GET", "/apis", "", "", nil},
		{"GET", "/version", "", "", nil},
		{"GET", "/api/v1/nodes", "", "", []string{"list /nodes/ namespaced=false owned=false Widget"}},
		{"GET", maps + "?watch=true&timeoutSeconds=1", "", "", []string{"watch /configmaps/ namespaced=true owned=false Widget"}},
		{"GET", maps + "/absent", "", "", []string{"get /configmaps/ namespaced=true owned=false Widget"}},
		{"PATCH", maps + "/it?fieldManager=x", "application/apply-patch+yaml", named, []string{
			"create /configmaps/ namespaced=true owned=true Widget", "get /configmaps/ namespaced=true owned=true Widget", "patch /configmaps/ namespaced=true owned=true Widget",
		}},
		{"POST", maps, "application/json", named, []string{"create /configmaps/ namespaced=true owned=false Widget"}}, // the object exists
		{"DELETE", maps + "/it", "", "", []string{"delete /configmaps/ namespaced=true owned=false Widget"}},
		{"DELETE", maps + "?labelSelector=a%3Db", "", "", []string{"deletecollection /configmaps/ namespaced=true owned=false Widget"}},
		{"GET", "/api/v1/namespaces/" + ns + "/pods/absent/exec?command=date", "", "", []string{
			"create /pods/exec namespaced=true owned=false Widget", "get /pods/exec namespaced=true owned=false Widget",
		}},
		{"GET", "/api/v1/namespaces/" + ns, "", "", []string{"get /namespaces/ namespaced=false owned=false Widget"}},
	} {
		if _, _, err := sendAs(t.Context(), client, tt.method, p.URL()+tt.path, tt.contentType, tt.body); err != nil {
			t.Fatal(err)
		}
		// The record is made right after the end of the answer.
		testenv.Eventually(t, tt.method+" "+tt.path+" recorded", func(_ context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if len(calls) < len(tt.want) {
				return fmt.Errorf("recorded %q", calls)
			}
			return nil
		})
		mu.Lock()
		slices.Sort(calls)
		if diff := cmp.Diff(tt.want, calls); diff != "" {
			t.Errorf("%s %s (-want +got)\n%s", tt.method, tt.path, diff)
		}
		calls = nil
		mu.Unlock()
	}
}

// The record of a refused create has the name from the request.
func TestWritten_HasTheNameOfARefusedCreate(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	written := make(chan Written, 1)
	p := startProxy(t, cfg)
	_, client, _ := admit(t, p, Grant{RunID: "refused", Owner: newOwner(t, cfg, testenv.CRD(t, cfg), ns), Inject: true, Written: func(w Written) { written <- w }})
	body := strings.NewReader(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"it"},"data":1}`)
	resp, err := client.Post(p.URL()+"/api/v1/namespaces/"+ns+"/configmaps", "application/json", body)
	must.Do(t, err)
	must.Do(t, resp.Body.Close())
	w := <-written
	must.Be(t, "code", http.StatusBadRequest, w.Code)
	must.Be(t, "name", "it", w.Name)
}
