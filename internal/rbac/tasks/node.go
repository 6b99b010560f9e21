package tasks

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// literal is a scalar without expressions.
func literal(n *yaml.Node) (string, bool) {
	n = resolved(n)
	if n == nil || n.Kind != yaml.ScalarNode || strings.Contains(n.Value, "{{") || strings.Contains(n.Value, "{%") {
		return "", false
	}
	return n.Value, true
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

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

// each calls do for the pairs of a mapping, and then for those of its merge keys
// (<<).
func each(n *yaml.Node, do func(key, value *yaml.Node)) {
	n = resolved(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			do(n.Content[i], resolved(n.Content[i+1]))
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if from := resolved(n.Content[i+1]); n.Content[i].Tag == "!!merge" {
			each(from, do)
			for _, one := range from.Content {
				if from.Kind == yaml.SequenceNode {
					each(one, do)
				}
			}
		}
	}
}

func either(a, b *yaml.Node) *yaml.Node {
	if a != nil {
		return a
	}
	return b
}

// text is the beginning of a scalar, for messages.
func text(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.ScalarNode {
		return "no text"
	}
	line, _, more := strings.Cut(strings.TrimSpace(n.Value), "\n")
	if more || len(line) > 80 {
		line = strings.ToValidUTF8(line[:min(len(line), 80)], "") + " …"
	}
	return line
}

// scalars calls do for each scalar that is written in n; aliases are not
// followed.
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

// action is the module of a task and its arguments: the first key that is not a
// keyword.
func action(node *yaml.Node) (name string, value *yaml.Node, line int) {
	each(node, func(key, v *yaml.Node) {
		if name == "" && !keywords.MatchString(key.Value) {
			name, value, line = key.Value, v, key.Line
		}
	})
	if name != "action" && name != "local_action" {
		return name, value, line
	}
	if module := get(value, "module"); module != nil {
		return module.Value, value, line
	}
	word, rest, _ := strings.Cut(text(value), " ")
	return word, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: rest, Line: line}, line
}

// arguments are those of a module and of the keyword args, as one mapping; nil
// if they are not literal.
func arguments(value, extra *yaml.Node) *yaml.Node {
	merged := &yaml.Node{Kind: yaml.MappingNode}
	for _, from := range []*yaml.Node{value, extra} {
		switch {
		case from == nil || from.Tag == "!!null":
		case from.Kind == yaml.MappingNode:
			each(from, func(key, value *yaml.Node) { merged.Content = append(merged.Content, key, value) })
		default:
			words, ok := literal(from)
			if !ok || strings.Contains(words, "=") {
				return nil // key=value is not read
			}
			merged.Content = append(merged.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: "_raw_params"}, from)
		}
	}
	return merged
}

// keywords matches the keywords of tasks.
var keywords = regexp.MustCompile(`^(any_errors_fatal|args|async|become(_\w+)?|changed_when|check_mode|collections|connection|debugger|` +
	`delay|delegate_(facts|to)|diff|environment|failed_when|ignore_\w+|listen|loop(_control)?|module_defaults|name|no_log|notify|` +
	`poll|port|register|remote_user|retries|run_once|tags|throttle|timeout|until|vars|when|with_\w+)$`)

// directive matches a comment that lists the requests of a task:
//
//	# rolewright:rbac GROUP RESOURCE[,…] VERB[,…]
//	# rolewright:rbac none
//
// The core group is written as core.
var directive = regexp.MustCompile(`(?m)^#+\s*rolewright:rbac\b[ \t]*(.*?)[ \t]*$`)

// directives reads the comments above a task and in it. They replace the scan of
// the task.
func (s *scanner) directives(node *yaml.Node, f frame) (known bool, err error) {
	var comments strings.Builder
	collectComments(node, &comments)
	for _, m := range directive.FindAllStringSubmatch(comments.String(), -1) {
		known = true
		fields := strings.Fields(m[1])
		if len(fields) == 1 && fields[0] == "none" {
			continue
		}
		if len(fields) != 3 {
			return false, fmt.Errorf("%s:%d: the comment %q: write \"rolewright:rbac GROUP RESOURCE VERBS\", such as "+
				"\"rolewright:rbac apps deployments/scale get,patch\" (the core group is called core), or \"rolewright:rbac none\"",
				f.file, node.Line, m[0])
		}
		group := fields[0]
		if group == "core" {
			group = ""
		}
		for resource := range strings.SplitSeq(fields[1], ",") {
			s.report.Directs = append(s.report.Directs, Direct{Place{f.file, node.Line}, group, resource, strings.Split(fields[2], ",")})
		}
	}
	return known, nil
}

// collectComments gathers the comments of a task, but not of the tasks in it.
func collectComments(n *yaml.Node, into *strings.Builder) {
	add := func(n *yaml.Node) {
		fmt.Fprintf(into, "%s\n%s\n%s\n", n.HeadComment, n.LineComment, n.FootComment)
	}
	add(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		add(n.Content[i])
		if !slices.Contains([]string{"block", "rescue", "always"}, n.Content[i].Value) {
			add(n.Content[i+1])
		}
	}
}
