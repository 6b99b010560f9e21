package controller

import (
	"cmp"
	"container/heap"
	"slices"
)

// evict takes runs until enough is true, each from the object that keeps the
// most bytes then: however much one keeps, an object with less loses nothing. The
// newest run of each object that may have an end which is in no status yet comes
// after all others. It is called under the lock.
func (a *archive) evict(enough func() bool) []string {
	var dirs []string
	for _, unread := range []bool{false, true} {
		var all losers
		for object, s := range a.shelves {
			if l := s.loser(object, unread); len(l.runs) > 0 {
				all = append(all, l)
			}
		}
		heap.Init(&all)
		for len(all) > 0 && !enough() {
			first := &all[0]
			id := first.runs[0].id
			first.bytes -= first.runs[0].bytes
			dirs = append(dirs, a.take(first.object, a.shelves[first.object], func(k kept) bool { return k.id == id })...)
			if first.runs = first.runs[1:]; len(first.runs) > 0 {
				heap.Fix(&all, 0)
			} else {
				heap.Pop(&all)
			}
		}
	}
	return dirs
}

// loser is an object that may lose runs.
type loser struct {
	object string
	// bytes are all that the object keeps, and runs what it may lose, first the
	// oldest, then the newest, last the newest that failed.
	bytes int64
	runs  []ranked
}

type ranked struct {
	kept
	rank int
}

// loser is what a shelf may lose: only its newest run, if that may be another
// process's, or everything else.
func (s *shelf) loser(object string, unread bool) loser {
	l := loser{object: object}
	newest, failed := -1, -1
	for i, k := range s.runs {
		l.bytes += k.bytes
		if newest < 0 || k.finished.After(s.runs[newest].finished) {
			newest = i
		}
		if k.failed && (failed < 0 || k.finished.After(s.runs[failed].finished)) {
			failed = i
		}
	}
	for i, k := range s.runs {
		r := ranked{k, 0}
		switch i {
		case failed:
			r.rank = 2
		case newest:
			r.rank = 1
		}
		if unread == (k.unsettled && i == newest) {
			l.runs = append(l.runs, r)
		}
	}
	slices.SortFunc(l.runs, ranked.compare)
	return l
}

func (r ranked) compare(other ranked) int {
	return cmp.Or(cmp.Compare(r.rank, other.rank), r.finished.Compare(other.finished), cmp.Compare(r.id, other.id))
}

// losers is a heap, on top of which is who keeps the most.
type losers []loser

// Len implements [heap.Interface].
func (l losers) Len() int { return len(l) }

// Swap implements [heap.Interface].
func (l losers) Swap(i, j int) { l[i], l[j] = l[j], l[i] }

// Push implements [heap.Interface].
func (l *losers) Push(x any) { *l = append(*l, x.(loser)) }

// Less implements [heap.Interface].
func (l losers) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[j].bytes, l[i].bytes), l[i].runs[0].compare(l[j].runs[0])) < 0
}

// Pop implements [heap.Interface].
func (l *losers) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}
