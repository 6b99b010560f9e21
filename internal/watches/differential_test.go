package watches

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"gopkg.in/yaml.v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// decodeText decodes a document without environment references.
func decodeText(text string) (any, []Problem) {
	c := &decoding{file: "w", active: map[*yaml.Node]bool{}, src: newSource(text, text, nil)}
	if !c.checkCharacters() {
		return nil, c.problems
	}
	root := c.parse()
	if root == nil {
		return nil, c.problems
	}
	plain, _ := c.plain(at{node: root})
	v, _ := c.value(plain)
	return v, c.problems
}

// libraryValue decodes a document with ansible-operator's YAML library, before numbers lose their precision.
func libraryValue(text string) (any, error) {
	data, err := sigsyaml.YAMLToJSON([]byte(text))
	if err != nil {
		return nil, err
	}
	return canonical(data)
}

// canonical decodes JSON and keeps the text of numbers, so that they can be compared.
func canonical(data []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	err := d.Decode(&v)
	return v, err
}

// differs says how our reading of a document differs from ansible-operator's; empty if it does not.
func differs(t *testing.T, text string) string {
	t.Helper()
	want, wantErr := libraryValue(text)
	got, problems := decodeText(text)
	errors, _ := Count(problems)
	switch {
	case wantErr != nil && errors == 0:
		return "no error, want " + wantErr.Error()
	case wantErr != nil:
		return ""
	case errors > 0:
		return "unexpected " + problems[0].String()
	}
	data, err := json.Marshal(got)
	if err != nil {
		return err.Error()
	}
	again, err := canonical(data)
	if err != nil {
		return err.Error()
	}
	return cmp.Diff(want, again)
}

// scalars are spellings that YAML 1.1, YAML 1.2 and Go read differently.
func scalars() []string {
	list := []string{
		"", "~", "null", "Null", "NULL", "nULL", "y", "Y", "yes", "Yes", "YES", "yEs", "n", "N", "no", "No", "NO",
		"on", "On", "ON", "oN", "off", "Off", "OFF", "true", "True", "TRUE", "tRUE", "false", "False", "FALSE",
		"0", "-0", "+0", "1", "+1", "-1", "007", "0777", "08", "09", "0o17", "-0o17", "0O17", "0x1F", "0X1f", "-0x1F", "0xg",
		"0b101", "-0b101", "0b+1", "0b-1", "0b+", "-0b+1", "0B1", "0b2", "1_000", "_1", "1__0", "-_1", "0_7", "12:30:45", "1:2", "1e3", "1E3", "1e+3", "1e-3",
		"1e", "1.5", "1.", ".5", "-.5", "+.5", ".5e1", "1.10", "3.14159265358979", "1e400", "0x1p-2", "0.0", "-0.0",
		".", "..", "...a", "-", "-a", "+", "+a", ".nanx", ".infx",
		"9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616", "-9223372036854775808", "-9223372036854775809",
		"9007199254740993", "123456789012345678901234567890",
		"2001-01-01", "2001-1-1", "2001-12-14t21:59:43.10-05:00", "2001-12-14 21:59:43.10", "2001-12-14T21:59:43Z", "2001-13-45", "20010-01-01", "2001-",
		"'5'", `"yes"`, "'~'", `""`, "!!str 5", "!!str yes", "!!str", "!!int 5", "!!int '5'", "!!int 0x10", "!!float 5", "!!float 1.5", "!!float '1'",
		"!!bool yes", "!!bool 'no'", "!!null ''", "!!null x", "!!int x", "!!bool 5", "!!float x", "!!int 1.5",
		"!!binary aGVsbG8=", "!!binary '_'", "!!binary gIGC", "!!timestamp 2001-01-01", "!!timestamp x", "!!int 2001-01-01",
		"!vault x", "!unsafe '{{ x }}'", "!!set x", "! '5'", "!<tag:yaml.org,2002:int> 5",
		".nan", ".NaN", ".inf", "-.inf", "+.Inf", "héllo", "日本", "a b", "a#b", "=", "<<", "1,2", "'<<'",
	}
	return list
}

// TestValue_IsAnsibleOperators compares scalars as values, as keys and as elements.
func TestValue_IsAnsibleOperators(t *testing.T) {
	for _, s := range scalars() {
		for _, form := range []string{"- a: %\n", "- {a: %}\n", "- %: a\n", "- - %\n", "- [%]\n", "%"} {
			text := strings.ReplaceAll(form, "%", s)
			if diff := differs(t, text); diff != "" {
				t.Errorf("%q:\n%s", text, diff)
			}
		}
	}
}

