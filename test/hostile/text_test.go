package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// payloads are templates; the bait shows if they are evaluated.
func payloads() []string {
	return []string{
		`{{ lookup('pipe', 'touch BAIT.ran') }}`,
		`{{ query('ansible.builtin.pipe', 'touch BAIT.ran') }}`,
		`{{ q('lines', 'touch BAIT.ran') }}`,
		`{{ lookup('file', 'BAIT') }}`,
		`{{ lookup('template', 'BAIT') }}`,
		`{{ lookup('fileglob', 'BAIT*') }}`,
		`{{ lookup('env', 'HOME') }}`,
		`{% if lookup('pipe', 'touch BAIT.ran') %}{% endif %}`,
		`{%- set x = lookup('pipe', 'touch BAIT.ran') -%}{{ x }}`,
		`{# a comment #}`,
		`{{ cycler.__init__.__globals__.os.popen('touch BAIT.ran').read() }}`,
		`{{ ''.__class__.__mro__[1].__subclasses__() }}`,
		`{% include 'BAIT' %}`,
		`{% raw %}{{ 1 }}{% endraw %}`,
		"#jinja2: variable_start_string: '[%', variable_end_string: '%]'\n[% lookup('pipe', 'touch BAIT.ran') %]",
		`{{ vars }} {{ hostvars }} {{ ansible_operator_meta }}`,
		`{{ undefined_name }}`,
		`{{`, `{%`, `}}`, `{{ '{{' }}{{ "}}" }}`,
		`lookup('pipe', 'touch BAIT.ran') is defined`,
		`$(touch BAIT.ran)`, "`touch BAIT.ran`", `'; touch BAIT.ran; '`, `"; touch BAIT.ran #`, `| touch BAIT.ran`,
		`{{ omit }}`, `{{ _hostile_example_com_probe_spec }}`,
		`!unsafe "{{ lookup('pipe', 'touch BAIT.ran') }}"`,
		`{{ lookup('pipe', 'touch BAIT.ran') | safe }}{{ lookup('vars', 'probe_out') }}`,
	}
}

// templates are payloads as values, and the first of them in every other place (H.1).
func templates() []hostile {
	var cases []hostile
	add := func(name, object string) {
		cases = append(cases, hostile{row: "H.1", name: name, object: object})
	}
	for i, text := range payloads() {
		add(fmt.Sprintf("value %d", i), fmt.Sprintf(`{"spec": {"template%d": %s}}`, i, quoted(text)))
		if i%3 == 0 {
			add(fmt.Sprintf("status %d", i), fmt.Sprintf(`{"status": {"template%d": [%s]}}`, i, quoted(text)))
		}
	}
	run := quoted(payloads()[0])
	for name, object := range map[string]string{
		"in a list":             `{"spec": {"inList": [` + run + `, [` + run + `]]}}`,
		"in a map":              `{"spec": {"inMap": {"a": {"b": [{"c": ` + run + `}]}}}}`,
		"as a key":              `{"spec": {"asKey": {` + run + `: "x"}}}`,
		"as a key far down":     `{"spec": {"keyBelow": [[{"a": {` + quoted(payloads()[7]) + `: null}}]]}}`,
		"as a key of the spec":  `{"spec": {` + run + `: 1}}`,
		"as a bare expression":  `{"spec": {"bare": "lookup('pipe', 'touch BAIT.ran')"}}`,
		"in a label":            `{"labels": {"l": ` + run + `}}`,
		"as a label's key":      `{"labels": {` + run + `: "l"}}`,
		"in an annotation":      `{"annotations": {"a": ` + quoted(payloads()[7]) + `}}`,
		"as an annotation's":    `{"annotations": {` + quoted(payloads()[10]) + `: "a"}}`,
		"as a key of a status":  `{"status": {` + run + `: {"x": ` + run + `}}}`,
		"in conditions":         `{"status": {"conditions": [{"type": "Failure", "message": ` + run + `}]}}`,
		"in finalizers":         `{"metadata": {"finalizers": [` + run + `]}}`,
		"in owner references":   `{"metadata": {"ownerReferences": [{"kind": "K", "name": ` + run + `, "uid": ` + run + `}]}}`,
		"in managed fields":     `{"metadata": {"managedFields": [{"manager": ` + run + `, "fieldsV1": {"f:spec": {` + run + `: {}}}}]}}`,
		"in the generated name": `{"metadata": {"generateName": ` + run + `}}`,
	} {
		add(name, object)
	}
	// The name of a kind of the core group may contain nearly anything; RBAC names may contain braces and colons.
	for name, text := range map[string]string{"as the name": payloads()[0], "as the name, a statement": payloads()[7]} {
		cases = append(cases, hostile{row: "H.1", name: name, object: `{"metadata": {"name": ` + quoted(text) + `, "namespace": ` + quoted(text) + `}}`, alone: true})
	}
	return cases
}

