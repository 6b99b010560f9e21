package discovery

import (
	"context"
	"errors"
	"net/http"
	"time"
)

// flight is a request to the API server in progress, for all clients that wait for it.
type flight struct {
	question question
	begun    time.Time
	previous *answer // the last good document, nil if there is none
	ctx      context.Context
	cancel   context.CancelFunc
	askers   int // guarded by the cache's mutex

	done   chan struct{} // closed once there is an answer
	answer *answer
}

// errAbandoned is the error that others get if a request never returned.
var errAbandoned = errors.New("the request to the API server was abandoned")

// begin registers a flight for its first asker, which must call fly. The cache's
// mutex is held.
func (c *Cache) begin(ctx context.Context, q question) *flight {
	f := &flight{question: q, begun: time.Now(), askers: 1, done: make(chan struct{})}
	if kept := c.store.get(q); kept != nil && kept.status == http.StatusOK {
		f.previous = kept
	}
	// The first asker may leave while others wait: see leave.
	f.ctx, f.cancel = context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
	c.flights[q] = f
	return f
}

// fly asks the API server and returns when it has answered, even if the first
// asker's own context has ended, because others may wait for the answer.
func (c *Cache) fly(ctx context.Context, f *flight) (a *answer) {
	stop := context.AfterFunc(ctx, func() { c.leave(f) })
	defer stop()
	a = &answer{failure: errAbandoned} // stays if the transport panics
	defer func() { a = c.land(f, a) }()
	return c.upstream.fetch(f)
}

// leave is called when a client stops waiting. It ends the request if that was the last one.
func (c *Cache) leave(f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.askers--; f.askers == 0 {
		c.remove(f)
		f.cancel()
	}
}

// land keeps the answer, if it is worth it, and wakes those that wait. It returns
// the answer that they get: the last good document if the API server could not
// answer.
func (c *Cache) land(f *flight, got *answer) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(f.done)
	f.cancel()
	c.remove(f)
	f.answer = got
	reason := got.unable()
	switch {
	case reason == nil && got.worthKeeping():
		c.store.put(f.question, got)
	case reason != nil && f.previous != nil:
		age := time.Since(f.previous.begun)
		if age > keepFor {
			break
		}
		c.log.V(1).Info("serving an older discovery document", "path", f.question.path, "age", age, "reason", reason.Error())
		f.answer = f.previous.standIn(reason)
	}
	return f.answer
}

// remove removes the flight, so that no other client can join it.
func (c *Cache) remove(f *flight) {
	if c.flights[f.question] == f {
		delete(c.flights, f.question)
	}
}
