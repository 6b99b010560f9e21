package extravars

import (
	"regexp"
	"strings"
)

// ToSnake converts a key of a spec to the name of its variable, exactly as
// ansible-operator does: roles rely even on its odd results (URL → __url,
// HTTPS → http_s). A key that is empty or all spaces gives the empty string.
func ToSnake(s string) string {
	s = strings.Trim(digitsBetweenLetters.ReplaceAllString(s, "$1 $2 $3"), " ")
	if s == "" {
		return ""
	}
	prefix := ""
	if isUpper(rune(s[0])) {
		prefix = "_"
	}
	for _, acronym := range [...]string{"HTTP", "URL", "IP"} {
		s = separateAcronym(s, acronym)
	}
	words := splitWords(s)
	joined := strings.Join(words, "_")
	switch words[0] {
	case "http", "url", "ip":
		return joined
	}
	return prefix + joined
}

// digitsBetweenLetters matches digits between a letter and a letter that is followed by
// further digits: a1b2 becomes "a 1 b2".
var digitsBetweenLetters = regexp.MustCompile(`([a-zA-Z])(\d+)([a-zA-Z]\d+)`)

// separateAcronym makes the first occurrence of an acronym, with its plural s, a
// separate word.
func separateAcronym(s, acronym string) string {
	i := strings.Index(s, acronym)
	if i < 0 {
		return s
	}
	before, after := s[:i], s[i+len(acronym):]
	switch {
	case after == "":
		return before + "_" + acronym
	case after == "s":
		return before + "_" + acronym + "S"
	}
	word := acronym
	if after[0] == 's' {
		word, after = acronym+"S", after[1:]
	}
	if i == 0 {
		return word + "_" + after
	}
	return before + "_" + word + "_" + after
}

// splitWords splits at separators and where the case of ASCII letters changes, and
// lowers the words. Several separators in a row give empty words, so that joining
// the words restores them.
func splitWords(s string) []string {
	var words []string
	var word strings.Builder
	closeWord := func() {
		words = append(words, strings.ToLower(word.String()))
		word.Reset()
	}
	for i, r := range s {
		next := byte(0)
		if i+1 < len(s) {
			next = s[i+1]
		}
		switch {
		case word.Len() > 0 && isUpper(r) && isLower(rune(next)):
			closeWord()
			word.WriteRune(r)
		case word.Len() > 0 && isLower(r) && isUpper(rune(next)):
			word.WriteRune(r)
			closeWord()
		case r == ' ' || r == '_' || r == '-':
			closeWord()
		default:
			word.WriteRune(r)
		}
	}
	closeWord()
	return words
}

func isUpper(r rune) bool { return r >= 'A' && r <= 'Z' }
func isLower(r rune) bool { return r >= 'a' && r <= 'z' }
