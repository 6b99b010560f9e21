package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxParts bounds the parts of one value: it is a few more than are searched for.
const maxParts = maxValues + 16

// parts returns the parts of a value that may be printed alone: the value itself, its
// lines (a key in PEM), what its lines assign (an env file, an INI file), the texts in
// YAML and JSON (a kubeconfig, a Docker configuration), and the passwords in URLs. If
// there are more than maxParts, the list is incomplete.
func parts(value string) []string {
	found := lines([]string{value}, value)
	more := leaves(passwords(nil, value), value, 0)
	if len(found) > maxParts || len(more) > maxParts {
		return append(found, more...)
	}
	known := map[string]bool{}
	for _, part := range found {
		known[part] = true
	}
	for _, part := range more { // lines have most of them
		if !known[part] {
			known[part] = true
			found = append(found, part)
		}
	}
	return found
}

// lines appends the lines of a text and what they assign.
func lines(found []string, text string) []string {
	for line := range strings.Lines(text) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
		if strings.HasPrefix(line, "-----") {
			continue // the first or last line of a key in PEM
		}
		if line != text {
			found = append(found, line)
		}
		found = append(found, assigned(line)...)
		if len(found) > maxParts {
			break
		}
	}
	return found
}

// assigned returns the value in "key: value" or "key = value", without quotes, and also the value
// without a possible comment; nil if line assigns nothing.
func assigned(line string) []string {
	for _, sign := range []string{": ", "="} {
		key, value, ok := strings.Cut(line, sign)
		key = strings.Trim(strings.TrimSpace(strings.TrimPrefix(key, "export ")), `"'`)
		if !ok || key == "" || strings.ContainsAny(key, " \"'") {
			continue
		}
		values := []string{unquoted(value)}
		for _, comment := range []string{" #", " ;"} {
			if before, _, ok := strings.Cut(value, comment); ok {
				values = append(values, unquoted(before))
			}
		}
		return values
	}
	return nil
}

func unquoted(value string) string {
	return strings.Trim(strings.TrimSuffix(strings.TrimSpace(value), ","), `"'`)
}

// maxYAML bounds the bytes that are read as YAML, and maxNested how deep JSON texts in JSON texts are read.
const (
	maxYAML   = 256 << 10
	maxNested = 3
)

// leaves appends the texts in JSON or YAML documents. Within such a text it looks only for JSON:
// everything else would be a guess.
func leaves(found []string, text string, depth int) []string {
	text = strings.TrimSpace(text)
	switch {
	case depth == maxNested:
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		before := len(found)
		if found = ofJSON(found, text, depth); len(found) == before {
			return ofYAML(found, text, depth)
		}
	case depth == 0 && (strings.HasPrefix(text, "- ") || strings.Contains(text, ": ") || strings.Contains(text, ":\n")):
		return ofYAML(found, text, depth)
	}
	return found
}

// leaf appends a text of a document, with its own parts.
func leaf(found []string, text string, depth int) []string {
	return leaves(lines(append(found, text), text), text, depth+1)
}

func ofJSON(found []string, text string, depth int) []string {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	for len(found) <= maxParts {
		var tree any
		if decoder.Decode(&tree) != nil {
			break
		}
		found = ofTree(found, tree, depth)
	}
	return found
}

// ofTree appends the texts of a tree of JSON.
func ofTree(found []string, tree any, depth int) []string {
	if len(found) > maxParts {
		return found
	}
	switch t := tree.(type) {
	case string:
		return leaf(found, t, depth)
	case json.Number:
		if len(t) < minValue {
			return found // it is too short to be masked, and there may be many
		}
		return append(found, t.String())
	case []any:
		for _, v := range t {
			found = ofTree(found, v, depth)
		}
	case map[string]any:
		for _, v := range t {
			found = ofTree(found, v, depth)
		}
	}
	return found
}

