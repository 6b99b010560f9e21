// Package runs has runs for tests of what shows them: a history behind the API of an
// operator, and a page that reads it.
package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
	"github.com/rolewright/rolewright/test/must"
)

// Base is where the page is.
const Base = "/a-secret/"

// Operator is a history that an API serves to all who ask.
type Operator struct {
	Store    *history.Store
	Recorder *history.Recorder
	// Client answers who may read, and Token is what the page shows.
	Client kubernetes.Interface
	Token  string

	// Waiting are the runs that wait: one for the object of the last run.
	Waiting []api.Waiting

	api     *httptest.Server
	handler atomic.Pointer[api.Server]
}

// New starts one with some runs, which ends with the test.
func New(t testing.TB, runs ...history.Run) *Operator {
	t.Helper()
	options := history.Options{Path: filepath.Join(t.TempDir(), "runs.db"), MaxRuns: 100_000, MaxBytes: 1 << 30, Log: logr.Discard()}
	ctx, stop := context.WithCancel(context.Background())
	ended, end := context.WithCancel(context.Background())
	end()
	for part := range slices.Chunk(runs, 1000) { // so many wait to be written
		store := must.Get(history.Open(options))(t)
		for _, r := range part {
			store.Add(r)
		}
		must.Do(t, store.Serve(ended))
	}
	store := must.Get(history.Open(options))(t)
	stopped := make(chan error)
	go func() { stopped <- store.Serve(ctx) }()
	o := &Operator{Store: store, Client: all(), Token: "a"}
	if len(runs) > 0 {
		r := runs[len(runs)-1]
		o.Waiting = []api.Waiting{{Object: r.Object, Cause: r.Cause, Class: r.Cause, Since: r.Started, Until: r.Finished, Position: 1, Held: r.Reason}}
	}
	o.Restart()
	o.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { o.handler.Load().ServeHTTP(w, r) }))
	t.Cleanup(func() {
		o.Cut()
		o.api.Close()
		stop()
		must.Do(t, <-stopped)
	})
	return o
}

// Restart has the operator forget the runs in progress, take its fields as they are, and end all connections.
func (o *Operator) Restart() {
	o.Recorder = history.NewRecorder(o.Store, nil)
	handler := api.New(api.Options{
		History: o.Recorder, Client: o.Client, Leads: func() bool { return true }, Shards: func() *api.Shards { return nil },
		Waiting: func() []api.Waiting { return o.Waiting }, Kinds: Kinds,
	})
	o.handler.Store(handler)
	if o.api != nil {
		o.Cut()
	}
}

// API is that of the operator.
func (o *Operator) API() *api.Server { return o.handler.Load() }

// Kinds are those that the operator watches. API servers have the last one.
func Kinds() []api.Kind {
	return []api.Kind{
		{Group: "g", Version: "v1", Kind: "Web", Resource: "webs", Namespaced: true}, {Group: "g", Version: "v1", Kind: "Cache", Resource: "caches", Namespaced: true},
		{Version: "v1", Kind: "ConfigMap", Resource: "configmaps", Namespaced: true},
	}
}

// URL is where the API is.
func (o *Operator) URL() string { return o.api.URL }

// Cut ends all connections.
func (o *Operator) Cut() { o.api.CloseClientConnections() }

// all is a client whose reviews are answered with yes.
func all() *fake.Clientset {
	c := fake.NewClientset()
	c.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview)
		r.Status.Authenticated, r.Status.User.Username = true, "the\n user\u202e"
		return true, r, nil
	})
	c.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		r := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview)
		r.Status.Allowed = true
		return true, r, nil
	})
	return c
}

// Source is what the page reads, of one namespace or of all.
func (o *Operator) Source(namespace string) *page.Remote {
	token := o.Token
	return &page.Remote{Get: Object, Namespace: namespace, Ask: func(ctx context.Context, path string, query url.Values) (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.api.URL+api.Root+path+"?"+query.Encode(), nil)
		if err != nil {
			return nil, err
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := o.api.Client().Do(req)
		if err != nil || resp.StatusCode == http.StatusOK {
			return resp, err
		}
		defer func() { _ = resp.Body.Close() }()
		var said metav1.Status
		if err := json.NewDecoder(resp.Body).Decode(&said); err != nil {
			return nil, err
		}
		if resp.StatusCode == http.StatusNotFound {
			return nil, fmt.Errorf("%s: %w", said.Message, page.ErrNotFound)
		}
		return nil, fmt.Errorf("the operator says: %s", said.Message)
	}}
}

