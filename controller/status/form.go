package status

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// form is a form that the text of a field must have.
type form interface{ MatchString(text string) bool }

// line is the form of one to so many characters without control characters. It is not a regular expression, since that took
// nine megabytes in each process of a run.
type line int

// MatchString implements form.
func (l line) MatchString(text string) bool {
	n := utf8.RuneCountInString(text)
	return n > 0 && n <= int(l) && !strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.C, r) })
}
