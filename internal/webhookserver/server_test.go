package webhookserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	hooks "github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// A client that reaches the port can name any kind. Only the kinds of watches become labels.
func TestReview_IsCountedByKindsOfTheWatches(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s := New(Options{
		Watches: func() []watches.Watch {
			return []watches.Watch{{
				GVK:      schema.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Jar"},
				Webhooks: watches.Webhooks{Conversion: []watches.Conversion{{From: "v1alpha1", Moves: []watches.Move{{From: "spec.a", To: "spec.b"}}}}},
			}}
		},
		Metrics: must.Get(metrics.New(reg))(t), Log: logr.Discard(),
	})
	for _, tt := range []struct{ kind, to, want string }{
		{"Jar", "g.example.com/v1", `[{"apiVersion":"g.example.com/v1","kind":"Jar","metadata":{"name":"a"},"spec":{"b":1}}]`},
		{"Jar", "other.example.com/v1", "Jar.g.example.com cannot become other.example.com/v1"},
		{"Unheard", "g.example.com/v1", "no watch has a conversion of Unheard.g.example.com"},
		{strings.Repeat("x", 2*maxSaid), "g.example.com/v1", "no watch has a conversion of x"},
	} {
		response := s.review(t.Context(), &request{DesiredAPIVersion: tt.to, Objects: []byte(
			`[{"apiVersion":"g.example.com/v1alpha1","kind":"` + tt.kind + `","metadata":{"name":"a"},"spec":{"a":1}}]`,
		)})
		got := response.Result.Message
		if got == "" {
			got = string(must.Get(json.Marshal(response.ConvertedObjects))(t))
		}
		if !strings.HasPrefix(got, tt.want) || len(got) > maxSaid {
			t.Errorf("%s to %s: %s", tt.kind, tt.to, got)
		}
	}
	for want, labels := range map[string]prometheus.Labels{
		"converted": {"group": "g.example.com", "kind": "Jar", "webhook": "convert", "result": "converted"},
		"failed":    {"group": "g.example.com", "kind": "Jar", "webhook": "convert", "result": "failed"},
		"unknown":   {"group": "", "kind": "", "webhook": "convert", "result": "failed"},
	} {
		if requests(t, reg, labels) == 0 {
			t.Errorf("%s is not counted as %v", want, labels)
		}
	}
	if n := must.Get(testutil.GatherAndCount(reg, "rolewright_webhook_duration_seconds"))(t); n != 3 {
		t.Errorf("%d series", n)
	}
	for mutates, want := range map[bool]string{true: "mutate", false: "validate"} {
		if got := verb(hooks.Hook{Mutates: mutates}); got != want {
			t.Errorf("a hook that mutates (%t) is counted as %s", mutates, got)
		}
	}
}

// A decoded object takes many times the memory of its text. Objects that no API server sends are refused before that.
func TestReview_RefusesObjectsThatWouldTakeAllMemory(t *testing.T) {
	t.Parallel()
	s := New(Options{
		Watches: func() []watches.Watch {
			return []watches.Watch{{
				GVK:      schema.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Jar"},
				Webhooks: watches.Webhooks{Conversion: []watches.Conversion{{From: "v1alpha1", Moves: []watches.Move{{From: "spec.a", To: "spec.b"}}}}},
			}}
		},
		Metrics: must.Get(metrics.New(prometheus.NewRegistry()))(t), Log: logr.Discard(),
	})
	response := s.review(t.Context(), &request{DesiredAPIVersion: "g.example.com/v1", Objects: []byte(
		`[{"apiVersion":"g.example.com/v1alpha1","kind":"Jar","metadata":{"name":"a"},"spec":[` + strings.Repeat("{},", maxObject/3) + `{}]}]`,
	)})
	if !strings.Contains(response.Result.Message, "can be converted") || response.ConvertedObjects != nil {
		t.Errorf("%s: %s", response.Result.Status, response.Result.Message)
	}
}

// If a configuration is older than the watches file, users are told what to do. The API server's client drops the text of
// answers with a status code below 500.
func TestAnswer_SaysThatAConfigurationIsOld(t *testing.T) {
	t.Parallel()
	s := New(Options{Watches: func() []watches.Watch { return nil }, Log: logr.Discard()})
	server := httptest.NewServer(http.HandlerFunc(s.answer))
	defer server.Close()
	client := must.Get(rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()}}))(t)
	err := client.Post().AbsPath("/validate/g.example.com/v1/jar/0").Do(t.Context()).Error()
	if err == nil || !strings.Contains(err.Error(), "rolewright generate webhooks") {
		t.Errorf("the API server reads: %v", err)
	}
}

