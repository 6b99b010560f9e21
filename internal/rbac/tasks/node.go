package tasks

import (
	"maps"
	"strings"

	"gopkg.in/yaml.v3"
)

// get is the value of a key; nil if there is none.
func get(n *yaml.Node, key string) *yaml.Node {
	var found *yaml.Node
	each(n, func(k, value *yaml.Node) {
		if k.Value == key && found == nil {
			found = value
		}
	})
	return found
}

// each calls do for the pairs of a mapping, and then for those that it takes
// from others by merge keys (<<).
func each(n *yaml.Node, do func(key, value *yaml.Node)) {
	n = resolved(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	own := map[string]bool{}
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolved(n.Content[i+1])
		switch {
		case key.Tag != "!!merge":
			own[key.Value] = true
			do(key, value)
		case value.Kind == yaml.SequenceNode:
			merged = append(merged, value.Content...)
		default:
			merged = append(merged, value)
		}
	}
	for _, m := range merged {
		each(m, func(key, value *yaml.Node) {
			if !own[key.Value] {
				own[key.Value] = true
				do(key, value)
			}
		})
	}
}

// endless reports whether a node contains itself, by an alias of what it is in.
func endless(n *yaml.Node) bool {
	const entered, left = 1, 2
	state := map[*yaml.Node]int{}
	var enter func(*yaml.Node) bool
	enter = func(n *yaml.Node) bool {
		n = resolved(n)
		if n == nil || state[n] == left {
			return false
		}
		if state[n] == entered {
			return true
		}
		state[n] = entered
		for _, child := range n.Content {
			if enter(child) {
				return true
			}
		}
		state[n] = left
		return false
	}
	return enter(n)
}

func either(a, b *yaml.Node) *yaml.Node {
	if a != nil {
		return a
	}
	return b
}

// text is what a scalar says; for others, that they are none.
func text(n *yaml.Node) string {
	switch {
	case n == nil:
		return "nothing"
	case n.Kind == yaml.ScalarNode:
		line, _, more := strings.Cut(strings.TrimSpace(n.Value), "\n")
		if more || len(line) > 80 {
			line = line[:min(len(line), 80)] + " …"
		}
		return line
	}
	return "not a word"
}

// scalars calls do for each scalar that is written in n; what an alias means is
// written elsewhere.
func scalars(n *yaml.Node, do func(*yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind == yaml.ScalarNode {
		do(n)
	}
	for _, child := range n.Content {
		scalars(child, do)
	}
}

// with is f inside a play, block, task or entry of roles: with its vars and
// module_defaults.
func (f frame) with(n *yaml.Node) frame {
	if vars := get(n, "vars"); vars != nil && vars.Kind == yaml.MappingNode {
		f.vars = maps.Clone(f.vars)
		each(vars, func(key, value *yaml.Node) { f.vars[key.Value] = variable{node: value} })
	}
	if defaults := get(n, "module_defaults"); defaults != nil {
		f.defaults = maps.Clone(f.defaults)
		each(defaults, func(key, value *yaml.Node) { f.defaults[key.Value] = value })
	}
	return f
}

// set is f with one variable more.
func (f frame) set(name string, value *yaml.Node) frame {
	f.vars = maps.Clone(f.vars)
	if value == nil {
		delete(f.vars, name)
	} else {
		f.vars[name] = variable{node: value}
	}
	return f
}
