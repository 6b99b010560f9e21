package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// large is the size of a body that needs room in a budget.
const large = 2 * heldFreely

// listing answers a read with an object of that many bytes, which the owner u owns, and returns the body of any other request.
func listing(size int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method != http.MethodGet {
			_, _ = io.Copy(w, r.Body)
			return
		}
		const head = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","uid":"v","resourceVersion":"1","ownerReferences":[{"uid":"u"}]},"pad":"`
		_, _ = io.WriteString(w, head+strings.Repeat("x", size-len(head)-2)+`"}`)
	}
}

// configMapOf returns the JSON of a ConfigMap of that many bytes.
func configMapOf(size int) string {
	const object = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x","uid":"v","resourceVersion":"1"}}`
	return object + strings.Repeat(" ", size-len(object))
}

// empty fails unless the whole budget is free again.
func empty(t *testing.T, what string, room *semaphore.Weighted, size int64) {
	t.Helper()
	if !room.TryAcquire(size) {
		t.Errorf("not all of what %s may take has been given back", what)
		return
	}
	room.Release(size)
}

// A run whose bodies use up its share has to wait with further large bodies. Small bodies and other runs are not held up.
func TestBudget_ARunTakesNoMoreThanItsShare(t *testing.T) {
	t.Parallel()
	api := script(t, listing(large), plainly)
	p := withPatience(t, api, 3*time.Second)
	full, client, _ := admit(t, p, Grant{Inject: true, Owner: Owner{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "ns", Name: "o", UID: "u"}})
	other, others, _ := admit(t, p, Grant{})
	must.Be(t, "all room of the run is had", true, full.session.room.TryAcquire(maxHeldByRun))
	// On a busy machine, a body may take longer than the proxy waits for it.
	post := func(what string, want int, c *http.Client, body func() io.Reader) (header http.Header, text string) {
		testenv.Eventually(t, what, func(ctx context.Context) error {
			req := must.Get(http.NewRequestWithContext(ctx, http.MethodPost, p.URL()+"/api/v1/namespaces/ns/configmaps", body()))(t)
			req.Header.Set("Content-Type", "application/json")
			resp, err := c.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			header, text = resp.Header, string(data)
			if resp.Close {
				return errors.New("the connection is closed, in the middle of the body where that is large")
			}
			if resp.StatusCode != want {
				return fmt.Errorf("answered %d: %s", resp.StatusCode, text)
			}
			return err
		})
		return header, text
	}
	bytesOf := func(size int) func() io.Reader {
		return func() io.Reader { return strings.NewReader(configMapOf(size)) }
	}
	header, text := post("a large body to be refused", http.StatusTooManyRequests, client, bytesOf(maxBody))
	var status metav1.Status
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		t.Errorf("%v: %s", err, text)
	}
	if header.Get("Retry-After") != "1" || status.Reason != metav1.StatusReasonTooManyRequests || status.Details == nil {
		t.Errorf("a large body is answered with Retry-After %q: %s", header.Get("Retry-After"), text)
	}
	post("a small body to pass", http.StatusOK, client, bytesOf(1<<10))
	post("a large body of another run to pass", http.StatusOK, others, bytesOf(large))
	post("one of unknown size to pass", http.StatusOK, others, func() io.Reader { return io.MultiReader(bytesOf(large)()) })
	full.session.room.Release(maxHeldByRun)
	post("a large body to pass when there is room", http.StatusOK, client, bytesOf(maxBody))
	full.Revoke()
	other.Revoke()
	empty(t, "the run", full.session.room, maxHeldByRun)
	empty(t, "the other run", other.session.room, maxHeldByRun)
	empty(t, "all", p.room, maxHeld)
}

