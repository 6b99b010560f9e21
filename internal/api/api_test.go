package api

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
)

// rights lists the namespaces, and the objects in them, that a token may get. "/" means all.
var rights = map[string][]string{
	"admin": {"/"}, "team": {"one/"}, "single": {"one/a"}, "none": {},
}

// reviews is a client whose reviews are answered from rights. TestHistory in test/e2e asks a real API server.
func reviews() *fake.Clientset {
	c := fake.NewClientset()
	c.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		_, r.Status.Authenticated = rights[r.Spec.Token]
		r.Status.User.Username = r.Spec.Token
		return true, r, nil
	})
	c.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		of := r.Spec.ResourceAttributes
		for _, may := range rights[r.Spec.User] {
			namespace, name, _ := strings.Cut(may, "/")
			if of.Resource != "bs" && of.Verb == "get" && (namespace == "" || namespace == of.Namespace) && (name == "" || name == of.Name) {
				r.Status.Allowed = true
			}
		}
		return true, r, nil
	})
	return c
}

func serve(t *testing.T) (*httptest.Server, *history.Recorder) {
	t.Helper()
	store := must.Get(history.Open(history.Options{Path: filepath.Join(t.TempDir(), "runs.db"), MaxRuns: 1000, MaxBytes: 1 << 20, Log: logr.Discard()}))(t)
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() { stopped <- store.Serve(ctx) }()
	recorder := history.NewRecorder(store, nil)
	server := httptest.NewServer(New(Options{
		History: recorder, Client: reviews(), Leads: func() bool { return true }, Shards: func() *Shards { return nil },
		Kinds: func() []Kind {
			return []Kind{{"g", "v1", "A", "as", true}, {"g", "v1", "B", "bs", true}, {"g", "v1", "Zone", "zones", false}}
		},
		Waiting: func() (all []Waiting) {
			for n, of := range []string{"A/two/x", "B/one/x", "A/one/a", "A/one/b"} {
				parts := strings.Split(of, "/")
				all = append(all, Waiting{Object: history.Object{Group: "g", Version: "v1", Kind: parts[0], Namespace: parts[1], Name: parts[2]}, Position: n + 1})
			}
			return all
		},
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		stop()
		must.Do(t, <-stopped)
	})
	return server, recorder
}

func begin(r *history.Recorder, id, kind, namespace, name string) *history.Recording {
	return r.Begin(history.Run{Brief: history.Brief{
		ID: id, Object: history.Object{Group: "g", Version: "v1", Kind: kind, Namespace: namespace, Name: name}, Started: time.Now(),
	}})
}

func end(x *history.Recording) {
	x.End(func(run *history.Run) { run.Finished, run.Result = time.Now(), "Succeeded" })
}

func ask(t *testing.T, server *httptest.Server, token, path string, headers ...string) (code int, body io.Reader) {
	t.Helper()
	r := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+Root+path, nil))(t)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp := must.Get(server.Client().Do(r))(t) //nolint:bodyclose // it is, at the end of the test
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.StatusCode, resp.Body
}

