package controller

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// A progress write waits for the write that follows a read, but not forever, however often the run reads.
func TestProgress_WaitsForTheRun(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	p := &progress{r: &reconciler{now: func() time.Time { return now }}}
	deferred := func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.defers(now) }
	if deferred() {
		t.Error("put off before the run has read its object")
	}
	p.Reads()
	if !deferred() {
		t.Error("not put off after the read")
	}
	p.Wrote()
	if deferred() || !p.behind() {
		t.Error("put off after the write, or not read again")
	}
	p.Reads()
	now = now.Add(roleWrites)
	if deferred() {
		t.Error("put off long after a read")
	}
	p.Reads()
	began := now
	for deferred() {
		now = now.Add(time.Second)
		p.Reads()
	}
	if waited := now.Sub(began); waited != progressDelay {
		t.Errorf("put off for %v by reads all the time, want %v", waited, progressDelay)
	}
	if !deferred() {
		t.Error("not put off again after that")
	}
}

// What a run waits for is written again if the first write has failed, and then no more.
func TestProgress_AFailedWriteIsRepeated(t *testing.T) {
	t.Parallel()
	patches := 0
	api := interceptor.NewClient(nil, interceptor.Funcs{SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
		if patches++; patches == 1 {
			return apierrors.NewInternalError(errors.New("no"))
		}
		return nil
	}})
	r := &reconciler{client: api, metrics: must.Get(metrics.New(prometheus.NewRegistry()))(t), now: time.Now}
	p := r.newProgress(&scope{object: object(schema.GroupVersionKind{}, "", "it", nil)})
	p.say("a node")
	for range 3 {
		p.write(t.Context())
	}
	must.Be(t, "patches", 2, patches)
}

// A role that reads its object and writes the status with that resource version, as operator_sdk.util.k8s_status does,
// gets no conflict with the progress of its run.
func TestProgress_LeavesTheRunItsOwnStatus(t *testing.T) {
	t.Parallel()
	const writes = 200
	cfg, c, gvk, ns := installed(t)
	var conflicts atomic.Int64
	cfg = through(cfg, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode == http.StatusConflict {
			conflicts.Add(1)
		}
		return resp, err
	})
	shown := map[string]bool{}
	written, end := context.WithCancel(t.Context())
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		defer end()
		config, err := clientcmd.RESTConfigFromKubeConfig(req.Files[kubeconfigFile])
		if err != nil {
			return runner.Result{}, err
		}
		config.QPS = -1
		own, err := client.New(config, client.Options{})
		if err != nil {
			return runner.Result{}, err
		}
		obj := object(gvk, ns, "it", nil)
		for n := int64(0); n < writes; n++ {
			req.OnEvent(taskStart(int(n)))
			began := time.Now()
			if err := own.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
				t.Errorf("read %d: %v", n, err)
			}
			task, _, _ := unstructured.NestedString(obj.Object, "status", "ansible", "activeRun", "task", "name")
			shown[task] = true
			data := must.Get(json.Marshal(map[string]any{
				"metadata": map[string]any{"resourceVersion": obj.GetResourceVersion()}, "status": map[string]any{"n": n},
			}))(t)
			err := own.Status().Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
			if apierrors.IsConflict(err) && time.Since(began) >= roleWrites { // progress does not wait longer
				conflicts.Add(-1)
				n--
			} else if err != nil {
				t.Errorf("write %d: %v", n, err)
			}
		}
		return succeeded(), nil
	}}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk)}, ProgressInterval: time.Millisecond})
	obj := create(t, c, object(gvk, ns, "it", nil))
	<-written.Done() // a busy machine takes minutes for this
	is := awaitCondition(t, c, obj, status.Ready, "True")
	if n, _, _ := unstructured.NestedInt64(is.Object, "status", "n"); n != writes-1 || conflicts.Load() != 0 {
		t.Errorf("%d was written last, want %d; %d conflicts", n, writes-1, conflicts.Load())
	}
	if len(shown) < 10 {
		t.Errorf("progress was shown %d times, want it all the time", len(shown))
	}
}
