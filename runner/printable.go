package runner

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// escapeSequence matches what terminals interpret: CSI sequences (colours),
// OSC strings, and the two-byte rest.
var escapeSequence = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])`)

// printable returns text as valid UTF-8 without escape sequences and control
// characters; newlines and tabs stay.
func printable(text string) string {
	text = escapeSequence.ReplaceAllString(strings.ToValidUTF8(text, string(utf8.RuneError)), "")
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && unicode.IsControl(r) {
			return -1
		}
		return r
	}, text)
}

// clip cuts text to a number of bytes without cutting a character, and marks
// the cut with an ellipsis.
func clip(text string, limit int) string {
	const ellipsis = "…"
	if len(text) <= limit {
		return text
	}
	end := max(0, limit-len(ellipsis))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strings.TrimRight(text[:end], " \n\t") + ellipsis
}