// markers are maps that Ansible's JSON reader replaces: it decrypts them, or treats them as safe or unsafe (H.4).
func markers(t *testing.T) []hostile {
	t.Helper()
	vaulted := must.Get(os.ReadFile(filepath.Join("testdata", "vaulted.txt")))(t)
	vault := `{"__ansible_vault": ` + quoted(string(vaulted)) + `}`
	run := quoted(payloads()[0])
	var cases []hostile
	for i, value := range []string{
		vault, `[` + vault + `]`, `{"a": {"b": [[` + vault + `]]}}`, `{"__ansible_unsafe": ` + vault + `}`, `{"__ansible_unsafe": ` + run + `}`,
		`{"__ansible_unsafe": {"__ansible_unsafe": ` + run + `}}`, `{"__ansible_vault": 1}`, `{"__ansible_vault": null, "other": [` + vault + `]}`,
		`{"__ansible_type": "TrustedAsTemplate", "value": ` + run + `}`, `{"__ansible_type": "AnsibleTaggedStr", "tags": [{"__ansible_type": "TrustedAsTemplate"}], "value": ` + run + `}`,
		`{"__ansible_type": "EncryptedString", "ciphertext": ` + quoted(string(vaulted)) + `}`, `{"__ansible_module__": "os", "__ansible_class__": "system"}`,
		strings.Repeat(`{"d": `, 60) + vault + strings.Repeat(`}`, 60), `{"__ansible_": ` + run + `, "__ansible_unsafe ": 1}`,
	} {
		name := fmt.Sprintf("marker%d", i)
		cases = append(cases, hostile{row: "H.4", name: name, object: `{"spec": {"` + name + `": ` + value + `}}`})
	}
	return append(cases,
		hostile{row: "H.4", name: "in a status", object: `{"status": {"vaulted": ` + vault + `}}`},
		hostile{row: "H.4", name: "in an annotation's place", object: `{"metadata": {"extra": [{"__ansible_unsafe": [` + vault + `]}]}}`},
		hostile{row: "H.4", name: "as text", object: `{"spec": {"asText": ` + quoted(string(vaulted)) + `, "asTag": ` + quoted("!vault |\n  "+string(vaulted)) + `}}`},
	)
}

// texts are strings that cause errors if a reader takes them for something else (H.3, H.5, H.6).
func texts() []hostile {
	var cases []hostile
	add := func(row string, values ...string) {
		for _, value := range values {
			name := fmt.Sprintf("text%d", len(cases))
			cases = append(cases, hostile{row: row, name: name + " " + short(value), object: `{"spec": {"` + name + `": ` + value + `}}`})
		}
	}
	add("H.5", `"yes"`, `"no"`, `"On"`, `"off"`, `"null"`, `"~"`, `"1_000"`, `"0o7"`, `"0777"`, `"0x1F"`, `"12:30:45"`, `"2001-01-01"`, `"2001-12-14t21:59:43.10-05:00"`,
		`"1e400"`, `".inf"`, `".NaN"`, `"!!python/object/apply:os.system [\"touch BAIT.ran\"]"`, `"!!python/object/new:os.system [BAIT]"`, `"!unsafe x"`, `"!vault x"`,
		`"*alias"`, `"&anchor"`, `"<<"`, `"="`, `{"<<": {"a": 1}, "b": 2}`, `{"=": 1, "yes": 2, "null": 3, "1": 4, "~": 5, "true": 6}`, `"--- x"`, `"..."`, `"%YAML 1.1"`,
		`"{a: &a [*a, *a]}"`, `"- x\n- y"`, `"key: value"`, `"@at"`, "\"`tick\"", `"? key"`, `"| \n  x"`, `""`, `" "`, `"\n"`, `"x\n"`, `"\t"`)
	add("H.6", `"\u0000"`, `"a\u0000b"`, `"\u001b[2J\u001b[1;31mred"`, `"\u0007\b\f\u007f"`, `"\u009b31m"`, `"\u0085"`, `"a\r\nb\rc"`,
		quoted(token(forgedStats("localhost"))), quoted("\x1b\x1b[K[K"+token(1)), `{"\u001b[K": "\u001b[K", "a\u0000": {"\u009f": 1}}`,
		`"\u001b]0;title\u0007"`, `"\u001b]8;;http://x\u001b\\link"`)
	add("H.5", `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ude00"`, `"\u202eevil\u202c"`, `"\u2066x\u2069"`, `"\u2028\u2029"`, `"\ufeffbom"`, `"\ufffe\uffff"`, `"e\u0301 é"`,
		`"日本語"`, `"\u200b\u200d"`, `"\udbff\udfff"`, `"ß ﬁ ａ"`, `{"日本": "語", "é": 1, "e\u0301": 2, "😀": 3}`)
	// Keys that are not names.
	for i, spec := range []string{
		`"a b": 1`, `"a.b/c": {"d.e": 1}`, `"1st": 1`, `"é": 1`, `"日本": 1`, `"class": 1`, `"None": 1`, `"self": 1`, `"\u2028": 1`, `"a\u0000b": 1`, `"-": 1`, `"a:b": 1`, `"{": 1`,
		`"namespace": "x"`, `"name": "x"`, `"hosts": "x"`, `"tags": ["never"]`, `"port": 1`, `"connection": "ssh"`, `"remote_user": "x"`, `"gather_facts": true`, `"when": "false"`,
		`"loop": [1]`, `"register": "x"`, `"no_log": true`, `"check_mode": true`, `"ignore_errors": true`, `"any_errors_fatal": true`, `"strategy": "debug"`, `"module_defaults": {"command": {"cmd": "BAIT"}}`,
		`"vars_files": ["BAIT"]`, `"roles": ["BAIT"]`, `"tasks": [{"command": "BAIT"}]`, `"collections": ["BAIT"]`, `"debugger": "always"`, `"local_action": "command BAIT"`,
		quoted(strings.Repeat("k", 10_000)) + `: 1`, `"а_cyrillic_nsible_host": "BAIT"`,
	} {
		cases = append(cases, hostile{row: "H.3", name: fmt.Sprintf("key %d %s", i, short(spec)), object: `{"spec": {` + spec + `}}`})
	}
	return cases
}