// A run that sends only the beginnings of many bodies cannot make the operator hold more of them than its share. When the run
// ends, it returns what it holds.
func TestBudget_BodiesThatDoNotEndAreBounded(t *testing.T) {
	t.Parallel()
	api := script(t, listing(large), plainly)
	p := withPatience(t, api, patient)
	a, client, _ := admit(t, p, Grant{})
	var ends []*io.PipeWriter
	for range 2 * maxHeldByRun / maxBody {
		r, w := io.Pipe()
		ends = append(ends, w)
		req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL()+"/api/v1/namespaces/ns/configmaps", r))(t)
		req.ContentLength = maxBody
		go func() {
			if resp, err := client.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		}()
		go func() { _, _ = w.Write(make([]byte, maxBody-1)) }()
	}
	deadline := time.Now().Add(time.Minute)
	for a.session.room.TryAcquire(maxBody) { // until there is too little room for another body
		a.session.room.Release(maxBody)
		if time.Now().After(deadline) {
			t.Fatal("the bodies take no room")
		}
		time.Sleep(time.Millisecond)
	}
	a.Revoke()
	for _, w := range ends {
		_ = w.Close()
	}
	empty(t, "the run", a.session.room, maxHeldByRun)
	empty(t, "all", p.room, maxHeld)
}

// If there is no room for the answer to a read, the proxy passes the answer on without reading it. If it is the answer about a
// Secret, the output is withheld.
func TestBudget_AnswersPassWithoutRoom(t *testing.T) {
	t.Parallel()
	api := script(t, listing(large), plainly)
	p := withPatience(t, api, patient)
	for name, tt := range map[string]struct {
		path  string
		full  bool
		calls int
		hides bool
	}{
		"with room":                {path: "configmaps", calls: 1},
		"without room":             {path: "configmaps", full: true},
		"of a Secret":              {path: "secrets", calls: 1},
		"of a Secret without room": {path: "secrets", full: true, hides: true},
	} {
		tracker, secrets := &tracked{}, &told{}
		a, client, _ := admit(t, p, Grant{
			Inject: true, Owner: Owner{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "ns", Name: "o", UID: "u"}, Tracker: tracker, Secrets: secrets,
		})
		if tt.full {
			must.Be(t, "all room of the run is had", true, a.session.answers.TryAcquire(maxHeldByRun))
		}
		code, body, err := send(t.Context(), client, http.MethodGet, p.URL()+"/api/v1/namespaces/ns/"+tt.path+"/x", "")
		if err != nil || code != http.StatusOK || len(body) != large {
			t.Errorf("%s: the answer is %d with %d bytes: %v", name, code, len(body), err)
		}
		a.Revoke()
		if _, hidden := secrets.take(); hidden != tt.hides || len(tracker.calls) != tt.calls {
			t.Errorf("%s: hidden %v; the tracker was told %v", name, hidden, tracker.calls)
		}
		if tt.full {
			a.session.answers.Release(maxHeldByRun)
		}
		empty(t, name+", the run", a.session.answers, maxHeldByRun)
		empty(t, name+", all", p.answers, maxHeld)
	}
}

// An answer that a client does not read makes the proxy refuse no write, not even one of the same run.
func TestBudget_AnUnreadAnswerRefusesNoWrite(t *testing.T) {
	t.Parallel()
	api := script(t, listing(maxSecrets), plainly)
	p := withPatience(t, api, patient)
	a, client, _ := admit(t, p, Grant{Secrets: &told{}})
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/api/v1/namespaces/ns/secrets/x", nil))(t)
	resp, err := client.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // ends a broken test; it measures nothing
	defer cancel()
	code, text, err := send(ctx, client, http.MethodPost, p.URL()+"/api/v1/namespaces/ns/configmaps", configMapOf(2*large))
	if err != nil || code != http.StatusOK {
		t.Errorf("a large body is answered %d: %.200s, %v", code, text, err)
	}
	a.Revoke()
	empty(t, "the run", a.session.answers, maxHeldByRun)
	empty(t, "all", p.answers, maxHeld)
}

