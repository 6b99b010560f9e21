package status

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// form is what the text of a field has to be.
type form interface{ MatchString(text string) bool }

// line is one to so many characters, of which none controls a terminal. As a regular expression it took nine megabytes, in
// each process of a run.
type line int

// MatchString implements form.
func (l line) MatchString(text string) bool {
	n := utf8.RuneCountInString(text)
	return n > 0 && n <= int(l) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.C, r) })
}
