package page

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"time"
)

// writeTimeout is how long a tab may take to read what is sent to it.
const writeTimeout = 30 * time.Second

// events passes on the events of a run, or of all of them.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "Too many tabs follow runs: close some.", http.StatusServiceUnavailable)
		return
	}
	q := r.URL.Query()
	stream, err := s.Source.Events(r.Context(), url.Values{
		"run": {q.Get("run")}, "cursor": {cmp.Or(r.Header.Get("Last-Event-ID"), q.Get("cursor"))},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer func() { _ = stream.Close() }() // it was only read
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	control := http.NewResponseController(w)
	buffer := make([]byte, 32<<10)
	for {
		n, err := stream.Read(buffer)
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // without deadlines, the end of r ends it
		_, failed := w.Write(buffer[:n])
		if errors.Join(err, failed, control.Flush()) != nil {
			return
		}
	}
}
