package operatorpage_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller/act"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/operatorpage"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/runs"
)

type answer struct {
	StatusCode int
	Status     string
	Header     http.Header
}

func ask(t *testing.T, server *httptest.Server, path string, change func(*http.Request)) (answer, string) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil))(t)
	r.Header.Set("Authorization", "Bearer theirs")
	if change != nil {
		change(r)
	}
	resp := must.Get(server.Client().Transport.RoundTrip(r))(t) //nolint:bodyclose // the next line does
	defer resp.Body.Close()
	return answer{resp.StatusCode, resp.Status, resp.Header}, string(must.Get(io.ReadAll(resp.Body))(t))
}

// Requests of the page reach the API server with the reader's token, and with nothing of the operator or of the reader's
// request. TestPage_ShowsWhatItsReaderMayGet in test/e2e asks a real one.
func TestOperatorPage_HasNoRightsOfItsOwn(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var sent []string
	cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, r.Method+" "+r.URL.Path+" "+strings.Join(r.Header["Authorization"], "|")+r.Header.Get("Impersonate-User")+r.Header.Get("Cookie"))
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPatch {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"you may not patch","reason":"Forbidden","code":403}`)
			return
		}
		_, _ = io.WriteString(w, `{"apiVersion":"g/v1","kind":"Web","metadata":{"name":"shop","namespace":"team","uid":"u"},"status":{"conditions":[{"type":"Ready","reason":"FromTheCluster"}]}}`)
	}))
	t.Cleanup(cluster.Close)
	of := history.Object{Group: "g", Version: "v0", Kind: "Web", Namespace: "team", Name: "shop"}
	other := of
	other.Kind = "Secret"
	o := runs.New(t, runs.Run(1, of, time.Now()), runs.Run(2, other, time.Now()))
	var logged []string
	log := funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{})
	server := runs.ServeBy(t, func(host string) http.Handler {
		return operatorpage.New(operatorpage.Options{
			API: o.API(), Address: o.URL(), Cluster: &rest.Config{Host: cluster.URL, BearerToken: "the operator's", Impersonate: rest.ImpersonationConfig{UserName: "root"}},
			Kinds: runs.Kinds, Hosts: []string{host}, Actions: true, Log: log, Objects: act.Of,
		})
	})
	object := "object?" + url.Values{"group": {"g"}, "kind": {"Web"}, "namespace": {"team"}, "name": {"shop"}}.Encode()
	forged := func(r *http.Request) {
		r.Header.Set("Impersonate-User", "root")
		r.Header.Set("Cookie", "a=b")
	}
	if resp, said := ask(t, server, operatorpage.Base+object, forged); resp.StatusCode != http.StatusOK || !strings.Contains(said, "FromTheCluster") {
		t.Errorf("the object: %s\n%s", resp.Status, said)
	}
	resp, said := ask(t, server, operatorpage.Namespaces+"team/act?"+strings.TrimPrefix(object, "object?"), func(r *http.Request) {
		forged(r)
		r.Method, r.Body = http.MethodPost, io.NopCloser(strings.NewReader("do=suspend"))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	})
	if resp.StatusCode != http.StatusForbidden || !strings.Contains(said, "you may not patch") {
		t.Errorf("the action: %s\n%s", resp.Status, said)
	}
	const at = "/apis/g/v1/namespaces/team/webs/shop Bearer theirs"
	must.Be(t, "requests", []string{"GET " + at, "GET " + at, "PATCH " + at, "GET " + at}, sent)
	if len(logged) != 1 || !strings.Contains(logged[0], `"user"="the user" "action"="suspend" "kind"="Web"`) || !strings.Contains(logged[0], `"failed"="annotate the object: you may not patch"`) {
		t.Errorf("the log says %q", logged)
	}

	sent = nil
	if resp, said := ask(t, server, operatorpage.Base+strings.Replace(object, "Web", "Secret", 1), nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("an object of a kind that is not watched: %s\n%s", resp.Status, said)
	}
	must.Be(t, "requests for it", 0, len(sent))
}

func TestOperatorPage_Refuses(t *testing.T) {
	t.Parallel()
	o := runs.New(t, runs.Run(1, history.Object{Group: "g", Version: "v1", Kind: "Web", Namespace: "team", Name: "shop"}, time.Now()))
	server := runs.ServeBy(t, func(host string) http.Handler {
		return operatorpage.New(operatorpage.Options{API: o.API(), Address: o.URL(), Cluster: &rest.Config{Host: "http://127.0.0.1:1"}, Kinds: runs.Kinds, Hosts: []string{host}, Objects: act.Of})
	})
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	for name, tt := range map[string]struct {
		path   string
		change func(*http.Request)
		code   int
		says   string
	}{
		"all":                   {"", nil, 200, "shop"},
		"a namespace":           {"namespaces/team/", nil, 200, "shop"},
		"its style":             {"namespaces/team/style.css", nil, 200, "font"},
		"no namespace":          {"namespaces/", nil, 404, ""},
		"what is none":          {"namespaces/T%0a/", nil, 404, ""},
		"no token":              {"", func(r *http.Request) { r.Header.Del("Authorization") }, 401, "through a proxy that logs you in"},
		"no token for a script": {"page.js", func(r *http.Request) { r.Header.Del("Authorization") }, 401, "logged in"},
		"a password":            {"", header("Authorization", "Basic eDp5"), 401, "logged in"},
		"another host":          {"", func(r *http.Request) { r.Host = "evil.example"; r.Header.Del("Authorization") }, 421, "does not serve the host name"},
		"a link":                {"", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "document"), 200, "shop"},
		"a frame":               {"", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate", "Sec-Fetch-Dest", "iframe"), 403, "Another site"},
		"a script":              {"", header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors", "Sec-Fetch-Dest", "script"), 403, "Another site"},
		"an action":             {"act", func(r *http.Request) { r.Method = http.MethodPost }, 404, ""},
	} {
		resp, said := ask(t, server, operatorpage.Base+tt.path, tt.change)
		if resp.StatusCode != tt.code || !strings.Contains(said, tt.says) {
			t.Errorf("%s: %s, want %d\n%s", name, resp.Status, tt.code, said)
		}
		must.Be(t, name+" has a policy", true, strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "default-src 'none'"))
	}
}
