package operatorpage

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/rolewright/rolewright/test/must"
)

// A reader can have few requests in progress, and these wait for a place. They do not block other readers, and a slow
// reader holds no place.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		var made atomic.Int64
		release := make(chan struct{})
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			made.Add(1)
			select {
			case <-release:
			case <-r.Context().Done():
			}
			w.WriteHeader(http.StatusTeapot)
		})
		ctx, cancel := context.WithCancel(t.Context())
		send := func(user, method, path string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			go l.serve(user, next, w, httptest.NewRequestWithContext(ctx, method, path, nil))
			synctest.Wait()
			return w
		}
		ask := func(user, path string) *httptest.ResponseRecorder { return send(user, http.MethodGet, path) }
		for range maxOfUser {
			ask("a", "/ui/run")
		}
		must.Be(t, "views made", int64(maxViews), made.Load())
		must.Be(t, "one more", http.StatusTooManyRequests, ask("a", "/ui/").Code)
		ask("a", "/ui/style.css")
		send("b", http.MethodPost, "/ui/act") // waits for the API server, and needs no place
		for range maxStreams {
			ask("a", "/ui/events")
		}
		must.Be(t, "with a file and streams", int64(maxViews+2+maxStreams), made.Load())
		must.Be(t, "one more stream", http.StatusTooManyRequests, ask("a", "/ui/namespaces/n/events").Code)
		close(release)
		synctest.Wait()
		must.Be(t, "another reader", http.StatusTeapot, ask("b", "/ui/").Code)
		must.Be(t, "in progress at the end", 0, len(l.inProgress))
		cancel()
	})
}
