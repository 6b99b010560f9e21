package tasks

import (
	"strings"

	"gopkg.in/yaml.v3"
)

// found is a key of a text and its value.
type found struct {
	column int
	key    string
	value  string
	line   int
	item   bool // it begins an item of a list
}

// reading is a document while its lines are read.
type reading struct {
	keys  []found
	first int // line of the first text
	text  bool
}

func (r *reading) add(text string, number int) {
	if trimmed := strings.TrimSpace(text); trimmed != "" && !strings.HasPrefix(trimmed, "#") && !expression.MatchString(trimmed) {
		if !r.text {
			r.first = number
		}
		r.text = true
	}
	m := line.FindStringSubmatch(text)
	if m == nil {
		return
	}
	value := strings.TrimSpace(m[3])
	if hash := strings.Index(value, " #"); hash >= 0 {
		value = strings.TrimSpace(value[:hash])
	}
	r.keys = append(r.keys, found{len(m[1]), m[2], strings.Trim(value, `'"`), number, strings.Contains(m[1], "-")})
}

// finish gives the objects of the document, and makes r ready for the next.
func (a args) finish(r *reading, file string) []object {
	doc := *r
	*r = reading{}
	if len(doc.keys) == 0 && !doc.text {
		return nil
	}
	column, list := 0, false
	for _, k := range doc.keys {
		if k.column == 0 && k.key == "kind" && strings.HasSuffix(k.value, "List") {
			list = true
		}
	}
	if list || !doc.has("kind", 0) {
		column = doc.itemColumn()
	}
	if column < 0 || !doc.has("kind", column) {
		if a.has("kind") {
			o := object{place: Place{file, doc.first}}
			return a.objectsOf(a.get("kind"), a.get("api_version", "api", "version"), o)
		}
		a.s.gapAt(Place{file, doc.first}, "no kind is to be found in this document")
		return nil
	}
	var objects []object
	for _, item := range doc.items(column) {
		objects = append(objects, a.ofKeys(item, column, file)...)
	}
	return objects
}

func (r reading) has(key string, column int) bool {
	for _, k := range r.keys {
		if k.key == key && k.column == column {
			return true
		}
	}
	return false
}

// itemColumn is the least column at which items of a list say their kind; below
// 0 if there is none.
func (r reading) itemColumn() int {
	best := -1
	for _, k := range r.keys {
		if k.item && (k.key == "kind" || k.key == "apiVersion") && (best < 0 || k.column < best) {
			best = k.column
		}
	}
	return best
}

// items parts the keys at the beginnings of items; a document that is one object
// is one.
func (r reading) items(column int) [][]found {
	var parts [][]found
	for _, k := range r.keys {
		if len(parts) == 0 || k.item && k.column == column {
			parts = append(parts, nil)
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], k)
	}
	return parts
}

// ofKeys gives the objects that the keys of one object may mean: more than one
// where a condition of the template decides.
func (a args) ofKeys(keys []found, column int, file string) []object {
	var kinds, versions []found
	like := object{place: Place{file, 0}}
	for _, k := range keys {
		switch {
		case k.key == "blockOwnerDeletion" && k.value != "false":
			like.blocks = append(like.blocks, a.watched())
		case k.column == column && k.key == "kind":
			kinds = append(kinds, k)
		case k.column == column && k.key == "apiVersion":
			versions = append(versions, k)
		case k.key == "name" && k.column == column+2:
			like.named = true
		case k.key == "generateName" && k.column == column+2:
			like.generated = true
		}
	}
	// Metadata may be a line of its own: metadata: {{ … }}.
	like.named = like.named || !like.generated
	if len(versions) == 0 {
		versions = []found{{value: "v1"}}
	}
	var objects []object
	for _, kind := range kinds {
		for _, version := range beside(kind, versions) {
			like.place.Line = kind.line
			for _, o := range a.objectsOf(scalar(kind), scalar(version), like) {
				o.alternative = o.alternative || len(kinds)*len(versions) > 1
				objects = append(objects, o)
			}
		}
	}
	return objects
}

// beside are the versions that a kind may have: the one on the line before or
// after it, or all.
func beside(kind found, versions []found) []found {
	for _, v := range versions {
		if v.line == kind.line-1 || v.line == kind.line+1 {
			return []found{v}
		}
	}
	return versions
}

// watched is the kind that is watched, which is the owner that a template
// usually names.
func (a args) watched() owner { return owner{a.s.opts.APIVersion, a.s.opts.Kind} }

func scalar(f found) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: f.value, Line: f.line}
}
