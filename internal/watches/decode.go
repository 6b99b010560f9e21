package watches

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
)

// maxValues bounds what a file expands to through its aliases.
const maxValues = 100_000

// maxProblems bounds how many problems of a file are reported. People read no more.
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
	cel    plugincel.Compiler // nil until an expression has to be compiled
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

// plain returns a tree without aliases and merge keys, in which every key is a string
// and unique. It reports and leaves out what does not fit; it returns false if that
// is everything.
func (c *decoding) plain(a at) (at, bool) {
	nothing := at{node: &yaml.Node{Kind: yaml.ScalarNode, Line: a.node.Line, Column: a.node.Column}, path: a.path}
	c.values++
	if c.values > maxValues {
		if c.values == maxValues+1 {
			c.error(a, fmt.Sprintf("the document has more than %d values", maxValues),
				"use fewer YAML aliases: each one counts as a copy of its anchor")
		}
		return nothing, false
	}
	if alias := a.node; alias.Kind == yaml.AliasNode {
		if c.active[alias] {
			c.error(a, fmt.Sprintf("anchor '%s' value contains itself", alias.Value), "")
			return nothing, false
		}
		c.active[alias] = true
		defer delete(c.active, alias)
		a.node = alias.Alias
	}
	n := *a.node
	switch n.Kind {
	case yaml.MappingNode:
		n.Content = c.plainPairs(a)
	case yaml.SequenceNode:
		n.Content = make([]*yaml.Node, 0, len(a.node.Content))
		for i := range a.node.Content {
			element, _ := c.plain(a.index(i))
			n.Content = append(n.Content, element.node)
		}
	}
	return at{node: &n, path: a.path}, true
}

// plainPairs returns the keys of a mapping, each followed by its value. Of equal
// keys the last one counts, also if a merge key added it: so do YAML 1.1 parsers
// like ansible-operator's.
func (c *decoding) plainPairs(m at) (list []*yaml.Node) {
	index := map[string]int{}
	put := func(key, value *yaml.Node) {
		if i, known := index[key.Value]; known {
			list[i], list[i+1] = key, value
			return
		}
		index[key.Value] = len(list)
		list = append(list, key, value)
	}
	own := map[string]*yaml.Node{}
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		k, v := m.node.Content[i], m.node.Content[i+1]
		if k.Kind == yaml.ScalarNode && k.Value == "<<" && k.Tag == "!!merge" {
			merged := c.merge(at{node: v, path: m.path})
			for j := 0; j < len(merged); j += 2 {
				put(merged[j], merged[j+1])
			}
			continue
		}
		key, ok := c.keyText(at{node: k, path: m.path})
		if !ok {
			continue
		}
		value, _ := c.plain(m.key(v, key))
		if first, twice := own[key]; twice {
			c.warn(at{node: k, path: value.path}, fmt.Sprintf("duplicate key %q, first at line %d; this one is used", excerpt(key),
				c.src.position(first.Line, first.Column).Line), "remove one of the two")
		}
		own[key] = k
		put(&yaml.Node{Kind: yaml.ScalarNode, Value: key, Line: k.Line, Column: k.Column}, value.node)
	}
	return list
}

// merge returns the pairs that a merge key brings in.
func (c *decoding) merge(a at) (list []*yaml.Node) {
	sources := []*yaml.Node{a.node}
	if a.node.Kind == yaml.SequenceNode {
		sources = slices.Clone(a.node.Content)
		slices.Reverse(sources) // earlier mappings take precedence, so they come last
	}
	for _, source := range sources {
		mapping, ok := c.plain(at{node: source, path: a.path})
		if ok && mapping.node.Kind != yaml.MappingNode {
			c.error(mapping, "map merge requires map or sequence of maps as the value", `write "<<: *name" with the anchor of a mapping`)
			ok = false
		}
		if !ok {
			return nil
		}
		list = append(list, mapping.node.Content...)
	}
	return list
}

// keyText converts a mapping's key to the string that it is in JSON.
func (c *decoding) keyText(a at) (string, bool) {
	a, ok := c.plain(a)
	if !ok {
		return "", false
	}
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
	return scalarText(v), true
}

// value converts a plain node to the value that encoding/json would decode, except
// that integers stay integers: nil, bool, int64, uint64, float64, string, []any or
// map[string]any. If it returns false, it has reported why.
func (c *decoding) value(a at) (result any, ok bool) {
	ok = true
	switch a.node.Kind {
	case yaml.MappingNode:
		m := map[string]any{}
		for _, p := range pairs(a) {
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
		c.error(a, fmt.Sprintf("%s cannot be a variable: variables are passed as JSON, which has no such number", a.node.Value),
			"put it in quotes")
		return nil, false
	}
	return v, true
}

// pair is one key of a plain mapping with its value.
type pair struct {
	key   string
	name  at // the key's own node
	value at
}

func pairs(m at) []pair {
	list := make([]pair, 0, len(m.node.Content)/2)
	for i := 0; i+1 < len(m.node.Content); i += 2 {
		k := m.node.Content[i]
		value := m.key(m.node.Content[i+1], k.Value)
		list = append(list, pair{key: k.Value, name: at{node: k, path: value.path}, value: value})
	}
	return list
}

// describeNode names a node for a message about its type.
func describeNode(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "nothing"
	}
	return fmt.Sprintf("%q", excerpt(n.Value))
}