// TestValue_StructuresAreAnsibleOperators covers merges, aliases, duplicates, block texts, and values that JSON does not
// have.
func TestValue_StructuresAreAnsibleOperators(t *testing.T) {
	for _, text := range []string{
		"- &a {x: 1}\n- <<: *a\n  y: 2\n",
		"- &a {x: 1}\n- x: 2\n  <<: *a\n",
		"- &a {x: 1}\n- <<: *a\n  x: 2\n",
		"- &a {x: 1}\n- &b {x: 2, y: 3}\n- <<: [*a, *b]\n",
		"- &a {x: 1}\n- &b {x: 2, y: 3}\n- <<: [*a, *b, {z: 1}]\n  y: 9\n",
		"- <<: {x: {y: 1}}\n  x: {z: 2}\n",
		"- <<: 5\n", "- <<: [5]\n", "- <<: ~\n", "- &a [1]\n- <<: *a\n", "- <<:\n",
		"- &a {x: 1}\n- <<: [*a, 5]\n", "- !!merge <<: {a: 1}\n", "- '<<': {a: 1}\n",
		"- &a {x: *a}\n", "- &a [*a]\n", "- *nowhere\n", "- &a 5\n- *a\n- {*a : b}\n",
		"- &a a\n- &a b\n- *a\n",
		"- a: 1\n  a: 2\n", "- {[a]: 1}\n", "- {{a: b}: 1}\n", "- ? [a]\n  : b\n", "- ? a\n", "- a: {{ x }}\n",
		"- a: |\n    x\n     y\n\n  b: >-\n    x\n    y\n  c: |+\n    x\n\n",
		"- a: \"x\\n\\u00e9\\x41\\\n    y\"\n  b: 'it''s'\n",
		"- a: x\n    y\n\n    z\n",
		"--- \n- a\n", "--- # c\n- a\n...\n", "%YAML 1.1\n---\n- a\n", "\ufeff- a: 1\n", "- a: 1\r\n- b: 2\r\n", "- a: 1\r- b: 2\r",
		"- a:\tb\n", "-\ta\n", "- a: b\t# c\n", "\t- a\n", "- a:\n\tb: c\n", "- a\n\t\n- b\n",
		"a: b", "5", "", "# nothing\n", "---\n", "~", "- !!map {a: b}\n", "- !!seq [a]\n", "- !!set {a, b}\n", "- !!omap [a: 1]\n",
		"- a: @x\n", "- a: `x\n", "- a: %x\n", "- a: b: c\n", "- 'a\n", "- \"a\n", "- [a\n", "- {a: b\n", "- a]\n", "- \"\\q\"\n",
		"- {a, b: c, 'd': e,}\n", "- [a, b,]\n", "- {a:b}\n", "- {\"a\":b}\n", "- [a: b, c]\n", "- [? a : b]\n", "- http://x:80/y#z\n",
		"- a: -\n", "- a: - b\n", "- - - a\n    - b\n  - c\n", "-\n  - a\n-\n", "- a:\n  - b\n  - c\n",
		"- ? |\n    block key\n  : v\n",
	} {
		if diff := differs(t, text); diff != "" {
			t.Errorf("%q:\n%s", text, diff)
		}
	}
}

// FuzzValue searches for documents that are read differently. It skips known differences: the lone tag "!", which yaml.v3
// does not keep; UTF-16, which we refuse; keys that are equal only as strings ({5: a, "5": b}), of which ansible-operator
// takes one at random; and documents that are not a block sequence, after which it overlooks garbage.
func FuzzValue(f *testing.F) {
	for _, s := range scalars() {
		f.Add("a: " + s)
		f.Add("{" + s + ": [" + s + "]}")
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = "- " + text
		_, problems := decodeText(text)
		twice := func(p Problem) bool { return strings.Contains(p.Message, "is given twice") }
		if strings.Contains(text, "!") || !utf8.ValidString(text) || slices.ContainsFunc(problems, twice) {
			return
		}
		if diff := differs(t, text); diff != "" {
			t.Errorf("%q:\n%s", text, diff)
		}
	})
}
