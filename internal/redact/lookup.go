package redact

import "encoding/binary"

// lookup is a search in one text.
type lookup struct {
	x    *index
	text []byte
	// sums are the hashes of text from origin on, made when they are needed first.
	sums   hashes
	origin int
	// class is where the last position's beginnings ended: text is much like itself.
	class int
	// steps counts look-ups in tables.
	steps int
}

// maxSteps bounds the look-ups of patterns at one position. Where more are
// needed, text that begins as a value does, for [long] bytes or more, is masked as
// far as it does.
const maxSteps = 4

// next is the first position from i on at which a pattern may begin: most others
// are left out.
func (l *lookup) next(i int) int {
	maybe, text := l.x.maybe, l.text
	for ; i+8 <= len(text); i++ {
		bit := slot(binary.LittleEndian.Uint64(text[i:]) & sixBytes)
		if maybe[bit/64]&(1<<(bit%64)) != 0 {
			break
		}
	}
	return i
}

// at returns how long the longest pattern is that begins at i and is longer than
// least, 0 if there is none, whether it is the inner part of an encoded value, and
// whether one may begin there that goes on after the end of the text.
func (l *lookup) at(i, least int) (length int, inner, open bool) {
	rest := len(l.text) - i
	if l.sums == nil {
		l.origin = i
		l.sums = hash(l.x, make(hashes, 0, rest+1), l.text[i:])
	}
	highest := min(classOf(rest), maxClass)
	lowest := min(max(minClass, classOf(least+1)), highest)
	top, h := min(max(l.class, lowest), highest), (*head)(nil)
	for ; top >= lowest; top-- {
		if h = l.head(i, top); h != nil {
			break
		}
	}
	if h == nil {
		l.class = lowest
		return 0, false, false
	}
	for top < highest && int(h.longest) >= 2<<top {
		more := l.head(i, top+1)
		if more == nil {
			break
		}
		top, h = top+1, more
	}
	l.class = top
	open = top == highest && int(h.longest) > rest
	length, inner = l.longest(i, least, lowest, top, h)
	return length, inner, open
}

func (l *lookup) head(i, class int) *head {
	l.steps++
	return l.x.heads.find(l.x.part(l.sums, i-l.origin, class))
}

// longest looks for whole patterns among those that begin as the text at i does,
// for 2^top bytes.
func (l *lookup) longest(i, least, lowest, top int, h *head) (length int, inner bool) {
	rest, steps := len(l.text)-i, 0
	for class := top; class >= lowest; class-- {
		if l.x.classes&(1<<class) == 0 {
			continue
		}
		if class != top {
			h = l.head(i, class)
		}
		if h.alike {
			return max(min(int(h.ends[0]), rest), least), false
		}
		if h.short == 0 && h.ends[0] == 0 {
			continue
		}
		first := l.x.part(l.sums, i-l.origin, class)
		for n := range h.lengths {
			if n <= least {
				break
			}
			if n > rest {
				continue
			}
			l.steps++
			steps++
			if w := l.x.wholes.find(l.x.whole(l.sums, first, i-l.origin, n, class)); w != nil {
				return n, w.base64
			}
		}
		if 1<<top >= long && steps > maxSteps {
			return 1 << top, false
		}
	}
	return 0, false
}

// lengths are those of the patterns that end within the head's class, the longest
// first.
func (h *head) lengths(yield func(int) bool) {
	for _, n := range h.ends {
		if n == 0 {
			break
		}
		if !yield(int(n)) {
			return
		}
	}
	for short := h.short; short != 0; {
		n := classOf(int(short))
		short &^= 1 << n
		if !yield(n) {
			return
		}
	}
}

// ending is how much of the beginning of the text is the end of a pattern that is
// longer, as far as at least half of it agrees.
func (l *lookup) ending() int {
	n := min(len(l.text), l.x.longest-1)
	if n < window {
		return 0
	}
	sums := hash(l.x, make(hashes, 0, n+1), l.text[:n])
	for ; n >= window; n-- {
		l.steps++
		class := min(classOf(n), maxClass)
		if longest := l.x.tails.find(l.x.part(sums, n-1<<class, class)); longest != nil && int(*longest) > n {
			return n
		}
	}
	return 0
}
