package runstore

import (
	"cmp"
	"container/heap"
	"slices"
)

// The classes in which runs are removed, in this order.
const (
	// earlier has all runs that are in no other class.
	earlier = iota
	// last has the newest run of each object and its newest failed one, unless the
	// run takes more than half of all bytes.
	last
	// unread has the newest run of an object if its end may not be in the status yet.
	unread
	classes
)

// evict takes runs off their shelves until enough returns true, and returns their
// directories. It goes class by class, and takes each run from the object that keeps
// the most bytes at that moment, so that an object that keeps much does not cost others
// their last runs. The caller must hold the lock.
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
	// bytes is the size of all its runs. runs are those that it may lose, in this
	// order: the oldest first, then the newest, and last the newest failed one.
	bytes int64
	runs  []ranked
}

type ranked struct {
	kept
	rank int
}

// loser returns what a shelf may lose of a class. A last run of more than large bytes
// counts as an earlier one.
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

// losers is a heap with the object that keeps the most bytes on top.
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
