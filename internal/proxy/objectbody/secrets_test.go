package objectbody

import (
	"slices"
	"testing"
)

func TestSecretValues_FindsThemWhateverTheTextLooksLike(t *testing.T) {
	const yaml, patch = "application/yaml", "application/json-patch+json"
	for body, tt := range map[string]struct {
		mediaType string
		want      []string // nil if it cannot be read
	}{
		"stringData: {1: one, p: two}":                        {yaml, []string{"one", "two"}},
		"1: x\nstringData: {p: two}":                          {yaml, []string{"two"}},
		"data: {a: b25l, 2: dHdv}":                            {yaml, []string{"one", "two"}},
		"a: &x {b: c}\nstringData: *x":                        {yaml, nil},
		`{"stringData":{"a":"one"},"stringData":{"b":"two"}}`: {"application/json", nil},
		`{"items":[{"data":{"a":"b25l"}}]}`:                   {"application/json", []string{"one"}},
		`[{"value":{"a":"one"}},{"value":"dHdv"}]`:            {patch, []string{"dHdv", "one", "one", "two"}},
		`{"stringData":{"a":"one"}}`:                          {"application/vnd.kubernetes.protobuf", nil},
		`{"metadata":{"annotations":{"` + lastApplied + `":"{\"stringData\":{\"a\":\"one\"}}"}}}`: {"application/json", []string{"one"}},
	} {
		got, err := SecretValues(tt.mediaType, []byte(body))
		slices.Sort(got)
		if (err != nil) != (tt.want == nil) || !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, %v; want %q", body, got, err, tt.want)
		}
	}
}
