package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rolewright/rolewright/test/testenv"
)

// What comes from other Pods has the token of a run in progress, and is refused without: it has not the operator's own rights.
func TestServeRemote_WantsTheTokenOfARun(t *testing.T) {
	t.Parallel()
	p := startProxy(t, testenv.Config(t))
	handler := p.remote("/none/", http.NotFoundHandler())
	for _, authorization := range []string{"", "Bearer a token", "Basic b3duZXI6"} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api", nil)
		r.Host = "127.0.0.1"
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized {
			t.Errorf("with the authorization %q it is answered %d, want %d", authorization, w.Code, http.StatusUnauthorized)
		}
	}
}