func TestAPI_ShowsWhoMayGetTheObjects(t *testing.T) {
	t.Parallel()
	server, recorder := serve(t)
	for n, of := range []string{"A/one/a", "A/one/b", "A/two/a", "B/one/a", "Zone//a"} {
		parts := strings.Split(of, "/")
		x := begin(recorder, fmt.Sprintf("%d-run", n), parts[0], parts[1], parts[2])
		if n > 0 {
			end(x)
		}
	}
	const (
		denied, unknown, none = http.StatusForbidden, http.StatusUnauthorized, http.StatusNotFound
		ok                    = http.StatusOK
	)
	for _, tt := range []struct {
		token, path string
		code        int
		ids         string
	}{
		{"", "/runs", unknown, ""},
		{"forged", "/runs", unknown, ""},
		{"none", "/runs", denied, ""},
		{"none", "/runs?namespace=one&kind=A&group=g&name=a", denied, ""},
		{"admin", "/runs", ok, "0 4 2 1"},
		{"admin", "/runs?namespace=two", ok, "2"},
		{"admin", "/runs?kind=B&group=g", denied, ""},
		{"admin", "/runs?kind=a", ok, "0 2 1"},
		{"admin", "/runs?kind=AS&group=g&namespace=two", ok, "2"},
		{"admin", "/runs?kind=zone&name=a&namespace=two", ok, "4"},
		{"team", "/runs?kind=zone&name=a&namespace=one", denied, ""},
		{"admin", "/runs?kind=C&group=g", none, ""},
		{"admin", "/runs?limit=x", http.StatusBadRequest, ""},
		{"admin", "/runs?continue=gone", none, ""},
		{"team", "/runs", denied, ""},
		{"team", "/runs?namespace=two", denied, ""},
		{"team", "/runs?namespace=one", ok, "0 1"},
		{"team", "/runs?namespace=one&result=Succeeded", ok, "1"},
		{"single", "/runs?namespace=one", denied, ""},
		{"single", "/runs?namespace=one&name=a", ok, "0"},
		{"single", "/runs?namespace=one&name=b", denied, ""},
		{"single", "/runs/0-run", ok, ""},
		{"single", "/runs/1-run", none, ""},
		{"admin", "/runs/3-run", none, ""},
		{"none", "/runs/0-run", none, ""},
		{"none", "/events", denied, ""},
		{"admin", "/events?cursor=x", http.StatusBadRequest, ""},
		{"admin", "/runs?name=" + strings.Repeat("n", 254), http.StatusBadRequest, ""},
	} {
		code, body := ask(t, server, tt.token, tt.path)
		if code != tt.code {
			t.Errorf("%s asks for %s: %d, want %d", tt.token, tt.path, code, tt.code)
			continue
		}
		if tt.ids == "" {
			continue
		}
		var list RunList
		must.Do(t, json.NewDecoder(body).Decode(&list))
		var ids []string
		for _, b := range list.Items {
			ids = append(ids, b.ID[:1])
		}
		must.Be(t, tt.token+" "+tt.path, tt.ids, strings.Join(ids, " "))
	}
	_, plain := ask(t, server, "admin", "/runs", "Accept-Encoding", "identity")
	_, packed := ask(t, server, "admin", "/runs", "Accept-Encoding", "gzip")
	unpacked := must.Get(gzip.NewReader(packed))(t)
	must.Be(t, "unpacked list", string(must.Get(io.ReadAll(plain))(t)), string(must.Get(io.ReadAll(unpacked))(t)))
	if code, _ := ask(t, server, "admin", "/runs", "Sec-Fetch-Site", "cross-site"); code != denied {
		t.Errorf("a page in a browser gets %d", code)
	}
}

// The answer is the same for a run that does not exist and for one that the client may not see. It also says when another
// replica may have the run.
func TestAPI_NoRun(t *testing.T) {
	t.Parallel()
	recorder := history.NewRecorder(nil, nil)
	begin(recorder, "a-run", "A", "two", "a")
	for _, tt := range []struct {
		leads  bool
		shards *Shards
		says   string
	}{
		{true, nil, ""},
		{true, &Shards{}, "; this replica has the runs of its shards only"},
		{false, nil, "; this replica makes no runs: another one has the history of current runs"},
	} {
		server := httptest.NewServer(New(Options{
			History: recorder, Client: reviews(), Leads: func() bool { return tt.leads }, Shards: func() *Shards { return tt.shards },
			Kinds: func() []Kind { return []Kind{{"g", "v1", "A", "as", true}} },
		}))
		for _, id := range []string{"a-run", "no-run"} {
			code, body := ask(t, server, "team", "/runs/"+id)
			must.Be(t, "code", http.StatusNotFound, code)
			var said struct{ Message string }
			must.Do(t, json.NewDecoder(body).Decode(&said))
			must.Be(t, "message", fmt.Sprintf("run %q: no such run is kept", id)+tt.says, said.Message)
		}
		server.CloseClientConnections()
		server.Close()
	}
}

// The queue only shows objects that the client may get.
func TestAPI_Queue(t *testing.T) {
	t.Parallel()
	server, _ := serve(t)
	for _, tt := range []struct {
		token, path string
		code        int
		positions   []int
		leftOut     int
	}{
		{"admin", "/queue", http.StatusOK, []int{1, 3, 4}, 0},
		{"admin", "/queue?limit=1", http.StatusOK, []int{1}, 2},
		{"admin", "/queue?limit=x", http.StatusBadRequest, nil, 0},
		{"team", "/queue", http.StatusForbidden, nil, 0},
		{"team", "/queue?namespace=one", http.StatusOK, []int{3, 4}, 0},
		{"single", "/queue?namespace=one&kind=A&name=a", http.StatusOK, []int{3}, 0},
		{"none", "/queue?namespace=one", http.StatusForbidden, nil, 0},
	} {
		code, body := ask(t, server, tt.token, tt.path)
		must.Be(t, tt.token+" "+tt.path, tt.code, code)
		var list Queue
		must.Do(t, json.NewDecoder(body).Decode(&list))
		var positions []int
		for _, is := range list.Items {
			positions = append(positions, is.Position)
		}
		must.Be(t, tt.token+" "+tt.path, tt.positions, positions)
		must.Be(t, tt.token+" "+tt.path, tt.leftOut, list.Metadata.LeftOut)
	}
}

