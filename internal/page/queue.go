package page

import "net/http"

// queue shows the runs that are due and wait, and what they wait for.
func (s *Server) queue(r *http.Request) (view, error) {
	list, err := s.Source.Queue(r.Context())
	if err != nil {
		return view{}, err
	}
	return view{template: "queue.html", Title: "Queue", Command: "get queue", Refresh: true, Data: list}, nil
}
