package tasks

import (
	"cmp"
	"os"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// object is an object that a task writes or reads.
type object struct {
	place            Place
	apiVersion, kind string
	// named is true if the definition contains the object's name.
	named bool
}

// objects returns the objects that the arguments of k8s or k8s_scale define.
func (a args) objects() []object {
	switch {
	case a.has("resource_definition", "definition", "inline"):
		return a.defined(a.get("resource_definition", "definition", "inline"))
	case a.has("template"):
		return a.file(a.get("template"), "templates")
	case a.has("src"):
		return a.file(a.get("src"), "files")
	}
	return a.named()
}

// fileLookup matches a definition that is the content of a literally named file.
var fileLookup = regexp.MustCompile(`^\s*\{\{-?\s*(?:lookup|query|q)\(\s*['"](?:ansible\.builtin\.)?(template|file)['"]\s*,\s*['"]([^'"]*)['"]`)

// defined reads a definition: a mapping, a list of mappings, text, or a lookup of a
// file.
func (a args) defined(n *yaml.Node) []object {
	switch n = content.Resolved(n); n.Kind {
	case yaml.MappingNode:
		return a.mapping(n)
	case yaml.SequenceNode:
		var list []object
		for _, child := range n.Content {
			list = append(list, a.defined(child)...)
		}
		return list
	case yaml.ScalarNode:
	default:
		return nil
	}
	if m := fileLookup.FindStringSubmatch(n.Value); m != nil {
		return a.file(&yaml.Node{Kind: yaml.ScalarNode, Value: m[2], Line: n.Line}, m[1]+"s")
	}
	if !strings.Contains(n.Value, "kind:") {
		a.s.Gap(a.f, n.Line, "the definition is an expression: %s", content.Text(n))
		return nil
	}
	first := n.Line
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		first++ // the text begins in the line below its key
	}
	return a.documents(n.Value, a.f.File, first)
}

// mapping reads a definition that is YAML in the task.
func (a args) mapping(n *yaml.Node) []object {
	kind := content.Get(n, "kind")
	if items := content.Get(n, "items"); kind != nil && strings.HasSuffix(kind.Value, "List") && items != nil {
		return a.defined(items)
	}
	meta := content.Get(n, "metadata")
	if refs := content.Get(meta, "ownerReferences"); refs != nil {
		a.s.Gap(a.f, refs.Line, "owner references: blockOwnerDeletion needs update of the finalizers of the owner")
	}
	o := object{place: Place{a.f.File, n.Line}, named: content.Get(meta, "name") != nil}
	return a.objectOf(cmp.Or(kind, a.get("kind")), cmp.Or(content.Get(n, "apiVersion"), a.get("api_version", "api", "version")), o)
}

// file reads the objects in a file, which may be a template.
func (a args) file(n *yaml.Node, kind string) []object {
	n = cmp.Or(content.Get(n, "path"), n)
	if n.Kind == yaml.SequenceNode {
		var list []object
		for _, child := range n.Content {
			list = append(list, a.file(content.Resolved(child), kind)...)
		}
		return list
	}
	name, ok := content.Literal(n)
	if !ok {
		a.s.Gap(a.f, a.line, "the file is named by an expression: %s", content.Text(n))
		return nil
	}
	path := content.FindFile(name, a.f.Searched(kind)...)
	data, err := os.ReadFile(path)
	if err != nil {
		a.s.Gap(a.f, a.line, "the file %s does not exist", name)
		return nil
	}
	if strings.Contains(string(data), "{% include") || strings.Contains(string(data), "{%- include") {
		a.s.Gap(content.Frame{File: path}, 0, "the template includes another one")
	}
	return a.documents(string(data), path, 1)
}

// keyLine matches the lines of a manifest that are read: top-level keys of the
// object, which are not indented.
var keyLine = regexp.MustCompile(`^(apiVersion|kind):\s*(.*?)\s*$`)

// comment matches comments and statements of Jinja.
var comment = regexp.MustCompile(`(?s)\{#.*?#\}|\{%.*?%\}`)

// key is a line that keyLine matches.
type key struct {
	name, value string
	line        int
}

// documents reads the objects in a text line by line, since it may be a template.
// first is the line number of its first line.
func (a args) documents(content, file string, first int) []object {
	content = comment.ReplaceAllStringFunc(content, emptied)
	var found []object
	var keys []key
	text := 0 // the first line of the document that is not empty
	finish := func() {
		if text > 0 {
			found = append(found, a.document(keys, file, text)...)
		}
		keys, text = nil, 0
	}
	for i, line := range strings.Split(content, "\n") {
		if strings.HasPrefix(line, "---") {
			finish()
			continue
		}
		if trimmed := strings.TrimSpace(line); text == 0 && trimmed != "" && !strings.HasPrefix(trimmed, "#") && !strings.HasPrefix(trimmed, "{{") {
			text = first + i
		}
		if m := keyLine.FindStringSubmatch(line); m != nil {
			value, _, _ := strings.Cut(m[2], " #")
			keys = append(keys, key{m[1], strings.Trim(strings.TrimSpace(value), `'"`), first + i})
		}
	}
	finish()
	return found
}

// document returns the object of one document.
func (a args) document(keys []key, file string, line int) []object {
	var kind, version key
	ambiguous := false
	for _, k := range keys {
		switch {
		case k.name == "kind":
			ambiguous = ambiguous || kind.line > 0
			kind = k
		case k.name == "apiVersion":
			ambiguous = ambiguous || version.line > 0
			version = k
		}
	}
	if kind.line == 0 && a.has("kind") {
		return a.named()
	}
	if ambiguous || kind.value == "" || strings.HasSuffix(kind.value, "List") {
		a.s.Gap(content.Frame{File: file}, line, "this document has no literal kind, or more than one")
		return nil
	}
	return a.objectOf(scalar(kind), scalar(version), object{place: Place{file, kind.line}, named: true})
}

// scalar returns the node of a key's value; nil if there is no value.
func scalar(k key) *yaml.Node {
	if k.value == "" {
		return nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: k.value, Line: k.line}
}
