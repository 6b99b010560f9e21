package tasks

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// taskFile reads a list of tasks.
func (s *scanner) taskFile(path string, f frame) error {
	if f.depth >= maxDepth || !s.enter(path, f) {
		return nil
	}
	root, err := read(path)
	if err != nil || root == nil {
		return err
	}
	f.file, f.depth = path, f.depth+1
	if root.Kind == yaml.ScalarNode && strings.HasPrefix(root.Value, "$ANSIBLE_VAULT") {
		s.gap(f, 0, "the file is encrypted")
		return nil
	}
	if root.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s:%d: a file of tasks is a list", path, root.Line)
	}
	return s.tasks(root, f)
}

func (s *scanner) tasks(list *yaml.Node, f frame) error {
	if list == nil {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s:%d: tasks are a list", f.file, list.Line)
	}
	for _, node := range list.Content {
		node = resolved(node)
		if node.Kind != yaml.MappingNode {
			return fmt.Errorf("%s:%d: a task is a mapping", f.file, node.Line)
		}
		if err := s.task(node, f); err != nil {
			return err
		}
	}
	return nil
}

// task is one entry of a list of tasks.
func (s *scanner) task(node *yaml.Node, f frame) error {
	told, err := s.directives(node, f)
	if err != nil {
		return err
	}
	f = f.with(node)
	if get(node, "block") != nil {
		for _, key := range []string{"block", "rescue", "always"} {
			if err := s.tasks(get(node, key), f); err != nil {
				return err
			}
		}
		return nil
	}
	if told {
		return nil
	}
	s.lookups(node, f)
	s.connection(node, f)
	if n := get(node, "register"); n != nil {
		s.dynamic[n.Value] = true
	}
	for _, inner := range s.loop(node, f) {
		if err := s.call(node, inner); err != nil {
			return err
		}
	}
	return nil
}

// directive matches a comment that tells what a task does:
//
//	# rolewright:rbac GROUP RESOURCE[,…] VERB[,…]
//	# rolewright:rbac none
//
// The core group is written as core.
var directive = regexp.MustCompile(`(?m)^#+\s*rolewright:rbac\b[ \t]*(.*?)[ \t]*$`)

// directives reads the comments above a task and in it. They take the place of
// the scan.
func (s *scanner) directives(node *yaml.Node, f frame) (told bool, err error) {
	var comments strings.Builder
	collectComments(node, &comments)
	for _, m := range directive.FindAllStringSubmatch(comments.String(), -1) {
		told = true
		fields := strings.Fields(m[1])
		if len(fields) == 1 && fields[0] == "none" {
			continue
		}
		if len(fields) != 3 {
			return false, fmt.Errorf("%s:%d: the comment %q: write \"rolewright:rbac GROUP RESOURCE VERBS\", such as \"rolewright:rbac apps deployments/scale get,patch\" (the core group is called core), or \"rolewright:rbac none\"",
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
	return told, nil
}

// collectComments gathers the comments of a task, but not of the tasks in it.
func collectComments(n *yaml.Node, into *strings.Builder) {
	add := func(n *yaml.Node) {
		for _, c := range []string{n.HeadComment, n.LineComment, n.FootComment} {
			if c != "" {
				into.WriteString(c + "\n")
			}
		}
	}
	add(n)
	for i := 0; i+1 < len(n.Content); i += 2 {
		add(n.Content[i])
		if !slices.Contains([]string{"block", "rescue", "always"}, n.Content[i].Value) {
			add(n.Content[i+1])
		}
	}
}

// globLookup matches a list of files.
var globLookup = regexp.MustCompile(`^\s*\{\{-?\s*(?:query|q|lookup)\(\s*['"](?:ansible\.builtin\.)?fileglob['"]\s*,\s*['"]([^'"]*)['"]\s*(?:,\s*wantlist=\w+\s*)?\)\s*-?\}\}\s*$`)

// loop is the frame of each turn of a task's loop: one if it has none, or one
// of which nothing is known.
func (s *scanner) loop(node *yaml.Node, f frame) []frame {
	name := "item"
	if n := get(get(node, "loop_control"), "loop_var"); n != nil {
		name = n.Value
	}
	var over *yaml.Node
	simple := true
	each(node, func(key, value *yaml.Node) {
		if word, is := strings.CutPrefix(key.Value, "with_"); is {
			over, simple = value, word == "items" || word == "list"
			if word == "fileglob" {
				over, simple = s.globbed(value, f), true
			}
		}
		if key.Value == "loop" {
			over = value
		}
	})
	if over == nil {
		return []frame{f}
	}
	if over.Kind == yaml.ScalarNode {
		if m := globLookup.FindStringSubmatch(over.Value); m != nil {
			over = s.globbed(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: m[1], Line: over.Line}, f)
		} else if fileLookup.MatchString(over.Value) {
			return []frame{f.set(name, over)} // each of its documents
		}
	}
	elements, _, ok := s.elements(over, f)
	if !ok || !simple || len(elements) > maxValues {
		return []frame{f.set(name, nil)}
	}
	var turns []frame
	for _, element := range elements {
		turns = append(turns, f.set(name, element))
	}
	return turns
}

// connection reports what runs inside of Pods.
func (s *scanner) connection(node *yaml.Node, f frame) {
	for _, n := range []*yaml.Node{get(node, "connection"), get(get(node, "vars"), "ansible_connection")} {
		if n != nil && (strings.Contains(n.Value, "kubectl") || strings.HasSuffix(n.Value, ".oc")) {
			s.gap(f, n.Line, "the connection %s runs commands in Pods", n.Value)
		}
	}
}

// globbed is the list of files that with_fileglob finds.
func (s *scanner) globbed(n *yaml.Node, f frame) *yaml.Node {
	list := &yaml.Node{Kind: yaml.SequenceNode, Line: n.Line}
	patterns := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		patterns = n.Content
	}
	for _, p := range patterns {
		globs, _, ok := s.values(p, f)
		if !ok {
			return n
		}
		for _, glob := range globs {
			for _, dir := range s.searched(f, "files") {
				if filepath.IsAbs(glob) {
					dir = ""
				}
				found, err := filepath.Glob(filepath.Join(dir, glob))
				if err != nil {
					return n
				}
				for _, path := range found {
					list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: path, Line: n.Line})
				}
			}
		}
	}
	return list
}

