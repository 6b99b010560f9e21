package controller

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "4") // unless the flag is given: most of the time, these tests wait
	testenv.Main(m)
}

var _ JobRunner = (*fakeExecutor)(nil)

// fakeExecutor replaces ansible-runner in tests about the cluster, not about Ansible. It calls a function, which takes no
// time.
type fakeExecutor struct {
	// do makes the result; if nil, runs succeed.
	do func(ctx context.Context, req runner.Request) (runner.Result, error)

	// recover finds the result of an earlier process's run; if nil, there is none.
	recover func(dir, id string) (runner.Result, error)

	// reap ends what is left of an earlier process's run; if nil, nothing is left.
	reap func(id string) error

	// held finds a run of an earlier process that is still in progress; if nil, there is none. adopting is true until
	// those runs are found; nil means false.
	held     func(id string) (token string, ticket []byte, ok bool)
	adopting func() bool
	// unclaimed is a run of an earlier process that has a Job until the run is forgotten; empty for none.
	unclaimed string
	// left says what is left of an earlier run that is being ended; if nil, nothing is.
	left func() string

	mu        sync.Mutex
	runs      []runner.Request
	reaped    []string
	forgotten []string
	required  bool // the last call of Recover requires a result
}

// FindJobRun implements [JobRunner].
func (f *fakeExecutor) FindJobRun(_ context.Context, id, _ string) (token string, ticket []byte, age time.Duration, ok bool, err error) {
	if f.held == nil {
		return "", nil, 0, false, nil
	}
	token, ticket, ok = f.held(id)
	return token, ticket, 0, ok, nil
}

// Adopting implements [JobRunner].
func (f *fakeExecutor) Adopting() bool { return f.adopting != nil && f.adopting() }

// UnclaimedJobRuns implements [JobRunner]: the run belongs to the only object.
func (f *fakeExecutor) UnclaimedJobRuns(context.Context, string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unclaimed == "" || slices.Contains(f.forgotten, f.unclaimed) {
		return nil
	}
	return []string{f.unclaimed}
}

// EndJobRuns implements [JobRunner].
func (f *fakeExecutor) EndJobRuns(context.Context, string) (string, error) {
	if f.left == nil {
		return "", nil
	}
	return f.left(), nil
}

// ForgetJobRun implements [JobRunner].
func (f *fakeExecutor) ForgetJobRun(id, _ string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgotten = append(f.forgotten, id)
}

func (f *fakeExecutor) Run(ctx context.Context, req runner.Request) (runner.Result, error) {
	f.mu.Lock()
	f.runs = append(f.runs, req)
	f.mu.Unlock()
	if f.do == nil {
		return succeeded(), nil
	}
	return f.do(ctx, req)
}

// Recover finds the result of an earlier process's run.
func (f *fakeExecutor) Recover(_ context.Context, dir, id string, requireResult bool, _ runner.Masker) (runner.Result, error) {
	f.mu.Lock()
	f.required = requireResult
	f.mu.Unlock()
	if f.recover == nil {
		return runner.Result{}, runner.ErrNoRecord
	}
	return f.recover(dir, id)
}

// Reap records for which run it is called.
func (f *fakeExecutor) Reap(id string) error {
	f.mu.Lock()
	f.reaped = append(f.reaped, id)
	f.mu.Unlock()
	if f.reap == nil {
		return nil
	}
	return f.reap(id)
}

// count returns the number of runs so far.
func (f *fakeExecutor) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.runs)
}

// ranFor returns the number of runs whose extra vars name the object.
func (f *fakeExecutor) ranFor(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, req := range f.runs {
		if strings.Contains(string(req.ExtraVars), `"ansible_operator_meta": {"name": "`+name+`"`) {
			n++
		}
	}
	return n
}

func succeeded() runner.Result {
	return runner.Result{Status: "successful", Finished: time.Now(), Summary: jobevent.Summary{
		Complete: true, CompletedAt: time.Now(), OK: 1,
		Stats: &jobevent.Stats{OK: map[string]int{"localhost": 1}, Processed: map[string]int{"localhost": 1}},
	}}
}

