package runstore

import (
	"cmp"
	"container/heap"
	"slices"
)

// The classes in which runs go, one after the other.
const (
	// earlier runs are those that are not the last.
	earlier = iota
	// last are the newest run of each object and its newest failed one, unless
	// one takes more than half of all: that is an earlier one.
	last
	// unread is the newest run of an object if its end may be in no status yet.
	unread
	classes
)

// evict takes runs until enough is true, class by class, each from the object
// that keeps the most bytes then: however much one keeps, others do not lose
// their last runs. It is called under the lock.
func (a *Store) evict(enough func() bool) []string {
	var dirs []string
	large := a.bytes / 2
	for class := range classes {
		var all losers
		for object, s := range a.shelves {
			if l := s.loser(object, class, large); len(l.runs) > 0 {
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

// loser is what a shelf may lose of a class. large are the bytes above which a
// last run is like any other.
func (s *shelf) loser(object string, class int, large int64) loser {
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
		r, of := ranked{k, 0}, earlier
		switch i {
		case failed:
			r.rank = 2
		case newest:
			r.rank = 1
		}
		if r.rank > 0 && k.bytes <= large {
			of = last
		}
		if k.unsettled && i == newest {
			of = unread
		}
		if of == class {
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
