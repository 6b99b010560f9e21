package jobevent

import (
	"strings"

	"github.com/rolewright/rolewright/internal/text"
)

// Bounds, in bytes, of the texts in a [Summary]: they appear in status conditions,
// logs and metrics, and users who can create a custom resource write part of them.
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

// lastLine returns the last line of s that is not blank, in the form of line.
func lastLine(s string, limit int) string {
	s = strings.TrimSpace(plain(s))
	return line(s[strings.LastIndexByte(s, '\n')+1:], limit)
}

// plain returns s as a terminal would show it, with newlines as the only control
// characters.
func plain(s string) string {
	s = text.Plain(s)
	if strings.ContainsAny(s, "\t\u2028\u2029") {
		s = strings.NewReplacer("\t", " ", "\u2028", "\n", "\u2029", "\n").Replace(s)
	}
	return s
}

// bound cuts s to at most limit bytes, between characters. It returns a copy: s may
// be a small part of a large text, which it would keep alive.
func bound(s string, limit int) string { return strings.Clone(text.Clip(s, limit)) }
