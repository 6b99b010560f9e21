// Package text makes text from outside fit for display: without sequences that a
// terminal interprets, limited in length, and in whole characters.
//
// It imports no other package of Rolewright.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

const ellipsis = "…"

// Cut returns the beginning of s, at most limit bytes, without splitting a
// character.
func Cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	end := max(0, limit)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end]
}

// Clip is like [Cut], but marks the cut with an ellipsis, which counts towards limit.
func Clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	return strings.TrimRight(Cut(s, limit-len(ellipsis)), " \n\t") + ellipsis
}

// LastLines returns the end of s, at most limit bytes, from the beginning of a line
// if possible.
func LastLines(s string, limit int) string {
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	s = s[len(s)-limit:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		s = rest
	}
	return strings.ToValidUTF8(s, "")
}

// Plain returns s as valid UTF-8 without escape sequences, control characters
// and characters that change the direction of text. Newlines and
// tabs stay.
func Plain(s string) string { return clean(s, escapeLen) }

// OneLine is [Plain] with one blank for each run of white space.
func OneLine(s string) string { return strings.Join(strings.Fields(Plain(s)), " ") }

// Uncoloured is like [Plain], but of escape sequences it only removes control sequences
// such as colours; of others it removes just the escape character. So it hides
// nothing that the search for secret values has seen.
func Uncoloured(s string) string { return clean(s, ControlSequenceLen) }

func clean(s string, escaped func(string) int) string {
	s = strings.ToValidUTF8(s, string(utf8.RuneError))
	if strings.IndexFunc(s, Unwanted) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for s != "" {
		if s[0] == '\x1b' {
			s = s[escaped(s):]
			continue
		}
		r, size := utf8.DecodeRuneInString(s)
		if !Unwanted(r) {
			b.WriteRune(r)
		}
		s = s[size:]
	}
	return b.String()
}

// Unwanted reports whether [Plain] removes a character.
func Unwanted(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069': // change the direction
		return true
	}
	return unicode.IsControl(r)
}

// ControlSequenceLen returns the length of the control sequence that s begins with:
// ESC [, parameters and one final byte. It returns 1 for any other escape character.
func ControlSequenceLen(s string) int {
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

// escapeLen returns the length of the escape sequence that s begins with.
func escapeLen(s string) int {
	if len(s) < 2 {
		return 1
	}
	switch s[1] {
	case '[':
		return ControlSequenceLen(s)
	case ']', 'P', '_', '^': // a string, up to BEL or ESC
		end := 2 + strings.IndexAny(s[2:], "\a\x1b")
		if end >= 2 && s[end] == '\a' {
			end++
		}
		return max(end, 2)
	}
	if s[1] >= 0x20 && s[1] <= 0x7e {
		return 2
	}
	return 1
}

// ShellWord returns a word for a shell, quoted if necessary.
func ShellWord(word string) string {
	if strings.IndexFunc(word, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_./=:", r)
	}) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
