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

// outcome is the result of a request. Outcomes can be compared although the two objects have different names.
type outcome struct {
	Answer answer
	// Body is the body of the answer, Stored the object after the request. Both are JSON with sorted keys, and keep the
	// spelling of numbers.
	Body, Stored string
	// mark describes the owner mark of the stored object, or of the object in the answer if none is stored.
	mark string
}

// outcome reads the object after the request and returns the result.
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
	slices.Sort(out.Answer.Warnings) // their order is random
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

// decoded returns the decoded body of an answer.
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

// normalizer removes the fields of objects that always differ, and the owner's mark.
type normalizer struct {
	owner Owner
	name  string
	// prefix is the beginning of a generated name; empty if the name was not generated.
	prefix string
}

// excerpt matches the part of an error that quotes a body in hexadecimal, where names cannot be replaced.
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

// render returns a normalized value as JSON.
func (n normalizer) render(t *testing.T, tree any) string {
	t.Helper()
	text, err := json.MarshalIndent(n.value(tree), "", " ")
	if err != nil {
		t.Fatalf("encode as JSON: %v", err)
	}
	return n.text(string(text))
}

// age matches the age of a new object in a table.
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

// metadata returns metadata without the fields that always differ, and without the mark.
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

// unmarked returns the annotations without those of the mark.
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

// managed returns the entries of managedFields that contain more than the mark.
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
	// The API server sorts them by time.
	slices.SortFunc(out, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	return out
}

// fields returns a tree of managed fields without the fields of the mark, and without nodes that contain nothing else. It
// returns nil if nothing is left.
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