func failed(message string) runner.Result {
	task := jobevent.Task{Name: "break", Role: "r", Path: "roles/r/tasks/main.yml:3"}
	return runner.Result{ExitCode: 2, Status: "failed", Finished: time.Now(), Summary: jobevent.Summary{
		Complete: true, CompletedAt: time.Now(), Failures: 1,
		Failed: []jobevent.Failure{{Task: task, Host: "localhost", Message: message}},
		Stats:  &jobevent.Stats{Failures: map[string]int{"localhost": 1}, Processed: map[string]int{"localhost": 1}},
	}}
}

func requeue(period string) runner.Result {
	r := succeeded()
	r.Summary.RequeueAfter = &jobevent.RequeueAfter{Period: period}
	return r
}

// requests counts the requests that the operator sends to the API server.
type requests struct {
	next   http.RoundTripper
	counts *sync.Map // "PATCH status" → *atomic.Int64
}

func (c requests) RoundTrip(req *http.Request) (*http.Response, error) {
	kind := req.Method
	if strings.HasSuffix(req.URL.Path, "/status") {
		kind += " status"
	}
	if strings.Contains(req.URL.Path, "/secrets/") {
		kind += " secret"
	}
	if strings.HasSuffix(req.URL.Path, "/selfsubjectaccessreviews") {
		kind = "review" // writes nothing
	}
	if strings.HasPrefix(req.URL.Path, "/apis/events.k8s.io/") {
		kind += " event"
	}
	c.add(kind)
	if req.Method == http.MethodGet && strings.Contains(req.URL.Path, ".rolewright.test/") && strings.Count(req.URL.Path, "/") == strings.Count("/apis/group/v1/namespaces/ns/resources/name", "/") {
		c.add("GET custom resource")
	}
	if resource := readsAll(req); resource != "" {
		c.add("LIST " + resource)
	}
	return c.next.RoundTrip(req)
}