// searched are the directories in which Ansible looks for a task's file.
func (s *scanner) searched(f frame, kind string) []string {
	here := filepath.Dir(f.file)
	dirs := []string{filepath.Join(here, kind), here}
	if f.roleDir != "" {
		dirs = append([]string{filepath.Join(f.roleDir, kind), f.roleDir, filepath.Join(f.roleDir, "tasks", kind), filepath.Join(f.roleDir, "tasks")}, dirs...)
	}
	return dirs
}

// call is what a task does in one turn of its loop.
func (s *scanner) call(node *yaml.Node, f frame) error {
	name, value, line := action(node)
	if name == "" {
		s.gap(f, node.Line, "the task names no module")
		return nil
	}
	short := name
	if rest, is := strings.CutPrefix(name, "ansible.builtin."); is {
		short = rest
	} else if rest, is := strings.CutPrefix(name, "ansible.legacy."); is {
		short = rest
	}
	switch short {
	case "include_tasks", "import_tasks", "include":
		file := value
		if n := get(value, "file"); n != nil {
			file = n
		}
		inner := f
		if apply := get(value, "apply"); apply != nil {
			inner = inner.with(apply)
		}
		return s.included(inner, file, s.searched(f, "tasks"), s.taskFile)
	case "include_role", "import_role":
		return s.namedRole(get(value, "name"), get(value, "tasks_from"), f, line)
	case "set_fact":
		each(value, func(key, _ *yaml.Node) { s.dynamic[key.Value] = true })
		return nil
	}
	s.module(name, short, args{s: s, f: f, node: s.arguments(name, value, node, f), line: line})
	return nil
}

