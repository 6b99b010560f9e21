package remote

import (
	"context"
	"crypto/rand"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

// The output of a verbose run can be larger than the memory limit of its Pod.
func TestLink_SendsALargeFileWithoutReadingItIntoMemory(t *testing.T) {
	o := newOperator(t)
	o.start()
	req := newRequest(t, "")
	s, mirror := o.admit(t, req, "")
	in := Input{URL: o.url, CA: o.certificate, Token: req.JobRun.Token, Request: request{ID: req.ID, Dir: req.Dir}}
	l := must.Get(newLink(in, "this", func(text string) { t.Log(text) }))(t)
	must.Do(t, l.post(t.Context(), startPath, nothing))
	output := make([]byte, 20<<20+1)
	must.Get(rand.Read(output))(t)
	must.Do(t, os.MkdirAll(l.artifacts(), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(l.artifacts(), "stdout"), output, 0o600))
	must.Do(t, os.WriteFile(filepath.Join(l.artifacts(), "rc"), []byte("0"), 0o600))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must.Do(t, l.finish(t.Context(), runner.Outcome{}))
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > uint64(len(output))/2 {
		t.Errorf("it has taken %d bytes of memory", took)
	}
	<-s.Done
	for name, want := range map[string]string{"stdout": string(output), "rc": "0"} {
		if got := must.Get(os.ReadFile(filepath.Join(mirror.Dir, "artifacts", req.ID, name)))(t); string(got) != want {
			t.Errorf("%s has %d bytes, and is not as in the container", name, len(got))
		}
	}
	l.client.CloseIdleConnections()
}

// Without an operator, each request times out. Go's transport goes on to dial for later requests, of which each dials, too.
func TestLink_EndsTheDialOfARequestThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dials atomic.Int32
		l := &link{in: Input{URL: "https://operator"}, client: &http.Client{
			Timeout: time.Minute,
			Transport: &http.Transport{DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				dials.Add(1)
				defer dials.Add(-1)
				<-ctx.Done()
				return nil, ctx.Err()
			}},
		}}
		if err := l.postOnce(t.Context(), startPath, nothing()); err == nil {
			t.Error("a request has an answer without an operator")
		}
		synctest.Wait()
		must.Be(t, "dials", int32(0), dials.Load())
		l.client.CloseIdleConnections()
	})
}
