package operatorpage

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"sync"
)

// How many views are made at a time for all readers, and how many requests of one reader may be
// in progress: views and actions, and event streams.
const (
	maxViews   = 2
	maxOfUser  = 4
	maxStreams = 10
)

// limits keep one reader from taking all memory, or the places of all other readers.
type limits struct {
	views chan struct{} // a place for each view that is being made

	mu         sync.Mutex
	inProgress map[share]int
}

// share identifies a count of requests: those of a user, with streams counted separately.
type share struct {
	user   string
	stream bool
}

func newLimits() *limits {
	return &limits{views: make(chan struct{}, maxViews), inProgress: map[share]int{}}
}

// serve makes next answer a reader. Files of the page, event streams, and actions, which may wait
// for the API server, are answered at once. Views take turns, and are answered into memory, so
// that a client that reads slowly holds no place.
func (l *limits) serve(user string, next http.Handler, w http.ResponseWriter, r *http.Request) {
	if _, file, _ := strings.Cut(r.URL.Path[strings.LastIndex(r.URL.Path, "/"):], "."); file != "" {
		next.ServeHTTP(w, r)
		return
	}
	of, most := share{user, strings.HasSuffix(r.URL.Path, "/events")}, maxOfUser
	if of.stream {
		most = maxStreams
	}
	if !l.begin(of, most) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "You have too many requests in progress: close some tabs, or try again later.", http.StatusTooManyRequests)
		return
	}
	defer l.end(of)
	if of.stream || r.Method == http.MethodPost {
		next.ServeHTTP(w, r)
		return
	}
	made := &answered{header: w.Header(), code: http.StatusOK}
	if !l.make(r.Context(), func() { next.ServeHTTP(made, r) }) {
		return // the client is gone
	}
	w.WriteHeader(made.code)
	_, _ = made.body.WriteTo(w) // a client that is gone needs no answer
}

func (l *limits) begin(of share, most int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inProgress[of] >= most {
		return false
	}
	l.inProgress[of]++
	return true
}

func (l *limits) end(of share) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.inProgress[of]--; l.inProgress[of] == 0 {
		delete(l.inProgress, of)
	}
}

// make waits for a place and calls do. It returns false if ctx ends before.
func (l *limits) make(ctx context.Context, do func()) bool {
	select {
	case l.views <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-l.views }()
	do()
	return true
}

// answered is an HTTP response in memory.
type answered struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

// Header returns the header of the response.
func (a *answered) Header() http.Header { return a.header }

// WriteHeader sets the status code.
func (a *answered) WriteHeader(code int) { a.code = code }

// Write appends to the body.
func (a *answered) Write(b []byte) (int, error) { return a.body.Write(b) }
