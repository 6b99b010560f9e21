package content

import (
	"errors"
	"io"
	"iter"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/text"
)

// Documents yields the roots of the documents in a YAML text, without empty ones. After an error it ends.
func Documents(text string) iter.Seq2[*yaml.Node, error] {
	return func(yield func(*yaml.Node, error) bool) {
		for in := yaml.NewDecoder(strings.NewReader(text)); ; {
			var doc yaml.Node
			err := in.Decode(&doc)
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(nil, err)
				return
			case len(doc.Content) > 0 && !yield(doc.Content[0], nil):
				return
			}
		}
	}
}

// Literal returns the value of a scalar without expressions; false for other nodes.
func Literal(n *yaml.Node) (string, bool) {
	n = Resolved(n)
	if n == nil || n.Kind != yaml.ScalarNode || strings.Contains(n.Value, "{{") || strings.Contains(n.Value, "{%") {
		return "", false
	}
	return n.Value, true
}

// Resolved returns the node that an alias stands for, and other nodes as they are.
func Resolved(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// Pairs yields the keys and values of a mapping as they are written; nothing for other nodes.
func Pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(key, value *yaml.Node) bool) {
		for i := 0; n != nil && n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// Get returns the value of a key, with aliases resolved; nil if there is none.
func Get(n *yaml.Node, key string) *yaml.Node {
	var found *yaml.Node
	Each(n, func(k, value *yaml.Node) {
		if k.Value == key && found == nil {
			found = value
		}
	})
	return found
}

// Each calls do for the pairs of a mapping, and then for those of its merge keys
// (<<). Values that are aliases are resolved.
func Each(n *yaml.Node, do func(key, value *yaml.Node)) {
	n = Resolved(n)
	for key, value := range Pairs(n) {
		if key.Tag != "!!merge" {
			do(key, Resolved(value))
		}
	}
	for key, value := range Pairs(n) {
		if from := Resolved(value); key.Tag == "!!merge" {
			Each(from, do)
			for _, one := range from.Content {
				if from.Kind == yaml.SequenceNode {
					Each(one, do)
				}
			}
		}
	}
}

// Text returns the beginning of a scalar, for messages.
func Text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return "no text"
	}
	line, _, more := strings.Cut(strings.TrimSpace(n.Value), "\n")
	if more || len(line) > 80 {
		line = text.Cut(line, 80) + " …"
	}
	return line
}

// action returns the module of a task, with its arguments and line: the first key that
// is not a keyword.
func action(node *yaml.Node) (name string, value *yaml.Node, line int) {
	Each(node, func(key, v *yaml.Node) {
		if name == "" && !keywords.MatchString(key.Value) {
			name, value, line = key.Value, v, key.Line
		}
	})
	if name != "action" && name != "local_action" {
		return name, value, line
	}
	if module := Get(value, "module"); module != nil {
		return module.Value, value, line
	}
	text := ""
	if value != nil {
		text = strings.TrimSpace(value.Value)
	}
	name, rest, _ := strings.Cut(text, " ")
	return name, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: rest, Line: line}, line
}

// keywords matches the keywords of tasks.
var keywords = regexp.MustCompile(`^(any_errors_fatal|args|async|become(_\w+)?|changed_when|check_mode|collections|connection|debugger|` +
	`delay|delegate_(facts|to)|diff|environment|failed_when|ignore_\w+|listen|loop(_control)?|module_defaults|name|no_log|notify|` +
	`poll|port|register|remote_user|retries|run_once|tags|throttle|timeout|until|vars|when|with_\w+)$`)
