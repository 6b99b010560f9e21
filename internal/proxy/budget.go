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

// Limits on the bytes of request bodies in memory: of all runs, and of one run, so that no run uses up
// everything. Answers have a separate room of the same size, and so have the answers to writes that are
// marked afterwards: a client that does not read its answers does not keep others from writing. Requests
// wait for room, and so do writes that are marked afterwards, for the room of their answer. Other answers
// never wait, so they get room of their own: as long as one Acquire waits on a semaphore, TryAcquire fails.
const (
	maxHeld      = 64 << 20
	maxHeldByRun = 16 << 20
)

// heldFreely is how many bytes of each body do not count: small bodies always pass, and the number of
// connections bounds them.
const heldFreely = 32 << 10

// maxDocuments is how many discovery documents, of up to 8 MiB, one run gets at the same time: each query makes another
// one, and a client that does not read keeps its own in memory. There is no limit for all runs, because requests for a
// group whose server hangs would use it up.
const maxDocuments = 8

// errNoRoom says that there is no room for a body.
var errNoRoom = errors.New("the bodies of other requests and responses in progress use all the memory allowed for them")

// hold is the room that one body takes. There is no deadlock: an exchange waits for the room of its request while it has no
// other, then for the room of a mark, and after that no more.
type hold struct {
	run, all *semaphore.Weighted
	// size is the size of the body in bytes, taken the part of it that counts.
	size, taken int64
}

// holdRequest returns a hold for the request's body, until the end of the exchange.
func (x *exchange) holdRequest() *hold { return x.hold(x.s.room, x.p.room) }

// holdAnswer returns a hold for an answer's body, until the end of the exchange.
func (x *exchange) holdAnswer() *hold { return x.hold(x.s.answers, x.p.answers) }

func (x *exchange) hold(run, all *semaphore.Weighted) *hold {
	h := &hold{run: run, all: all}
	x.holds = append(x.holds, h)
	return h
}

// letGo releases all holds.
func (x *exchange) letGo() {
	for _, h := range x.holds {
		h.shrink(0)
	}
}

// wait waits for room for a body of size bytes. If ctx ends first, the error is errNoRoom.
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

// grow takes room for n more bytes; it returns false if there is none now.
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

// shrink releases the room beyond size bytes.
func (h *hold) shrink(size int64) {
	less := h.taken - max(0, size-heldFreely)
	if less > 0 {
		h.run.Release(less)
		h.all.Release(less)
		h.taken -= less
	}
	h.size = size
}

// heldWriter cuts off a client that stops reading while its exchange takes room.
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

// Unwrap returns the underlying writer, for [http.ResponseController].
func (w heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// heldReader fails with errNoRoom if there is no room for what it has read; it returns these bytes, too.
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