func (c requests) add(kind string) {
	n, _ := c.counts.LoadOrStore(kind, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

// readsAll returns the resource if the request begins to read all its objects: a list (but not its further pages, and not
// a list of a single name), or a watch that begins with a list. For other requests it returns "".
func readsAll(req *http.Request) string {
	query := req.URL.Query()
	if req.Method != http.MethodGet || query.Get("fieldSelector") != "" || query.Get("continue") != "" || query.Get("watch") != "" && query.Get("sendInitialEvents") != "true" {
		return ""
	}
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	group := map[string]int{"api": 2, "apis": 3}[parts[0]] // and the version
	if group == 0 || len(parts) <= group {
		return ""
	}
	rest := parts[group:]
	if len(rest) > 2 && rest[0] == "namespaces" {
		rest = rest[2:]
	}
	if len(rest) != 1 {
		return ""
	}
	return strings.Join(append(parts[:group:group], rest[0]), "/")
}

// operator is a manager that serves watches of this package in a test.
type operator struct {
	t      *testing.T
	set    *Set
	exec   *fakeExecutor
	root   string
	counts *sync.Map
	logs   *strings.Builder
	logMu  sync.Mutex
	cancel context.CancelFunc
	ended  chan error
}

// count returns how many requests of a kind were sent: "PATCH", "PATCH status", ….
func (o *operator) count(kind string) int64 {
	if n, ok := o.counts.Load(kind); ok {
		return n.(*atomic.Int64).Load()
	}
	return 0
}

func (o *operator) log() string {
	o.logMu.Lock()
	defer o.logMu.Unlock()
	return o.logs.String()
}

// watchOf returns a watch of gvk with the defaults of watches.yaml.
func watchOf(gvk schema.GroupVersionKind, edit ...func(*watches.Watch)) watches.Watch {
	w := watches.Watch{
		GVK: gvk, Content: watches.Content{Role: "testdata/roles/r"}, MaxRunnerArtifacts: 20,
		ManageStatus: true, SnakeCaseParameters: true, MarkUnsafe: true, MaxConcurrentReconciles: 4,
	}
	for _, e := range edit {
		e(&w)
	}
	return w
}

// start runs an operator until stop is called or the test ends.
func start(t *testing.T, cfg *rest.Config, exec *fakeExecutor, opts Options) *operator {
	t.Helper()
	o := &operator{t: t, exec: exec, counts: &sync.Map{}, logs: &strings.Builder{}, root: opts.RunnerRoot, ended: make(chan error, 1)}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return requests{next: next, counts: o.counts} })
	log := funcr.New(func(prefix, args string) {
		o.logMu.Lock()
		defer o.logMu.Unlock()
		o.logs.WriteString(prefix + " " + args + "\n")
	}, funcr.Options{Verbosity: 1})
	opts.GracefulShutdown = cmp.Or(opts.GracefulShutdown, 20*time.Second)
	hanging := 3 * time.Minute // more than an operator needs to end
	mgr, err := manager.New(cfg, manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Logger: log, GracefulShutdownTimeout: &hanging,
	})
	if err != nil {
		t.Fatal(err)
	}
	opts.Runner = exec
	if opts.RunnerRoot == "" {
		opts.RunnerRoot = filepath.Join(t.TempDir(), "runner")
	}
	o.root = opts.RunnerRoot
	opts.ArtifactsMaxBytes, opts.ArtifactsMaxAge = cmp.Or(opts.ArtifactsMaxBytes, -1), cmp.Or(opts.ArtifactsMaxAge, -1)
	if opts.RetryMin == 0 {
		opts.RetryMin, opts.RetryMax = 50*time.Millisecond, time.Second
	}
	opts.KindPollInterval = 200 * time.Millisecond
	opts.LogEvents = eventlog.Nothing
	gateway, err := proxy.New(t.Context(), proxy.Options{Config: cfg, Log: log.WithName("proxy")})
	if err != nil {
		t.Fatal(err)
	}
	opts.Proxy = gateway
	if o.set, err = Setup(mgr, opts); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(logr.NewContext(context.Background(), log))
	o.cancel = cancel
	gatewayCtx, stopGateway := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- gateway.Start(gatewayCtx) }()
	go func() {
		err := mgr.Start(ctx)
		o.set.Close(ErrShutdown)
		stopGateway()
		o.ended <- errors.Join(err, <-served)
	}()
	t.Cleanup(func() {
		o.stop()
		if t.Failed() {
			t.Log("operator log:\n" + o.log())
		}
	})
	return o
}

// stop ends the operator and waits for it.
func (o *operator) stop() {
	if o.ended == nil {
		return
	}
	o.cancel()
	if err := <-o.ended; err != nil && !errors.Is(err, context.Canceled) {
		o.t.Errorf("the manager ended with: %v", err)
	}
	o.ended = nil
}

// eventually waits until cond is true; what names the condition. It fails only if the test hangs.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// settle gives an operator time to do what it should not do. Nothing reports a run that was put off, and runs are put off
// for minPeriod.
func settle() { time.Sleep(minPeriod + 200*time.Millisecond) }

// taskStart returns the i-th event of a play whose tasks only start.
func taskStart(i int) jobevent.Event {
	const id = "11111111-1111-1111-1111-111111111111"
	if i == 0 {
		return jobevent.Event{Kind: jobevent.PlaybookStart, Counter: 1, Data: jobevent.Data{PlaybookUUID: id}}
	}
	name := fmt.Sprintf("task %d", i)
	return jobevent.Event{Kind: jobevent.TaskStart, Counter: i + 1, Data: jobevent.Data{
		PlaybookUUID: id, Task: name, Name: name, TaskPath: fmt.Sprintf("main.yml:%d", i),
	}}
}

// roundTrip is a transport that is a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// through returns cfg, but all requests go to do, which passes them to next or answers them itself.
func through(cfg *rest.Config, do func(req *http.Request, next http.RoundTripper) (*http.Response, error)) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(req *http.Request) (*http.Response, error) { return do(req, next) })
	})
	return cfg
}

