package tasks

import (
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// expression matches an expression in a text.
var expression = regexp.MustCompile(`(?s)\{\{-?\s*(.*?)\s*-?\}\}`)

// maxValues bounds what a text with expressions may stand for.
const maxValues = 200

// values are what a scalar may be at run time. ok is false if that cannot be
// known. open is true if the spec of the object may say something else.
func (s *scanner) values(n *yaml.Node, f frame) (values []string, open, ok bool) {
	n = resolved(n)
	if n == nil || n.Kind != yaml.ScalarNode {
		return nil, false, false
	}
	return s.expand(n.Value, f, 0)
}

func (s *scanner) expand(text string, f frame, depth int) (values []string, open, ok bool) {
	if depth > 10 || strings.Contains(text, "{%") {
		return nil, false, false
	}
	values = []string{""}
	rest := text
	for {
		at := expression.FindStringSubmatchIndex(rest)
		if at == nil {
			break
		}
		of, isOpen, known := s.evaluate(rest[at[2]:at[3]], f, depth+1)
		if !known || len(of)*len(values) > maxValues {
			return nil, false, false
		}
		open = open || isOpen
		var next []string
		for _, value := range values {
			for _, one := range of {
				next = append(next, value+rest[:at[0]]+one)
			}
		}
		values, rest = next, rest[at[1]:]
	}
	for i := range values {
		values[i] += rest
	}
	slices.Sort(values)
	return slices.Compact(values), open, true
}

var (
	// path matches a variable with attributes: a.b['c'].d.
	path = regexp.MustCompile(`^[A-Za-z_]\w*(\.\w+|\[\s*'[^']*'\s*\]|\[\s*"[^"]*"\s*\])*$`)
	// step matches one element of it.
	step = regexp.MustCompile(`\w+|'[^']*'|"[^"]*"`)
	// literal matches a text in quotes.
	literal = regexp.MustCompile(`^(?:'([^'\\]*)'|"([^"\\]*)")$`)
	// choice matches one of two values.
	choice = regexp.MustCompile(`(?s)^(\S.*?)\s+if\s+.*\s+else\s+(.*\S)$`)
	// ternary matches the filter of that.
	ternary = regexp.MustCompile(`(?s)^.*\|\s*ternary\(\s*('[^']*'|"[^"]*")\s*,\s*('[^']*'|"[^"]*")\s*\)$`)
	// concatenation matches texts and variables that are put together of parts.
	concatenation = regexp.MustCompile(`^(?:'[^']*'|"[^"]*"|[A-Za-z_][\w.]*)(?:\s*[~+]\s*(?:'[^']*'|"[^"]*"|[A-Za-z_][\w.]*))+$`)
	part          = regexp.MustCompile(`'[^']*'|"[^"]*"|[A-Za-z_][\w.]*`)
	// fallback matches a default.
	fallback = regexp.MustCompile(`(?s)^(.*?)\s*\|\s*(?:default|d)\(\s*(.*?)\s*(?:,\s*[Tt]rue\s*)?\)$`)
	// harmless matches filters that leave a word as it is.
	harmless = regexp.MustCompile(`\s*\|\s*(string|trim)\s*$`)
)

// evaluate is what an expression may be: a path to a variable that the files
// define, a literal, a default, a choice of those.
func (s *scanner) evaluate(expr string, f frame, depth int) (values []string, open, ok bool) {
	expr = strings.TrimSpace(harmless.ReplaceAllString(expr, ""))
	if depth > 10 {
		return nil, false, false
	}
	if m := literal.FindStringSubmatch(expr); m != nil {
		return []string{m[1] + m[2]}, false, true
	}
	if m := ternary.FindStringSubmatch(expr); m != nil {
		return s.both(m[1], m[2], f, depth)
	}
	if m := fallback.FindStringSubmatch(expr); m != nil {
		if m[2] == "omit" {
			return nil, false, false
		}
		if values, open, ok = s.evaluate(m[1], f, depth+1); ok {
			return values, open, true
		}
		values, _, ok = s.evaluate(m[2], f, depth+1)
		return values, true, ok
	}
	if m := choice.FindStringSubmatch(expr); m != nil {
		return s.both(m[1], m[2], f, depth)
	}
	if concatenation.MatchString(expr) {
		return s.expand("{{"+strings.Join(part.FindAllString(expr, -1), "}}{{")+"}}", f, depth+1)
	}
	if !path.MatchString(expr) {
		return nil, false, false
	}
	if expr == "role_path" && f.roleDir != "" {
		return []string{f.roleDir}, false, true
	}
	node, open := s.lookup(expr, f)
	if node == nil || node.Kind != yaml.ScalarNode {
		return nil, false, false
	}
	values, more, ok := s.expand(node.Value, f, depth+1)
	return values, open || more, ok
}

func (s *scanner) both(a, b string, f frame, depth int) (values []string, open, ok bool) {
	first, openA, okA := s.evaluate(a, f, depth+1)
	second, openB, okB := s.evaluate(b, f, depth+1)
	return append(slices.Clone(first), second...), openA || openB, okA && okB
}

// lookup is the node that a path leads to; nil if the files do not say.
func (s *scanner) lookup(expr string, f frame) (n *yaml.Node, open bool) {
	steps := step.FindAllString(expr, -1)
	v, ok := f.vars[steps[0]]
	if !ok || s.dynamic[steps[0]] {
		return nil, false
	}
	n = resolved(v.node)
	for _, key := range steps[1:] {
		n = get(n, strings.Trim(key, `'"`))
	}
	return n, v.open
}

// whole is the variable's node where a scalar is one expression and nothing
// else; n itself otherwise.
func (s *scanner) whole(n *yaml.Node, f frame) (_ *yaml.Node, open bool) {
	for range 5 {
		n = resolved(n)
		if n == nil || n.Kind != yaml.ScalarNode {
			return n, open
		}
		m := expression.FindStringSubmatch(n.Value)
		if m == nil || strings.TrimSpace(n.Value) != m[0] || !path.MatchString(m[1]) {
			return n, open
		}
		next, isOpen := s.lookup(m[1], f)
		if next == nil {
			return n, open
		}
		n, open = next, open || isOpen
	}
	return n, open
}

// elements are those of a list that the files tell: one of a loop, or of
// an argument that may be one value or many.
func (s *scanner) elements(n *yaml.Node, f frame) (list []*yaml.Node, open, ok bool) {
	n, open = s.whole(n, f)
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil, open, false
	}
	for _, child := range n.Content {
		list = append(list, resolved(child))
	}
	return list, open, true
}
