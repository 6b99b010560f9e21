package lint

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// write writes a new file and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// A sample is read as kubectl reads it: yes and on are booleans, keys are strings.
func TestSample_IsReadAsClientsOfTheAPIServerDo(t *testing.T) {
	t.Parallel()
	crd := write(t, "crd.yaml", `kind: CustomResourceDefinition
spec:
  group: example.com
  names: {kind: Site}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            apiVersion: {type: string}
            kind: {type: string}
            spec:
              type: object
              properties:
                tls: {type: boolean}
                name: {type: string}
                ports: {type: object, additionalProperties: {type: string}}
`)
	definitions := must.Get(ReadDefinitions([]string{crd}))(t)
	for spec, lines := range map[string][]int{
		"{tls: yes, ports: {80: http}}":             nil,
		"{tls: \"yes\"}":                            {7},
		"{ports: {<<: {\"80\": a}, \"80\": http}}":  nil,
		"{name: \"on\", tls: off}":                  nil,
		"\n  tls: on\n  name: no\n  more: *x # x\n": {9, 10},
	} {
		sample := write(t, "site.yaml", "---\n# Nothing.\n---\napiVersion: example.com/v1\nkind: Site\nmetadata: {name: &x x}\nspec: "+spec)
		found, err := Sample(sample, definitions)
		var got []int
		for _, f := range found {
			got = append(got, f.Line)
		}
		must.Do(t, err)
		must.Be(t, spec, lines, got)
	}
}