// All clients without a token together have the share of one run.
func TestBudget_ClientsWithoutATokenShareIt(t *testing.T) {
	t.Parallel()
	secrets := &told{}
	api := script(t, listing(large), plainly)
	p := withPatience(t, api, 3*time.Second, func(o *Options) { o.Anonymous = func(Owner) Grant { return Grant{Secrets: secrets} } })
	client := &http.Client{Transport: asOwner{trusting(t, p)}}
	must.Be(t, "their room for requests is had", true, p.all.room.TryAcquire(maxHeldByRun))
	must.Be(t, "their room for answers is had", true, p.all.answers.TryAcquire(maxHeldByRun))
	must.Be(t, "their documents are those of all", true, p.anonymous(&http.Request{}).documents == p.all.documents)
	// On a busy machine, a request may take longer than the proxy waits for it.
	testenv.Eventually(t, "a large body to be refused", func(ctx context.Context) error {
		code, text, err := send(ctx, client, http.MethodPost, p.URL()+"/api/v1/namespaces/ns/configmaps", configMapOf(large))
		if err == nil && code != http.StatusTooManyRequests {
			err = fmt.Errorf("answered %d: %.200s", code, text)
		}
		return err
	})
	testenv.Eventually(t, "an answer about a Secret", func(ctx context.Context) error {
		_, _, err := get(ctx, client, p.URL()+"/api/v1/namespaces/ns/secrets/x")
		return err
	})
	if _, hidden := secrets.take(); !hidden {
		t.Error("the answer about a Secret has room")
	}
}

// If a client stops reading an answer, the proxy cuts it off and frees the room: for an answer about Secrets, and for the
// answer to a large write.
func TestBudget_AnUnreadAnswerIsCutOff(t *testing.T) {
	t.Parallel()
	answer := listing(maxSecrets)
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		r.Method = http.MethodGet
		answer(w, r)
	}, plainly)
	p := hasty(t, api)
	for method, tt := range map[string]struct{ path, body string }{
		http.MethodGet: {path: "secrets"}, http.MethodPut: {path: "configmaps", body: configMapOf(large)},
	} {
		a, _, token := admit(t, p, Grant{Secrets: &told{}})
		dial := dialers(t, p)["plain"]
		testenv.Eventually(t, "the answer to "+method+" to begin", func(context.Context) error {
			conn := dial(t)
			_, err := fmt.Fprintf(conn, "%s /api/v1/namespaces/ns/%s/x HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s",
				method, tt.path, token, len(tt.body), tt.body)
			if err == nil {
				_, err = io.ReadFull(conn, make([]byte, 1))
			}
			return err // on a busy machine, the proxy may cut it off while it sends
		})
		testenv.Eventually(t, method+" to be cut off", func(context.Context) error {
			for _, room := range []*semaphore.Weighted{a.session.room, a.session.answers} {
				if !room.TryAcquire(maxHeldByRun) {
					return errors.New("it takes room")
				}
				room.Release(maxHeldByRun)
			}
			return nil
		})
	}
}

// An object gets its mark even if there is no room for the answer to the write.
func TestBudget_AMarkNeedsNoRoom(t *testing.T) {
	t.Parallel()
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, configMapOf(large))
	}, plainly)
	p := withPatience(t, api, patient)
	a, client, _ := admit(t, p, Grant{
		Inject: true, AdoptUnowned: true, Owner: Owner{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "ns", Name: "o", UID: "u"},
	})
	must.Be(t, "all room of the run is had", true, a.session.answers.TryAcquire(maxHeldByRun))
	code, text, err := sendAs(t.Context(), client, http.MethodPatch, p.URL()+"/api/v1/namespaces/ns/configmaps/x", "application/merge-patch+json", `{"data":{}}`)
	if err != nil || code != http.StatusOK {
		t.Errorf("the patch is answered %d: %.200s, %v", code, text, err)
	}
	arrivals := api.seen()
	if last := arrivals[len(arrivals)-1]; last.Method != http.MethodPatch || !strings.Contains(last.Body, `"uid":"u"`) {
		t.Errorf("the last request is %s %s", last.Method, last.Body)
	}
}