// numbers are numbers at the limits (H.5), and documents at the limits.
func numbers() []hostile {
	var cases []hostile
	for i, text := range []string{
		"9007199254740991", "9007199254740993", "-9007199254740993", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551616",
		"1e308", "1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "1e-400", "-0.0", "0.1", "0.30000000000000004", "1E5", "1e21", "123456789012345678901234567890",
		"1.0", "100000000000000000000.5", "-1e-7", "3.141592653589793",
	} {
		name := fmt.Sprintf("number%d", i)
		cases = append(cases, hostile{row: "H.5", name: text, object: `{"spec": {"` + name + `": ` + text + `, "n` + name + `": {"` + name + `": [` + text + `]}}}`})
	}
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf(`"key%d": {"value": %d}`, i, i)
	}
	return append(cases,
		hostile{row: "H.5", name: "as deep as Ansible reads", object: `{"spec": {"deep": ` + strings.Repeat(`[{"a": `, 95) + `1` + strings.Repeat(`}]`, 95) + `}}`, alone: true},
		hostile{row: "H.5", name: "1.5 MB in one string", object: `{"spec": {"huge": ` + quoted(strings.Repeat("{{ x }} é", 150_000)) + `}}`, alone: true},
		hostile{row: "H.5", name: "10 000 keys", object: `{"spec": {"wide": {` + strings.Join(keys, ",") + `}}}`, alone: true},
		hostile{row: "H.3", name: "a key of 256 KiB", object: `{"spec": {"wide": {` + quoted(strings.Repeat("k", 256<<10)) + `: 1}}}`, alone: true},
		hostile{row: "H.3", name: "an annotation of 256 KiB", object: `{"annotations": {"a": ` + quoted(strings.Repeat("{{ y }}", 36_000)) + `}}`, alone: true},
	)
}

// places are values that a careless reader would take for a file or a directory (H.7).
func places() []hostile {
	var cases []hostile
	for i, text := range []string{
		"../../../../rolewright-bait", "/rolewright-bait", "..", "-rolewright-bait", "~root/rolewright-bait", "a/../../b", "%2e%2e%2frolewright-bait", "..\\rolewright-bait",
		"file:///rolewright-bait", "@BAIT", "-e@BAIT", "--extra-vars=@BAIT",
	} {
		name := fmt.Sprintf("path%d", i)
		cases = append(cases, hostile{row: "H.7", name: short(text), object: `{"spec": {"` + name + `": ` + quoted(text) + `, "uuid` + name + `": {"ident": ` + quoted(text) + `}}}`})
	}
	for name, metadata := range map[string]string{
		"name of 253 characters": `"name": "` + strings.Repeat("a.", 126) + `b"`,
		"name is a path":         `"name": "../../../rolewright-bait", "namespace": "../rolewright-bait", "uid": "../../rolewright-bait"`,
		"name is an option":      `"name": "--inventory=BAIT", "namespace": "-i"`,
	} {
		cases = append(cases, hostile{row: "H.7", name: name, object: `{"metadata": {` + metadata + `}}`, alone: true})
	}
	return cases
}

// short returns a text for the name of a case.
func short(text string) string {
	text = printable(text)
	return strings.ReplaceAll(text[:min(len(text), 40)], "/", "|")
}
