package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"
)

// How much of the bodies of requests is in memory at a time: of all, and of one run, so that no run
// takes it all. Answers have as much room of their own, and those to writes that are followed by a mark
// once more: what a client does not read keeps no one from writing. Requests wait for room, and those with
// a mark for that of its answer; other answers never do: a semaphore refuses what does not wait as long as
// anything waits.
const (
	maxHeld      = 64 << 20
	maxHeldByRun = 16 << 20
)

// heldFreely is how much of each body does not count: what is small passes at all times, and the
// number of connections bounds it.
const heldFreely = 32 << 10

// errNoRoom is why a body is not read on.
var errNoRoom = errors.New("the bodies of other requests and answers in progress take all the memory that they may")

// hold is what one body takes of that. An exchange waits for room for its request while it has none, and for room for a mark,
// after which it waits no more: two never wait for each other.
type hold struct {
	run, all *semaphore.Weighted
	// size is the body's, and taken what of it counts.
	size, taken int64
}

// holdRequest is the hold of the request's body, until the end of the exchange.
func (x *exchange) holdRequest() *hold { return x.hold(x.s.room, x.p.room) }

// holdAnswer is the hold of an answer's body, until the end of the exchange.
func (x *exchange) holdAnswer() *hold { return x.hold(x.s.answers, x.p.answers) }

func (x *exchange) hold(run, all *semaphore.Weighted) *hold {
	h := &hold{run: run, all: all}
	x.holds = append(x.holds, h)
	return h
}

// letGo ends all holds.
func (x *exchange) letGo() {
	for _, h := range x.holds {
		h.shrink(0)
	}
}

// wait makes room for a body of size bytes, when there is.
func (h *hold) wait(ctx context.Context, size int64) error {
	n := max(0, size-heldFreely)
	if n == 0 {
		h.size = size
		return nil
	}
	if err := h.run.Acquire(ctx, n); err != nil {
		return errNoRoom
	}
	if err := h.all.Acquire(ctx, n); err != nil {
		h.run.Release(n)
		return errNoRoom
	}
	h.size, h.taken = size, n
	return nil
}

// grow makes room for n more bytes; false if there is none now.
func (h *hold) grow(n int) bool {
	more := max(0, h.size+int64(n)-heldFreely) - h.taken
	if more > 0 {
		if !h.run.TryAcquire(more) {
			return false
		}
		if !h.all.TryAcquire(more) {
			h.run.Release(more)
			return false
		}
		h.taken += more
	}
	h.size += int64(n)
	return true
}

// shrink gives back what is more than size bytes.
func (h *hold) shrink(size int64) {
	less := h.taken - max(0, size-heldFreely)
	if less > 0 {
		h.run.Release(less)
		h.all.Release(less)
		h.taken -= less
	}
	h.size = size
}

// heldWriter cuts a client off that does not read on, as long as its exchange takes room.
type heldWriter struct {
	http.ResponseWriter
	x *exchange
}

// Write implements [http.ResponseWriter].
func (w heldWriter) Write(b []byte) (int, error) {
	var end time.Time
	if slices.ContainsFunc(w.x.holds, func(h *hold) bool { return h.taken > 0 }) {
		end = time.Now().Add(w.x.p.bodyTimeout)
	}
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(end)
	return w.ResponseWriter.Write(b)
}

// Unwrap is for [http.ResponseController].
func (w heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// heldReader fails with errNoRoom, after what it has read, where there is no room for more.
type heldReader struct {
	io.Reader
	hold *hold
}

// Read implements [io.Reader].
func (r heldReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	if !r.hold.grow(n) {
		return n, errNoRoom
	}
	return n, err
}
