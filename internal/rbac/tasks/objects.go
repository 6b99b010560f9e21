package tasks

import (
	"errors"
	"io"
	"os"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// object is what is said of an object that a task writes or reads.
type object struct {
	place            Place
	apiVersion, kind string
	// named is true if the object itself has its name, generated if it asks for
	// one.
	named, generated bool
	// alternative is true if it is one of several that an expression may mean.
	alternative bool
	// blocks are the owners whose deletion the object is to block.
	blocks []owner
}

type owner struct{ apiVersion, kind string }

// objects are those that the arguments of k8s or k8s_scale define.
func (a args) objects() []object {
	switch {
	case a.has("resource_definition", "definition", "inline"):
		return a.defined(a.get("resource_definition", "definition", "inline"))
	case a.has("template"):
		return a.files(a.get("template"), "templates")
	case a.has("src"):
		return a.files(a.get("src"), "files")
	}
	return a.named()
}

var (
	// fileLookup matches a definition that is the content of a file.
	fileLookup = regexp.MustCompile(`^\s*\{\{-?\s*(?:lookup|query|q)\(\s*['"](?:ansible\.builtin\.)?(template|file)['"]\s*,\s*(.*?)\s*\)\s*(?:\|\s*(?:from_yaml_all|from_yaml|from_json|list)\s*)*-?\}\}\s*$`)
)

// defined reads a definition: a mapping, a list of them, or text.
func (a args) defined(n *yaml.Node) []object {
	whole, open := a.s.whole(n, a.f)
	if open {
		a.s.gap(a.f, n.Line, "the definition comes from the defaults of the role, which an object's spec can change: %s", text(n))
	}
	switch whole.Kind {
	case yaml.MappingNode:
		return a.mapping(whole)
	case yaml.SequenceNode:
		var list []object
		for _, child := range whole.Content {
			list = append(list, a.defined(resolved(child))...)
		}
		return list
	case yaml.ScalarNode:
	default:
		return nil
	}
	if m := fileLookup.FindStringSubmatch(whole.Value); m != nil {
		name := m[2]
		if quoted := literal.FindStringSubmatch(name); quoted != nil {
			name = quoted[1] + quoted[2]
		} else {
			name = "{{ " + name + " }}"
		}
		return a.files(&yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name, Line: whole.Line}, map[string]string{"template": "templates", "file": "files"}[m[1]])
	}
	if !strings.Contains(whole.Value, "kind:") {
		a.s.gap(a.f, n.Line, "the definition is an expression: %s", text(n))
		return nil
	}
	first := whole.Line
	if whole.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		first++ // the text begins below its key
	}
	return a.document(whole.Value, a.f.file, first)
}

// mapping reads a definition that is YAML.
func (a args) mapping(n *yaml.Node) []object {
	kind := get(n, "kind")
	if kind != nil && strings.HasSuffix(kind.Value, "List") && get(n, "items") != nil {
		var list []object
		if items := get(n, "items"); items.Kind == yaml.SequenceNode {
			for _, item := range items.Content {
				list = append(list, a.mapping(resolved(item))...)
			}
			return list
		}
		a.s.gap(a.f, n.Line, "the items of a list are an expression: %s", text(get(n, "items")))
		return nil
	}
	meta := get(n, "metadata")
	o := object{place: Place{a.f.file, n.Line}, named: get(meta, "name") != nil, generated: get(meta, "generateName") != nil}
	if refs := get(meta, "ownerReferences"); refs != nil && refs.Kind == yaml.SequenceNode {
		for _, ref := range refs.Content {
			if block := get(ref, "blockOwnerDeletion"); block == nil || block.Value == "false" {
				continue
			}
			for _, by := range a.objectsOf(get(ref, "kind"), get(ref, "apiVersion"), o) {
				o.blocks = append(o.blocks, owner{by.apiVersion, by.kind})
			}
		}
	}
	return a.objectsOf(either(kind, a.get("kind")), either(get(n, "apiVersion"), a.get("api_version", "api", "version")), o)
}

