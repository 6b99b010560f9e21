package redact

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// normalised is text as it is searched: without what Ansible, a terminal or an
// encoder puts between the characters of a value. Byte i of text comes from the
// original's from[i]:to[i].
type normalised struct {
	text     []byte
	from, to []int32
}

// normal drops blanks and line breaks (long lines are wrapped, base64 most of
// all), escape sequences (colours), other control characters, and backslashes
// (of JSON, of Python, and of both on top of each other), and takes the two
// alphabets of base64 for one. With unescape it also undoes %XX, \xXX and \uXXXX.
func normal(s string, unescape bool) normalised {
	n := normalised{text: make([]byte, 0, len(s)), from: make([]int32, 0, len(s)), to: make([]int32, 0, len(s))}
	for i := 0; i < len(s); {
		if s[i] == '\x1b' {
			i += escapeLen(s[i:])
			continue
		}
		if unescape && (s[i] == '%' || s[i] == '\\') {
			if char, size := unescaped(s[i:]); size > 0 {
				for _, b := range []byte(char) {
					n.put(b, i, i+size)
				}
				i += size
				continue
			}
		}
		n.put(s[i], i, i+1)
		i++
	}
	return n
}

func (n *normalised) put(b byte, from, to int) {
	switch {
	case b <= ' ', b == '\\', b == 0x7f:
		return
	case b == '-':
		b = '+'
	case b == '_':
		b = '/'
	}
	n.text, n.from, n.to = append(n.text, b), append(n.from, int32(from)), append(n.to, int32(to)) //nolint:gosec // texts are far below 2 GiB
}

// escapeLen is the length of the control sequence that s begins with, or 1.
func escapeLen(s string) int {
	if len(s) < 2 || s[1] != '[' {
		return 1
	}
	i := 2
	for i < len(s) && s[i] >= 0x20 && s[i] <= 0x3f {
		i++
	}
	if i < len(s) && s[i] >= 0x40 && s[i] <= 0x7e {
		i++
	}
	return i
}

// maxEscape is the length of the longest escape that counts as one: two of
// \uXXXX.
const maxEscape = 12

// unescaped is the text of the escape that s begins with, and the escape's
// length; 0 if it is none. A backslash that is escaped itself, as often as it
// may be, is an escape all the same: JSON within JSON.
func unescaped(s string) (string, int) {
	if s[0] == '%' {
		if b, ok := hex(s[1:], 2); ok {
			return string([]byte{byte(b)}), 3
		}
		return "", 0
	}
	if len(s) < 2 {
		return "", 0
	}
	switch s[1] {
	case 'x':
		if b, ok := hex(s[2:], 2); ok {
			return string([]byte{byte(b)}), 4 //nolint:gosec // two digits
		}
	case 'U':
		if r, ok := hex(s[2:], 8); ok {
			return string(r), 10
		}
	case 'u':
		r, ok := hex(s[2:], 4)
		if !ok {
			return "", 0
		}
		if utf16.IsSurrogate(r) && strings.HasPrefix(s[6:], `\u`) {
			if low, ok := hex(s[8:], 4); ok && utf16.DecodeRune(r, low) != utf8.RuneError {
				return string(utf16.DecodeRune(r, low)), 12
			}
		}
		return string(r), 6
	}
	return "", 0
}

// hex reads this many digits.
func hex(s string, digits int) (rune, bool) {
	if len(s) < digits {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:digits], 16, 32)
	return rune(n), err == nil //nolint:gosec // 32 bits were asked for
}

// span is a part of a text.
type span struct{ from, to int }

// edges says what is missing of a text.
type edges struct {
	// start: it may begin in the middle of a value.
	start bool
	// end: it may end in one.
	end bool
	// more: it goes on later, so that the shortest beginning counts.
	more bool
}

// find returns where values are in text, and where one may begin that goes on
// after the end of the text: len(text) if none does. The caller holds m.mu.
func (m *Masker) find(text string, missing edges) (spans []span, open int) {
	spans, open = m.search(normal(text, false), missing, nil, len(text))
	if strings.ContainsAny(text, `%\`) {
		spans, open = m.search(normal(text, true), missing, spans, open)
	}
	return spans, open
}

func (m *Masker) search(n normalised, missing edges, spans []span, open int) ([]span, int) {
	if missing.start && len(n.text) >= window {
		if end := m.ending(n.text); end > 0 {
			spans = append(spans, span{0, int(n.to[end-1])})
		}
	}
	if short := len(n.text) - window + 1; missing.more && len(n.text) > 0 {
		open = min(open, int(n.from[max(0, short)])) // too little to be told from anything
	}
	for i := 0; i+window <= len(n.text); i++ {
		key := keyOf(n.text[i:])
		if h := hash(key); m.maybe[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		rest := n.text[i:]
		best, inside := 0, false
		for _, p := range m.patterns[key] {
			if len(p.text) > len(rest) {
				if missing.end && p.text[:len(rest)] == string(rest) {
					open = min(open, int(n.from[i]))
				}
			} else if len(p.text) > best && string(rest[:len(p.text)]) == p.text {
				best, inside = len(p.text), p.base64
			}
		}
		if best == 0 {
			continue
		}
		from, to := i, i+best
		if inside {
			from, to = widened(n.text, from, to)
		}
		spans = append(spans, span{int(n.from[from]), int(n.to[to-1])})
	}
	return spans, open
}

// widened takes in the characters of base64 next to a match, which hold bits of
// the value.
func widened(text []byte, from, to int) (int, int) {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
	if from > 0 && strings.IndexByte(alphabet, text[from-1]) >= 0 {
		from--
	}
	for more := 0; more < 3 && to < len(text) && strings.IndexByte(alphabet, text[to]) >= 0; more++ {
		to++
	}
	return from, to
}

// ending is how much of the beginning of text is the end of a value. It looks
// at all of every pattern, once per run.
func (m *Masker) ending(text []byte) int {
	best := 0
	for _, patterns := range m.patterns {
		for _, p := range patterns {
			for at := 1; ; at++ {
				next := strings.Index(p.text[at:], string(text[:window]))
				if next < 0 {
					break
				}
				at += next
				if left := p.text[at:]; len(left) > best && bytes.HasPrefix(text, []byte(left)) {
					best = len(left)
				}
			}
		}
	}
	return best
}

// render replaces spans of text, in any order, overlapping or not.
func render(text string, spans []span) string {
	slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	var b strings.Builder
	at, covered := 0, -1
	for _, s := range spans {
		if s.from >= covered {
			b.WriteString(text[at:s.from])
			b.WriteString(Replacement)
		}
		covered = max(covered, s.to)
		at = covered
	}
	b.WriteString(text[at:])
	return b.String()
}
