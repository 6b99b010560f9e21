package watches

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// source is a watches file before and after environment expansion. It translates
// places in the expanded text, which the YAML parser reports, to places in the
// file.
type source struct {
	raw, text    string
	replacements []replacement
	rawLines     []int // where each line of raw begins
	textLines    []int // where each line of text begins, by the parser's rules
}

const byteOrderMark = "\uFEFF"

func newSource(raw, text string, made []replacement) *source {
	s := &source{raw: raw, text: text, replacements: made, rawLines: []int{0}}
	for i := range len(raw) {
		if raw[i] == '\n' {
			s.rawLines = append(s.rawLines, i+1)
		}
	}
	s.textLines = yamlLines(text)
	return s
}

// yamlLines returns where the lines begin for a YAML parser, which breaks at
// more characters than an editor does and does not see a byte order mark.
func yamlLines(text string) []int {
	lines := []int{0}
	if strings.HasPrefix(text, byteOrderMark) {
		lines[0] = len(byteOrderMark)
	}
	for i, r := range text {
		switch r {
		case '\r':
			if strings.HasPrefix(text[i+1:], "\n") {
				continue // the line feed ends the line
			}
			fallthrough
		case '\n', '\u0085', '\u2028', '\u2029':
			lines = append(lines, i+utf8.RuneLen(r))
		}
	}
	return lines
}

// position translates a place in the expanded text, with line and column from 1.
func (s *source) position(line, column int) Position {
	return s.rawPosition(s.rawOffset(s.offset(line, column)))
}

// offset returns the byte offset of a place in the expanded text. A parser may name the
// place after the end.
func (s *source) offset(line, column int) int {
	if line < 1 || line > len(s.textLines) {
		return len(s.text)
	}
	at := s.textLines[line-1]
	for ; column > 1 && at < len(s.text); column-- {
		_, width := utf8.DecodeRuneInString(s.text[at:])
		at += width
	}
	return at
}

// rawOffset translates an offset in the expanded text to one in the file. Text
// that replaced a reference maps to the beginning of the reference.
func (s *source) rawOffset(at int) int {
	i := sort.Search(len(s.replacements), func(i int) bool { return s.replacements[i].from > at }) - 1
	if i < 0 {
		return at
	}
	if r := s.replacements[i]; at >= r.to {
		return r.rawTo + at - r.to
	}
	return s.replacements[i].rawFrom
}

func (s *source) rawPosition(at int) Position {
	at = min(at, len(s.raw))
	line := sort.Search(len(s.rawLines), func(i int) bool { return s.rawLines[i] > at })
	begin := s.rawLines[line-1]
	before := strings.TrimPrefix(s.raw[begin:at], byteOrderMark)
	return Position{Line: line, Column: utf8.RuneCountInString(before) + 1}
}

// textLine returns a line of the expanded text, without its line break.
func (s *source) textLine(line int) string {
	if line < 1 || line > len(s.textLines) {
		return ""
	}
	end := len(s.text)
	if line < len(s.textLines) {
		end = s.textLines[line]
	}
	return strings.TrimRight(s.text[s.textLines[line-1]:end], "\r\n\u0085\u2028\u2029")
}

// unsetIn returns the name of an unset variable that a line of the expanded text refers
// to; empty if there is none.
func (s *source) unsetIn(line int) string {
	for _, r := range s.replacements {
		if r.name != "" && !r.defined && s.textLines[line-1] <= r.from && (line == len(s.textLines) || r.from < s.textLines[line]) {
			return r.name
		}
	}
	return ""
}

// inComment reports whether a YAML comment covers an offset of the file. It
// only looks at the line: a number sign inside a quoted text counts, too.
func (s *source) inComment(at int) bool {
	begin := strings.LastIndexByte(s.raw[:at], '\n') + 1
	before := s.raw[begin:at]
	return strings.HasPrefix(strings.TrimLeft(before, " \t"), "#") ||
		strings.Contains(before, " #") || strings.Contains(before, "\t#")
}
