package objectbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	goyaml "go.yaml.in/yaml/v2"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// How much larger than its text a document may become. Without aliases a node
// takes at least two bytes of text, so that only aliases reach the limit; the
// allowance is for small documents with many aliases.
const (
	nodeCost       = 8
	expansion      = 8
	aliasAllowance = 1 << 20
)

// yamlToJSON converts the first document, with the library that API servers use:
// they do not look at the others.
//
// The library bounds how many nodes aliases expand to, but not how much text. So the
// text is measured first, while aliases of a string still share it.
func yamlToJSON(body []byte) ([]byte, error) {
	if json.Valid(body) {
		return body, nil
	}
	var tree any
	if err := goyaml.Unmarshal(body, &tree); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if left := remaining(tree, expansion*len(body)+aliasAllowance); left < 0 {
		return nil, fmt.Errorf("%w: aliases make the document too large", ErrUnmarkable)
	}
	text, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	return text, nil
}

// remaining is the rest of a size after the tree; below zero if the tree is larger.
func remaining(tree any, size int) int {
	size -= nodeCost
	switch t := tree.(type) {
	case string:
		size -= len(t)
	case []any:
		for _, v := range t {
			if size = remaining(v, size); size < 0 {
				return size
			}
		}
	case map[any]any:
		for k, v := range t {
			if size = remaining(v, remaining(k, size)); size < 0 {
				return size
			}
		}
	}
	return size
}

// addToYAML returns JSON unless nothing changes.
func (e Encoding) addToYAML(body []byte, m Mark) ([]byte, error) {
	text, err := yamlToJSON(body)
	if err != nil {
		return nil, err
	}
	marked, err := e.addToJSON(text, m, nil)
	if err != nil || bytes.Equal(marked, text) {
		return body, err
	}
	if json.Valid(body) {
		return marked, nil
	}
	// A client that asked for strict validation gets errors about duplicates. The
	// JSON would not have them any more.
	if _, err := yaml.YAMLToJSONStrict(body); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnmarkable, err)
	}
	// JSON is YAML except for details, such as keys longer than 1024 bytes and
	// control characters above ASCII's.
	if again, err := yaml.YAMLToJSON(text); err != nil || !sameObject(text, again) {
		return nil, fmt.Errorf("%w: the document does not survive as JSON", ErrUnmarkable)
	}
	return marked, nil
}

// sameObject reports whether an API server decodes two texts of JSON to the same.
func sameObject(a, b []byte) bool {
	var x, y any
	err := errors.Join(kjson.UnmarshalCaseSensitivePreserveInts(a, &x), kjson.UnmarshalCaseSensitivePreserveInts(b, &y))
	return err == nil && reflect.DeepEqual(x, y)
}
