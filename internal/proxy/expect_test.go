package proxy

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// tracked is a tracker that records its calls.
type tracked struct {
	mu    sync.Mutex
	calls []string
}

func (t *tracked) note(what string, c Child) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, what+" "+c.Resource.Resource)
}

func (t *tracked) Expect(c Child)  { t.note("expect", c) }
func (t *tracked) Found(c Child)   { t.note("found", c) }
func (t *tracked) Wrote(c Child)   { t.note("wrote", c) }
func (t *tracked) Deleted(c Child) { t.note("deleted", c) }

// The proxy does not have kinds watched that do not exist, however many a run names. It has a kind watched that appears with
// the write.
func TestExpect_OfAKindThatTheAPIServerDoesNotHave(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		group string
		code  int
		want  []string
	}{
		"a kind that is there":  {group: "/api/v1", code: http.StatusNotFound, want: []string{"expect configmaps"}},
		"none":                  {group: "/apis/g.x/v1", code: http.StatusNotFound},
		"a new one":             {group: "/apis/g.x/v1", code: http.StatusCreated, want: []string{"expect configmaps", "wrote configmaps"}},
		"one that may be new":   {group: "/apis/g.x/v1", code: http.StatusGatewayTimeout, want: []string{"expect configmaps"}},
		"one without an answer": {group: "/apis/g.x/v1", want: []string{"expect configmaps"}},
		"one that is refused":   {group: "/apis/g.x/v1", code: http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := script(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case r.Method != http.MethodPost:
					w.WriteHeader(http.StatusNotFound)
				case tt.code == 0:
					panic(http.ErrAbortHandler)
				default:
					w.WriteHeader(tt.code)
					_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","uid":"u","resourceVersion":"1"}}`)
				}
			}, plainly)
			p, tracker := startProxy(t, &rest.Config{Host: api.URL}), &tracked{}
			a, client, _ := admit(t, p, Grant{
				Inject: true, Owner: Owner{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "ns", Name: "o", UID: "u"}, Tracker: tracker,
			})
			_, _, err := send(t.Context(), client, http.MethodPost, p.URL()+tt.group+"/namespaces/ns/configmaps",
				`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}`)
			if err != nil {
				t.Fatal(err)
			}
			a.Revoke()
			if !slices.Equal(tracker.calls, tt.want) {
				t.Errorf("the tracker was told %s, want %s", fmt.Sprint(tracker.calls), fmt.Sprint(tt.want))
			}
		})
	}
}
