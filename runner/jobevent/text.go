package jobevent

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds in bytes of the text in a [Summary]: it ends in status conditions,
// logs and metrics, and part of it is written by whoever can create a custom
// resource.
const (
	maxName    = 256
	maxMessage = 4 << 10
	maxDetail  = 1 << 10
	maxItem    = 200
)

// line returns s as a single line of plain text of at most limit bytes.
func line(s string, limit int) string {
	return bound(strings.Join(strings.Fields(plain(s)), " "), limit)
}

// lines is like line, but keeps line breaks and indentation.
func lines(s string, limit int) string {
	return bound(strings.TrimSpace(plain(s)), limit)
}

// lastLine returns the last line of s that is not blank, as line does.
func lastLine(s string, limit int) string {
	s = strings.TrimSpace(plain(s))
	return line(s[strings.LastIndexByte(s, '\n')+1:], limit)
}

// plain returns s without escape sequences and control characters other than
// newline, and with invalid UTF-8 replaced.
func plain(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for s != "" {
		if n := escapeLen(s); n > 0 {
			s = s[n:]
			continue
		}
		r, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		switch {
		case r == '\n' || r == '\u2028' || r == '\u2029':
			b.WriteByte('\n')
		case r == '\t':
			b.WriteByte(' ')
		case unicode.IsControl(r) || reorders(r):
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// reorders tells the characters that override the direction of the text after
// them, with which a message can be made to read as another one.
func reorders(r rune) bool {
	return r >= '\u202A' && r <= '\u202E' || r >= '\u2066' && r <= '\u2069'
}

// escapeLen returns the length of the ANSI escape sequence that s starts with,
// 0 if there is none.
func escapeLen(s string) int {
	switch {
	case !strings.HasPrefix(s, "\x1b"):
		return 0
	case len(s) == 1:
		return 1
	case s[1] == '[': // CSI: parameters, intermediates, one final byte
		n := 2
		for n < len(s) && s[n] >= 0x20 && s[n] <= 0x3F {
			n++
		}
		if n < len(s) && s[n] >= 0x40 && s[n] <= 0x7E {
			n++
		}
		return n
	case s[1] == ']' || s[1] == 'P' || s[1] == '_' || s[1] == '^': // up to BEL or ST
		end := 2 + strings.IndexAny(s[2:], "\a\x1b")
		if end >= 2 && s[end] == '\a' {
			end++
		}
		return max(end, 2)
	case s[1] >= 0x20 && s[1] <= 0x7E:
		return 2
	}
	return 1
}

// bound cuts s to at most limit bytes, between characters.
func bound(s string, limit int) string {
	if len(s) <= limit {
		// A copy, so as not to keep alive what s may be a small part of.
		return strings.Clone(s)
	}
	const mark = "…"
	end := limit - len(mark)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + mark
}