// refusing returns cfg, but the requests for which hits is true are refused with code, like by a failing API server or an
// admission policy.
func refusing(cfg *rest.Config, code int, hits func(*http.Request) bool) *rest.Config {
	return through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if hits(req) {
			return refusal(req, code), nil
		}
		return next.RoundTrip(req)
	})
}

func refusal(req *http.Request, code int) *http.Response {
	reason := map[int]metav1.StatusReason{
		http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusNotFound: metav1.StatusReasonNotFound,
		http.StatusUnprocessableEntity: metav1.StatusReasonInvalid, http.StatusInternalServerError: metav1.StatusReasonInternalError,
	}[code]
	return answer(req, code, fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d,"message":"refused by the test"}`, reason, code))
}

// answer returns an answer of an API server to req.
func answer(req *http.Request, code int, body string) *http.Response {
	return &http.Response{StatusCode: code, Request: req, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body))}
}

// object returns a new object of gvk that is not created yet.
func object(gvk schema.GroupVersionKind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{}}
	obj.SetGroupVersionKind(gvk)
	obj.SetNamespace(namespace)
	obj.SetName(name)
	if spec != nil {
		obj.Object["spec"] = spec
	}
	return obj
}

// installed installs a new kind in the API server. It returns a namespace for its objects, and a client that may do
// everything.
func installed(t *testing.T, opts ...testenv.CRDOption) (*rest.Config, client.Client, schema.GroupVersionKind, string) {
	t.Helper()
	cfg := testenv.Config(t)
	return cfg, clientOf(t, cfg), testenv.CRD(t, cfg, opts...), testenv.Namespace(t, cfg)
}

func clientOf(t *testing.T, cfg *rest.Config) client.Client {
	t.Helper()
	c := must.Get(client.New(cfg, client.Options{}))(t)
	return c
}

func create(t *testing.T, c client.Client, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	must.Do(t, c.Create(t.Context(), obj))
	return obj
}

func get(t *testing.T, c client.Client, obj *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(obj.GroupVersionKind())
	must.Do(t, c.Get(t.Context(), client.ObjectKeyFromObject(obj), out))
	return out
}

// lastRun returns the recorded run of a status.
func lastRun(st map[string]any) (status.Run, bool) {
	if last := status.Read(st).Last; last != nil {
		return *last, true
	}
	return status.Run{}, false
}

func hasActiveRun(st map[string]any) bool { return status.Read(st).Active != nil }

// condition returns a condition of obj by its type; empty if there is none.
func condition(obj *unstructured.Unstructured, kind string) map[string]any {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		if c, ok := item.(map[string]any); ok && c["type"] == kind {
			return c
		}
	}
	return map[string]any{}
}

// awaitCondition waits until a condition has the status for the object's current generation.
func awaitCondition(t *testing.T, c client.Client, obj *unstructured.Unstructured, kind, value string) *unstructured.Unstructured {
	t.Helper()
	var is *unstructured.Unstructured
	eventually(t, obj.GetName()+" has "+kind+"="+value, func() bool {
		is = get(t, c, obj)
		cond := condition(is, kind)
		return cond["status"] == value && cond["observedGeneration"] == is.GetGeneration()
	})
	return is
}

func update(t *testing.T, c client.Client, obj *unstructured.Unstructured, edit func(map[string]any)) {
	t.Helper()
	eventually(t, "update of "+obj.GetName(), func() bool {
		is := get(t, c, obj)
		edit(is.Object)
		return c.Update(t.Context(), is) == nil
	})
}

func newUID() string { return string(uuid.NewUUID()) }

// updateStatus changes the status like a role does, and repeats it at conflicts. Any goroutine may call it.
func updateStatus(t *testing.T, c client.Client, obj *unstructured.Unstructured, edit func(map[string]any)) {
	t.Helper()
	ctx := context.Background()
	for range 1000 {
		is := obj.DeepCopy()
		if err := c.Get(ctx, client.ObjectKeyFromObject(obj), is); err != nil {
			continue
		}
		edit(is.Object["status"].(map[string]any))
		if c.Status().Update(ctx, is) == nil {
			return
		}
	}
	t.Error("the status could not be written")
}
