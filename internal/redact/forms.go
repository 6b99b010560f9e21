package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
)

// maxParts bounds the parts of one value: a few more than are searched for.
const maxParts = maxValues + 16

// parts are the values within a value that may be printed alone: the value, its
// lines (a key in PEM), what its lines assign (an env file, a kubeconfig), the
// strings of JSON (a Docker configuration), and the password of a URL. If there
// are more than maxParts, the list is incomplete.
func parts(value string) []string {
	found := []string{value}
	for line := range strings.Lines(value) {
		line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
		if strings.HasPrefix(line, "-----") {
			continue // where a key in PEM begins and ends
		}
		if line != value {
			found = append(found, line)
		}
		if assigned := assignment(line); assigned != "" {
			found = append(found, assigned)
		}
		if len(found) > maxParts {
			return found
		}
	}
	var tree any
	if strings.HasPrefix(strings.TrimSpace(value), "{") && json.Unmarshal([]byte(value), &tree) == nil {
		found = leaves(found, tree)
	}
	if u, err := url.Parse(strings.TrimSpace(value)); err == nil && u.User != nil {
		if password, ok := u.User.Password(); ok {
			found = append(found, password)
		}
	}
	return found
}

// assignment is the value of "key: value" and "key=value", without quotes.
func assignment(line string) string {
	for _, sign := range []string{": ", "="} {
		if key, value, ok := strings.Cut(line, sign); ok && key != "" && !strings.ContainsAny(strings.TrimPrefix(key, "export "), " \"'") {
			return strings.Trim(strings.TrimSpace(value), `"'`)
		}
	}
	return ""
}

// leaves appends the strings of a tree of JSON.
func leaves(found []string, tree any) []string {
	if len(found) > maxParts {
		return found
	}
	switch t := tree.(type) {
	case string:
		found = append(found, t)
	case []any:
		for _, v := range t {
			found = leaves(found, v)
		}
	case map[string]any:
		for _, v := range t {
			found = leaves(found, v)
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
	// base64 is true for the inner part of an encoded value: the characters
	// next to it hold bits of the value, too.
	base64 bool
}

// forms are the patterns of a value: as it is, with the escapes of JSON and
// Python, quoted for a shell and in YAML, with + for blanks as in a query, and
// in base64, alone or as part of something that is encoded as a whole. \u escapes
// and those of paths need none: [normal] undoes them in the text.
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
		texts = append(texts, strings.ReplaceAll(trimmed, "'", `'"'"'`), strings.ReplaceAll(trimmed, "'", "''"))
	}
	if escaped := url.QueryEscape(trimmed); len(trimmed) <= large && escaped != trimmed {
		// After a stray % the escapes of the text are out of step.
		texts = append(texts, escaped, lowerHex(escaped))
	}
	var found []pattern
	for _, t := range texts {
		for _, as := range readings(t) {
			// If the text is unescaped, so are parts of the value that look like escapes.
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

// inBase64 is the text that is in the encoding of every text with value at this
// offset modulo 3.
func inBase64(value string, offset int) string {
	const bits = 6
	encoded := base64.RawStdEncoding.EncodeToString(append(make([]byte, offset, offset+len(value)), value...))
	whole := encoded[(8*offset+bits-1)/bits : 8*(offset+len(value))/bits]
	return string(normal(whole, asIs))
}
