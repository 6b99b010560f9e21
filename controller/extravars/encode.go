package extravars

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The markers of Ansible's JSON reader. It replaces any map that has such a key, at
// any depth, for example to decrypt vault texts. Newer versions react to further keys
// with the same prefix.
const (
	markerPrefix = "__ansible_"
	markerUnsafe = markerPrefix + "unsafe"
	markerVault  = markerPrefix + "vault"
)

// maxDepth is how deep the maps and lists of a variable may be nested. Ansible
// (2.14 and 2.19) copies and templates variables by recursion, and fails above 300
// levels. If its JSON reader fails, its YAML reader reads the same text, without
// regard to the markers.
const maxDepth = 200

// ErrTooDeep is returned for variables that are nested deeper than Ansible can
// read. Only a change of the object or of the watch helps.
var ErrTooDeep = errors.New("nested deeper than " + strconv.Itoa(maxDepth) + " levels")

// encode returns the text of env/extravars, and the key of the object that forced
// the text to be YAML; empty if it is JSON.
//
// Ansible reads JSON fastest. But JSON can mark a string only by a map with a certain
// key, and Ansible takes every map with such a key for a marker. If the object itself
// has such a map, the variables are written as YAML, where marks are tags and maps are
// just maps. The same holds if the object has keys that could be expressions, since
// only YAML can mark keys.
func encode(vars map[string]any, opts Options) ([]byte, string, error) {
	e := encoder{mark: opts.MarkUnsafe}
	names, marker := sortedKeys(vars), ""
	for _, name := range names {
		if !isAuthors(name, opts) && marker == "" {
			marker = e.findMarker(name, vars[name])
		}
	}
	e.yaml = marker != ""

	e.out = append(e.out, '{')
	for i, name := range names {
		if i > 0 {
			e.out = append(e.out, ',', '\n')
		}
		e.author = isAuthors(name, opts)
		// Names of variables are never expressions, so they are not marked.
		e.key(name, false)
		if err := e.value(vars[name], 0); err != nil {
			return nil, "", fmt.Errorf("encode variable %q: %w", bounded(name), err)
		}
	}
	e.out = append(e.out, '}', '\n')
	return e.out, marker, nil
}

// isAuthors reports whether the value of a variable comes from the watch.
func isAuthors(name string, opts Options) bool {
	_, vars := opts.Vars[name]
	_, hook := opts.HookVars[name]
	_, finalizer := opts.FinalizerVars[name]
	return vars && !hook || finalizer
}

// encoder writes values as JSON, or as YAML in flow style. The texts differ only in
// the marks and the keys: YAML limits keys to 1024 characters unless a question mark
// precedes them.
type encoder struct {
	out  []byte
	yaml bool
	// mark is true if keys of the object are marked, which only YAML can do.
	mark bool
	// author is true if the current value comes from the watch, not from the
	// object: then its markers are meant as markers.
	author bool
	// keys is a stack of the sorted keys of the current maps.
	keys []string
	// unsafe is true if the current value is inside an author's unsafe marker.
	unsafe bool
}

// findMarker returns the first key, in order, that forces YAML; "" if none does.
func (e *encoder) findMarker(key string, value any) string {
	if strings.HasPrefix(key, markerPrefix) || e.mark && expressive(key) {
		return key
	}
	switch v := value.(type) {
	case map[string]any:
		found := ""
		for key, item := range v {
			// Return the smallest key, so that the result does not depend on the map's order.
			if m := e.findMarker(key, item); m != "" && (found == "" || m < found) {
				found = m
			}
		}
		return found
	case []any:
		for _, item := range v {
			if m := e.findMarker("", item); m != "" {
				return m
			}
		}
	}
	return ""
}

// The characters of expressions that do more than compare variables.
const (
	expressiveCalls = "{(|*%~+"
	expressiveChars = expressiveCalls + "'\" \t\n\r\f\v\u00a0"
)