// The API server refuses the writes for which an old configuration asks: its requests are counted, and logged once a minute.
// Any client can send such requests, so the path is no label.
func TestAnswer_CountsRequestsForUnknownWebhooks(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	var logged []string
	s := New(Options{
		Watches: func() []watches.Watch { return nil }, Metrics: must.Get(metrics.New(reg))(t),
		Log: funcr.New(func(_, line string) { logged = append(logged, line) }, funcr.Options{}),
	})
	synctest.Test(t, func(t *testing.T) {
		ask := func(method, path string) {
			s.answer(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		}
		ask(http.MethodGet, "/") // a scanner
		ask(http.MethodPost, "/validate/g.example.com/v1/jar/0")
		ask(http.MethodPost, "/validate/g.example.com/v1/jar/1")
		time.Sleep(time.Minute)
		ask(http.MethodPost, "/validate/g.example.com/v1/jar/2")
	})
	if len(logged) != 2 || !strings.Contains(logged[0], "/jar/0") || !strings.Contains(logged[1], "/jar/2") {
		t.Errorf("logged: %q", logged)
	}
	must.Be(t, "counted", uint64(3), requests(t, reg, prometheus.Labels{"group": "", "kind": "", "webhook": "unknown", "result": "failed"}))
	must.Be(t, "series", 1, must.Get(testutil.GatherAndCount(reg, "rolewright_webhook_duration_seconds"))(t))
}

// Any client can send reviews that fail. All are counted; after ten lines, the log has one per minute of each sort.
func TestReviews_ThatFailDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	logged := map[string]int{}
	hook := hooks.Hook{Call: watches.Call{Command: &watches.Command{Path: "/absent"}, Timeout: 5 * time.Second}}
	s := New(Options{
		Dir: filepath.Join(t.TempDir(), "absent"), Watches: func() []watches.Watch { return nil }, Metrics: must.Get(metrics.New(reg))(t),
		Log: funcr.New(func(_, line string) { logged[line[strings.Index(line, `"msg"`):strings.Index(line, `"error"`)]]++ }, funcr.Options{}),
	})
	synctest.Test(t, func(t *testing.T) {
		for n := range 21 {
			if n == 20 {
				time.Sleep(time.Minute)
			}
			s.review(t.Context(), &request{Objects: []byte(`[{"kind":"Unheard"}]`)})
			s.ask(t.Context(), hook, admission.Request{})
		}
	})
	must.Be(t, "lines", map[string]int{`"msg"="An object could not be converted" `: 11, `"msg"="A webhook has no answer" `: 11}, logged)
	for _, webhook := range []string{"convert", "validate"} {
		must.Be(t, webhook, uint64(21), requests(t, reg, prometheus.Labels{"group": "", "kind": "", "webhook": webhook, "result": "failed"}))
	}
}

// slow is a client that begins to send or to read, and does not finish before the end of the test.
type slow struct {
	*httptest.ResponseRecorder

	begun, end chan struct{}
}

func (c slow) wait() (int, error) {
	select {
	case c.begun <- struct{}{}:
	case <-c.end:
	}
	<-c.end
	return 0, io.ErrUnexpectedEOF
}

func (c slow) Read([]byte) (int, error)  { return c.wait() }
func (c slow) Write([]byte) (int, error) { return c.wait() }

// Clients that do not finish their requests or do not read their answers do not block others. The memory for all requests
// is bounded, and freed.
func TestConvert_SlowClientsTakeNoPlace(t *testing.T) {
	t.Parallel()
	s := New(Options{Watches: func() []watches.Watch { return nil }, Metrics: must.Get(metrics.New(prometheus.NewRegistry()))(t), Log: logr.Discard()})
	convert := func(w http.ResponseWriter, body io.Reader) {
		s.convert(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, hooks.ConvertPath, body))
	}
	const review = `{"request":{"uid":"a"}}`
	code := func() int {
		w := httptest.NewRecorder()
		convert(w, strings.NewReader(review))
		return w.Code
	}
	c := slow{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	var all sync.WaitGroup
	for range maxConversions {
		all.Go(func() { convert(httptest.NewRecorder(), c) })
		<-c.begun
	}
	must.Be(t, "beside those that do not send", http.StatusOK, code())
	for range maxConversions {
		all.Go(func() { convert(slow{httptest.NewRecorder(), c.begun, c.end}, strings.NewReader(review)) })
		<-c.begun
	}
	must.Be(t, "beside those that do not take", http.StatusOK, code())
	close(c.end)
	all.Wait()
	must.Be(t, "bytes in memory", int64(0), s.bodies.Load())
	s.bodies.Store(maxBodies)
	must.Be(t, "without memory", http.StatusServiceUnavailable, code())
	must.Be(t, "bytes in memory", int64(maxBodies), s.bodies.Load())
}

// The memory for admission requests is bounded separately from conversions, and freed.
func TestAnswer_BoundsTheMemoryOfRequests(t *testing.T) {
	t.Parallel()
	w := watches.Watch{GVK: schema.GroupVersionKind{Group: "g.example.com", Version: "v1", Kind: "Jar"}, Webhooks: watches.Webhooks{Validate: []watches.Validation{{Call: watches.Call{Command: &watches.Command{Path: "/absent"}}}}}}
	s := New(Options{Watches: func() []watches.Watch { return []watches.Watch{w} }, Log: logr.Discard()})
	ask := func() *httptest.ResponseRecorder {
		a := httptest.NewRecorder()
		s.answer(a, httptest.NewRequestWithContext(t.Context(), http.MethodPost, hooks.Hooks(s.Watches())[0].Path, strings.NewReader("{}")))
		return a
	}
	s.bodies.Store(maxBodies)
	must.Be(t, "beside conversions", http.StatusOK, ask().Code) // controller-runtime answers, and refuses the content type
	must.Be(t, "bytes in memory", int64(0), s.questions.Load())
	s.questions.Store(maxQuestions)
	a := ask()
	must.Be(t, "without memory", "503 "+errFull.Error()+"\n", fmt.Sprint(a.Code, " ", a.Body))
	must.Be(t, "bytes in memory", int64(maxQuestions), s.questions.Load())
}

// requests returns how many requests were counted with the labels.
func requests(t *testing.T, reg *prometheus.Registry, labels prometheus.Labels) uint64 {
	t.Helper()
	for _, family := range must.Get(reg.Gather())(t) {
		for _, m := range family.GetMetric() {
			match := len(m.GetLabel()) == len(labels) && family.GetName() == "rolewright_webhook_duration_seconds"
			for _, l := range m.GetLabel() {
				match = match && labels[l.GetName()] == l.GetValue()
			}
			if match {
				return m.GetHistogram().GetSampleCount()
			}
		}
	}
	return 0
}
