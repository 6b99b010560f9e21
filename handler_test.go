package rolewright

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

const kubeconfig = `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}],"users":[{"name":"u","user":{"token":"t"}}]}`

const input = `{"protocol":1,"run":{"id":"i","action":"reconcile","cause":"changed","trigger":"object: spec.size","attempt":2},
"object":{"apiVersion":"demo.example.com/v1","kind":"Cup","metadata":{"name":"tea","namespace":"n"},"spec":{"size":3}},
"previousSpec":{"size":2},"changedFields":["spec.size"]}`

// call makes a run of a handler, and returns its exit code and what it has reported.
func call(ctx context.Context, log func(string), h HandlerFunc) (int, string) {
	var reports bytes.Buffer
	s := &service{log: funcr.New(func(_, args string) { log(args) }, funcr.Options{})}
	code := s.handler("cups", h)(ctx, controller.HandlerCall{Input: []byte(input), Kubeconfig: []byte(kubeconfig), Reports: &reports})
	return code, reports.String()
}

// What a handler gets, what becomes of its reports, and how its errors end the run.
func TestHandler_SpeaksTheProtocolOfCommands(t *testing.T) {
	t.Parallel()
	broken := errors.New("it leaks")
	for name, tt := range map[string]struct {
		do   HandlerFunc
		code int
		want string // the last report
	}{
		"ok":       {func(context.Context, *Run) error { return nil }, 0, `{"changed":false,"message":"","type":"result","verdict":"ok"}`},
		"failed":   {func(context.Context, *Run) error { return broken }, 1, `{"changed":false,"message":"it leaks","type":"result","verdict":"failed"}`},
		"refused":  {func(context.Context, *Run) error { return fmt.Errorf("size: %w", Refuse(broken)) }, 78, `{"changed":false,"message":"size: it leaks","type":"result","verdict":"failed"}`},
		"not yet":  {func(context.Context, *Run) error { return NotYet(broken) }, 0, `{"changed":false,"message":"it leaks","type":"result","verdict":"waiting"}`},
		"no words": {func(context.Context, *Run) error { return errors.New("") }, 1, `{"changed":false,"message":"the handler has failed with an empty error","type":"result","verdict":"failed"}`},
		"too large": {func(_ context.Context, r *Run) error {
			r.Status(map[string]any{"a": strings.Repeat("x", 70_000)})
			return nil
		}, 1, `{"changed":false,"message":"the report of type status cannot be made: it has more than 65536 bytes","type":"result","verdict":"failed"}`},
		"no JSON": {func(_ context.Context, r *Run) error { r.Status(map[string]any{"a": func() {}}); return nil }, 1, `{"changed":false,"message":"the report of type status cannot be made: json: unsupported type: func()","type":"result","verdict":"failed"}`},
		"changed": {func(_ context.Context, r *Run) error { r.Changed(); return nil }, 0, `{"changed":true,"message":"","type":"result","verdict":"ok"}`},
	} {
		code, got := call(t.Context(), func(string) {}, tt.do)
		lines := strings.Split(strings.TrimSpace(got), "\n")
		if code != tt.code || lines[len(lines)-1] != tt.want {
			t.Errorf("%s: code %d, %s", name, code, got)
		}
	}
	var kept *Run
	_, got := call(t.Context(), func(string) {}, func(_ context.Context, r *Run) error {
		kept = r
		must.Be(t, "object", int64(3), r.Object.Object["spec"].(map[string]any)["size"].(int64))
		if r.ID != "i" || r.Action != Reconcile || r.Cause != "changed" || r.Attempt != 2 || r.PreviousSpec["size"] != int64(2) || r.ChangedFields[0] != "spec.size" {
			t.Errorf("run: %+v", r)
		}
		r.Progress("Fill", 1, 3)
		r.Condition(metav1.Condition{Type: "Full", Status: metav1.ConditionTrue, Reason: "Poured", Message: "m"})
		r.Event("Normal", "Poured", "m")
		r.RequeueAfter(90 * time.Second)
		r.Redact("secret")
		return nil
	})
	kept.Progress("after the end", 0, 0)
	want := `{"done":1,"step":"Fill","total":3,"type":"progress"}
{"conditionType":"Full","message":"m","reason":"Poured","status":"True","type":"condition"}
{"eventType":"Normal","message":"m","reason":"Poured","type":"event"}
{"after":"1m30s","type":"requeue"}
{"type":"redact","value":"secret"}
{"changed":false,"message":"","type":"result","verdict":"ok"}
`
	must.Be(t, "reports", want, got)
}

