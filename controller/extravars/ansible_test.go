package extravars

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
	"github.com/rolewright/rolewright/test/tree"
)

// play runs a playbook in an empty directory with the given content of env/extravars. It returns the directory, the
// output, and whether the play succeeded. The command is ansible-playbook, or the one that the environment variable
// ROLEWRIGHT_TEST_ANSIBLE_PLAYBOOK names: another version of ansible-core.
func play(t *testing.T, playbook string, content []byte, args ...string) (dir, output string, succeeded bool) {
	t.Helper()
	command := os.Getenv("ROLEWRIGHT_TEST_ANSIBLE_PLAYBOOK")
	if command == "" {
		command = "ansible-playbook"
	}
	if _, err := exec.LookPath(command); err != nil {
		parts.Missing(t, err)
	}
	dir = t.TempDir()
	for name, text := range map[string][]byte{"play.yml": []byte(playbook), "extravars": content} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	// The interpreter is Ansible's own, as with the runner: the one that discovery finds may be unusable.
	hosts := filepath.Join(dir, "hosts")
	must.Do(t, os.WriteFile(hosts, []byte("localhost ansible_connection=local ansible_python_interpreter={{ansible_playbook_python}}\n"), 0o600))
	args = append([]string{"-i", hosts, "-c", "local", "-e", "@" + filepath.Join(dir, "extravars"), "play.yml"}, args...)
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCALHOST_WARNING=false")
	out, err := cmd.CombinedOutput()
	return dir, string(out), err == nil
}

// nasty are values that have gone wrong somewhere between an object and a role, as the JSON of an object. None of them is
// a template.
var nasty = []string{
	`""`, `" "`, `"  lead and trail  "`, `"tab\tnewline\ncarriage\r\nend"`, `"\n"`, `"trailing newline\n"`,
	`"quote \" backslash \\ \\n slash /"`, `"'single'"`, `"\u0000"`, `"\u0001\u001b[K\u001f"`, `"\u007f"`, `"\u0085"`, `"\u009f\u00a0"`,
	`"\u2028\u2029"`, `"\ufeffbom"`, `"\ufffe\uffff\ufffd"`, `"\ud83d\ude00 \ud800\udc00 \udbff\udfff"`, `"\ud800"`, `"日本語 é ß"`, `"é"`,
	`"1"`, `"-1.5"`, `"1e3"`, `"0x1F"`, `"0777"`, `"0o17"`, `"1_000"`, `"12:30:45"`, `"1.5.2"`, `".5"`, `"+.inf"`, `".nan"`, `"1e400"`,
	`"true"`, `"yes"`, `"Off"`, `"null"`, `"~"`, `"None"`, `"2026-01-02"`, `"2026-01-02T03:04:05Z"`, `"2001-12-14 21:59:43.10 -5"`,
	`"<<"`, `"="`, `"!"`, `"&a"`, `"*a"`, `"!unsafe x"`, `"!!python/object/apply:os.system [id]"`, `"- item"`, `"key: value"`, `"{a: b}"`,
	`"[1, 2]"`, `"# comment"`, `"a # b"`, `"| literal"`, `"%YAML 1.1"`, `"--- "`, `"..."`, `"@x"`, "\"`x\"", `"? x"`, `"{"`, `"}}"`, `"{ {"`,
	`0`, `-1`, `9223372036854775807`, `-9223372036854775808`, `18446744073709551615`, `1e21`, `1e-7`, `0.1`, `-0.0`, `1.7976931348623157e308`, `5e-324`,
	`123456789.125`, `true`, `false`, `null`, `[]`, `{}`, `[[], {}, [null]]`, `{"": 1}`, `{"a": {"b": [{"c": "d"}]}}`,
	`{"1": 1, "true": 2, "null": 3, "2026-01-02": 5, "<<": {"x": 1}, "=": 6, "k:v": 8, "-": 9, "\u0000\u2028": 10}`,
}

// inertOnlyMarked are values that Ansible leaves unevaluated only if they are marked.
var inertOnlyMarked = []string{
	`"{{ lookup('pipe', 'touch canary') }}"`, `"{% raw %}x{% endraw %}"`, `"{# gone #}"`, `"{{ undefined_name }}"`, `"{{"`, `"{%"`,
	`"#jinja2: variable_start_string: '[%'\n[% 1 %]"`, `["{{ 1 + 1 }}", {"k": "{{ 1 + 1 }}"}]`,
}

// markers are maps that Ansible's JSON reader would replace.
var markers = []string{
	`{"__ansible_unsafe": "x"}`, `{"__ansible_unsafe": {"a": 1}}`, `{"__ansible_unsafe": null}`, `{"__ansible_vault": "x"}`,
	`{"__ansible_vault": 1, "other": [{"__ansible_unsafe": []}]}`, `{"__ansible_type": "x", "value": 1}`, `{"__ansible_x": "~"}`,
}

