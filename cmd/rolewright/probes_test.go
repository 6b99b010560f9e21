package main

import (
	"context"
	"net/http"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/test/must"
)

// The API server sends webhook requests only to ready Pods. The kinds may only become readable once these requests are
// answered.
func TestProbes_AreReadyForWebhooksBeforeKindsAreRead(t *testing.T) {
	for want, webhooks := range map[int]healthz.Checker{http.StatusInternalServerError: nil, http.StatusOK: healthz.Ping} {
		o := runOptions{}
		o.healthBindAddress = "127.0.0.1:0"
		p := must.Get(o.newProbes(t.Context(), &assembly.RunnerCheck{}))(t)
		p.webhooks = webhooks // no set has started, so no kind has been read
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.serve(ctx) }()
		got, body, err := fetch(t.Context(), "http://"+p.listener.Addr().String()+"/readyz?exclude=ansible-runner", "")
		stop()
		must.Do(t, <-ended)
		if err != nil || got != want {
			t.Errorf("ready: %d, %v, %s; want %d", got, err, body, want)
		}
	}
}
