package proxy

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"

	"github.com/rolewright/rolewright/test/must"
)

// A run that repeats a request does not fill the log. Neither does a client without a token, whose requests are a session
// each.
func TestNotice_ARunThatRepeatsItselfDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "/secrets"):
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "?")
		case strings.Contains(r.URL.Path, "/pods/"): // another client creates the Pod between the look-up and the write
			code := map[string]int{http.MethodGet: http.StatusNotFound, http.MethodPatch: http.StatusForbidden, http.MethodPut: http.StatusOK}
			w.WriteHeader(code[r.Method])
			_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","uid":"u","resourceVersion":"1"}}`)
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, "{")
		case r.Method == http.MethodGet:
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("Content-Type", asJSON)
			_, _ = io.WriteString(w, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","uid":"u","resourceVersion":"1"}}`)
		}
	}, plainly)
	var mu sync.Mutex
	lines, longest := map[string]int{}, 0
	p := startProxy(t, api.config(), func(o *Options) {
		o.Anonymous = func(Owner) Grant { return Grant{Inject: true} }
		o.Log = funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			for _, word := range []string{"without looking up", "is hidden", "cannot be read", "cannot be removed"} {
				if strings.Contains(args, word) {
					lines[word]++
				}
			}
			longest = max(longest, len(args))
		}, funcr.Options{})
	})
	namespace := p.URL() + "/api/v1/namespaces/x/"
	clients := map[string]*http.Client{"anonymous": {Transport: asOwner{trusting(t, p)}}}
	_, clients["of a run"], _ = admit(t, p, Grant{Inject: true, Secrets: &told{}})
	want := map[string]int{"anonymous": 30, "of a run": 40} // 10 more because of the Secrets
	for _, who := range []string{"anonymous", "of a run"} {
		for range 30 {
			long := "/" + strings.Repeat("x", 20_000)
			for path, method := range map[string]string{
				"configmaps" + long: http.MethodPut, "secrets": http.MethodGet, "pods" + long: http.MethodPut, "pods": http.MethodPost,
			} {
				body := ""
				if method != http.MethodGet {
					body = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}`
				}
				if code, said, err := send(t.Context(), clients[who], method, namespace+path, body); err != nil || code != http.StatusOK {
					t.Fatalf("%s: %d %.200s, %v", who, code, said, err)
				}
			}
		}
		mu.Lock()
		n := 0
		for count := range maps.Values(lines) {
			n += count
		}
		must.Be(t, "lines of the client "+who, want[who], n)
		clear(lines)
		mu.Unlock()
	}
	if longest > 3*maxLogged {
		t.Errorf("a line has %d bytes", longest)
	}
}

// asOwner is a transport that names an owner in the user name, as clients without a token do.
type asOwner struct{ http.RoundTripper }

func (a asOwner) RoundTrip(r *http.Request) (*http.Response, error) {
	r.SetBasicAuth("eyJhcGlWZXJzaW9uIjoiYS92MSIsImtpbmQiOiJLIiwibmFtZSI6Im4iLCJ1aWQiOiJ1In0=", "") // a/v1, K, n, u
	return a.RoundTripper.RoundTrip(r)
}