// ofYAML appends the texts in YAML documents. It decodes to nodes, which keep scalars as they
// are written, and aliases unexpanded.
func ofYAML(found []string, text string, depth int) []string {
	if len(text) > maxYAML {
		return found
	}
	decoder := yaml.NewDecoder(strings.NewReader(text))
	for len(found) <= maxParts {
		var n yaml.Node
		if decoder.Decode(&n) != nil {
			break
		}
		found = ofNode(found, &n, depth)
	}
	return found
}

// ofNode appends the texts of a document of YAML, without the keys of mappings.
func ofNode(found []string, n *yaml.Node, depth int) []string {
	if n.Kind == yaml.ScalarNode {
		if len(n.Value) < minValue {
			return found // as above
		}
		return leaf(found, n.Value, depth)
	}
	for i, c := range n.Content {
		if len(found) > maxParts {
			break
		}
		if n.Kind != yaml.MappingNode || i%2 == 1 {
			found = ofNode(found, c, depth)
		}
	}
	return found
}

// urlPassword matches the password of a URL, from the end of its scheme on.
var urlPassword = regexp.MustCompile(`://[^\s/@:]*:([^\s/@]+)@`)

// passwords appends the passwords of the URLs in a text.
func passwords(found []string, text string) []string {
	for _, match := range urlPassword.FindAllStringSubmatch(text, maxParts) {
		found = append(found, match[1])
		if plain, err := url.PathUnescape(match[1]); err == nil {
			found = append(found, plain)
		}
	}
	if u, err := url.Parse(strings.TrimSpace(text)); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			found = append(found, password) // unlike a match, it may contain an @
		}
	}
	return found
}

// large values are searched for in fewer forms: it is not worth the memory to find
// a megabyte within a larger text that is encoded as a whole.
const large = 16 << 10

// pattern is one form of one value.
type pattern struct {
	text string
	// base64 is true for the inner part of an encoded value: the characters next
	// to it contain bits of the value, too.
	base64 bool
}

// forms returns the patterns of a value: unchanged, with the escapes of JSON and
// Python, quoted for a shell and in YAML, with + for blanks as in a query, and in
// base64, alone or as part of a longer encoded text. \u escapes and those of paths
// need no pattern: [normal] decodes them in the text.
func forms(value string) []pattern {
	trimmed := strings.TrimSpace(value)
	texts := []string{trimmed}
	if strings.ContainsAny(trimmed, "\n\r\t\b\f") {
		if quoted, err := json.Marshal(trimmed); err == nil {
			texts = append(texts, string(quoted[1:len(quoted)-1]))
		}
	}
	if strings.Contains(trimmed, " ") {
		texts = append(texts, strings.ReplaceAll(trimmed, " ", "+"))
	}
	if strings.Contains(trimmed, "'") {
		texts = append(texts, strings.ReplaceAll(trimmed, "'", `'"'"'`), strings.ReplaceAll(trimmed, "'", "''"),
			strings.ReplaceAll(trimmed, "'", `'\''`)) // as bash prints it with set -x
	}
	if escaped := url.QueryEscape(trimmed); len(trimmed) <= large && escaped != trimmed {
		// After a stray %, the text's escapes are not decoded correctly.
		texts = append(texts, escaped, lowerHex(escaped))
	}
	var found []pattern
	for _, t := range texts {
		for _, as := range readings(t) {
			// When the text is decoded, parts of the value that look like escapes are decoded, too.
			found = append(found, pattern{text: string(normal(t, as))})
		}
	}
	for offset := range 3 {
		if offset > 0 && len(trimmed) > large {
			break
		}
		found = append(found, pattern{text: inBase64(trimmed, offset), base64: true})
	}
	return found
}

// escape matches a byte that [url.QueryEscape] has escaped.
var escape = regexp.MustCompile(`%[0-9A-F]{2}`)

func lowerHex(escaped string) string { return escape.ReplaceAllStringFunc(escaped, strings.ToLower) }

// inBase64 returns the text that occurs in the base64 of every text with value at an
// offset that is offset modulo 3.
func inBase64(value string, offset int) string {
	const bits = 6
	encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset, offset+len(value)), value...))
	whole := encoded[(8*offset+bits-1)/bits : 8*(offset+len(value))/bits]
	return string(normal(whole, asIs))
}
