package watches

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"sort"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
)

// checkCharacters reports the first character that YAML does not allow. The
// parser would refuse it too, but without a position.
func (c *decoding) checkCharacters() bool {
	text := strings.TrimPrefix(c.src.text, byteOrderMark)
	for i, r := range text {
		_, width := utf8.DecodeRuneInString(text[i:])
		invalid := r == utf8.RuneError && width == 1
		if !invalid && isYAML(r) {
			continue
		}
		at := i + len(c.src.text) - len(text)
		what := fmt.Sprintf("character %U is not allowed", r)
		if invalid {
			what = fmt.Sprintf("byte 0x%02X is not UTF-8", text[i])
		}
		c.reportAt(c.src.rawPosition(c.src.rawOffset(at)), Error, Problem{
			Message: "not a text file: " + what,
			Hint:    "save the file as UTF-8 text without control characters",
		})
		return false
	}
	return true
}

func isYAML(r rune) bool {
	switch {
	case r == '\t', r == '\n', r == '\r', r == 0x85:
		return true
	}
	return r >= 0x20 && r <= 0x7E || r >= 0xA0 && r <= 0xFFFD || r >= 0x10000
}

// parse returns the first document's content, or nil if there is nothing to
// decode; then the problem has been reported.
func (c *decoding) parse() *yaml.Node {
	docs := yaml.NewDecoder(strings.NewReader(c.src.text))
	first, err := nextDocument(docs)
	if err != nil && !errors.Is(err, io.EOF) {
		c.syntaxError(err)
		return nil
	}
	if err == nil {
		c.checkSecondDocument(docs)
	}
	if first == nil || isNull(first) {
		c.reportAt(Position{Line: 1, Column: 1}, c.warning(), Problem{Message: noWatches})
		return nil
	}
	return first
}

// nextDocument returns the content of the next document; io.EOF behind the
// last one. The parser panics on some malformed texts: that is an error here.
func nextDocument(docs *yaml.Decoder) (content *yaml.Node, err error) {
	defer func() {
		if p := recover(); p != nil {
			content, err = nil, fmt.Errorf("parse YAML: %v", p)
		}
	}()
	var doc yaml.Node
	if err := docs.Decode(&doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 {
		return nil, nil
	}
	return doc.Content[0], nil
}

// checkSecondDocument warns about documents that are not read, but not about an
// empty one, which a separator at the end leaves.
func (c *decoding) checkSecondDocument(docs *yaml.Decoder) {
	const message = "only the first YAML document is read"
	const hint = "put all watches into one list and remove the \"---\" between them"
	second, err := nextDocument(docs)
	switch {
	case errors.Is(err, io.EOF), err == nil && (second == nil || isNull(second)):
	case err != nil:
		c.reportAt(c.src.position(c.failingLine(err, 2), 1), c.warning(), Problem{Message: message, Hint: hint})
	default:
		c.warn(at{node: second}, message, hint)
	}
}

// parserPrefix is the prefix of yaml.v3's messages. Its line number is left out:
// it is often the line where the enclosing block starts, or one off.
var parserPrefix = regexp.MustCompile(`^yaml: (line \d+: )?`)

func (c *decoding) syntaxError(err error) {
	line := c.failingLine(err, 1)
	text := c.src.textLine(line)
	content := strings.TrimLeft(text, " \t")
	p := Problem{
		Text:    excerpt(content),
		Message: "not valid YAML: " + parserPrefix.ReplaceAllString(err.Error(), ""),
		Hint:    "check indentation, quotes and brackets in this line and the one before",
	}
	switch {
	case strings.Contains(text[:len(text)-len(content)], "\t") || strings.Contains(text, "-\t"):
		p.Hint = "indent with spaces; YAML allows no tabs there"
	case strings.Contains(content, ": @") || strings.Contains(content, ": `") || strings.Contains(content, ": %"):
		p.Hint = "put the value in quotes"
	}
	if name := c.src.unsetIn(line); name != "" {
		p.Hint = fmt.Sprintf("the environment variable %s is not set", name)
	}
	column := utf8.RuneCountInString(text) - utf8.RuneCountInString(content) + 1
	c.reportAt(c.src.position(line, column), Error, p)
}

// failingLine finds the line where the parser fails with err in the n-th
// document: the last line of the shortest beginning of the text that fails in
// the same way. yaml.v3 reports no column, and no reliable line.
func (c *decoding) failingLine(err error, document int) int {
	lines := c.src.textLines
	i := sort.Search(len(lines)-1, func(i int) bool {
		docs := yaml.NewDecoder(strings.NewReader(c.src.text[:lines[i+1]]))
		var got error
		for range document {
			if _, got = nextDocument(docs); got != nil {
				break
			}
		}
		return got != nil && got.Error() == err.Error()
	})
	return i + 1
}

func isNull(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	v, err := resolve(n)
	return err == nil && v == nil
}
