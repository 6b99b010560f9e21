// Package waitfor defines the goals that a run can wait for. A goal is a short text about an
// object; the package reads it and reports whether an object reaches it. It is pure, and knows
// neither clients nor runs.
package waitfor

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/jsonpath"
)

// Goal is what has to be true of an object.
type Goal struct {
	// One of these is set.
	ready     bool
	condition string
	path      *jsonpath.JSONPath
	// value is the wanted value of the condition or path; empty for any value at the path.
	value string
}

// pathForm matches the paths that are evaluated. They have no wildcard and no recursive
// descent, whose cost would grow with the size of the expression.
var pathForm = regexp.MustCompile(`^\{(\.[A-Za-z0-9_/-]+|\[[0-9]{1,6}\]|\['[A-Za-z0-9._/-]+'\]|\[\?\(@\.[A-Za-z0-9_]+ ?== ?["'][A-Za-z0-9 ._/-]*["']\)\])+\}$`)

// Parse reads a goal: ready, condition=TYPE, condition=TYPE=STATUS, jsonpath=PATH or
// jsonpath=PATH=VALUE. The last four are as for kubectl wait --for.
func Parse(text string) (Goal, error) {
	kind, rest, _ := strings.Cut(text, "=")
	switch kind {
	case "ready":
		if rest == "" {
			return Goal{ready: true}, nil
		}
	case "condition":
		name, value, given := strings.Cut(rest, "=")
		if !given {
			value = "True"
		}
		if name == "" || value == "" {
			return Goal{}, errors.New("condition: give a type, or a type and a status, such as Ready or Ready=True")
		}
		return Goal{condition: name, value: value}, nil
	case "jsonpath":
		return parsePath(rest)
	}
	return Goal{}, fmt.Errorf("%.80q is neither ready, condition=TYPE nor jsonpath=PATH", text)
}

func parsePath(text string) (Goal, error) {
	path, value := text, ""
	if end := strings.LastIndex(text, "}"); end >= 0 {
		path = text[:end+1]
		value = strings.TrimPrefix(text[end+1:], "=")
	}
	if !pathForm.MatchString(path) {
		return Goal{}, fmt.Errorf("jsonpath: %.200q is not a path to one field, such as {.status.phase} or "+
			`{.status.conditions[?(@.type=="Ready")].status}; wildcards and .. are not evaluated`, path)
	}
	p := jsonpath.New("wait").AllowMissingKeys(true)
	if err := p.Parse(path); err != nil {
		return Goal{}, fmt.Errorf("jsonpath: %w", err)
	}
	return Goal{path: p, value: value}, nil
}

// Met reports whether an object reaches the goal; if not, the text says what is found
// instead. The text tells nothing about the content of a Secret.
func (g Goal) Met(obj *unstructured.Unstructured) (bool, string) {
	met, detail := g.met(obj)
	if !met && obj.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Secret"}) {
		detail = "the Secret does not match; its content is not shown"
	}
	return met, detail
}

func (g Goal) met(obj *unstructured.Unstructured) (bool, string) {
	switch {
	case g.ready:
		return ready(obj)
	case g.condition != "":
		return condition(obj, g.condition, g.value)
	}
	var out bytes.Buffer
	if err := g.path.Execute(&out, obj.Object); err != nil {
		return false, "the path cannot be evaluated: " + err.Error()
	}
	is := out.String()
	if g.value == "" {
		return is != "", "the field at the path is missing or empty"
	}
	return is == g.value, fmt.Sprintf("it is %.100q", is)
}

// condition reports whether a condition has a status. A condition of an older generation
// does not count.
func condition(obj *unstructured.Unstructured, name, value string) (bool, string) {
	list, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, item := range list {
		c, _ := item.(map[string]any)
		if c == nil || !strings.EqualFold(text(c["type"]), name) {
			continue
		}
		if observed, there := c["observedGeneration"]; there && integer(observed) < obj.GetGeneration() {
			return false, "the condition " + name + " is from an older generation"
		}
		is := text(c["status"])
		return strings.EqualFold(is, value), fmt.Sprintf("the condition %s is %.20s: %.300s", name, is, text(c["message"]))
	}
	return false, "there is no condition " + name
}

func text(v any) string {
	s, _ := v.(string)
	return s
}

func integer(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}
