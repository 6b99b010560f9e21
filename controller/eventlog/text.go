package eventlog

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds in bytes of what is logged of an event: enough for any message that
// somebody reads, and little enough for log collectors, which cut or drop
// entries of some hundred kilobytes.
const (
	maxField = 16 << 10
	maxBlock = 64 << 10
)

// text returns s as valid UTF-8 without escape sequences and control
// characters, cut to about limit bytes.
func text(s string, limit int) string {
	cut := len(s) > limit
	if cut {
		end := limit
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	s = clean(s)
	if cut {
		s += "…"
	}
	return s
}

// clean removes what a terminal interprets: escape sequences (Ansible's
// colours, and whatever data of a task brings along) and control characters
// other than newline and tab. Carriage returns are those of the pty.
func clean(s string) string {
	if strings.IndexFunc(s, unwanted) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for len(s) > 0 {
		if s[0] == '\x1b' {
			s = s[escapeLen(s):]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError || !unwanted(r) {
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

func unwanted(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069': // they turn the text after them around
		return true
	}
	return r == utf8.RuneError || unicode.IsControl(r)
}

// escapeLen is the length of the control sequence that s begins with (ESC [
// parameters final), or 1 for a lone escape character: what follows one that
// begins something else is harmless without it.
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
