package discovery

import (
	"container/list"
	"time"
)

// entryOverhead is the memory that an entry takes in addition to its bytes, so that
// many small entries are bounded, too.
const entryOverhead = 1 << 10

// store keeps answers up to a number of bytes. The least recently used are dropped
// first. An answer that has not been used for keepFor is dropped, too. It is not
// safe for concurrent use.
type store struct {
	limit, size int
	entries     map[question]*list.Element
	recent      *list.List // of *entry, the last used first
}

type entry struct {
	question question
	answer   *answer
	used     time.Time
}

func newStore(limit int) *store {
	return &store{limit: limit, entries: make(map[question]*list.Element), recent: list.New()}
}

// get returns the answer to q, nil if there is none, and counts as a use of it.
func (s *store) get(q question) *answer {
	s.trim()
	element := s.entries[q]
	if element == nil {
		return nil
	}
	s.recent.MoveToFront(element)
	e := element.Value.(*entry)
	e.used = time.Now()
	return e.answer
}

// put keeps a in place of an earlier answer to q. An answer whose request began
// before that of the kept one is dropped: it was overtaken.
func (s *store) put(q question, a *answer) {
	if element := s.entries[q]; element != nil {
		if element.Value.(*entry).answer.begun.After(a.begun) {
			return
		}
		s.remove(element)
	}
	e := &entry{question: q, answer: a, used: time.Now()}
	s.entries[q] = s.recent.PushFront(e)
	s.size += e.size()
	s.trim()
}

func (s *store) trim() {
	for last := s.recent.Back(); last != nil; last = s.recent.Back() {
		if s.size <= s.limit && time.Since(last.Value.(*entry).used) < keepFor {
			return
		}
		s.remove(last)
	}
}

func (s *store) remove(element *list.Element) {
	e := s.recent.Remove(element).(*entry)
	delete(s.entries, e.question)
	s.size -= e.size()
}

func (e *entry) size() int {
	q := e.question
	return entryOverhead + len(q.path) + len(q.query) + len(q.accept) + len(q.encoding) + e.answer.size()
}
