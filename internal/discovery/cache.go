package discovery

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

const (
	// freshFor is how long a document is fresh. It is long enough for the modules
	// of one run, and of concurrent runs, to share what they all ask first, and
	// shorter than clients wait before they ask again for a missing kind.
	freshFor = 2 * time.Second
	// missingFor is how long Lookup considers a resource missing. It bounds what a
	// stream of wrong names costs the API server to a few requests per second.
	missingFor = 300 * time.Millisecond
	// unsettledFor is longer than all API servers need, after a definition was
	// written, until all their documents contain the change.
	unsettledFor = 30 * time.Second
	// keepFor bounds the age of a document that stands in for an answer, and the
	// time for which an unused document is kept.
	keepFor = 10 * time.Minute
	// fetchTimeout is how long an API server may take to assemble a large OpenAPI
	// document at worst. client-go gives discovery 32 seconds.
	fetchTimeout = 30 * time.Second
	// maxDocument is more bytes than the compressed OpenAPI documents of clusters
	// with hundreds of kinds have. Larger documents are not kept.
	maxDocument = 8 << 20
	// maxTotal bounds the bytes of all kept documents together.
	maxTotal = 16 << 20
)

// Cache answers for the API server where [Handles] says so. Its methods are
// safe for concurrent use. It runs nothing in the background: the first client
// that asks for a document gets it for all clients that wait for it.
type Cache struct {
	upstream upstream
	log      logr.Logger

	mu          sync.Mutex
	invalidated time.Time
	store       *store
	flights     map[question]*flight
}

// New returns an empty cache. The transport authenticates the operator. The
// server's URL has a scheme, a host and, for an API server under a prefix, a
// path; neither may be changed later.
func New(transport http.RoundTripper, server *url.URL, log logr.Logger) *Cache {
	return &Cache{
		upstream: upstream{transport: transport, server: server},
		log:      log,
		store:    newStore(maxTotal),
		flights:  make(map[question]*flight),
	}
}

// Invalidate says that a write has succeeded which changes what is served: the
// write of a CustomResourceDefinition or an APIService. It is called before the
// writer learns of its success. It does not block.
func (c *Cache) Invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.invalidated = time.Now()
}

// terms say how old an answer may be for a client that asks: the request to the
// API server must have begun after these moments.
type terms struct {
	found   time.Time // for an answer that is a document, or an error
	missing time.Time // for an answer that says that there is no document
}

// termsNow returns the terms of a client that asks now.
func (c *Cache) termsNow(found, missing time.Duration) terms {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Sub(c.invalidated) < unsettledFor {
		return terms{found: now, missing: now}
	}
	return terms{found: now.Add(-found), missing: now.Add(-missing)}
}

func (t terms) metBy(a *answer, begun time.Time) bool {
	switch {
	case a.oversize:
		return true // it sends all clients to the API server
	case a.status == http.StatusNotFound:
		return begun.After(t.missing)
	}
	return begun.After(t.found)
}

// get returns an answer that is no older than the terms allow: a kept answer, the
// answer to a request in progress, or the answer to a new request. A client that
// comes too late for the request in progress waits for its end, and shares the
// next one with all clients that came meanwhile: there is never more than one per
// question. The end of the context is a failure to answer.
func (c *Cache) get(ctx context.Context, q question, t terms) *answer {
	for {
		c.mu.Lock()
		if a := c.store.get(q); a != nil && t.metBy(a, a.begun) {
			c.mu.Unlock()
			return a
		}
		f := c.flights[q]
		if f == nil {
			f = c.begin(ctx, q)
			c.mu.Unlock()
			return c.fly(ctx, f)
		}
		f.askers++
		c.mu.Unlock()

		select {
		case <-f.done:
			if t.metBy(f.answer, f.begun) {
				return f.answer
			}
		case <-ctx.Done():
			c.leave(f)
			return &answer{failure: context.Cause(ctx)}
		}
	}
}