// files reads the objects of files: one, several, or one with a path beside
// other arguments.
func (a args) files(n *yaml.Node, kind string) []object {
	list := []*yaml.Node{n}
	if elements, _, ok := a.s.elements(n, a.f); ok {
		list = elements
	}
	var found []object
	for _, element := range list {
		if element.Kind == yaml.MappingNode {
			element = get(element, "path")
		}
		names, _, ok := a.s.values(element, a.f)
		if !ok {
			a.s.gap(a.f, a.line, "the file is named by an expression: %s", text(element))
			continue
		}
		for _, name := range names {
			path := findFile(name, a.s.searched(a.f, kind))
			if path == "" {
				a.s.gap(a.f, a.line, "the file %s is not there", name)
				continue
			}
			found = append(found, a.file(path, 0)...)
		}
	}
	return found
}

var include = regexp.MustCompile(`\{%-?\s*include\s+['"]([^'"]+)['"]`)

// file reads the objects of a file, which may be a template.
func (a args) file(path string, depth int) []object {
	data, err := os.ReadFile(path)
	if err != nil {
		a.s.gap(a.f, a.line, "the file cannot be read: %v", err)
		return nil
	}
	content := string(data)
	found := a.document(content, path, 1)
	for _, m := range include.FindAllStringSubmatch(content, -1) {
		if other := findFile(m[1], a.s.searched(a.f, "templates")); other != "" && depth < 5 {
			found = append(found, a.file(other, depth+1)...)
		} else {
			a.s.gapAt(Place{path, 0}, "the template "+m[1]+" that it includes is not there")
		}
	}
	return found
}

var (
	comment   = regexp.MustCompile(`(?s)\{#.*?#\}`)
	statement = regexp.MustCompile(`(?s)\{%.*?%\}`)
	line      = regexp.MustCompile(`^(\s*(?:- +)?)(apiVersion|kind|name|generateName|blockOwnerDeletion):(?:\s+(.*?))?\s*$`)
)

// document reads the objects of a text in which expressions stand: documents of
// YAML whose keys apiVersion and kind are at the left, or in the items of a
// list. first is the number of its first line.
func (a args) document(content, file string, first int) []object {
	// What Jinja takes away leaves its lines behind, so that their numbers stay.
	blank := func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) }
	content = statement.ReplaceAllStringFunc(comment.ReplaceAllStringFunc(content, blank), blank)
	if !strings.Contains(content, "{{") {
		if found, ok := a.plain(content, file, first); ok {
			return found
		}
	}
	var found []object
	var doc reading
	for i, l := range strings.Split(content, "\n") {
		if strings.HasPrefix(l, "---") {
			found = append(found, a.finish(&doc, file)...)
			continue
		}
		doc.add(l, first+i)
	}
	return append(found, a.finish(&doc, file)...)
}

// plain reads documents without expressions. ok is false if they are no YAML.
func (a args) plain(content, file string, first int) (found []object, ok bool) {
	decoder := yaml.NewDecoder(strings.NewReader(content))
	inner := a
	inner.f.file = file
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if err != nil {
			return found, errors.Is(err, io.EOF)
		}
		if endless(&doc) {
			return nil, false
		}
		shift(&doc, first-1)
		for _, n := range doc.Content {
			switch n = resolved(n); n.Kind {
			case yaml.MappingNode:
				found = append(found, inner.mapping(n)...)
			case yaml.SequenceNode:
				for _, child := range n.Content {
					found = append(found, inner.mapping(resolved(child))...)
				}
			default:
			}
		}
	}
}

// shift moves the lines of a text within a file to those of the file.
func shift(n *yaml.Node, by int) {
	n.Line += by
	for _, child := range n.Content {
		shift(child, by)
	}
}
