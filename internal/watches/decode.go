package watches

import (
	"fmt"
	"math"
	"strings"

	"gopkg.in/yaml.v3"
)

// maxValues bounds what a file expands to through its aliases.
const maxValues = 100_000

// maxProblems bounds what is reported about a file. No one reads that many.
const maxProblems = 200

// decoding is one pass over one file.
type decoding struct {
	opts     Options
	file     string
	src      *source
	problems []Problem
	errors   int // how many problems were errors, those not kept included
	dropped  int // how many problems were not kept
	values   int
	// active holds the aliases that are being followed, to notice cycles.
	active map[*yaml.Node]bool
}

// at is a node and its place in the document.
type at struct {
	node *yaml.Node
	path string
}

// key returns the place of a key's value.
func (a at) key(node *yaml.Node, key string) at {
	if strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" || key == "" {
		return at{node: node, path: fmt.Sprintf("%s[%q]", a.path, excerpt(key))}
	}
	return at{node: node, path: strings.TrimPrefix(a.path+"."+excerpt(key), ".")}
}

func (a at) index(i int) at {
	return at{node: a.node.Content[i], path: fmt.Sprintf("%s[%d]", a.path, i)}
}

func (c *decoding) reportAt(pos Position, severity Severity, p Problem) {
	if severity == Error {
		c.errors++
	}
	if len(c.problems) == maxProblems {
		c.dropped++
		return
	}
	p.File, p.Pos, p.Severity = c.file, pos, severity
	c.problems = append(c.problems, p)
}

// finish orders the problems and says how many more there are.
func (c *decoding) finish() {
	sortProblems(c.problems)
	if c.dropped == 0 {
		return
	}
	more := Problem{
		File: c.file, Pos: c.problems[len(c.problems)-1].Pos, Severity: Warning,
		Message: fmt.Sprintf("%d more problems are not shown", c.dropped),
	}
	if c.errors > 0 {
		more.Severity = Error
	}
	c.problems = append(c.problems, more)
}

func (c *decoding) report(a at, severity Severity, message, hint string) {
	if len(c.problems) == maxProblems {
		c.reportAt(Position{}, severity, Problem{}) // counted only
		return
	}
	p := Problem{Path: a.path, Text: excerpt(a.node.Value), Message: message, Hint: hint}
	for _, r := range c.src.replacements {
		// The cause may just be a variable that is not set here.
		if ref := "${" + r.name + "}"; r.name != "" && !r.defined && strings.Contains(a.node.Value, ref) {
			p.Hint = fmt.Sprintf("the environment variable %s is not set", r.name)
			break
		}
	}
	c.reportAt(c.src.position(a.node.Line, a.node.Column), severity, p)
}

func (c *decoding) error(a at, message, hint string) { c.report(a, Error, message, hint) }
func (c *decoding) warn(a at, message, hint string)  { c.report(a, c.warning(), message, hint) }

// remark adds a warning that stays one in strict mode: about something that is
// correct here but was different in ansible-operator.
func (c *decoding) remark(a at, message, hint string) { c.report(a, Warning, message, hint) }

// warning is the severity of warnings.
func (c *decoding) warning() Severity {
	if c.opts.Strict {
		return Error
	}
	return Warning
}

// enter begins to read a node: it follows an alias and counts the value. If it
// reports true, leave must be called when the node has been read.
func (c *decoding) enter(a at) (target at, leave func(), ok bool) {
	c.values++
	if c.values > maxValues {
		if c.values == maxValues+1 {
			c.error(a, fmt.Sprintf("the document has more than %d values", maxValues),
				"aliases multiply what they refer to; write fewer of them")
		}
		return a, nil, false
	}
	if a.node.Kind != yaml.AliasNode {
		return a, func() {}, true
	}
	alias := a.node
	if c.active[alias] {
		c.error(a, fmt.Sprintf("anchor '%s' value contains itself", alias.Value), "")
		return a, nil, false
	}
	c.active[alias] = true
	a.node = alias.Alias
	return a, func() { delete(c.active, alias) }, true
}

