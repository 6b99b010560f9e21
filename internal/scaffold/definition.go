package scaffold

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// ErrSeveral is wrapped by errors about a CRD that cannot be written because its file has several documents.
var ErrSeveral = errors.New("its CRD is in a file of several documents")

// definitionText returns the text of the kind's CRD with the schema of its spec.
// old is the existing text, or empty. It keeps what the options do not determine,
// such as limits, columns, other versions and comments. breaks lists changes
// that stored objects may violate, and kept the fields whose option no longer
// exists.
func (k Kind) definitionText(old string, s *schema) (text string, breaks, kept []string, err error) {
	root, err := k.skeleton(old)
	if err != nil {
		return "", nil, nil, err
	}
	version, err := k.version(root)
	if err != nil {
		return "", nil, nil, err
	}
	openAPI := at(at(version, "schema"), "openAPIV3Schema")
	if openAPI == nil || openAPI.Kind != yaml.MappingNode {
		return "", nil, nil, fmt.Errorf("%s: version %s has no schema.openAPIV3Schema", k.Definition(), k.Version)
	}
	if s.about != "" && at(openAPI, "description") == nil {
		openAPI.Content = append([]*yaml.Node{scalar("description"), scalar(s.about)}, openAPI.Content...)
	}
	properties := at(openAPI, "properties")
	if properties == nil {
		properties = mapping()
		set(openAPI, "properties", properties)
	}
	m := merging{}
	if spec := at(properties, "spec"); spec != nil {
		m.merge(spec, s.spec, "spec")
	} else {
		// Before the status, as people expect it.
		properties.Content = slices.Insert(properties.Content, indexOf(properties, "status"), scalar("spec"), s.spec)
	}
	text, err = encode(root)
	return text, m.breaks, m.kept, err
}

// specIn returns the schema of the spec in the text of a CRD; nil if it has none.
func (k Kind) specIn(old string) *yaml.Node {
	docs, err := documents([]byte(old))
	if err != nil {
		return nil // which is reported where it is written
	}
	for _, root := range docs {
		if version, err := k.version(root); err == nil && k.defines(root) {
			return at(at(at(at(version, "schema"), "openAPIV3Schema"), "properties"), "spec")
		}
	}
	return nil
}

// skeleton returns the existing CRD, or a new one.
func (k Kind) skeleton(old string) (*yaml.Node, error) {
	if old == "" {
		text, err := execute("files/definition.yaml", k)
		if err != nil {
			return nil, err
		}
		old = text
	}
	docs, err := documents([]byte(old))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", k.Definition(), err)
	case len(docs) == 0:
		return nil, fmt.Errorf("%s: the file is empty: remove it to have it written again", k.Definition())
	case len(docs) > 1:
		return nil, fmt.Errorf("%s: %s: %w: give each a file of its own in config/crd/bases", k.Definition(), k.Kind, ErrSeveral)
	}
	return docs[0], nil
}

// documents returns the documents of a file that are not empty.
func documents(data []byte) (all []*yaml.Node, err error) {
	for doc, err := range content.Documents(string(data)) {
		if err != nil {
			return nil, err
		}
		if doc.Tag != "!!null" {
			all = append(all, doc)
		}
	}
	return all, nil
}

// defines tells whether a document is the CRD of the kind.
func (k Kind) defines(root *yaml.Node) bool {
	spec := at(root, "spec")
	return text(at(spec, "group")) == k.FullGroup() && text(at(at(spec, "names"), "kind")) == k.Kind
}

func (k Kind) version(root *yaml.Node) (*yaml.Node, error) {
	versions := at(at(root, "spec"), "versions")
	if versions == nil || versions.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s: spec.versions: a list expected", k.Definition())
	}
	for _, v := range versions.Content {
		if name := at(v, "name"); name != nil && name.Value == k.Version {
			return v, nil
		}
	}
	return nil, fmt.Errorf("%s: it has no version %s: add it to spec.versions", k.Definition(), k.Version)
}

