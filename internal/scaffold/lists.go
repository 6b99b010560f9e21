package scaffold

import (
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// entry is what a list of the project has for a kind. It exists if has occurs in the list as a whole name, even in a
// comment.
type entry struct{ path, marker, has, text string }

// addTo returns the text of the list with the entry added. The rest of the text stays. The error says what people have to
// add by hand.
func (e entry) addTo(text string) (string, error) {
	if e.has != "" && regexp.MustCompile(`(?m)(^|[^\w.-])`+regexp.QuoteMeta(e.has)+`($|[^\w.-])`).MatchString(text) {
		return text, nil
	}
	if path.Ext(e.path) != ".yaml" {
		return ended(text) + e.text, nil
	}
	added, err := insert(text, e.key(), e.marker, e.text)
	if err == nil {
		err = e.check(text, added)
	}
	if err != nil {
		return "", fmt.Errorf("%s: the entry cannot be added: %w; add it to the list by hand, and repeat the command:\n%s", e.path, err, e.text)
	}
	return added, nil
}

// key returns the key of the list in the file; empty if the whole file is the list.
func (e entry) key() string {
	if path.Base(e.path) == "kustomization.yaml" {
		return "resources"
	}
	return ""
}

// check compares a file before and after: afterwards it must have the entry, and everything it had before.
func (e entry) check(before, after string) error {
	var entries []any
	if err := yaml.Unmarshal([]byte(e.text), &entries); err != nil {
		return err
	}
	isNew := func(v any) bool {
		return slices.ContainsFunc(entries, func(e any) bool { return reflect.DeepEqual(e, v) })
	}
	var lists [2][]any
	var rest [2]map[string]any
	for i, text := range []string{before, after} {
		var err error
		if e.key() == "" {
			err = yaml.Unmarshal([]byte(text), &lists[i])
		} else if err = yaml.Unmarshal([]byte(text), &rest[i]); err == nil {
			lists[i], _ = rest[i][e.key()].([]any)
			delete(rest[i], e.key())
		}
		if err != nil {
			return err
		}
	}
	grown := len(lists[1]) == len(lists[0])+len(entries)
	for i := range lists {
		lists[i] = slices.DeleteFunc(lists[i], isNew)
	}
	if !grown || !slices.EqualFunc(lists[0], lists[1], func(a, b any) bool { return reflect.DeepEqual(a, b) }) ||
		len(rest[0])+len(rest[1]) > 0 && !reflect.DeepEqual(rest[0], rest[1]) {
		return errors.New("the layout of the file is not recognized")
	}
	return nil
}

// insert adds entries to the list under a key, or to the list that the whole file is, in the style and indentation of the
// list: before the line with the marker or, if there is none, after the last entry, or at the end.
func insert(file, key, marker, text string) (string, error) {
	root, list, end := find(file, key)
	indent := 0
	switch {
	case list != nil && list.Style&yaml.FlowStyle != 0 && len(list.Content) > 0:
		return insertFlow(file, list, text)
	case list != nil && list.Style&yaml.FlowStyle != 0:
		at := offset(file, list)
		open, rest, closed := strings.Cut(file[at:], "]")
		if !closed || strings.TrimSpace(open) != "[" {
			return "", fmt.Errorf("line %d: not an empty list", list.Line)
		}
		file = strings.TrimRight(file[:at], " ") + rest
		if key != "" {
			indent = 2
		}
	case list != nil && len(list.Content) > 0:
		indent = list.Column - 1
	case key != "":
		indent = 2
	}
	text = indented(text, indent)
	if key != "" && content.Get(root, key) == nil {
		return ended(file) + key + ":\n" + text, nil
	}
	if at := strings.Index(file, marker); marker != "" && at >= 0 {
		at = strings.LastIndexByte(file[:at], '\n') + 1
		return file[:at] + text + file[at:], nil
	}
	file = ended(file)
	if key == "" {
		return file + text, nil
	}
	return strings.Join(slices.Insert(strings.SplitAfter(file, "\n"), end, text), ""), nil
}

// find returns the root of a file, the list under a key (or the root, if it is a list), and the number of the last line of
// the list, or else of the key. It returns nil for what does not exist.
func find(file, key string) (root, list *yaml.Node, end int) {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(file), &doc) != nil || len(doc.Content) == 0 {
		return nil, nil, 0
	}
	root, list = doc.Content[0], doc.Content[0]
	for k, value := range content.Pairs(root) {
		if k.Value == key {
			list, end = value, k.Line
		}
	}
	if list.Kind != yaml.SequenceNode {
		return root, nil, end
	}
	if n := len(list.Content); n > 0 {
		end = list.Content[n-1].Line
	}
	return root, list, end
}

// insertFlow adds entries at the beginning of a list in brackets, on its line.
func insertFlow(file string, list *yaml.Node, text string) (string, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return "", err
	}
	data, err := yaml.Marshal(flow(doc.Content[0]))
	if err != nil {
		return "", err
	}
	at := offset(file, list) + len("[")
	return file[:at] + strings.TrimSuffix(strings.TrimPrefix(string(data), "["), "]\n") + ", " + file[at:], nil
}

// flow changes a node to a style for one line, without comments.
func flow(n *yaml.Node) *yaml.Node {
	n.Style |= yaml.FlowStyle
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	for _, c := range n.Content {
		flow(c)
	}
	return n
}

// offset returns the byte offset at which a node begins in a file.
func offset(file string, n *yaml.Node) int {
	lines := strings.SplitAfter(file, "\n")
	before := len(strings.Join(lines[:n.Line-1], ""))
	return before + len(string([]rune(lines[n.Line-1])[:n.Column-1]))
}

// indented returns the lines of entries, indented so that they begin at a column.
func indented(text string, column int) string {
	var out strings.Builder
	own := len(text) - len(strings.TrimLeft(text, " "))
	for line := range strings.Lines(text) {
		out.WriteString(strings.Repeat(" ", column) + line[own:])
	}
	return out.String()
}

// ended returns a text that ends with a newline, unless it is empty.
func ended(text string) string {
	if text == "" || strings.HasSuffix(text, "\n") {
		return text
	}
	return text + "\n"
}