// expressive reports whether a text could be, or become part of, a template or an
// expression that does more than compare variables. A template needs a brace; a role
// may add a second one. An expression needs none if a role uses the text as a
// condition. So it looks for calls, filters, tests (which need a blank or a quote),
// and operators that multiply or join.
//
// Each object in the API server has keys like k:{"name":"x"} and v:"x" in its managed
// fields. Because of the colon, these are not expressions.
func expressive(s string) bool {
	if fields, ok := strings.CutPrefix(s, "k:{"); ok {
		return strings.ContainsAny(strings.TrimSuffix(fields, "}"), expressiveCalls)
	}
	if value, ok := strings.CutPrefix(s, `v:"`); ok {
		s = strings.TrimSuffix(value, `"`)
	}
	return strings.ContainsAny(s, expressiveChars)
}

func (e *encoder) key(key string, mark bool) {
	if e.yaml {
		e.out = append(e.out, "? "...)
	}
	if mark {
		e.marked(key)
	} else {
		e.string(key)
	}
	if e.yaml {
		e.out = append(e.out, ' ')
	}
	e.out = append(e.out, ": "...)
}

func (e *encoder) value(value any, depth int) error {
	if depth > maxDepth {
		return ErrTooDeep
	}
	switch v := value.(type) {
	case nil:
		e.out = append(e.out, "null"...)
	case bool:
		e.out = strconv.AppendBool(e.out, v)
	case int:
		e.out = strconv.AppendInt(e.out, int64(v), 10)
	case int64:
		e.out = strconv.AppendInt(e.out, v, 10)
	case uint64:
		e.out = strconv.AppendUint(e.out, v, 10)
	case float64:
		e.float(v)
	case json.Number:
		e.number(v.String())
	case Unsafe:
		e.marked(string(v))
	case string:
		if e.unsafe {
			e.marked(v)
		} else {
			e.string(v)
		}
	case []any:
		return e.list(v, depth)
	case map[string]any:
		return e.object(v, depth)
	default:
		return e.other(v, depth)
	}
	return nil
}

func (e *encoder) list(items []any, depth int) error {
	e.out = append(e.out, '[')
	for i, item := range items {
		if i > 0 {
			e.out = append(e.out, ',', ' ')
		}
		if err := e.value(item, depth+1); err != nil {
			return err
		}
	}
	e.out = append(e.out, ']')
	return nil
}

func (e *encoder) object(fields map[string]any, depth int) error {
	if e.yaml && e.author {
		if done, err := e.authorsMarker(fields, depth); done {
			return err
		}
	}
	begin := len(e.keys)
	e.keys = sortedInto(e.keys, fields)
	end := len(e.keys)
	e.out = append(e.out, '{')
	for i := begin; i < end; i++ {
		key := e.keys[i]
		if i > begin {
			e.out = append(e.out, ',', ' ')
		}
		e.key(key, e.yaml && e.mark && !e.author)
		if err := e.value(fields[key], depth+1); err != nil {
			return err
		}
	}
	e.keys = e.keys[:begin]
	e.out = append(e.out, '}')
	return nil
}

// authorsMarker writes a marker of the author as the YAML tag with the same meaning; not done if fields is no marker.
func (e *encoder) authorsMarker(fields map[string]any, depth int) (done bool, err error) {
	if value, ok := fields[markerUnsafe]; ok {
		outside := e.unsafe
		e.unsafe = true
		err = e.value(value, depth+1)
		e.unsafe = outside
		return true, err
	}
	if text, ok := fields[markerVault].(string); ok {
		e.out = append(e.out, "!vault "...)
		e.string(text)
		return true, nil
	}
	return false, nil
}

// other writes a value of any other type in its JSON form. Such values come from
// YAML read by a library (times) or from tests, never from an object.
func (e *encoder) other(value any, depth int) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var plain any
	if err := decoder.Decode(&plain); err != nil {
		return err
	}
	return e.value(plain, depth)
}

// marked writes a string so that Ansible treats it as data.
func (e *encoder) marked(s string) {
	switch {
	case !e.yaml:
		e.out = append(e.out, `{"`+markerUnsafe+`": `...)
		e.string(s)
		e.out = append(e.out, '}')
	case resolvesElsewhere(s):
		e.string(s)
	default:
		e.out = append(e.out, "!unsafe "...)
		e.string(s)
	}
}