func TestAnsible_ValuesArriveUnchanged(t *testing.T) {
	long := `{"` + strings.Repeat("k", 10_000) + `": "` + strings.Repeat("v", 100_000) + `"}`
	for name, tc := range map[string]struct {
		values []string
		mark   bool
	}{
		"marked, JSON":     {values: append(append([]string{long}, nasty...), inertOnlyMarked...), mark: true},
		"marked, YAML":     {values: append(append(append([]string{long, `{"{{ key }}": 1, "{% x": "{{ y }}", "~": 4, "a b": 7, "it's": 8}`}, nasty...), inertOnlyMarked...), markers...), mark: true},
		"not marked, JSON": {values: append([]string{long}, nasty...)},
		"not marked, YAML": {values: append(append([]string{long}, nasty...), markers...)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := object(t, `{"metadata": {"name": "n"}, "spec": {"values": [`+strings.Join(tc.values, ",\n")+`]}}`)
			values := in["spec"].(map[string]any)["values"].([]any)
			watched := object(t, `{"values": [`+strings.Join(nasty, ",\n")+`]}`)["values"].([]any)
			content, _, err := Build(in, Options{Group: "g", Kind: "K", MarkUnsafe: tc.mark, Vars: map[string]any{"watched": watched}})
			if err != nil {
				t.Fatal(err)
			}
			if isYAML := !json.Valid(content); isYAML != strings.HasSuffix(name, "YAML") {
				t.Fatalf("written as YAML: %v", isYAML)
			}
			dir, output, ok := play(t, `
- hosts: localhost
  gather_facts: false
  tasks:
  - copy:
      content: "{{ [values, _g_k.spec['values'], lookup('vars', '_g_k_spec')['values'], watched] | to_json | b64encode }}"
      dest: out
`, content)
			if !ok {
				t.Fatalf("the play failed:\n%s", output)
			}
			// Variables of the watch keep their control characters.
			cleaned := withoutControls(values)
			for variable, got := range readBack(t, filepath.Join(dir, "out")).([]any) {
				want := []any{cleaned, cleaned, cleaned, watched}[variable].([]any)
				for i, value := range got.([]any) {
					if diff := cmp.Diff(exact(want[i]), exact(value)); diff != "" {
						t.Errorf("variable %d: value %d arrived changed (-want +got):\n%.500s", variable, i, diff)
					}
				}
			}
			assertNoCanary(t, dir)
		})
	}
}

// withoutControls returns what a role must get of an object's data. It shares no code with what it checks.
func withoutControls(value any) any {
	clean := func(s string) string {
		var out strings.Builder
		for _, r := range s {
			if unicode.IsControl(r) && r != '\t' && r != '\n' && r != '\r' {
				r = '\ufffd'
			}
			out.WriteRune(r)
		}
		return out.String()
	}
	return tree.Map(value, clean, tree.Texts(clean))
}

func readBack(t *testing.T, file string) any {
	t.Helper()
	encoded := must.Get(os.ReadFile(file))(t)
	text := must.Get(base64.StdEncoding.DecodeString(string(encoded)))(t)
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.UseNumber()
	var out any
	must.Do(t, decoder.Decode(&out))
	return out
}

// exact makes values comparable: numbers by their numeric value.
func exact(value any) any {
	return tree.Map(value, nil, func(leaf any) any {
		switch v := leaf.(type) {
		case int64:
			return "number " + big.NewRat(v, 1).String()
		case float64:
			return "number " + new(big.Rat).SetFloat64(v).String()
		case json.Number:
			if i, err := v.Int64(); err == nil {
				return exact(i)
			}
			// Beyond int64, a number of an object is a float64 from the beginning.
			f, err := v.Float64()
			if err != nil {
				return fmt.Sprint("no number: ", err)
			}
			return exact(f)
		}
		return leaf
	})
}

func assertNoCanary(t *testing.T, dir string) {
	t.Helper()
	if canaries, _ := filepath.Glob(filepath.Join(dir, "canary*")); len(canaries) > 0 {
		t.Errorf("data of the object was executed: %v", canaries)
	}
}

