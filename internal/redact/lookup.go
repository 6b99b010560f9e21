package redact

import "encoding/binary"

// lookup is a search in one text.
type lookup struct {
	x    *index
	text []byte
	// sums are the hashes of text from origin on; nil until they are needed.
	sums   hashes
	origin int
	// class is the class in which the beginnings at the last position ended:
	// neighbouring positions are often similar.
	class int
	// steps counts lookups in tables.
	steps int
}

// maxSteps bounds the lookups of patterns at one position. If more are needed,
// text that begins like a value, for [long] bytes or more, is masked as far as it
// matches.
const maxSteps = 4

// next returns the first position from i on at which a pattern may begin: it skips
// most others.
func (l *lookup) next(i int) int {
	maybe, coarse, text := l.x.maybe, l.x.coarse, l.text
	for ; i+8 <= len(text); i++ {
		bit := slot(binary.LittleEndian.Uint64(text[i:])&sixBytes) >> coarse
		if maybe[bit/64]&(1<<(bit%64)) != 0 {
			break
		}
	}
	return i
}

// at returns the length of the longest pattern that begins at i and is longer than
// least, 0 if there is none; whether it is the inner part of an encoded value; and
// whether a pattern may begin there that continues after the end of the text.
func (l *lookup) at(i, least int) (length int, inner, open bool) {
	rest := len(l.text) - i
	if l.sums == nil {
		l.origin = i
		l.sums = hash(l.x, make(hashes, 0, rest+1), l.text[i:])
	}
	highest := min(classOf(rest), maxClass)
	lowest := min(max(minClass, classOf(least+1)), highest)
	top, h, first := l.top(i, lowest, highest)
	if h == nil {
		return 0, false, false
	}
	open = top == highest && int(h.longest) > rest
	length, inner = l.longest(i, least, lowest, top, h, first)
	return length, inner, open
}

// top returns the highest class in which the beginning of a pattern is at i, with its
// head, nil if there is none, and hash. Such a beginning exists in all lower classes,
// too, so top is found by bisection, starting from the class at the last position.
func (l *lookup) top(i, lowest, highest int) (class int, h *head, first uint64) {
	next := min(max(l.class, lowest), highest)
	for from, to := lowest, highest; from <= to; {
		if found, hash := l.head(i, next); found != nil {
			near := h == nil // try the next class first: mostly the beginnings end where those at the last position did
			class, h, first = next, found, hash
			from, to = next+1, min(to, classOf(int(found.longest)))
			if near {
				next = from
				continue
			}
		} else {
			to = next - 1
		}
		next = (from + to) / 2
	}
	l.class = max(class, lowest)
	return class, h, first
}

// head returns the head of the patterns that begin with the 2^class bytes at i, nil if
// there are none, and the hash of these bytes.
func (l *lookup) head(i, class int) (*head, uint64) {
	l.steps++
	first := l.x.part(l.sums, i-l.origin, class)
	return l.x.heads[first], first
}

// longest searches for whole patterns among those that share 2^top bytes with the
// text at i; h and first are the head and the hash of these bytes.
func (l *lookup) longest(i, least, lowest, top int, h *head, first uint64) (length int, inner bool) {
	rest, before := len(l.text)-i, l.steps
	for class := top; class >= lowest; class-- {
		if l.x.classes&(1<<class) == 0 {
			continue
		}
		if class != top {
			h, first = l.head(i, class)
		}
		if h.alike {
			return max(min(int(h.ends[0]), rest), least), false
		}
		for _, end := range h.ends {
			n := int(end)
			if n <= least {
				break
			}
			if inner, ok := l.whole(i, n, class, first); ok {
				return n, inner
			}
		}
		for short := h.short; short != 0; {
			n := classOf(int(short))
			short &^= 1 << n
			if n <= least {
				break
			}
			if inner, ok := l.whole(i, n, class, first); ok {
				return n, inner
			}
		}
		if 1<<top >= long && l.steps-before > maxSteps {
			return 1 << top, false
		}
	}
	return 0, false
}

// whole looks for the pattern that equals the n bytes at i, and tells whether it is
// the inner part of an encoded value.
func (l *lookup) whole(i, n, class int, first uint64) (inner, ok bool) {
	if n > len(l.text)-i {
		return false, false
	}
	l.steps++
	inner, ok = l.x.wholes[l.x.whole(l.sums, first, i-l.origin, n, class)]
	return inner, ok
}

// ending returns how many bytes at the beginning of the text are the end of a longer
// pattern. Only the last 2^class of them, at least half, are compared.
func (l *lookup) ending() int {
	n := min(len(l.text), l.x.longest-1)
	if n < window {
		return 0
	}
	sums := hash(l.x, make(hashes, 0, n+1), l.text[:n])
	for ; n >= window; n-- {
		l.steps++
		class := min(classOf(n), maxClass)
		if longest := l.x.tails[l.x.part(sums, n-1<<class, class)]; int(longest) > n {
			return n
		}
	}
	return 0
}
