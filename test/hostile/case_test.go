package hostile

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/test/tree"
)

// hostile is one custom resource of the corpus.
type hostile struct {
	// row is the row of the fault table that the case belongs to.
	row, name string
	// object is JSON with spec, status, labels, annotations and metadata, each a map; the other fields of a custom
	// resource are added. BAIT stands for the path of a program that nothing has a reason to touch, and that reports when
	// it is executed.
	object string
	// reserved says that no key of the spec may become a variable.
	reserved bool
	// alone says that the case cannot share an object with others.
	alone bool
}

func (c hostile) title() string { return c.row + "/" + c.name }

// The kind of the corpus, and the variable that holds its objects.
const (
	group, kind    = "hostile.example.com", "Probe"
	objectVariable = "_hostile_example_com_probe"
)

// parts are the maps of hostile.object, in the order in which they are read.
func parts() []string { return []string{"spec", "status", "labels", "annotations", "metadata"} }

// decode returns the parts of a case as the API server's own decoder reads them.
func (c hostile) decode(t *testing.T) map[string]any {
	t.Helper()
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "K", "parts": ` + c.object + `}`)); err != nil {
		t.Fatalf("%s: %v\n%.200s", c.title(), err, c.object)
	}
	return u.Object["parts"].(map[string]any)
}

// batch is the input of one run: an object of one case, or one that combines many cases that do not affect each other.
type batch struct {
	name  string
	cases []string
	parts map[string]any
	// names are the variables that the keys of the spec become.
	names map[string]bool
	yaml  bool
	// snake is Options.SnakeCase.
	snake bool
}

// object returns the custom resource.
func (b *batch) object() map[string]any {
	metadata := map[string]any{
		"name": "probe", "namespace": "hostile", "uid": "5f2b1f6e-8f1c-4a86-b6a1-6b5d9c3f7f10", "generation": int64(1),
		"labels": b.parts["labels"], "annotations": b.parts["annotations"],
	}
	if own, ok := b.parts["metadata"].(map[string]any); ok {
		maps.Copy(metadata, own)
	}
	return map[string]any{
		"apiVersion": group + "/v1", "kind": kind, "metadata": metadata, "spec": b.parts["spec"], "status": b.parts["status"],
	}
}

func (b *batch) options() extravars.Options {
	return extravars.Options{Group: group, Kind: kind, SnakeCase: b.snake, MarkUnsafe: true}
}

// takes adds further parts if none of their keys is in the batch already, and reports whether it has.
func (b *batch) takes(more map[string]any) bool {
	spec, _ := more["spec"].(map[string]any)
	for key := range spec {
		if b.names[b.variable(key)] {
			return false
		}
	}
	for _, part := range parts() {
		for key := range asMap(more[part]) {
			if _, taken := asMap(b.parts[part])[key]; taken {
				return false
			}
		}
	}
	for _, part := range parts() {
		maps.Copy(b.parts[part].(map[string]any), asMap(more[part]))
	}
	for key := range spec {
		b.names[b.variable(key)] = true
	}
	return true
}

func (b *batch) variable(key string) string {
	if b.snake {
		return extravars.ToSnake(key)
	}
	return key
}

func asMap(value any) map[string]any {
	m, _ := value.(map[string]any)
	return m
}

func newBatch(name string, snake bool) *batch {
	b := &batch{name: name, snake: snake, names: map[string]bool{}, parts: map[string]any{}}
	for _, part := range parts() {
		b.parts[part] = map[string]any{}
	}
	return b
}

// maxBatch limits the cases of one run, so that the failed one can be found.
const maxBatch = 200

// batches puts cases into as few objects as possible: those that force YAML in separate objects, and each in its own
// object if every is set.
func batches(t *testing.T, cases []hostile, snake, every bool) []*batch {
	t.Helper()
	var all []*batch
	for _, c := range cases {
		own := newBatch(c.title(), snake)
		own.takes(c.decode(t))
		own.cases = []string{c.title()}
		content, _, err := extravars.Build(own.object(), own.options())
		if err != nil {
			t.Fatalf("%s: %v", c.title(), err)
		}
		own.yaml = !json.Valid(content)
		if every || c.alone {
			all = append(all, own)
			continue
		}
		fits := slices.IndexFunc(all, func(b *batch) bool {
			return b.name == "" && b.yaml == own.yaml && len(b.cases) < maxBatch && b.takes(own.parts)
		})
		if fits < 0 {
			own.name = ""
			all = append(all, own)
			continue
		}
		all[fits].cases = append(all[fits].cases, c.title())
	}
	for i, b := range all {
		if b.name == "" {
			b.name = fmt.Sprintf("batch %d of %d cases", i, len(b.cases))
		}
	}
	return all
}

// clean returns data as a role gets it: without control characters except tab, newline and carriage return, and otherwise
// unchanged.
func clean(value any) any { return tree.Map(value, cleanText, tree.Texts(cleanText)) }

func cleanText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' || r >= ' ' && r <= '~' || r >= 0xa0 {
			return r
		}
		return '�'
	}, s)
}

// renamed returns data with its keys converted as for the watch.
func (b *batch) renamed(value any) any { return tree.Map(value, b.variable, nil) }

// exact makes values comparable: numbers by their value, and by whether they are integers if that makes a difference in
// Python.
func exact(value any) any {
	return tree.Map(value, nil, func(leaf any) any {
		switch v := leaf.(type) {
		case int64:
			return "number " + big.NewRat(v, 1).String()
		case float64:
			return exactFloat(v)
		case json.Number:
			if whole, ok := new(big.Int).SetString(v.String(), 10); ok {
				return "number " + new(big.Rat).SetInt(whole).String()
			}
			f, err := v.Float64()
			if err != nil {
				return fmt.Sprint("no number: ", err)
			}
			return exactFloat(f)
		}
		return leaf
	})
}

func exactFloat(f float64) string {
	if f == 0 && math.Signbit(f) {
		return "number -0"
	}
	return "number " + new(big.Rat).SetFloat64(f).String()
}

// lay puts baits at the paths that the object contains.
func (b *batch) lay(s *sandbox) {
	bait := s.bait()
	for _, part := range parts() {
		b.parts[part] = baited(b.parts[part], bait)
	}
}

func baited(value any, bait string) any {
	text := func(s string) string { return strings.ReplaceAll(s, "BAIT", bait) }
	return tree.Map(value, text, tree.Texts(text))
}

// variables returns the keys of the spec that become variables.
func (b *batch) variables(object map[string]any) []string {
	vars, _ := extravars.Vars(object, b.options())
	var names []string
	for name := range vars {
		if name != extravars.OperatorMeta && name != objectVariable && name != objectVariable+"_spec" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// huge reports whether the object is too large to be used a dozen times, or so deep that Ansible 2.19 cannot convert it
// to text in a variable of a variable.
func (b *batch) huge() bool {
	return len(fmt.Sprint(b.parts)) > 100_000 || asMap(b.parts["spec"])["deep"] != nil
}
