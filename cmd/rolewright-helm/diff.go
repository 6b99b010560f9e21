package main

import (
	"fmt"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Limits for reported changes: bytes in all, and lines of an object to compare.
const (
	maxDiff      = 16 << 10
	maxDiffLines = 1000
)

// diffs collects the changes of objects, up to maxDiff bytes. It leaves out Secrets.
type diffs struct{ text strings.Builder }

// add adds the change of an object. before or after is nil if the object does not exist.
func (d *diffs) add(name string, before, after map[string]any) {
	if secret(before) || secret(after) || d.text.Len() >= maxDiff {
		return
	}
	what := "(too large to be shown)\n"
	was, is := lines(before), lines(after)
	if len(was) <= maxDiffLines && len(is) <= maxDiffLines {
		// The writer is a buffer: there is no error.
		what, _ = difflib.GetUnifiedDiffString(difflib.UnifiedDiff{A: was, B: is, Context: 3})
	}
	if what != "" {
		d.text.WriteString(name + ":\n" + what)
	}
}

// String leaves out control characters, which only names in a forged record have: in a report, each takes six bytes.
func (d *diffs) String() string {
	return clip(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, d.text.String()), maxDiff)
}

// lines returns the lines of an object as YAML; none if it is nil.
func lines(obj map[string]any) []string {
	if obj == nil {
		return nil
	}
	text, err := yaml.Marshal(obj)
	if err != nil {
		return []string{"(" + err.Error() + ")\n"}
	}
	return difflib.SplitLines(strings.TrimSuffix(string(text), "\n"))
}

// secret tells whether an object is a Secret, or a list that has one.
func secret(obj map[string]any) bool {
	items, _ := obj["items"].([]any)
	for _, item := range items {
		if m, ok := item.(map[string]any); ok && secret(m) {
			return true
		}
	}
	kind := fmt.Sprint(obj["kind"])
	return kind == "Secret" || kind == "SecretList"
}

// shownObject returns a live object without fields that people did not write.
func shownObject(obj runtime.Object) map[string]any {
	m, _ := stable(obj).(map[string]any)
	if m == nil {
		return nil
	}
	delete(m, "status")
	if meta, ok := m["metadata"].(map[string]any); ok {
		delete(meta, "uid")
		delete(meta, "creationTimestamp")
	}
	return m
}
