package controller

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/test/must"
)

// The longer an object has waited, the less often the operator checks. It also checks less often if the object cannot be
// read.
func TestLookPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		waited time.Duration
		failed int
		want   time.Duration
	}{
		{0, 0, minLook}, {-time.Hour, 0, minLook}, {100 * time.Second, 0, 10 * time.Second}, {time.Hour, 0, maxLook},
		{0, 1, 2 * minLook}, {0, 3, 8 * minLook}, {100 * time.Second, 1, 20 * time.Second}, {0, 1 << 30, maxLook},
	} {
		if got := lookPause(tt.waited, tt.failed, "a"); got < tt.want || got > tt.want+tt.want/10 {
			t.Errorf("after %v and %d failures: %v, want %v and up to a tenth", tt.waited, tt.failed, got, tt.want)
		}
	}
}

// If a kind does not answer, only one object at a time checks it.
func TestSilentKinds(t *testing.T) {
	t.Parallel()
	var f unansweredKinds
	now, kind := time.Now(), schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
	may := func(want bool, after time.Duration) {
		t.Helper()
		if _, ok := f.mayLook(kind, now.Add(after)); ok != want {
			t.Errorf("may look after %v: %t", after, ok)
		}
	}
	may(true, 0)
	f.failed(kind, now)
	may(false, failPause-1)
	may(true, failPause)
	may(false, failPause)
	f.answered(kind)
	may(true, failPause)
	for i := range 2 * maxSilent {
		f.failed(schema.GroupVersionKind{Kind: strconv.Itoa(i)}, now)
	}
	if len(f.until) != maxSilent {
		t.Errorf("%d kinds are kept", len(f.until))
	}
}

// A refusal and a failure replace each other, failures are counted, and a success resets both.
func TestLooks_After(t *testing.T) {
	t.Parallel()
	unauthorized, broken := apierrors.NewUnauthorized("x"), apierrors.NewInternalError(context.DeadlineExceeded)
	for _, tt := range []struct {
		before looks
		err    error
		want   looks
	}{
		{looks{}, unauthorized, looks{refused: true}}, {looks{failed: 2}, unauthorized, looks{refused: true}},
		{looks{refused: true}, broken, looks{failed: 1}}, {looks{failed: 1}, context.DeadlineExceeded, looks{failed: 2}},
		{looks{failed: 1}, apierrors.NewTooManyRequests("x", 1), looks{failed: 2}}, {looks{failed: 3}, nil, looks{}}, {looks{refused: true}, nil, looks{}},
	} {
		if got := tt.before.after(tt.err); got != tt.want {
			t.Errorf("%+v after %v: %+v, want %+v", tt.before, tt.err, got, tt.want)
		}
	}
}

// Masked text is not put into a status.
func TestCalls_Recordable(t *testing.T) {
	t.Parallel()
	mask := redact.New()
	mask.Add(t.Context(), "kept-to-itself")
	c := &calls{masker: masker{Masker: mask}}
	for _, call := range []waitCall{{For: "jsonpath={.a}=kept-to-itself"}, {For: "ready", Name: "kept-to-itself"}, {For: "ready", Namespace: "kept-to-itself"}} {
		if err := c.recordable(call); err == nil || !strings.Contains(err.Error(), "a value of a Secret") || strings.Contains(err.Error(), "itself") {
			t.Errorf("%+v: %v", call, err)
		}
	}
	if err := c.recordable(waitCall{For: "condition=Ready", Name: "db", Namespace: "a"}); err != nil {
		t.Error(err)
	}
	mask.Withhold()
	if err := c.recordable(waitCall{For: "ready"}); err == nil || !strings.Contains(err.Error(), "withheld") {
		t.Errorf("all is withheld: %v", err)
	}
}

// The time of a wait continues after a run that fails or is interrupted. It ends with a successful run that does not ask
// to wait, or when it is over.
func TestAskedAfter(t *testing.T) {
	t.Parallel()
	before, now := status.Wait{Name: "before"}, status.Wait{Name: "now"}
	for _, tt := range []struct {
		name  string
		calls *calls
		run   status.Run
		want  string
	}{
		{"parked", &calls{before: &before}, status.Run{Result: status.Succeeded, Wait: &now}, "now"},
		{"succeeded", &calls{before: &before}, status.Run{Result: status.Succeeded}, ""},
		{"failed", &calls{before: &before}, status.Run{Result: status.Failed}, "before"},
		{"failed after it has asked", &calls{before: &before, wait: &now}, status.Run{Result: status.Failed}, "now"},
		{"interrupted", &calls{before: &before}, status.Run{Result: status.Interrupted}, "before"},
		{"not begun", nil, status.Run{Result: status.Interrupted}, "before"},
		{"over", &calls{before: &before, over: true}, status.Run{Result: status.Failed}, ""},
		{"failed with other inputs", &calls{}, status.Run{Result: status.Failed}, ""},
	} {
		s := &scope{memory: &memory{asked: &asked{wait: before}}, calls: tt.calls}
		got := ""
		if a := s.askedAfter(tt.run); a != nil {
			got = a.wait.Name
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A goal whose time is over parks the object no longer, but only if it is the goal that the object was parked for, and the
// only one.
func TestCalls_Unpark(t *testing.T) {
	t.Parallel()
	reached, other := status.Wait{Name: "reached", Since: time.Unix(1, 0)}, status.Wait{Name: "other"}
	for _, tt := range []struct {
		name  string
		calls *calls
		want  *status.Wait
	}{
		{"the goal", &calls{wait: &reached}, nil},
		{"another goal", &calls{wait: &other}, &other},
		{"one of several goals", &calls{wait: &reached, several: true}, &reached},
		{"none", &calls{}, nil},
	} {
		tt.calls.unpark(status.Wait{Name: "reached", Since: time.Unix(2, 0)})
		must.Be(t, tt.name, tt.want, tt.calls.parked())
	}
}

// A status that the process reads again is no proof of what its run has parked the object for.
func TestProved_NotByAStatusReadAgain(t *testing.T) {
	t.Parallel()
	r := &reconciler{store: storeOf(t, t.TempDir())}
	own, foreign := status.Wait{Kind: "ConfigMap", Name: "own"}, status.Wait{Kind: "Secret", Name: "foreign"}
	for _, wait := range []status.Wait{own, foreign} {
		s := &scope{object: &unstructured.Unstructured{}, memory: &memory{ran: true, parked: &own}}
		s.memory.recall(status.Record{Last: &status.Run{ID: newUID(), Wait: &wait}}, time.Now())
		must.Be(t, "proof of "+wait.Name, wait == own, r.proved(s, *s.memory.last))
	}
}