// arguments are those of a task, on those of module_defaults.
func (s *scanner) arguments(name string, value, node *yaml.Node, f frame) *yaml.Node {
	merged := &yaml.Node{Kind: yaml.MappingNode, Line: node.Line}
	add := func(from *yaml.Node) {
		each(from, func(key, value *yaml.Node) {
			for i := 0; i+1 < len(merged.Content); i += 2 {
				if merged.Content[i].Value == key.Value {
					merged.Content[i+1] = value
					return
				}
			}
			merged.Content = append(merged.Content, key, value)
		})
	}
	if canonical, ok := kubernetesModule(name); ok {
		for _, key := range []string{"group/kubernetes.core.k8s", "group/k8s", "group/community.kubernetes.k8s"} {
			add(f.defaults[key])
		}
		add(f.defaults["kubernetes.core."+canonical])
	}
	add(f.defaults[name])
	if value != nil && value.Kind == yaml.ScalarNode && value.Tag != "!!null" {
		if whole, _ := s.whole(value, f); whole.Kind == yaml.MappingNode {
			value = whole
		} else if value = keyValues(value); value == nil {
			return nil
		}
	}
	add(value)
	extra := get(node, "args")
	if extra != nil && extra.Kind == yaml.ScalarNode {
		return nil
	}
	add(extra)
	return merged
}

var pair = regexp.MustCompile(`(\w+)=("[^"]*"|'[^']*'|\{\{.*?\}\}|\S+)`)

// keyValues reads arguments of the form key=value; nil if an expression says
// what they are.
func keyValues(n *yaml.Node) *yaml.Node {
	if strings.HasPrefix(strings.TrimSpace(n.Value), "{{") {
		return nil
	}
	m := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
	for _, found := range pair.FindAllStringSubmatch(n.Value, -1) {
		for _, value := range []string{found[1], strings.Trim(found[2], `"'`)} {
			m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: value, Line: n.Line})
		}
	}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: freeForm}, n)
	return m
}

// freeForm is the argument that holds the text of a task such as
// "command: date".
const freeForm = "_raw_params"

// action is the module of a task and its arguments.
func action(node *yaml.Node) (name string, value *yaml.Node, line int) {
	each(node, func(key, v *yaml.Node) {
		if name == "" && !keyword(key.Value) {
			name, value, line = key.Value, v, key.Line
		}
	})
	if name != "action" && name != "local_action" {
		return name, value, line
	}
	if module := get(value, "module"); module != nil {
		return module.Value, value, line
	}
	if value != nil && value.Kind == yaml.ScalarNode {
		word, rest, _ := strings.Cut(value.Value, " ")
		return word, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: rest, Line: line}, line
	}
	return "", nil, line
}

// keyword reports whether a key of a task is Ansible's, and no module.
func keyword(key string) bool {
	if strings.HasPrefix(key, "with_") {
		return true
	}
	return slices.Contains([]string{
		"any_errors_fatal", "args", "async", "become", "become_exe", "become_flags", "become_method", "become_user",
		"changed_when", "check_mode", "collections", "connection", "debugger", "delay", "delegate_facts", "delegate_to",
		"diff", "environment", "failed_when", "ignore_errors", "ignore_unreachable", "listen", "loop", "loop_control",
		"module_defaults", "name", "no_log", "notify", "poll", "port", "register", "remote_user", "retries", "run_once",
		"tags", "throttle", "timeout", "until", "vars", "when",
	}, key)
}

var (
	// lookupCall matches a lookup of Kubernetes objects.
	lookupCall = regexp.MustCompile(`(?s)\b(?:lookup|query|q)\(\s*['"](?:kubernetes\.core\.|community\.kubernetes\.|community\.okd\.)?k8s['"]\s*(.*?)\)`)
	// lookupArgument matches one of its arguments.
	lookupArgument = regexp.MustCompile(`(\w+)\s*=\s*('[^']*'|"[^"]*"|[\w.\[\]]+)`)
)

// lookups reads the lookups of Kubernetes objects in a task's expressions.
func (s *scanner) lookups(node *yaml.Node, f frame) {
	scalars(node, func(n *yaml.Node) {
		for _, m := range lookupCall.FindAllStringSubmatch(n.Value, -1) {
			arguments := &yaml.Node{Kind: yaml.MappingNode, Line: n.Line}
			for _, a := range lookupArgument.FindAllStringSubmatch(m[1], -1) {
				value := strings.Trim(a[2], `"'`)
				if value == a[2] {
					value = "{{ " + value + " }}"
				}
				for _, text := range []string{a[1], value} {
					arguments.Content = append(arguments.Content, &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text, Line: n.Line})
				}
			}
			a := args{s: s, f: f, node: arguments, line: n.Line}
			verbs := []string{"list"}
			if a.has("resource_name") {
				verbs = []string{"get"}
			}
			a.useKind("", verbs, false)
		}
	})
}
