package watches

import (
	"encoding/json"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
)

// The JSON schema for editors accepts what Load accepts.
func TestJSONSchema(t *testing.T) {
	t.Parallel()
	data := must.Get(json.Marshal(JSONSchema()))(t)
	var schema spec.Schema
	must.Do(t, json.Unmarshal(data, &schema))
	for text, valid := range map[string]bool{
		"- {group: g, version: v1, kind: K, role: r}":                                          true,
		"- {version: v1, kind: K, role: r, reconcilePeriod: 30m, timeout: 60, vars: {a: [1]}}": true,
		"- {version: v1, kind: K, role: r, finalizer: {name: a/b, vars: {state: absent}}}":     true,
		"- {version: v1, kind: K, role: r, blacklist: [{group: g, version: v1, kind: A}]}":     true,
		"- {version: v1, kind: K, role: r, selector: {matchLabels: {a: b}}}":                   true,
		"- {version: v1, kind: K, role: r, retry: {initial: 1s, factor: 1.5, maxAttempts: 3}}": true,
		"- {version: v1, kind: K, role: r, retry: {factor: often}}":                            false,
		"- {version: v1, role: r}":                                                               false,
		"- {version: v1, kind: K, roles: r}":                                                     false,
		"- {version: v1, kind: K, role: r, manageStatus: often}":                                 false,
		"- {version: v1, kind: K, role: r, finalizer: {role: r}}":                                false,
		"- {version: v1, kind: K, role: r, blacklist: [{version: v1, kind: A, name: a}]}":        false,
		"- {version: v1, kind: K, role: r, selector: {matchExpressions: [{key: a, values: x}]}}": false,
	} {
		var value any
		must.Do(t, yaml.Unmarshal([]byte(text), &value))
		result := validate.NewSchemaValidator(&schema, nil, "", strfmt.Default).Validate(value)
		if result.IsValid() != valid {
			t.Errorf("%s: valid %v, want %v: %v", text, result.IsValid(), valid, result.Errors)
		}
	}
}