// addVersion returns the text of the CRD with the version. If it is missing, it is added as a copy of the last one, not
// stored.
func (k Kind) addVersion(old string) (string, error) {
	root, err := k.skeleton(old)
	if err != nil {
		return "", err
	}
	versions := at(at(root, "spec"), "versions")
	if _, err := k.version(root); err == nil || versions == nil || len(versions.Content) == 0 {
		return old, nil // it has the version, or is no CRD, which is reported later
	}
	last, err := yaml.Marshal(versions.Content[len(versions.Content)-1])
	if err != nil {
		return "", err
	}
	docs, err := documents(last)
	if err != nil || len(docs) == 0 {
		return "", err
	}
	set(docs[0], "name", scalar(k.Version))
	set(docs[0], "served", literal("!!bool", "true"))
	set(docs[0], "storage", literal("!!bool", "false"))
	versions.Content = append(versions.Content, docs[0])
	return encode(root)
}

// merging updates a schema.
type merging struct{ breaks, kept []string }

// keepsUnknown is the key with which a schema keeps undeclared fields.
const keepsUnknown = "x-kubernetes-preserve-unknown-fields"

// owned returns the keys of a schema that the options alone determine.
func owned() []string {
	return []string{"type", "format", "enum", "required", "x-kubernetes-int-or-string", keepsUnknown}
}

// merge changes old to match the options, and keeps what they do not determine.
func (m *merging) merge(old, next *yaml.Node, path string) {
	m.compare(old, next, path)
	if otherType(old, next) {
		about := at(old, "description")
		old.Content = next.Content
		if about != nil && at(next, "description") == nil {
			old.Content = slices.Concat([]*yaml.Node{scalar("description"), about}, next.Content)
		}
		return
	}
	for _, key := range owned() {
		if at(next, key) == nil {
			remove(old, key)
		}
	}
	m.dropOther(old, next, path)
	if rules := mergeRules(at(old, validations), at(next, validations)); len(rules.Content) > 0 {
		set(old, validations, rules)
	} else {
		remove(old, validations)
	}
	for name, value := range content.Pairs(next) {
		key := name.Value
		before := at(old, key)
		switch {
		case key == "properties" && before != nil:
			m.mergeProperties(before, value, path)
		case key == "items" && before != nil:
			m.merge(before, value, path+"[]")
		case key == "additionalProperties" && before != nil && before.Kind == yaml.MappingNode:
			kept := len(m.kept)
			m.merge(before, value, path+"[]") // only to find what breaks
			for _, field := range m.kept[kept:] {
				m.breaks = append(m.breaks, field+": it is no longer declared")
			}
			m.kept = m.kept[:kept]
			set(old, key, value)
		case key == validations: // merged above
		case before != nil && slices.Contains(limits(), key): // set by people
		default:
			set(old, key, value)
		}
	}
}

// otherType tells whether keywords for one type, such as items, mean nothing for the other. Limits of numbers carry over.
func otherType(old, next *yaml.Node) bool {
	was, is := text(at(old, "type")), text(at(next, "type"))
	number := func(kind string) bool { return kind == "integer" || kind == "number" }
	return was != is && !(number(was) && number(is))
}

// limits returns keys of a schema that are only set if they are missing, so that the API server can compute the cost of
// rules.
func limits() []string { return []string{"maxItems", "maxLength"} }

// dropOther removes properties if there are additionalProperties now, and the reverse: the API server refuses both together.
func (m *merging) dropOther(old, next *yaml.Node, path string) {
	either := []string{"properties", "additionalProperties"}
	for i, key := range either {
		if other := either[1-i]; at(next, key) != nil && at(old, other) != nil {
			m.breaks = append(m.breaks, fmt.Sprintf("%s: its %s are replaced by %s", path, other, key))
			remove(old, other)
		}
	}
}