// hostile is an object with a template in every place that takes a string.
const hostile = `{
	"apiVersion": "g/v1", "kind": "K",
	"metadata": {
		"name": "{{ lookup('pipe', 'touch canary-name') }}", "namespace": "{{ lookup('pipe', 'touch canary-namespace') }}",
		"labels": {"l": "{{ lookup('pipe', 'touch canary-label') }}", "{{ lookup('pipe', 'touch canary-label-key') }}": "x"},
		"annotations": {"a": "{% if lookup('pipe', 'touch canary-annotation') %}{% endif %}"}
	},
	"spec": {
		"text": "{{ lookup('pipe', 'touch canary-text') }}",
		"bare": "lookup('pipe', 'touch canary-bare') is defined",
		"list": ["{{ lookup('pipe', 'touch canary-list') }}", ["{{ lookup('pipe', 'touch canary-nested') }}"]],
		"map": {"k": "{{ lookup('pipe', 'touch canary-map') }}", "{{ lookup('pipe', 'touch canary-key') }}": "v"},
		"header": "#jinja2: variable_start_string: '[%', variable_end_string: '%]'\n[% lookup('pipe', 'touch canary-header') %]",
		"{{ lookup('pipe', 'touch canary-variable') }}": 1
	},
	"status": {"message": "{{ lookup('pipe', 'touch canary-status') }}"}
}`

// uses is a play that does with data what roles do with it.
const uses = `
- hosts: localhost
  gather_facts: false
  vars: {through: "{{ text }}", first_key: "{{ (map | dict2items | map(attribute='key') | list)[0] }}"}
  tasks:
  - name: "named {{ text }} {{ _g_k.status.message }} {{ first_key }}"
    debug: {msg: "{{ text }} {{ list }} {{ map }} {{ ansible_operator_meta }}"}
  - debug: {var: item}
    loop: "{{ list | flatten + _g_k_spec.list | flatten + _g_k.metadata.labels | dict2items + [text, bare, header] }}"
  - debug: {msg: "{{ item.key }} {{ item.value }}"}
    with_dict: "{{ map }}"
  - debug: {msg: "{{ item }}"}
    with_items: "{{ map.keys() | list + _g_k.metadata.annotations.values() | list }}"
  - set_fact: {fact: "{{ text }}", facts: "{{ map }}", key: "{{ first_key }}"}
  - debug: {msg: "{{ fact }} {{ facts }} {{ key }} {{ through }} {{ first_key }} {{ vars }} {{ hostvars[inventory_hostname] }}"}
  - debug: {msg: "{{ lookup('vars', item) }}"}
    loop: [text, bare, list, map, header, _g_k, _g_k_spec, ansible_operator_meta]
  - debug: {msg: x}
    when: bare
    ignore_errors: true
  - debug: {msg: x}
    when: "text == through or key in text"
  - assert: {that: ["bare", "text is string"]}
    ignore_errors: true
  - command: "echo {{ text | quote }} {{ key | quote }}"
    environment: {E: "{{ text }}"}
    register: result
  - debug: {msg: "{{ result.stdout }} {{ result.cmd }}"}
  - copy: {content: "{{ text }} {{ header }} {{ map | to_nice_yaml }}", dest: written.yml.j2}
  - copy: {content: "{{ {'included': text, 'and': map} | to_json }}", dest: vars.json}
  - fail: {msg: "{{ text }} {{ key }}"}
    ignore_errors: true
`

func TestAnsible_DataIsNotCode(t *testing.T) {
	for name, tc := range map[string]struct {
		marker string // makes the content YAML
		mark   bool
	}{
		"marked, JSON where no key is a template": {mark: true},
		"marked, YAML":                 {mark: true, marker: "__ansible_vault"},
		"not marked: the canary sings": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := hostile
			if tc.mark && tc.marker == "" {
				text = strings.NewReplacer(`"{{ lookup('pipe', 'touch canary-key') }}"`, `"key"`,
					`"{{ lookup('pipe', 'touch canary-label-key') }}"`, `"key"`, `"{{ lookup('pipe', 'touch canary-variable') }}"`, `"key"`).Replace(text)
			}
			in := object(t, text)
			if tc.marker != "" {
				in["status"].(map[string]any)[tc.marker] = "x"
			}
			content, _, err := Build(in, Options{Group: "g", Kind: "K", MarkUnsafe: tc.mark})
			if err != nil {
				t.Fatal(err)
			}
			if tc.mark && json.Valid(content) != (tc.marker == "") {
				t.Fatalf("written as JSON: %v", json.Valid(content))
			}
			dir, output, ok := play(t, uses, content)
			if !tc.mark {
				// The same play executes code if data is not marked. So it means something that none was executed above.
				if found, _ := filepath.Glob(filepath.Join(dir, "canary*")); len(found) == 0 {
					t.Errorf("nothing was executed:\n%s", output)
				}
				return
			}
			if !ok {
				t.Errorf("the play failed:\n%s", output)
			}
			assertNoCanary(t, dir)
		})
	}
}

