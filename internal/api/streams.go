package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rolewright/rolewright/internal/history"
)

// How many clients may read events at a time, in all and for one user.
const (
	maxStreams       = 100
	maxStreamsOfUser = 20
)

// streams counts the streams in progress, by user.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// begin takes a place for a stream; end gives it back.
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

// resync is the event that tells a client to start again with a list.
const resync = "event: resync\ndata: {}\n\n"

// writeTimeout is how long a client may take to read one event.
const writeTimeout = 30 * time.Second

// events streams what happens from the client's cursor on. The cursor is in the header
// Last-Event-ID or in the parameter cursor; without one, the stream starts now. The ID of an
// event is the cursor after it.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	sel, bad := s.selects(r)
	if bad != nil {
		fail(w, bad)
		return
	}
	cursor, bad := s.cursorOf(r)
	if bad != nil {
		fail(w, bad)
		return
	}
	if bad := s.streams.begin(sel.user); bad != nil {
		fail(w, bad)
		return
	}
	defer s.streams.end(sel.user)
	control := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(writeTimeout)) // without deadlines, the end of r ends it
		_, err := w.Write([]byte(text))
		return errors.Join(err, control.Flush()) == nil
	}
	beat := time.NewTicker(s.beat)
	defer beat.Stop()
	if !send(": " + Version + "\n\n") {
		return
	}
	for {
		events, more, ok := s.History.Events(cursor)
		if !ok {
			send(resync)
			return
		}
		for i, e := range events {
			if sel.wants(e.Run) && !send(eventText(cursor+uint64(i)+1, e)) {
				return
			}
		}
		cursor += uint64(len(events))
		select {
		case <-r.Context().Done():
			return
		case <-more:
		case <-beat.C:
			// Check again what the client may read.
			if sel, bad = s.selects(r); bad != nil || !send(": \n\n") {
				return
			}
		}
	}
}

// cursorOf returns the position from which a client continues.
func (s *server) cursorOf(r *http.Request) (cursor uint64, bad *problem) {
	cursor = s.History.Cursor()
	for _, text := range []string{r.URL.Query().Get("cursor"), r.Header.Get("Last-Event-ID")} {
		if text == "" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return 0, &problem{http.StatusBadRequest, fmt.Sprintf("cursor: %.40q is not one that was given", text)}
		}
		cursor = n
	}
	return cursor, nil
}

func eventText(id uint64, e history.Event) string {
	data, err := json.Marshal(e)
	if err != nil {
		return resync // which cannot happen: all text in it is valid
	}
	return fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, e.Kind, data)
}