// Serve starts a page that reads the operator, until the test ends.
func (o *Operator) Serve(t testing.TB) *httptest.Server {
	t.Helper()
	return o.ServeOf(t, "")
}

// ServeOf is Serve of one namespace, or of all.
func (o *Operator) ServeOf(t testing.TB, namespace string) *httptest.Server {
	t.Helper()
	return Serve(t, o.Source(namespace))
}

// Serve starts a page that reads a source, until the test ends.
func Serve(t testing.TB, source page.Source) *httptest.Server {
	t.Helper()
	return ServeActing(t, source, nil)
}

// ServeActing is Serve of a page with buttons.
func ServeActing(t testing.TB, source page.Source, act func(ctx context.Context, o history.Object, asked page.Asked) (bool, error)) *httptest.Server {
	t.Helper()
	return ServeBy(t, func(host string) http.Handler {
		return page.New(page.Options{Source: source, Base: Base, Hosts: []string{host}, Flags: "--operator-namespace operators", Act: act})
	})
}

// ServeBy starts what a handler serves at a host, until the test ends.
func ServeBy(t testing.TB, handler func(host string) http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config.Handler = handler(server.Listener.Addr().String())
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server
}

// Object is what the cluster has of an object.
func Object(_ context.Context, o history.Object) (map[string]any, error) {
	return map[string]any{
		"metadata": map[string]any{"name": o.Name, "generation": int64(4)},
		"status": map[string]any{
			"conditions": []any{
				map[string]any{"type": "Reconciling", "status": "True", "reason": "RetryScheduled", "message": o.Name, "lastTransitionTime": "2026-11-01T10:00:00Z"},
				map[string]any{"type": "Ready", "status": "False", "reason": "TaskFailed", "message": "in " + o.Namespace, "lastTransitionTime": "2026-11-01T10:00:00Z"},
			},
			"ansible": map[string]any{"nextRetry": "2026-11-01T10:05:00Z", "dependents": []any{"deployments.v1.apps", "services.v1."}, "warnings": []any{o.Kind + " is an example"}},
		},
	}, nil
}

// Run is a run of an object that has ended, with some tasks and writes. n makes it differ from others.
func Run(n int, o history.Object, started time.Time) history.Run {
	at := started
	run := history.Run{
		Brief: history.Brief{
			ID: fmt.Sprintf("%08x-run", n*7919), Object: o, Generation: int64(1 + n%4), Executor: "warm",
			Cause: []string{"period", "changed", "dependent", "retry", "created", "schedule"}[n%6], Started: started, Result: "Succeeded", Reason: "RunSucceeded", Memory: 90 << 20, CPU: 1.25,
		},
		UID: "u", Due: started.Add(-time.Second), Prepared: started.Add(100 * time.Millisecond),
		Versions: map[string]string{"rolewright": "v1.2.0", "ansible-core": []string{"2.14.18", "2.19.4"}[n%2]},
	}
	if run.Cause == "changed" {
		run.Trigger = "spec.replicas, spec.image"
	}
	for i := range 12 {
		t := history.Task{
			TaskName: history.TaskName{Name: []string{"Create the Deployment", "Create the Service", "Wait for the Pods", "Read the version"}[i%4], Role: "web", Path: fmt.Sprintf("roles/web/tasks/main.yml:%d", 3+4*i), Host: "localhost"},
			Play:     "localhost", Action: "kubernetes.core.k8s", Outcome: []string{"ok", "changed", "ok", "skipped"}[(i+n)%4], Started: at,
		}
		at = at.Add(time.Duration(80+(i*n)%400) * time.Millisecond)
		t.Finished = at
		run.Tasks = append(run.Tasks, t)
		if t.Outcome == "changed" {
			run.Counts.Changed++
			run.Writes = append(run.Writes, history.Write{At: at, Verb: "patch", Resource: "deployments.apps", Namespace: o.Namespace, Name: o.Name, Code: 200, Result: "changed", Fields: []string{"spec.replicas"}, Task: i})
		} else {
			run.Counts.OK++
		}
	}
	run.Ended, run.Finished = at, at.Add(50*time.Millisecond)
	return run
}