// A client that comes back with the last event ID gets every event that it may see once.
func TestAPI_Events(t *testing.T) {
	t.Parallel()
	server, recorder := serve(t)
	var list RunList
	_, body := ask(t, server, "team", "/runs?namespace=one")
	must.Do(t, json.NewDecoder(body).Decode(&list))
	x := begin(recorder, "mine", "A", "one", "a")
	begin(recorder, "other", "A", "two", "a").Task(history.Task{})
	for range 5 {
		x.Task(history.Task{Outcome: "ok"})
	}
	read := func(cursor string, n int) (seen []string, last string) {
		_, body := ask(t, server, "team", "/events?namespace=one", "Last-Event-ID", cursor)
		lines := bufio.NewScanner(body)
		for len(seen) < n && lines.Scan() {
			if id, is := strings.CutPrefix(lines.Text(), "id: "); is {
				last = id
			}
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				var e history.Event
				must.Do(t, json.Unmarshal([]byte(data), &e))
				seen = append(seen, fmt.Sprintf("%s %s %d", e.Run.ID, e.Kind, e.Number))
			}
		}
		return seen, last
	}
	seen, last := read(list.Metadata.Cursor, 3)
	must.Be(t, "first events", []string{"mine run-started 0", "mine task 0", "mine task 1"}, seen)
	go end(x)
	seen, _ = read(last, 4)
	must.Be(t, "events after them", []string{"mine task 2", "mine task 3", "mine task 4", "mine run-ended 0"}, seen)
	_, body = ask(t, server, "team", "/events?namespace=one", "Last-Event-ID", "1")
	lines := bufio.NewScanner(body)
	for lines.Scan() && lines.Text() != "event: resync" {
	}
	must.Be(t, "after a cursor of before the start", "event: resync", lines.Text())
}

// If a client loses the right to one kind, its stream of several kinds goes on without that kind.
func TestAPI_EventsOfAKindEndWithTheRight(t *testing.T) {
	t.Parallel()
	_, recorder := serve(t)
	var withdrawn, times atomic.Int64
	var once sync.Once
	asked := make(chan struct{})
	client := reviews()
	client.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		if r.Status.Allowed = r.Spec.ResourceAttributes.Resource == "bs" || withdrawn.Load() == 0; !r.Status.Allowed {
			once.Do(func() { close(asked) })
		}
		return true, r, nil
	})
	s := newServer(Options{History: recorder, Client: client, Kinds: func() []Kind {
		return []Kind{{"g", "v1", "A", "as", true}, {"g", "v1", "B", "bs", true}, {"g", "v1", "Zone", "zones", false}}
	}})
	s.beat = time.Millisecond
	s.access = newAccess(client, func() time.Time { return time.Unix(times.Add(60), 0) }) // so that every answer is outdated
	server := httptest.NewServer(http.HandlerFunc(s.events))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	_, body := ask(t, server, "admin", "/events")
	lines := bufio.NewScanner(body)
	next := func() string {
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				var e history.Event
				must.Do(t, json.Unmarshal([]byte(data), &e))
				return e.Run.ID
			}
		}
		return ""
	}
	begin(recorder, "early", "A", "one", "a")
	must.Be(t, "event while it may be read", "early", next())
	withdrawn.Store(1)
	<-asked
	begin(recorder, "late", "A", "one", "a")
	begin(recorder, "other", "B", "one", "a")
	must.Be(t, "event after the right is withdrawn", "other", next())
}

// Runs of cluster-scoped objects are stored without a namespace.
func TestSelection_NamespaceOfAll(t *testing.T) {
	t.Parallel()
	in := [2]string{"g", "A"}
	must.Be(t, "namespace", "one", selection{namespace: "one", kinds: map[[2]string]string{in: "one"}}.inAll())
	must.Be(t, "namespace", "", selection{namespace: "one", kinds: map[[2]string]string{in: "one", {"g", "Zone"}: ""}}.inAll())
}
