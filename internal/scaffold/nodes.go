package scaffold

import (
	"bytes"
	"maps"
	"slices"

	"gopkg.in/yaml.v3"
)

// mapping returns a mapping node from alternating keys and nodes.
func mapping(pairs ...any) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for i := 0; i+1 < len(pairs); i += 2 {
		n.Content = append(n.Content, scalar(pairs[i].(string)), pairs[i+1].(*yaml.Node))
	}
	return n
}

func sequence() *yaml.Node { return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"} }

// scalar returns a string node, quoted if YAML would take it for something else.
func scalar(text string) *yaml.Node {
	n := &yaml.Node{}
	if n.Encode(text) != nil { // never, for a string
		n.SetString(text)
	}
	return n
}

func literal(tag, text string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
}

// set sets the value of a key, and replaces the value that it has.
func set(node *yaml.Node, key string, value *yaml.Node) {
	if i := indexOf(node, key); i < len(node.Content) {
		node.Content[i+1] = value
		return
	}
	node.Content = append(node.Content, scalar(key), value)
}

// encode returns the text of a document.
func encode(node *yaml.Node) (string, error) {
	var text bytes.Buffer
	text.WriteString("---\n")
	out := yaml.NewEncoder(&text)
	out.SetIndent(2)
	err := out.Encode(node)
	return text.String(), err
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
