package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// outcome is the result of a request, in a form in which two requests for objects
// of different names can be compared.
type outcome struct {
	Answer answer
	// Body is that of the answer, Stored the object afterwards, both as JSON with
	// sorted keys and numbers as they are written.
	Body, Stored string
	// mark is what the stored object says of the owner, or what the answer says of
	// an object that is not stored.
	mark string
}

// outcome reads the object after the request.
func (m *matrix) outcome(t *testing.T, c cell, name string, a answer) outcome {
	t.Helper()
	n := normalizer{owner: m.owner(c.by), name: name}
	body := decoded(a)
	if made := member(member(body, "metadata"), "name"); strings.Contains(c.body, "generateName") && made != nil {
		n.name = fmt.Sprint(made)
		n.prefix = name
	}
	out := outcome{Answer: a}
	stored := m.stored(t, c, n.name)
	tree := decoded(stored)
	out.Answer.Text = ""
	for i := range out.Answer.Warnings {
		out.Answer.Warnings[i] = n.text(out.Answer.Warnings[i])
	}
	slices.Sort(out.Answer.Warnings) // they come in the order of the fields
	if stored.Code == http.StatusOK {
		out.mark = n.mark(tree)
	} else {
		out.mark = n.mark(body)
	}
	if !c.blind {
		out.Body = n.render(t, body)
	}
	out.Stored = n.render(t, tree)
	return out
}

// decoded is the body of an answer.
func decoded(a answer) any {
	var tree any
	d := json.NewDecoder(strings.NewReader(a.Text))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return a.Text
	}
	return tree
}

func member(tree any, name string) any {
	object, _ := tree.(map[string]any)
	return object[name]
}

// normalizer removes from objects the fields that always differ, and the owner's
// mark.
type normalizer struct {
	owner Owner
	name  string
	// prefix is what the name was made up from, if it was.
	prefix string
}

// excerpt is what errors show of a body in which names cannot be seen.
var excerpt = regexp.MustCompile(`\([0-9a-f]+ \.\.\.\)`)

func (n normalizer) text(s string) string {
	s = excerpt.ReplaceAllString(s, "(EXCERPT)")
	s = strings.ReplaceAll(s, n.name, "NAME")
	if n.prefix != "" {
		s = strings.ReplaceAll(s, n.prefix, "PREFIX")
	}
	return s
}

// mark describes the owner mark of an object.
func (n normalizer) mark(tree any) string {
	meta := member(tree, "metadata")
	var found []string
	references, _ := member(meta, "ownerReferences").([]any)
	for _, ref := range references {
		if member(ref, "uid") != string(n.owner.UID) {
			continue
		}
		want := map[string]any{
			"apiVersion": n.owner.GVK.GroupVersion().String(), "kind": n.owner.GVK.Kind, "name": n.owner.Name, "uid": string(n.owner.UID),
		}
		if fmt.Sprint(ref) == fmt.Sprint(want) {
			found = append(found, reference)
		} else {
			found = append(found, fmt.Sprint(ref))
		}
	}
	values := member(meta, "annotations")
	owner, kind := member(values, annotationOwner), member(values, annotationOwnerType)
	switch {
	case owner == n.owner.Namespace+"/"+n.owner.Name && kind == n.owner.GVK.Kind+"."+n.owner.GVK.Group:
		found = append(found, annotated)
	case owner == nil && kind == nil, strings.HasPrefix(fmt.Sprint(owner), "elsewhere/"):
	default:
		found = append(found, fmt.Sprint(owner, kind))
	}
	if found == nil {
		return unmarked
	}
	return strings.Join(found, ", ")
}

// render is the rest of a value as JSON.
func (n normalizer) render(t *testing.T, tree any) string {
	t.Helper()
	text, err := json.MarshalIndent(n.value(tree), "", " ")
	if err != nil {
		t.Fatalf("encode as JSON: %v", err)
	}
	return n.text(string(text))
}

// age is the age in tables of a new object.
var age = regexp.MustCompile(`^(\d+s|<invalid>)$`)

func (n normalizer) value(tree any) any {
	switch v := tree.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			switch meta, ok := value.(map[string]any); {
			case key == "metadata" && ok:
				out[key] = n.metadata(meta)
			case key == "lastTransitionTime":
			default:
				out[key] = n.value(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = n.value(v[i])
		}
		return out
	case string:
		if age.MatchString(v) {
			return "AGE"
		}
	}
	return tree
}

// metadata is the metadata of an object without the fields that always differ and
// without the mark.
func (n normalizer) metadata(meta map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range meta {
		switch key {
		case "uid", "resourceVersion", "creationTimestamp":
		case "ownerReferences":
			list, _ := value.([]any)
			if rest := slices.DeleteFunc(slices.Clone(list), func(ref any) bool { return member(ref, "uid") == string(n.owner.UID) }); len(rest) > 0 {
				out[key] = rest
			}
		case "annotations":
			if rest := n.unmarked(value); len(rest) > 0 {
				out[key] = rest
			}
		case "managedFields":
			if rest := n.managed(value); len(rest) > 0 {
				out[key] = rest
			}
		default:
			out[key] = value
		}
	}
	return out
}

// unmarked are annotations without the owner's.
func (n normalizer) unmarked(value any) map[string]any {
	out := map[string]any{}
	values, _ := value.(map[string]any)
	ours := values[annotationOwner] == n.owner.Namespace+"/"+n.owner.Name
	for key, value := range values {
		if !ours || key != annotationOwner && key != annotationOwnerType {
			out[key] = value
		}
	}
	return out
}

// managed are the entries of managers that manage more than the mark.
func (n normalizer) managed(value any) []any {
	var out []any
	entries, _ := value.([]any)
	for _, entry := range entries {
		entry, _ := entry.(map[string]any)
		if fields := n.fields(entry["fieldsV1"], nil); fields != nil {
			entry["fieldsV1"] = fields
			delete(entry, "time")
			out = append(out, entry)
		}
	}
	// They come in the order of their times.
	slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out
}

// fields is a tree of managed fields without those of the mark, and without nodes
// that contain only those; nil if nothing is left.
func (n normalizer) fields(tree any, path []string) any {
	object, _ := tree.(map[string]any)
	at := strings.Join(path, ".")
	touched := false
	out := map[string]any{}
	for key, value := range object {
		below := append(slices.Clone(path), key)
		switch {
		case at == "f:metadata.f:ownerReferences" && key == `k:{"uid":"`+string(n.owner.UID)+`"}`,
			at == "f:metadata.f:annotations" && (key == "f:"+annotationOwner || key == "f:"+annotationOwnerType):
			touched = true
		case len(path) < 2 && (at == "" || at == "f:metadata"):
			if rest := n.fields(value, below); rest != nil {
				out[key] = rest
			} else {
				touched = true
			}
		default:
			out[key] = value
		}
	}
	_, dot := out["."]
	if touched && (len(out) == 0 || len(out) == 1 && dot) {
		return nil
	}
	return out
}