// resolvesElsewhere reports whether an unquoted string may be a number, boolean,
// null, date or other token in YAML. Ansible 2.19 reads !unsafe "1" as the number 1,
// even quoted, so such strings are written without the tag. None of them can be a
// template or an expression that calls anything.
func resolvesElsewhere(s string) bool {
	switch strings.ToLower(s) {
	case "", "~", "null", "yes", "no", "true", "false", "on", "off", "<<", "=", "!", "&", "*",
		".inf", "+.inf", "-.inf", ".nan":
		return true
	}
	if !strings.ContainsRune("0123456789+-.", rune(s[0])) {
		return false
	}
	return strings.Trim(s, "0123456789+-._:abcdefABCDEFxXoOtTzZ \t") == ""
}

// float writes a number so that it is read as exactly that number. It chooses the
// same form as encoding/json. NaN and infinities, which encoding/json refuses, are
// written in the forms that Ansible's readers know.
func (e *encoder) float(f float64) {
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		e.out = append(e.out, e.special(f)...)
	case f == 0 && math.Signbit(f):
		e.out = append(e.out, "-0.0"...)
	default:
		format := byte('f')
		if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
			format = 'e'
		}
		digits := -1
		if format == 'f' && f == math.Trunc(f) {
			// Ansible reads a number without a point as an integer, so all digits
			// are needed: the shortest form of 2⁶³ ends in 6000.
			digits = 0
		}
		e.number(strconv.FormatFloat(f, format, digits, 64))
	}
}

func (e *encoder) special(f float64) string {
	inJSON, inYAML := "NaN", ".nan"
	switch {
	case math.IsInf(f, 1):
		inJSON, inYAML = "Infinity", ".inf"
	case math.IsInf(f, -1):
		inJSON, inYAML = "-Infinity", "-.inf"
	}
	if e.yaml {
		return inYAML
	}
	return inJSON
}

// number writes a JSON number. In YAML, a number with an exponent needs a point
// and a sign of the exponent.
func (e *encoder) number(text string) {
	mantissa, exponent, has := strings.Cut(strings.ToLower(text), "e")
	if !e.yaml || !has {
		e.out = append(e.out, text...)
		return
	}
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	if exponent[0] != '-' && exponent[0] != '+' {
		exponent = "+" + exponent
	}
	e.out = append(e.out, mantissa+"e"+exponent...)
}

// string writes a quoted string that means the same in JSON and in YAML.
// Characters that either reader does not accept are escaped by \u and four digits.
// Characters that need more digits are not escaped, since YAML does not know
// surrogate pairs.
func (e *encoder) string(s string) {
	const hex = "0123456789abcdef"
	e.out = append(e.out, '"')
	start := 0
	for i := 0; i < len(s); {
		b := s[i]
		if b >= 0x20 && b < 0x7f && b != '"' && b != '\\' {
			i++
			continue
		}
		r, size := rune(b), 1
		if b >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
		}
		if isPlainRune(r, size) {
			i += size
			continue
		}
		e.out = append(e.out, s[start:i]...)
		switch r {
		case '"', '\\':
			e.out = append(e.out, '\\', b)
		case '\n':
			e.out = append(e.out, '\\', 'n')
		default:
			e.out = append(e.out, '\\', 'u', hex[r>>12&0xf], hex[r>>8&0xf], hex[r>>4&0xf], hex[r&0xf])
		}
		i += size
		start = i
	}
	e.out = append(e.out, s[start:]...)
	e.out = append(e.out, '"')
}

// isPlainRune reports whether both readers accept a character beyond ASCII
// unescaped. YAML excludes controls, line separators and non-characters.
func isPlainRune(r rune, size int) bool {
	switch {
	case r < 0xa0, r == 0x2028, r == 0x2029, r == 0xfeff, r == 0xfffe, r == 0xffff:
		return false
	case r == utf8.RuneError && size == 1: // invalid UTF-8, written as U+FFFD
		return false
	}
	return true
}