// mergeRules returns people's rules, followed by the rules made from the options.
func mergeRules(old, next *yaml.Node) *yaml.Node {
	all := sequence()
	made := values(next, "rule")
	if old != nil {
		for _, r := range old.Content {
			if !strings.Contains(r.HeadComment, ofSpec) && !slices.Contains(made, text(at(r, "rule"))) {
				all.Content = append(all.Content, r)
			}
		}
	}
	if next != nil {
		all.Content = append(all.Content, next.Content...)
	}
	return all
}

func (m *merging) mergeProperties(old, next *yaml.Node, path string) {
	for name := range content.Pairs(old) {
		if at(next, name.Value) == nil {
			m.kept = append(m.kept, path+"."+name.Value)
		}
	}
	for name, value := range content.Pairs(next) {
		if before := at(old, name.Value); before != nil {
			m.merge(before, value, path+"."+name.Value)
		} else {
			set(old, name.Value, value)
		}
	}
}

// compare notes what objects that were valid may violate now.
func (m *merging) compare(old, next *yaml.Node, path string) {
	was, is := text(at(old, "type")), text(at(next, "type"))
	if was != is && is != "" {
		m.breaks = append(m.breaks, fmt.Sprintf("%s: its type changes from %s to %s", path, cmp.Or(was, "any"), is))
	}
	if at(old, keepsUnknown) != nil && at(next, keepsUnknown) == nil {
		m.breaks = append(m.breaks, path+": it kept fields that the schema does not name, and no longer does")
	}
	for _, rule := range values(at(next, validations), "rule") {
		if !slices.Contains(values(at(old, validations), "rule"), rule) {
			m.breaks = append(m.breaks, fmt.Sprintf("%s: it has to fulfil the new rule %s", path, rule))
		}
	}
	for _, key := range append(limits(), "pattern", "multipleOf", "minimum", "maximum", "minLength", "minItems", "minProperties", "maxProperties") {
		if limit := at(next, key); limit != nil && was != "" && tighter(key, at(old, key), limit) {
			m.breaks = append(m.breaks, fmt.Sprintf("%s: it gets the %s %s", path, key, limit.Value))
		}
	}
	for _, name := range values(at(next, "required")) {
		if !slices.Contains(values(at(old, "required")), name) {
			m.breaks = append(m.breaks, fmt.Sprintf("%s.%s: it becomes required", path, name))
		}
	}
	if enum := at(next, "enum"); enum != nil {
		if at(old, "enum") == nil {
			m.breaks = append(m.breaks, fmt.Sprintf("%s: it accepts only these values now: %s", path, strings.Join(values(enum), ", ")))
		}
		for _, v := range values(at(old, "enum")) {
			if !slices.Contains(values(enum), v) {
				m.breaks = append(m.breaks, fmt.Sprintf("%s: %s is no longer a choice", path, v))
			}
		}
	}
}

// tighter tells whether values that an earlier limit allows may violate the new one.
func tighter(key string, before, limit *yaml.Node) bool {
	var was, is float64
	switch {
	case before == nil:
		return true
	case slices.Contains(limits(), key) || before.Value == limit.Value: // it stays
		return false
	case before.Decode(&was) != nil, limit.Decode(&is) != nil: // patterns
		return true
	case strings.HasPrefix(key, "min"):
		return is > was
	}
	if key == "multipleOf" {
		return math.Mod(was, is) != 0
	}
	return is < was
}

func text(node *yaml.Node) string {
	if node == nil {
		return ""
	}
	return node.Value
}

// values returns the scalars of a list, or the scalars under a key of its elements.
func values(node *yaml.Node, key ...string) []string {
	var all []string
	if node != nil {
		for _, n := range node.Content {
			for _, k := range key {
				n = at(n, k)
			}
			all = append(all, text(n))
		}
	}
	return all
}

// indexOf returns the index of a key in the content of a mapping, or the end of the content.
func indexOf(node *yaml.Node, key string) int {
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return i
		}
	}
	return len(node.Content)
}

func remove(node *yaml.Node, key string) {
	i := indexOf(node, key)
	node.Content = slices.Delete(node.Content, i, min(i+2, len(node.Content)))
}
