package migrate

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// edit replaces the bytes of a text from start to end.
type edit struct {
	start, end int
	text       string
}

// none returns an edit that cannot be made automatically.
func none() edit { return edit{start: -1} }

// offset returns the byte offset of a node in the text; -1 if the text has nothing there.
func offset(text string, n *yaml.Node) int {
	if n.Line < 1 || n.Column < 1 {
		return -1
	}
	at := 0
	for range n.Line - 1 {
		next := strings.IndexByte(text[at:], '\n')
		if next < 0 {
			return -1
		}
		at += next + 1
	}
	for range n.Column - 1 {
		if at >= len(text) || text[at] == '\n' {
			return -1
		}
		_, size := utf8.DecodeRuneInString(text[at:])
		at += size
	}
	return at
}

// span returns the range of a scalar in the text, with its quotes; ok is false for a scalar
// that is written differently.
func span(text string, n *yaml.Node) (start, end int, ok bool) {
	at := offset(text, n)
	if at < 0 || n.Kind != yaml.ScalarNode || n.Anchor != "" {
		return 0, 0, false
	}
	for _, quote := range []string{"", `"`, `'`} {
		if raw := quote + n.Value + quote; n.Value != "" && strings.HasPrefix(text[at:], raw) {
			return at, at + len(raw), true
		}
	}
	return 0, 0, false
}

// replace returns the edit that replaces the value of a scalar.
func replace(text string, n *yaml.Node, value string) edit {
	start, end, ok := span(text, n)
	if !ok {
		return none()
	}
	return edit{start, end, value}
}

// lineBefore returns the edit that adds a line before the line of a key, if the key is first in its line.
func lineBefore(text string, key *yaml.Node, line string) edit {
	at := offset(text, key)
	if at < 0 || key.Kind == 0 {
		return none()
	}
	start := strings.LastIndexByte(text[:at], '\n') + 1
	indent := text[start:at]
	if strings.Trim(indent, " ") != "" {
		return none()
	}
	return edit{start, start, indent + line + "\n"}
}

// itemAfter returns the edit that adds an item after the item at an index in a list of strings.
func itemAfter(text string, list *yaml.Node, index int, item string) edit {
	start, end, ok := span(text, list.Content[index])
	if !ok {
		return none()
	}
	if list.Style&yaml.FlowStyle != 0 {
		return edit{end, end, ", " + item}
	}
	line := strings.LastIndexByte(text[:start], '\n') + 1
	dash := text[line:start]
	if strings.Trim(dash, " ") != "-" {
		return none()
	}
	rest := strings.IndexByte(text[end:], '\n')
	if rest < 0 {
		return edit{end, end, "\n" + dash + item}
	}
	return edit{end + rest + 1, end + rest + 1, dash + item + "\n"}
}

// sorted returns the edits in the order of their places, without duplicates. It leaves out edits
// that overlap an earlier one.
func sorted(edits []edit) []edit {
	edits = slices.Clone(edits)
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	at := 0
	return slices.DeleteFunc(slices.Compact(edits), func(e edit) bool {
		if e.start < at {
			return true
		}
		at = e.end
		return false
	})
}

// edited applies edits that all refer to the original text.
func edited(text string, edits []edit) string {
	var out strings.Builder
	at := 0
	for _, e := range sorted(edits) {
		out.WriteString(text[at:e.start] + e.text)
		at = e.end
	}
	return out.String() + text[at:]
}