// value converts a node to the value that encoding/json would decode, except that
// integers stay integers: nil, bool, int64, uint64, float64, string, []any or
// map[string]any. It returns false after it has reported why.
func (c *decoding) value(a at) (any, bool) {
	a, leave, ok := c.enter(a)
	if !ok {
		return nil, false
	}
	defer leave()
	switch a.node.Kind {
	case yaml.MappingNode:
		pairs, ok := c.pairs(a)
		m := make(map[string]any, len(pairs))
		for _, p := range pairs {
			v, good := c.value(p.value)
			ok = ok && good
			m[p.key] = v
		}
		return m, ok
	case yaml.SequenceNode:
		list := make([]any, 0, len(a.node.Content))
		for i := range a.node.Content {
			v, good := c.value(a.index(i))
			ok = ok && good
			list = append(list, v)
		}
		return list, ok
	}
	v, err := resolve(a.node)
	if err != nil {
		c.error(a, err.Error(), "remove the tag, or write a value that fits it")
		return nil, false
	}
	if f, isFloat := v.(float64); isFloat && (math.IsNaN(f) || math.IsInf(f, 0)) {
		c.error(a, fmt.Sprintf("%s cannot be a variable: JSON, which carries the variables, has no such number", a.node.Value),
			"put it in quotes")
		return nil, false
	}
	return v, true
}

// pair is one key of a mapping with its value.
type pair struct {
	key   string
	name  at // the key's own node
	value at
}

// pairs returns the pairs of a mapping in order, with keys as strings and merge
// keys resolved. Of equal keys the last one counts, also if a merge key added it:
// so do YAML 1.1 parsers like ansible-operator's.
func (c *decoding) pairs(m at) (pairs []pair, ok bool) {
	ok = true
	index := map[string]int{}
	put := func(p pair) {
		if i, known := index[p.key]; known {
			pairs[i] = p
			return
		}
		index[p.key] = len(pairs)
		pairs = append(pairs, p)
	}
	own := map[string]*yaml.Node{}
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		k, v := m.node.Content[i], m.node.Content[i+1]
		if isMerge(k) {
			merged, good := c.merge(at{node: v, path: m.path})
			ok = ok && good
			for _, p := range merged {
				put(p)
			}
			continue
		}
		key, good := c.keyText(at{node: k, path: m.path})
		if !good {
			ok = false
			continue
		}
		p := pair{key: key, name: at{node: k, path: m.key(v, key).path}, value: m.key(v, key)}
		if first, twice := own[key]; twice {
			c.warn(p.name, fmt.Sprintf("key %q is given twice, first at line %d; this one counts", excerpt(key),
				c.src.position(first.Line, first.Column).Line), "remove one of the two")
		}
		own[key] = k
		put(p)
	}
	return pairs, ok
}

func isMerge(k *yaml.Node) bool {
	return k.Kind == yaml.ScalarNode && k.Value == "<<" && k.Tag == "!!merge"
}

// merge returns the pairs that a merge key brings in.
func (c *decoding) merge(a at) (pairs []pair, ok bool) {
	listed := a.node.Kind == yaml.SequenceNode
	a, leave, ok := c.enter(a)
	if !ok {
		return nil, false
	}
	defer leave()
	switch {
	case a.node.Kind == yaml.MappingNode:
		return c.pairs(a)
	case listed:
		// Earlier mappings take precedence, so they come last.
		for i := len(a.node.Content) - 1; i >= 0; i-- {
			element := at{node: a.node.Content[i], path: a.path}
			target, leave, good := c.enter(element)
			if !good {
				return nil, false
			}
			if target.node.Kind != yaml.MappingNode {
				leave()
				return nil, c.badMerge(element)
			}
			more, good := c.pairs(target)
			leave()
			ok = ok && good
			pairs = append(pairs, more...)
		}
		return pairs, ok
	}
	return nil, c.badMerge(a)
}

func (c *decoding) badMerge(a at) bool {
	c.error(a, "map merge requires map or sequence of maps as the value", `write "<<: *name" with the anchor of a mapping`)
	return false
}

// keyText converts a mapping's key to the string that it is in JSON.
func (c *decoding) keyText(a at) (string, bool) {
	a, leave, ok := c.enter(a)
	if !ok {
		return "", false
	}
	defer leave()
	if a.node.Kind != yaml.ScalarNode {
		c.error(a, "invalid map key: a mapping or a list cannot be a key",
			`put a value that begins with "{{" or "[" in quotes`)
		return "", false
	}
	v, err := resolve(a.node)
	if err != nil {
		c.error(a, err.Error(), "write the key without the tag")
		return "", false
	}
	switch f := v.(type) {
	case nil, uint64:
		c.error(a, fmt.Sprintf("unsupported map key %q", a.node.Value), "put it in quotes")
		return "", false
	case float64:
		switch {
		case math.IsNaN(f):
			return ".nan", true
		case math.IsInf(f, +1):
			return ".inf", true
		case math.IsInf(f, -1):
			return "-.inf", true
		}
	}
	key, _ := scalarText(v)
	return key, true
}

// describeNode names a node for a message about its type.
func describeNode(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.AliasNode:
		return describeNode(n.Alias)
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return fmt.Sprintf("%q", excerpt(n.Value))
}
