package tasks

import (
	"cmp"
	"os"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// objects returns the objects that the arguments of k8s or k8s_scale define.
func (a args) objects() []Use {
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
func (a args) defined(n *yaml.Node) (list []Use) {
	n = content.Resolved(n)
	kind, items := content.Get(n, "kind"), content.Get(n, "items")
	switch m := fileLookup.FindStringSubmatch(n.Value); {
	case kind != nil && strings.HasSuffix(kind.Value, "List") && items != nil:
		return a.defined(items)
	case n.Kind == yaml.SequenceNode:
		for _, child := range n.Content {
			list = append(list, a.defined(child)...)
		}
		return list
	case n.Kind == yaml.MappingNode:
		if refs := content.Get(content.Get(n, "metadata"), "ownerReferences"); refs != nil {
			a.s.Gap(a.f, refs.Line, "owner references: blockOwnerDeletion needs update of the finalizers of the owner")
		}
		version := cmp.Or(content.Get(n, "apiVersion"), a.get("api_version", "api", "version"))
		return a.object(cmp.Or(kind, a.get("kind")), version, Place{a.f.File, n.Line})
	case m != nil:
		return a.file(&yaml.Node{Kind: yaml.ScalarNode, Value: m[2], Line: n.Line}, m[1]+"s")
	case !strings.Contains(n.Value, "kind:"):
		a.s.Gap(a.f, n.Line, "the definition is an expression: %s", content.Text(n))
		return nil
	}
	first := n.Line
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		first++ // the text begins in the line below its key
	}
	return a.manifest(documents(empty(n.Value, remark, statement), first, ofObject), a.f.File)
}

// file reads the objects in a file, which may be a template.
func (a args) file(n *yaml.Node, kind string) []Use {
	n = cmp.Or(content.Get(n, "path"), n)
	if n.Kind == yaml.SequenceNode {
		var list []Use
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
	return a.manifest(documents(empty(string(data), remark, statement), 1, ofObject), path)
}

// keyLine matches the top-level keys that are read, remark and statement match what Jinja leaves out, ofObject lines of an object.
var (
	keyLine   = regexp.MustCompile(`^(apiVersion|kind):\s*(.*?)\s*$`)
	remark    = regexp.MustCompile(`(?s)\{#.*?#\}`)
	statement = regexp.MustCompile(`(?s)\{%.*?%\}`)
	ofObject  = regexp.MustCompile(`^\s*(?:[^\s#{]|\{(?:[^{]|$)|\{\{.*\bto_(?:nice_)?(?:yaml|json)\b)`)
)

// empty leaves only the line breaks of what the patterns match, one after the other: one pattern for both of Jinja's would take
// time that grows with the square of the text.
func empty(text string, patterns ...*regexp.Regexp) string {
	for _, p := range patterns {
		text = p.ReplaceAllStringFunc(text, func(s string) string { return strings.Repeat("\n", strings.Count(s, "\n")) })
	}
	return text
}

// document is what a document of a text says about its object. If it has several kinds or versions, they are alternatives.
type document struct {
	line            int // the first line of the object; 0 if it has none
	kinds, versions []*yaml.Node
}

// documents reads a text line by line, since it may be a template. first is the
// line number of its first line, and object matches the lines that show that there is an object.
func documents(text string, first int, object *regexp.Regexp) []document {
	list := []document{{}}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "---") {
			list = append(list, document{})
			continue
		}
		d := &list[len(list)-1]
		if d.line == 0 && object.MatchString(line) {
			d.line = first + i
		}
		if m := keyLine.FindStringSubmatch(line); m != nil {
			value, _, _ := strings.Cut(m[2], " #")
			n := &yaml.Node{Kind: yaml.ScalarNode, Value: strings.Trim(strings.TrimSpace(value), `'"`), Line: first + i}
			if m[1] == "kind" {
				d.kinds = append(d.kinds, n)
			} else {
				d.versions = append(d.versions, n)
			}
		}
	}
	return list
}

// manifest returns the objects of the documents of a text.
func (a args) manifest(list []document, file string) (found []Use) {
	for _, d := range list {
		switch {
		case len(d.kinds) > 0 || d.line == 0:
		case a.has("kind"):
			found = append(found, a.named()...)
		default:
			a.s.Gap(content.Frame{File: file}, d.line, "this document has no literal kind")
		}
		if len(d.versions) == 0 {
			d.versions = []*yaml.Node{nil}
		}
		for _, kind := range d.kinds {
			for _, version := range d.versions {
				found = append(found, a.object(kind, version, Place{file, kind.Line})...)
			}
		}
	}
	return found
}
