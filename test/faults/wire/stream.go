package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// stream is the body of a watch, event by event. The client's reading drives it.
type stream struct {
	*exchange
	upstream io.ReadCloser
	events   *json.Decoder
	out      bytes.Buffer
	end      error  // returned when out is empty
	next     func() // called when out has been read
	hidden   map[string]bool
	state    *state // of a streaming list that may be requested again; nil otherwise
	withhold bool   // until it is known whether the list begins with an earlier state
	pending  []event
}

// event is an event of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
	meta   metadata
	line   []byte // as received
}

func newStream(x *exchange, upstream io.ReadCloser) *stream {
	s := &stream{exchange: x, upstream: upstream, events: json.NewDecoder(upstream), hidden: map[string]bool{}}
	if x.request.URL.Query().Get("sendInitialEvents") == "true" && x.rules.remembers(x.is) {
		s.state = &state{objects: map[string]event{}}
		s.withhold = len(x.wait) > 0
	}
	switch x.action.Do {
	case plan.CutWatch:
		s.end = io.ErrUnexpectedEOF
	case plan.HoldWatch:
		s.next = func() { x.hold(x.request.Context(), x.action.For.Duration) }
	}
	return s
}

// Read implements [io.Reader].
func (s *stream) Read(b []byte) (int, error) {
	for s.out.Len() == 0 {
		if next := s.next; next != nil {
			s.next = nil
			next()
			continue
		}
		if s.end != nil {
			return 0, s.end
		}
		s.advance()
	}
	return s.out.Read(b)
}

// Close implements [io.Closer].
func (s *stream) Close() error { return s.upstream.Close() }

// advance takes the next event.
func (s *stream) advance() {
	if !s.withhold && len(s.pending) > 0 {
		e := s.pending[0]
		s.pending = s.pending[1:]
		s.perform(e)
		return
	}
	var raw json.RawMessage
	if err := s.events.Decode(&raw); err != nil {
		switch {
		case len(s.pending) > 0:
			s.withhold = false
		case len(s.hidden) > 0:
			s.expire()
		default:
			s.end = err
		}
		return
	}
	var e event
	if err := json.Unmarshal(raw, &e); err != nil {
		s.end = err
		return
	}
	e.meta, e.line = meta(e.Object), append(raw, '\n')
	s.pending = append(s.pending, e)
	if s.state != nil && s.state.observe(e) {
		s.remember(e.meta.ResourceVersion)
	}
}

// remember keeps the state of the list. When the list is complete for the first time, an earlier state may replace it.
func (s *stream) remember(resourceVersion string) {
	now := s.state.answer(resourceVersion)
	key := keyOf(s.request)
	if s.withhold {
		s.withhold = false
		if earlier, found := s.memory.earlier(key, now.signature); found && s.stale() {
			s.pending = nil
			s.out.Write(earlier.body)
			s.next = func() {
				if d := s.action.For.Duration; d > 0 {
					s.hold(s.request.Context(), d)
				} else {
					s.hold(s.request.Context(), forever)
				}
				s.end = io.ErrUnexpectedEOF // the client continues from the list's resource version
			}
		}
	}
	s.memory.add(key, now)
}

// perform applies the rules to an event.
func (s *stream) perform(e event) {
	is := s.is
	is.Time, is.Event, is.Name, is.Namespace = time.Now(), e.Type, "", ""
	learn(&is, e.meta)
	is.Code = http.StatusOK
	a, _ := s.rules.take(is)
	is.Fault = a.Do
	key := e.meta.Namespace + "/" + e.meta.Name
	if a.Do == "" && s.hidden[key] {
		is.Fault = plan.DropEvent
	}
	s.trace.begin(is)
	s.announce(is, a)
	switch a.Do {
	case plan.DropEvent:
		s.hide(key, a.For.Duration)
		return
	case plan.CutWatch:
		s.end = io.ErrUnexpectedEOF
		return
	case plan.Gone:
		s.expire()
		return
	case plan.HoldWatch:
		s.hold(s.request.Context(), a.For.Duration)
	case plan.CrashBefore:
		if s.crash(is.Replica, a) {
			s.end = io.ErrUnexpectedEOF
			return
		}
	case plan.CrashAfter:
		s.next = func() { s.crash(is.Replica, a) }
	}
	if s.hidden[key] {
		return
	}
	s.out.Write(e.line)
	if a.Do == plan.DuplicateEvent {
		s.out.Write(e.line)
	}
}

// hide holds events of an object back. After d the stream ends, and tells the client to list again.
func (s *stream) hide(key string, d time.Duration) {
	if len(s.hidden) == 0 {
		until, cancel := context.WithCancel(s.calm)
		if d > 0 {
			timer := time.AfterFunc(d, cancel)
			context.AfterFunc(until, func() { timer.Stop() })
		}
		context.AfterFunc(s.request.Context(), cancel)
		context.AfterFunc(until, func() { _ = s.upstream.Close() })
	}
	s.hidden[key] = true
}

// expire tells the client that the stream cannot be continued.
func (s *stream) expire() {
	is := s.is
	is.Name = ""
	status, err := json.Marshal(statusOf(plan.Gone, is))
	if err != nil { // a Status can always be encoded
		panic(err)
	}
	s.out.Write(line("ERROR", status))
	s.end = io.EOF
}
