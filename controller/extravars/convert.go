package extravars

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// converter copies data of an object into the form in which it is encoded.
type converter struct {
	// snake caches the keys converted so far, since a large object repeats few
	// keys many times. If it is nil, keys are not converted.
	snake map[string]string
	// mark makes strings Unsafe.
	mark bool

	notices *noticeList
	// keys is a stack of the sorted keys of the current maps.
	keys []string
	// path is the path of the current map, for notices.
	path []string
}

func newConverter(opts Options, notices *noticeList) *converter {
	return &converter{mark: opts.MarkUnsafe, notices: notices}
}

func (c *converter) convert(value any) any {
	switch v := value.(type) {
	case map[string]any:
		return c.convertMap(v, c.snake != nil)
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = c.convert(item)
		}
		return out
	case string:
		text := c.text(v)
		if c.mark {
			return Unsafe(text)
		}
		return text
	}
	return value
}

// convertMap converts the keys and values of a map. Keys that do not change come
// first, so that no other key replaces them; the rest follows in order. dropEmpty
// drops keys that are empty or convert to nothing; it is for maps whose keys are
// names.
func (c *converter) convertMap(in map[string]any, dropEmpty bool) map[string]any {
	out := make(map[string]any, len(in))
	var renamed []string
	begin := len(c.keys)
	c.keys = sortedInto(c.keys, in)
	end := len(c.keys)
	for i := begin; i < end; i++ {
		key := c.keys[i]
		switch name := c.name(key); {
		case dropEmpty && name == "":
			c.notices.add(EmptyKey, "the key %q of %s is empty, and was dropped", key, c.where())
		case name == key:
			out[name] = c.child(key, in[key])
		default:
			renamed = append(renamed, key)
		}
	}
	c.keys = c.keys[:begin]
	for _, key := range renamed {
		name := c.name(key)
		if _, taken := out[name]; taken {
			c.notices.add(KeyCollision, "the key %q of %s was dropped, since another key also becomes %q", key, c.where(), name)
			continue
		}
		out[name] = c.child(key, in[key])
	}
	return out
}

func (c *converter) child(key string, value any) any {
	c.path = append(c.path, key)
	out := c.convert(value)
	c.path = c.path[:len(c.path)-1]
	return out
}

// name returns what a key becomes.
func (c *converter) name(key string) string {
	name := c.text(key)
	if c.snake == nil {
		return name
	}
	converted, known := c.snake[name]
	if !known {
		converted = ToSnake(name)
		c.snake[name] = converted
	}
	return converted
}

// text returns a string as valid UTF-8, which JSON requires. Control characters except
// tab, newline and carriage return become U+FFFD: ansible-runner finds job events in the
// output by an escape sequence, and a task name may contain a string from the object.
func (c *converter) text(s string) string {
	if !hasControl(s) {
		return strings.ToValidUTF8(s, string(utf8.RuneError))
	}
	if !c.notices.controls {
		c.notices.controls = true
		c.notices.add(ControlCharacters, "control characters in %s, and maybe elsewhere, were replaced by U+FFFD", c.where())
	}
	return strings.Map(func(r rune) rune {
		if isControl(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// where returns the path of the current map or value for messages.
func (c *converter) where() string {
	if len(c.path) == 0 {
		return "the object"
	}
	where := ""
	for _, key := range c.path {
		if where += "." + key; len(where) > maxText {
			break
		}
	}
	return where[1:]
}

// hasControl reports whether a string has a control character other than tab,
// newline and carriage return. It looks at bytes for speed, since it checks every
// string of an object.
func hasControl(s string) bool {
	for i := range len(s) {
		switch b := s[i]; {
		case b < 0x20 && b != '\t' && b != '\n' && b != '\r', b == 0x7f:
			return true
		case b == 0xc2 && i+1 < len(s) && s[i+1] >= 0x80 && s[i+1] < 0xa0:
			return true
		}
	}
	return false
}

// isControl reports whether a rune is in C0 or C1, or DEL, except for tab, newline
// and carriage return, which texts of several lines need.
func isControl(r rune) bool {
	switch r {
	case '\t', '\n', '\r':
		return false
	}
	return r < 0x20 || r >= 0x7f && r < 0xa0
}

func sortedKeys(m map[string]any) []string {
	return slices.Sorted(maps.Keys(m))
}

// sortedInto appends the sorted keys of m to buffer. It saves allocations, since
// objects have thousands of small maps.
func sortedInto(buffer []string, m map[string]any) []string {
	keys := slices.AppendSeq(buffer, maps.Keys(m))
	slices.Sort(keys[len(buffer):])
	return keys
}
