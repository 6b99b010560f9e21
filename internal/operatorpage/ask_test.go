package operatorpage

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/test/must"
)

// An answer ends with its reader, and what goes wrong in a handler is an error of the answer.
func TestAnswer(t *testing.T) {
	t.Parallel()
	start := func(handle http.HandlerFunc) *http.Response {
		ctx, cancel := context.WithCancel(t.Context())
		return answer(handle, must.Get(http.NewRequestWithContext(ctx, http.MethodGet, "/", nil))(t), cancel, logr.Discard())
	}
	ended := false
	resp := start(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		_, err := io.WriteString(w, "second")
		ended = errors.Is(err, io.ErrClosedPipe)
	})
	first := make([]byte, 5)
	must.Get(io.ReadFull(resp.Body, first))(t)
	must.Do(t, resp.Body.Close())
	must.Be(t, "what is read, and whether the handler has ended", []any{http.StatusOK, "first", true}, []any{resp.StatusCode, string(first), ended})

	for code, handle := range map[int]http.HandlerFunc{
		http.StatusInternalServerError: func(http.ResponseWriter, *http.Request) { panic("at once") },
		http.StatusOK: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "some")
			panic("later")
		},
	} {
		resp := start(handle)
		_, err := io.ReadAll(resp.Body)
		must.Do(t, resp.Body.Close())
		if resp.StatusCode != code || err == nil {
			t.Errorf("%d and %v, want %d and an error", resp.StatusCode, err, code)
		}
	}
}
