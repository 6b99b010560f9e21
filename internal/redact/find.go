package redact

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rolewright/rolewright/internal/text"
)

// reading says which escapes are decoded. The same text may have several meanings,
// and is searched in each reading.
type reading uint8

const (
	asIs reading = iota
	// escapes decodes %XX, \xXX, \uXXXX and \UXXXXXXXX. \xXX is a byte, as in C,
	// shells and Python's bytes.
	escapes
	// characters is the same, but \xXX is the character with that number, as in
	// YAML, JavaScript and Python's text.
	characters
	// octal is the same as escapes, but \NNN with three octal digits is a byte, as in
	// shells.
	octal
)

// readings returns the readings in which text is searched.
func readings(text string) []reading {
	found := []reading{asIs}
	if !strings.ContainsAny(text, `%\`) {
		return found
	}
	found = append(found, escapes)
	hexadecimal, octals := false, false
	for rest := text; !hexadecimal || !octals; {
		i := strings.IndexByte(rest, '\\')
		if i < 0 || len(rest) < i+4 {
			break
		}
		rest = rest[i+1:]
		hexadecimal = hexadecimal || rest[0] == 'x' && rest[1] >= '8'
		octals = octals || rest[0] >= '0' && rest[0] <= '3' && isOctal(rest[1]) && isOctal(rest[2])
	}
	if hexadecimal {
		found = append(found, characters)
	}
	if octals {
		found = append(found, octal)
	}
	return found
}

func isOctal(c byte) bool { return c >= '0' && c <= '7' }

// normal returns text in the form in which it is searched: without what Ansible, a
// terminal or an encoder puts between the characters of a value. It drops blanks and
// line breaks (long lines are wrapped, above all base64), escape sequences (colours),
// other control characters, and backslashes (of JSON, of Python, and of both on top
// of each other), and treats the two alphabets of base64 as one.
func normal(s string, as reading) []byte {
	text := make([]byte, len(s))
	n := 0
	for i := 0; i < len(s); {
		if b := plain[s[i]]; b != 0 {
			text[n] = b
			n++
			i++
			continue
		}
		char, size := odd(s[i:], as)
		n += copy(text[n:], char)
		i += size
	}
	return text[:n]
}

// plain maps each byte to the byte that [normal] keeps for it; to 0 if that depends on
// the next bytes, or if it keeps none.
var plain = func() (table [256]byte) { //nolint:gochecknoglobals // a table that is never changed
	for b := range len(table) {
		switch {
		case b <= ' ', b == '\\', b == '%', b == 0x7f:
		case b == '-':
			table[b] = '+'
		case b == '_':
			table[b] = '/'
		default:
			table[b] = byte(b)
		}
	}
	return table
}()

// odd returns the text that [normal] keeps for the beginning of s, and the length
// of that beginning.
func odd(s string, as reading) (char string, size int) {
	switch b := s[0]; {
	case b == '\x1b':
		return "", text.ControlSequenceLen(s)
	case as == asIs && b == '%':
		return "%", 1
	case as == asIs || b != '%' && b != '\\':
		return "", 1
	}
	char, size = unescaped(s, as)
	switch {
	case size == 0 && s[0] == '%':
		return "%", 1
	case size == 0:
		return "", 1
	}
	kept := make([]byte, 0, len(char))
	for _, b := range []byte(char) {
		switch {
		case b == '%':
			kept = append(kept, b)
		case plain[b] != 0:
			kept = append(kept, plain[b])
		}
	}
	return string(kept), size
}

// places returns the parts of text from which the bytes of normal(text, as) at the
// wanted positions come. The positions are in order.
func places(text string, as reading, wanted []int) []span {
	found := make([]span, 0, len(wanted))
	for i, n := 0, 0; i < len(text) && len(found) < len(wanted); {
		kept, size := 1, 1
		if plain[text[i]] == 0 {
			var char string
			char, size = odd(text[i:], as)
			kept = len(char)
		}
		n += kept
		for len(found) < len(wanted) && wanted[len(found)] < n {
			found = append(found, span{i, i + size})
		}
		i += size
	}
	return found
}

// maxEscape is the length of the longest escape: a surrogate pair of two \uXXXX.
const maxEscape = 12

// unescaped returns the text of the escape with which s begins, and the escape's
// length; 0 if there is none. It counts as an escape even if the backslash is escaped
// itself, any number of times, as in JSON within JSON.
func unescaped(s string, as reading) (string, int) {
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
		b, ok := hex(s[2:], 2)
		switch {
		case ok && as == characters:
			return string(b), 4
		case ok:
			return string([]byte{byte(b)}), 4
		}
	case '0', '1', '2', '3':
		if as == octal && len(s) >= 4 && isOctal(s[2]) && isOctal(s[3]) {
			return string([]byte{(s[1]-'0')<<6 | (s[2]-'0')<<3 | (s[3] - '0')}), 4
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

// hex reads a number with this many hexadecimal digits.
func hex(s string, digits int) (rune, bool) {
	if len(s) < digits {
		return 0, false
	}
	n, err := strconv.ParseUint(s[:digits], 16, 32)
	return rune(n), err == nil
}

// span is a part of a text.
type span struct{ from, to int }

// edges says at which ends a text is incomplete.
type edges struct {
	// start: it may begin in the middle of a value.
	start bool
	// end: it may end in the middle of a value.
	end bool
	// more: more text follows later, so even the shortest beginning of a value counts.
	more bool
}

// find returns the places of values in text. open is where a value may begin that
// continues after the end of the text; len(text) if there is none. The caller holds m.mu.
func (m *Masker) find(text string, missing edges) (spans []span, open int) {
	open = len(text)
	for _, as := range readings(text) {
		l := &lookup{x: m.patterns, text: normal(text, as)}
		found, begun := l.search(missing)
		if begun < len(l.text) {
			open = min(open, places(text, as, []int{begun})[0].from)
		}
		if len(found) == 0 {
			continue
		}
		var wanted []int
		for _, s := range found {
			wanted = append(wanted, s.from, s.to-1)
		}
		ends := places(text, as, wanted)
		for i := 0; i < len(ends); i += 2 {
			spans = append(spans, span{ends[i].from, ends[i+1].to})
		}
	}
	return spans, open
}

// search is find for text in the form of [normal]. The spans are in order, and do not
// overlap.
func (l *lookup) search(missing edges) (spans []span, open int) {
	open = len(l.text)
	if missing.start {
		if end := l.ending(); end > 0 {
			spans = append(spans, span{0, end})
		}
	}
	if missing.more && len(l.text) > 0 {
		open = max(0, len(l.text)-window+1) // fewer bytes than window cannot be looked up
	}
	covered := 0 // the end of the values found so far
	for i := l.next(0); i+window <= len(l.text); i = l.next(i + 1) {
		length, inner, goesOn := l.at(i, max(0, covered-i))
		if goesOn && missing.end {
			open = min(open, i)
		}
		if length == 0 {
			continue
		}
		from, to := i, i+length
		covered = max(covered, to)
		if inner {
			from, to = widened(l.text, from, to)
		}
		if last := len(spans) - 1; last >= 0 && from < spans[last].to {
			spans[last].to = max(spans[last].to, to)
		} else {
			spans = append(spans, span{from, to})
		}
	}
	return spans, open
}

// widened extends a match to the base64 characters next to it, which contain bits of
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
