package api

import (
	"net/http"
	"sync"
)

// How many clients read events at a time, and how many of one user.
const (
	maxStreams       = 100
	maxStreamsOfUser = 20
)

// streams are those in progress, by user.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// begin takes a place for a stream, which end gives back.
func (s *streams) begin(user string) *problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.of[user] >= maxStreamsOfUser:
		return &problem{http.StatusTooManyRequests, "you read events with too many clients: end some of them"}
	case s.all >= maxStreams:
		return &problem{http.StatusServiceUnavailable, "too many clients read events: try again later"}
	}
	if s.of == nil {
		s.of = map[string]int{}
	}
	s.all++
	s.of[user]++
	return nil
}

func (s *streams) end(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[user]--; s.of[user] == 0 {
		delete(s.of, user)
	}
}
