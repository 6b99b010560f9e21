package objectbody

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func asYAML(t testing.TB, text string) string {
	t.Helper()
	b, err := yaml.JSONToYAML([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// values mean different things to different readers of YAML.
func values() []string {
	return []string{
		"9007199254740993", "18446744073709551615", "18446744073709551616", "-9223372036854775808", "1e3", "1.0", "-0.0", "1e400", "0.1",
		"1E+21", "123456789012345678901234567890", "0x1F", "017", "0o17", "0b101", "1_000", "+1", "1:30", ".5", "5.", "-.inf",
		"on", "off", "yes", "No", "y", "TRUE", "~", "null", "Null", "''", `""`, "2001-12-14", "2001-12-14T21:59:43.10-05:00", "!!timestamp 2001-12-14",
		"!!str 1", "!!int '7'", "!!float 1", "!!binary aGVsbG8=", "!!binary gIE=", "<<", "=", "|\n    a\n    b\n", ">-\n    a\n    b\n", "'a''b'",
		`"\u2028\U0001F600\x1b\t"`, "\"<&>\"", "héllo 日本 😀", "a # b", "[]", "{}", "[a, {b: c}]", "{a, b: c}", "!custom x",
	}
}

func TestAddToYAML_MeansWhatTheAPIServerReads(t *testing.T) {
	for _, v := range values() {
		body := "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: c\ndata:\n  k: " + v + "\n  l: x\n"
		for _, e := range []Encoding{YAML, ApplyYAML} {
			for _, m := range marks() {
				marked, err := e.Add([]byte(body), m, nil)
				if err != nil {
					if _, refused := untyped(e, []byte(body), ""); refused == nil {
						t.Errorf("%s: %s: %v", e, v, err)
					}
					continue
				}
				checkAdded(t, e, []byte(body), marked, m, "")
			}
		}
	}
}

func TestAddToYAML_TakesWhatYAMLAllows(t *testing.T) {
	for name, body := range map[string]string{
		"comments":        "# a\nmetadata: # b\n  name: c\n",
		"flow":            "{metadata: {name: c}, data: {k: v,},}",
		"keys":            "{1: a, 1.5: b, true: c, off: d, 'e': f, 0x10: g}",
		"anchors":         "metadata: &m {name: c}\nspec: {a: *m, b: {<<: *m, x: y}}\n",
		"references":      "metadata:\n  ownerReferences:\n  - {uid: u-2, name: o}\n",
		"nulls":           "metadata:\n  ownerReferences: ~\n  annotations:\n",
		"nothing":         "{}",
		"null metadata":   "metadata:\n",
		"start":           "%YAML 1.1\n---\nmetadata: {name: c}\n...\n",
		"two documents":   "metadata: {name: c}\n---\nmetadata: {name: d}\n",
		"malformed other": "metadata: {name: c}\n---\n}\n",
		"byte order mark": "\ufeffmetadata: {name: c}\n",
		"utf-16":          "\xff\xfea\x00:\x00 \x00b\x00",
		"JSON":            `{"metadata":{"name":"c"},"x":1e3,"y":"\u003c"}`,
		"JSON and more":   "{\"metadata\":{\"name\":\"c\"}}\n---\n{}",
		"deep":            strings.Repeat("{a: ", 500) + "1" + strings.Repeat("}", 500),
	} {
		for _, e := range []Encoding{YAML, ApplyYAML} {
			for _, m := range marks() {
				marked, err := e.Add([]byte(body), m, nil)
				if err != nil {
					t.Errorf("%s: %s: %v", name, e, err)
					continue
				}
				if !checkAdded(t, e, []byte(body), marked, m, "") {
					t.Errorf("%s: %s: nothing to compare", name, e)
				}
			}
		}
	}
}

func TestAddToYAML_LeavesMarkedDocumentsAlone(t *testing.T) {
	body := "metadata:\n  ownerReferences: # ours\n  - uid: u-1\n    name: a\n"
	if got, err := YAML.Add([]byte(body), owner(), nil); err != nil || string(got) != body {
		t.Errorf("%q, %v", got, err)
	}
}

// Aliases may expand to much more text than the document has.
func TestYAML_IsBounded(t *testing.T) {
	var nested strings.Builder
	nested.WriteString("a0: &a0 [x]\n")
	for i := range 30 {
		fmt.Fprintf(&nested, "a%d: &a%d [*a%d,*a%d,*a%d,*a%d]\n", i+1, i+1, i, i, i, i)
	}
	large := "a: &a " + strings.Repeat("x", 1<<17) + "\nb: [" + strings.Repeat("*a,", 5_000) + "]\n"
	for name, body := range map[string]string{
		"nested": nested.String(), "large": large, "large keys": strings.Replace(large, "*a,", "{*a: 1},", 5_000),
	} {
		for _, e := range []Encoding{YAML, ApplyYAML} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := e.Add([]byte(body), owner(), nil); err == nil {
				t.Errorf("%s: %s: no error", name, e)
			}
			runtime.ReadMemStats(&after)
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 512 {
				t.Errorf("%s: %s: %d MiB were used", name, e, used)
			}
		}
	}
}
