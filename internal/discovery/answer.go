package discovery

import (
	"fmt"
	"maps"
	"net/http"
	"time"
)

// question identifies an answer: path, query and representation.
type question struct {
	path, query      string
	accept, encoding string // the values of the headers
}

// answer is the result of one question. It is not changed once others can see it.
type answer struct {
	begun  time.Time // when the request that brought or confirmed it began
	status int       // 0: there is no answer
	header http.Header
	body   []byte
	// oversize is true for a document that is too large to be kept. It remains so
	// as long as clients ask for it.
	oversize bool
	// failure says why there is no answer or, with a status, no newer one.
	failure error
	// resources reads the body as the list of a group version's resources. It
	// keeps less than the body holds.
	resources func() (map[string]Resource, error)
}

// unable says why the API server could not answer: nil if it did. A request to
// come back later does not count as an answer.
func (a *answer) unable() error {
	switch {
	case a.failure != nil:
		return a.failure
	case a.status >= http.StatusInternalServerError, a.status == http.StatusTooManyRequests:
		return fmt.Errorf("the API server answered %d %s", a.status, http.StatusText(a.status))
	}
	return nil
}

// worthKeeping is true for documents, and for the answer that there is none.
func (a *answer) worthKeeping() bool {
	return a.oversize || a.status == http.StatusOK || a.status == http.StatusNotFound
}

// confirmed returns the same document after the API server has said that it is still valid.
func (a *answer) confirmed(begun time.Time, header http.Header) *answer {
	b := *a
	b.begun = begun
	b.header = maps.Clone(a.header)
	maps.Copy(b.header, header)
	return &b
}

// standIn returns the same document in place of an answer that did not come.
func (a *answer) standIn(reason error) *answer {
	b := *a
	b.failure = reason
	return &b
}

// size returns about how many bytes of memory the answer takes.
func (a *answer) size() int {
	n := len(a.body)
	for key, values := range a.header {
		n += len(key)
		for _, value := range values {
			n += len(value)
		}
	}
	return n
}