// A handler that goes on after its time changes nothing in the cluster, and the log says that it does.
func TestHandler_AfterItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		var said []string
		_, _ = call(ctx, func(line string) { said = append(said, line) }, func(_ context.Context, r *Run) error {
			sent := false
			transport := r.Config.WrapTransport(roundTripper(func(*http.Request) (*http.Response, error) { sent = true; return nil, nil }))
			cancel(errors.New("its timeout"))
			time.Sleep(handlerPatience + time.Second)
			_, err := transport.RoundTrip(must.Get(http.NewRequestWithContext(t.Context(), http.MethodPut, "http://127.0.0.1:1/", strings.NewReader("{}")))(t)) //nolint:bodyclose // there is none
			if sent || err == nil || !strings.Contains(err.Error(), "the run is over: its timeout") {
				t.Errorf("sent %v: %v", sent, err)
			}
			return nil
		})
		if len(said) != 1 || !strings.Contains(said[0], "A handler does not return") || !strings.Contains(said[0], `"name"="tea"`) {
			t.Errorf("log: %q", said)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// What is wrong with a watch is said by its place in the file.
func TestLoadWatches_NamesTheWatch(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "watches.yaml")
	must.Do(t, os.WriteFile(file, []byte("- version: v1\n  group: demo.example.com\n  kind: Cup\n  handler: cups\n"), 0o600))
	loaded := must.Get(LoadWatches(file))(t)
	if err := loaded[0].check(Options{Handlers: map[string]Handler{"mugs": HandlerFunc(nil)}}); err == nil ||
		err.Error() != `watches.yaml:1: the watch of demo.example.com/v1, Kind=Cup names the handler "cups", and Options.Handlers has none of that name, but ["mugs"]` {
		t.Errorf("unknown handler: %v", err)
	}
	known := Options{Handlers: map[string]Handler{"cups": HandlerFunc(nil)}}
	must.Do(t, loaded[0].check(known))
	loaded[0].Hooks.Vars = func(context.Context, *unstructured.Unstructured) (map[string]any, error) { return nil, nil }
	if err := loaded[0].check(known); err == nil || !strings.Contains(err.Error(), "Hooks.Vars is for roles and playbooks") {
		t.Errorf("variables for a handler: %v", err)
	}
	loaded[0].Hooks, loaded[0].is.Webhooks.Conversion = Hooks{}, []watches.Conversion{{}}
	if err := loaded[0].check(known); err == nil || !strings.Contains(err.Error(), "watches.yaml:1: the watch of demo.example.com/v1, Kind=Cup has commands or conversions in webhooks") {
		t.Errorf("webhooks: %v", err)
	}
	loaded[0].is.Webhooks.Conversion, loaded[0].is.Executor = nil, watches.ExecutorJob
	if err := loaded[0].check(known); err == nil || !strings.Contains(err.Error(), "watches.yaml:1: the watch of demo.example.com/v1, Kind=Cup has executor: job") {
		t.Errorf("runs as Jobs: %v", err)
	}
	must.Do(t, os.WriteFile(file, []byte("- version: v1\n  kind: Cup\n  role: /not/there\n"), 0o600))
	if _, err := LoadWatches(file); err == nil || !strings.Contains(err.Error(), "watches.yaml:3:9: error: [0].role: ") {
		t.Errorf("a role that is missing: %v", err)
	}
	if err := (Watch{}).check(Options{}); err == nil {
		t.Error("an empty watch is let in")
	}
}
