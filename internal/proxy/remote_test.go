package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/test/testenv"
)

// A run that is expected is told to come back, and one that is not is refused.
func TestServeRemote_ARunThatIsExpected(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testenv.Config(t))
	handler := p.remote("/none/", http.NotFoundHandler())
	p.Expect("a token")
	ask := func() *httptest.ResponseRecorder {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // the time is over
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api", nil)
		r.Host = "127.0.0.1"
		r.Header.Set("Authorization", "Bearer a token")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		return w
	}
	if w := ask(); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || w.Header().Get(remote.LaterHeader) == "" {
		t.Errorf("before the run is found it is answered %d, %v", w.Code, w.Header())
	}
	p.Unexpect("a token")
	if w := ask(); w.Code != http.StatusUnauthorized {
		t.Errorf("a run that does not come is answered %d", w.Code)
	}
}