// If the mark has to be added after the write, the proxy refuses the write while there is no room for its answer: the object
// would stay unmarked.
func TestBudget_AMarkHasItsRoomBeforeTheWrite(t *testing.T) {
	t.Parallel()
	api := script(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, configMapOf(large))
	}, plainly)
	p := hasty(t, api)
	a, client, _ := admit(t, p, Grant{
		Inject: true, AdoptUnowned: true, Owner: Owner{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "ns", Name: "o", UID: "u"},
	})
	apply := func(what string, want int) {
		testenv.Eventually(t, what, func(ctx context.Context) error {
			code, text, err := sendAs(ctx, client, http.MethodPatch, p.URL()+"/api/v1/namespaces/ns/configmaps/x?fieldManager=a", "application/apply-patch+yaml", "data: {a: b}")
			if err == nil && code != want {
				err = fmt.Errorf("answered %d: %.200s", code, text)
			}
			return err // on a busy machine, the proxy may cut it off while it sends
		})
	}
	must.Be(t, "all room of the run is had", true, a.session.marks.TryAcquire(maxHeldByRun))
	apply("a refusal without room", http.StatusTooManyRequests)
	for _, arrival := range api.seen() {
		if arrival.Method == http.MethodPatch {
			t.Errorf("the API server has got %s", arrival.Body)
		}
	}
	a.session.marks.Release(maxHeldByRun)
	apply("a write with room", http.StatusOK)
	a.Revoke() // waits for the end of the exchange, which comes after the answer
	empty(t, "the run", a.session.marks, maxHeldByRun)
	empty(t, "all", p.marks, maxHeld)
}

// A write that waits for room leaves the room for answers alone.
func TestBudget_AWaitingWriteHidesNothing(t *testing.T) {
	t.Parallel()
	api := script(t, listing(large), plainly)
	p := withPatience(t, api, patient)
	secrets := &told{}
	a, client, _ := admit(t, p, Grant{Secrets: secrets})
	const most = maxHeldByRun - maxBody/2
	must.Be(t, "most room of the run is had", true, a.session.room.TryAcquire(most))
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _, _ = send(t.Context(), client, http.MethodPost, p.URL()+"/api/v1/namespaces/ns/configmaps", configMapOf(maxBody))
	})
	for a.session.room.TryAcquire(1) { // fails as soon as the write waits, although there is room
		a.session.room.Release(1)
		time.Sleep(time.Millisecond)
	}
	code, _, err := get(t.Context(), client, p.URL()+"/api/v1/namespaces/ns/secrets/x")
	if _, hidden := secrets.take(); hidden || err != nil || code != http.StatusOK {
		t.Errorf("the Secret is answered %d, %v; the output is hidden: %v", code, err, hidden)
	}
	a.session.room.Release(most)
	wg.Wait()
}

// An event of a watch of Secrets takes room only until its end.
func TestBudget_EventsOfSecretsGiveItBack(t *testing.T) {
	t.Parallel()
	p := withPatience(t, script(t, nil, plainly), patient)
	s := newSession(Grant{Secrets: &told{}})
	x := &exchange{p: p, s: s, info: &request.RequestInfo{}}
	event := []byte(`{"type":"ADDED","object":{"kind":"Secret","apiVersion":"v1","data":{"a":"` + strings.Repeat("eHh4", large/4) + `"}}}` + "\n")
	w := &watchedSecrets{ReadCloser: io.NopCloser(bytes.NewReader(bytes.Repeat(event, 3*maxHeldByRun/len(event)))), x: x, hold: x.holdAnswer()}
	if _, err := io.Copy(io.Discard, w); err != nil || w.lost || w.hold.taken != 0 {
		t.Errorf("the events: %v, lost %v, %d bytes are held", err, w.lost, w.hold.taken)
	}
	empty(t, "the run", s.answers, maxHeldByRun)
}

// Each query makes another document in the discovery cache. A run gets only a few of them at the same time.
func TestBudget_FewDocumentsOfDiscovery(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int64
	answer := make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		<-answer
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(api.Close)
	p := startProxy(t, &rest.Config{Host: api.URL})
	access, client, _ := admit(t, p, Grant{})
	var wg sync.WaitGroup
	for n := range 50 {
		wg.Go(func() {
			if code, _, err := send(t.Context(), client, http.MethodGet, fmt.Sprintf("%s/apis?n=%d", p.URL(), n), ""); err != nil || code != http.StatusOK {
				t.Errorf("document %d: %d, %v", n, code, err)
			}
		})
	}
	testenv.Eventually(t, "the first requests", func(context.Context) error {
		if now.Load() < maxDocuments {
			return errors.New("there are not enough")
		}
		return nil
	})
	if access.session.documents.TryAcquire(1) {
		t.Error("there is room for one more")
	}
	close(answer)
	wg.Wait()
	must.Be(t, "requests at the same time", int64(maxDocuments), most.Load())
}