func TestAnsible_ReservedNamesDecideNothing(t *testing.T) {
	names := []string{
		"ansiblePythonInterpreter", "ansible_connection", "ansible-shell-executable", "ansible_remote_tmp", "ansible_become",
		"ansibleBecomeExe", "ansible_host", "ansible_ssh_common_args", "ansible_facts", "ansible_check_mode",
		"vars", "hostvars", "groups", "group_names", "inventory_hostname", "inventory_dir", "omit", "lookup", "query", "q",
		"environment", "playbook_dir", "role_path", "role_name", "item", "become", "become_user", "play_hosts",
		"_ansible_loop_cache", "delegated_vars",
		// Keywords stay variables, and have no effect.
		"name", "port", "tags", "hosts", "connection", "remote_user", "when", "loop", "register", "state", "tasks", "roles",
		"timeout", "serial", "strategy", "no_log", "check_mode", "gather_facts", "ignore_errors", "module_defaults", "collections",
		"namespace", "dict", "range", "until", "args", "action", "async", "poll", "delegate_to", "run_once",
	}
	spec := map[string]any{}
	for _, name := range names {
		spec[name] = "/bin/sh -c 'touch canary-" + name + "' #"
	}
	spec["port"] = int64(8080)
	for allow, want := range map[bool]bool{false: true, true: false} {
		t.Run(fmt.Sprintf("allowed=%v", allow), func(t *testing.T) {
			t.Parallel()
			content, _, err := Build(map[string]any{"spec": spec}, Options{Group: "g", Kind: "K", SnakeCase: true, MarkUnsafe: true, AllowReserved: allow})
			if err != nil {
				t.Fatal(err)
			}
			dir, output, ok := play(t, `
- hosts: localhost
  gather_facts: false
  tasks:
  - ping:
  - command: echo "{{ lookup('env', 'HOME') }} {{ query('list', 1) }} {{ q('list', 1) }} {{ inventory_hostname }} {{ playbook_dir }}"
    delegate_to: localhost
  - debug: {msg: "{{ item }}"}
    loop: [1, 2]
  - assert:
      that:
      - inventory_hostname == 'localhost' and groups.all == ['localhost'] and 'ungrouped' in group_names
      - port == 8080 and 'canary-name' in name and 'canary-tags' in tags
      - "'canary-ansible_host' in _g_k_spec.ansible_host and 'canary-vars' in _g_k_spec.vars"
`, content)
			if ok != want {
				t.Errorf("the play succeeded: %v, want %v:\n%s", ok, want, output)
			}
			if !allow {
				assertNoCanary(t, dir)
			}
		})
	}
}

// TestAnsible_VaultTextsOfTheObjectAreNotDecrypted: the operator's vault password belongs to the author, and decrypts
// only the author's variables.
func TestAnsible_VaultTextsOfTheObjectAreNotDecrypted(t *testing.T) {
	vaulted := must.Get(os.ReadFile(filepath.Join("testdata", "vaulted.txt")))(t)
	marker := map[string]any{"__ansible_vault": string(vaulted)}
	password := filepath.Join(t.TempDir(), "password")
	must.Do(t, os.WriteFile(password, []byte("swordfish"), 0o600))
	const playbook = `
- hosts: localhost
  gather_facts: false
  tasks:
  - copy: {content: "{{ [own | default(''), v | default(''), w | default('')] | to_json | b64encode }}", dest: out}
`
	for name, tc := range map[string]struct {
		spec   map[string]any
		opts   Options
		secret any            // the value of the author's variable in the play
		want   map[string]any // the values of v and w in the play
	}{
		"the author's, JSON": {opts: Options{MarkUnsafe: true}, secret: "the plaintext of the vault"},
		"the author's beside the object's": {
			spec: map[string]any{"v": marker, "w": map[string]any{"__ansible_unsafe": marker}}, opts: Options{MarkUnsafe: true},
			secret: "the plaintext of the vault",
			want:   map[string]any{"v": marker, "w": map[string]any{"__ansible_unsafe": marker}},
		},
		"the same not marked": {
			spec: map[string]any{"v": marker, "w": []any{marker}}, secret: "the plaintext of the vault",
			want: map[string]any{"v": marker, "w": []any{marker}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.opts.Kind = "K"
			tc.opts.Vars = map[string]any{"own": marker}
			content, _, err := Build(map[string]any{"spec": tc.spec}, tc.opts)
			if err != nil {
				t.Fatal(err)
			}
			dir, output, ok := play(t, playbook, content, "--vault-password-file", password)
			if !ok {
				t.Fatalf("the play failed:\n%s", output)
			}
			got := readBack(t, filepath.Join(dir, "out")).([]any)
			want := []any{tc.secret, "", ""}
			if tc.want != nil {
				want = []any{tc.secret, tc.want["v"], tc.want["w"]}
			}
			must.Be(t, "own, v, w", want, got)
		})
	}
}