// Fail has a run end with a failed task.
func Fail(run history.Run, message string) history.Run {
	last := &run.Tasks[len(run.Tasks)-1]
	last.Outcome, last.Message = "failed", message
	run.Task = &last.TaskName
	run.Result, run.Reason, run.Message, run.Counts.Failed, run.Attempts = "Failed", "TaskFailed", message, 1, 2
	run.Source = &history.Source{First: 45, Line: 47, Lines: []string{"", "- name: Read the version", "  ansible.builtin.uri:", "    url: \"http://{{ name }}:8080/version\"", "    status_code: 200"}}
	return run
}

// Many are runs of objects, the newest of which has just ended. Of ten objects, one fails.
func Many(objects, each int) (all []history.Run) {
	const days = 12
	now, total := time.Now(), objects*each
	for i := range total {
		n := i % objects
		of := history.Object{Group: "g", Version: "v1", Kind: []string{"Web", "Cache"}[n%2], Namespace: fmt.Sprintf("team-%d", n%7), Name: fmt.Sprintf("example-%04d", n)}
		run := Run(i, of, now.Add(-days*24*time.Hour/time.Duration(total)*time.Duration(total-i)))
		if n%10 == 3 && i >= objects*max(each-3, 0) {
			run = Fail(run, "Status code was 503 and not [200]: HTTP Error 503: Service Unavailable")
		}
		all = append(all, run)
	}
	return all
}

// Mark is what a text does where it is taken for more than text.
const Mark = "document.documentElement.dataset.ran=1"

// Hostile are texts that do Mark where they are taken for more than text.
func Hostile() []string {
	return []string{
		"<script>" + Mark + "</script>",
		`"><img src=x onerror="` + Mark + `">`,
		`' onmouseover='` + Mark + `' x='`,
		"javascript:" + Mark,
		"</title><svg onload=" + Mark + ">",
		"</style><script>" + Mark + "</script>",
		"{{.Data}} {{template \"head\"}} ${" + Mark + "}",
		"<iframe srcdoc='<script>parent." + Mark + "</script>'></iframe>",
		"<a href=\"javascript:" + Mark + "\">press</a>",
		"--><script>" + Mark + "</script><!--",
		"]]><script>" + Mark + "</script>",
		"\u202e\x1b]0;title\x07\x1b[31mred\x00 <b>bold",
		"<meta http-equiv=refresh content='0;url=http://127.0.0.1:1/'>",
		"<form action=http://127.0.0.1:1/><button>x",
		"data: x\n\nevent: resync\ndata: {}\n\n",
	}
}

// HostileRun has one of the texts wherever a run has a text.
func HostileRun(n int, text string, started time.Time) history.Run {
	run := Run(n, history.Object{Group: "g", Version: "v1", Kind: "Web", Namespace: text, Name: text}, started)
	run = Fail(run, text)
	run.Cause, run.Trigger, run.Mode, run.Executor, run.Reason = text, text, text, text, text
	run.Warnings, run.Versions = []string{text}, map[string]string{text: text}
	for i := range run.Tasks {
		t := &run.Tasks[i]
		t.TaskName = history.TaskName{Name: text, Role: text, Path: text, Host: text}
		t.Action, t.Play, t.Message = text, text, text
	}
	run.Tasks[0].Outcome = text
	run.Task = &run.Tasks[len(run.Tasks)-1].TaskName
	for i := range run.Writes {
		w := &run.Writes[i]
		w.Verb, w.Resource, w.Subresource, w.Namespace, w.Name, w.Result, w.Fields = text, text, text, text, text, text, []string{text}
	}
	run.Source.Lines = []string{text, text}
	return run
}
