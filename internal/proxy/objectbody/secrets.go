package objectbody

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// lastApplied is the annotation in which kubectl keeps the object that it applied,
// including the values.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// SecretValues returns the values of the Secrets in a body that is only about
// Secrets: one Secret, a list, a table, a patch, an event of a watch, or none, for
// example if only metadata was asked for. The body is JSON, or YAML if the media
// type says so. It returns an error if the body may hold values that cannot be read.
func SecretValues(mediaType string, body []byte) ([]string, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var tree any
	switch mediaType {
	case runtime.ContentTypeJSON, string(types.MergePatchType), string(types.StrategicMergePatchType):
		if err := unmarshal(body, &tree); err != nil { // it also refuses repeated members
			return nil, err
		}
	case runtime.ContentTypeYAML, string(types.ApplyYAMLPatchType):
		var document yaml.Node
		if err := yaml.Unmarshal(body, &document); err != nil {
			return nil, fmt.Errorf("read the values of Secrets: %w", err)
		}
		if hasAlias(&document) {
			return nil, errors.New("YAML with aliases is not read: it may be much larger than its text")
		}
		if err := document.Decode(&tree); err != nil {
			return nil, fmt.Errorf("read the values of Secrets: %w", err)
		}
	case string(types.JSONPatchType):
		return patchSecrets(body)
	default:
		return nil, fmt.Errorf("the values of Secrets in %q cannot be read", mediaType)
	}
	return treeSecrets(nil, tree), nil
}

func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

// patchSecrets treats every text in a JSON patch as a value, because the meaning of
// the patch depends on the stored object.
func patchSecrets(body []byte) ([]string, error) {
	var operations []struct {
		Value any `json:"value"`
	}
	if err := json.Unmarshal(body, &operations); err != nil {
		return nil, fmt.Errorf("read the values of a JSON patch: %w", err)
	}
	var values []string
	for _, op := range operations {
		switch value := op.Value.(type) {
		case string:
			values = append(values, value, decoded(value))
		case map[string]any:
			values = append(values, entries(value, true)...)
			values = append(values, entries(value, false)...)
			values = treeSecrets(values, value)
		}
	}
	return values, nil
}

// treeSecrets finds the values at any depth: an object may be in a list, in the
// rows of a table, or in the event of a watch.
func treeSecrets(values []string, tree any) []string {
	switch t := tree.(type) {
	case []any:
		for _, v := range t {
			values = treeSecrets(values, v)
		}
	case map[string]any, map[any]any:
		object, _ := asMap(t)
		for key, v := range object {
			m, isMap := asMap(v)
			switch {
			case key == "data" && isMap:
				values = append(values, entries(m, true)...)
			case key == "stringData" && isMap:
				values = append(values, entries(m, false)...)
			case key == lastApplied:
				text, _ := v.(string)
				var applied any
				if json.Unmarshal([]byte(text), &applied) == nil {
					values = treeSecrets(values, applied)
				}
			default:
				values = treeSecrets(values, v)
			}
		}
	}
	return values
}

// asMap returns v as an object; false if it is none. Keys in YAML need not be texts;
// like the API server, asMap turns them into texts.
func asMap(v any) (map[string]any, bool) {
	m, ok := v.(map[any]any)
	if !ok {
		m, ok := v.(map[string]any)
		return m, ok
	}
	plain := make(map[string]any, len(m))
	for key, v := range m {
		plain[fmt.Sprint(key)] = v
	}
	return plain, true
}

func entries(m map[string]any, encoded bool) []string {
	var values []string
	for _, v := range m {
		text, ok := v.(string)
		if ok && encoded {
			text = decoded(text)
		}
		if text != "" {
			values = append(values, text)
		}
	}
	return values
}

// decoded decodes a value of data. A value that cannot be decoded is returned
// unchanged; the API server refuses it.
func decoded(text string) string {
	value, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return text
	}
	return string(value)
}

// RequestedToken returns the token in the answer to a TokenRequest, if there is one.
func RequestedToken(body []byte) ([]string, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var answer authenticationv1.TokenRequest
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read the answer to a TokenRequest: %w", err)
	}
	if answer.Status.Token == "" {
		return nil, nil
	}
	return []string{answer.Status.Token}, nil
}
