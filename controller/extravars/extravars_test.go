package extravars

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/tree"
)

// object decodes an object like a client: integers become int64.
func object(t testing.TB, text string) map[string]any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var out map[string]any
	if err := decoder.Decode(&out); err != nil {
		t.Fatalf("decode %s: %v", text, err)
	}
	return numbers(out).(map[string]any)
}

func numbers(value any) any {
	return tree.Map(value, nil, func(leaf any) any {
		number, ok := leaf.(json.Number)
		if !ok {
			return leaf
		}
		if i, err := number.Int64(); err == nil {
			return i
		}
		f, _ := number.Float64()
		return f
	})
}

func kinds(notices []Notice) []NoticeKind {
	var out []NoticeKind
	for _, n := range notices {
		out = append(out, n.Kind)
	}
	return out
}

func TestVars_NamesAndOrderAsTheIncumbent(t *testing.T) {
	in := object(t, `{
		"apiVersion": "apps.example.com/v1", "kind": "Widget",
		"metadata": {"name": "w", "namespace": "ns", "labels": {"a-Key": "1"}},
		"spec": {"fooBar": {"innerKey": [{"deepKey": "s", "n": 1, "b": true, "z": null, "f": 1.5}]}, "replicas": 3},
		"status": {"phase": "ok"}
	}`)
	got, notices := Vars(in, Options{
		Group: "apps.example.com", Kind: "Widget", SnakeCase: true, MarkUnsafe: true,
		Vars:          map[string]any{"replicas": int64(5), "fromWatch": "{{ 1 + 1 }}", "both": "watch"},
		FinalizerVars: map[string]any{"both": "finalizer", "ansible_python_interpreter": "/usr/bin/python3"},
	})
	spec := map[string]any{
		"fooBar":   map[string]any{"innerKey": []any{map[string]any{"deepKey": Unsafe("s"), "n": int64(1), "b": true, "z": nil, "f": 1.5}}},
		"replicas": int64(3),
	}
	want := map[string]any{
		"foo_bar":               map[string]any{"inner_key": []any{map[string]any{"deep_key": Unsafe("s"), "n": int64(1), "b": true, "z": nil, "f": 1.5}}},
		"ansible_operator_meta": map[string]any{"name": "w", "namespace": "ns"},
		"_apps_example_com_widget": map[string]any{
			"apiVersion": Unsafe("apps.example.com/v1"), "kind": Unsafe("Widget"),
			"metadata": map[string]any{"name": Unsafe("w"), "namespace": Unsafe("ns"), "labels": map[string]any{"a-Key": Unsafe("1")}},
			"spec":     spec,
			"status":   map[string]any{"phase": Unsafe("ok")},
		},
		"_apps_example_com_widget_spec": spec,
		// The author's variables are not converted, marked or filtered, and override the others.
		"replicas": int64(5), "fromWatch": "{{ 1 + 1 }}", "both": "finalizer",
		"ansible_python_interpreter": "/usr/bin/python3",
	}
	must.Be(t, "Vars", want, got)
	if len(notices) > 0 {
		t.Errorf("notices %v, want none", notices)
	}
}

func TestVars_WithoutConversionKeysAreCopied(t *testing.T) {
	got, _ := Vars(object(t, `{"metadata": {"name": "c"}, "spec": {"fooBar": {"aB": "{{ x }}"}}}`), Options{Kind: "Secret"})
	want := map[string]any{
		"fooBar":                map[string]any{"aB": "{{ x }}"},
		"ansible_operator_meta": map[string]any{"name": "c", "namespace": ""},
		"__secret":              map[string]any{"metadata": map[string]any{"name": "c"}, "spec": map[string]any{"fooBar": map[string]any{"aB": "{{ x }}"}}},
		"__secret_spec":         map[string]any{"fooBar": map[string]any{"aB": "{{ x }}"}},
	}
	must.Be(t, "Vars", want, got)
}

func TestVars_OnlyNamesOfDNSAreUnmarkedInTheMeta(t *testing.T) {
	for name, want := range map[string]any{
		"web-0.example.com": "web-0.example.com", "7": "7", "": "", "system:node": Unsafe("system:node"), "it's": Unsafe("it's"), "a b": Unsafe("a b"),
		"{{ x }}": Unsafe("{{ x }}"), "lookup('pipe', 'id')": Unsafe("lookup('pipe', 'id')"), "a\n": Unsafe("a\n"),
	} {
		vars, _ := Vars(map[string]any{"metadata": map[string]any{"name": name}}, Options{Kind: "K", MarkUnsafe: true})
		if got := vars[OperatorMeta].(map[string]any)["name"]; got != want {
			t.Errorf("%q arrives as %#v, want %#v", name, got, want)
		}
	}
}

func TestObjectVariable(t *testing.T) {
	for want, gk := range map[string][2]string{
		"_apps_example_com_widget":       {"apps.example.com", "Widget"},
		"_with_dash_example_com_example": {"with-dash.example.com", "Example"},
		"__secret":                       {"", "Secret"},
	} {
		if got := ObjectVariable(gk[0], gk[1]); got != want {
			t.Errorf("ObjectVariable(%q, %q) = %q, want %q", gk[0], gk[1], got, want)
		}
	}
}

func TestVars_OddSpecs(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		opts   Options
		// names are the variables that come from the spec, values those variables with their values.
		spec    map[string]any
		notices []NoticeKind
	}{
		"no spec":        {object: `{}`, notices: []NoticeKind{SpecNotMap}},
		"null spec":      {object: `{"spec": null}`, notices: []NoticeKind{SpecNotMap}},
		"list as spec":   {object: `{"spec": [1]}`, notices: []NoticeKind{SpecNotMap}},
		"string as spec": {object: `{"spec": "{{ x }}"}`, notices: []NoticeKind{SpecNotMap}},
		"empty spec":     {object: `{"spec": {}}`},
		"an empty key is dropped": {
			object: `{"spec": {"": 1, "a": 2}}`, spec: map[string]any{"a": int64(2)}, notices: []NoticeKind{EmptyKey},
		},
		"a key of blanks is dropped at every depth when converted": {
			object: `{"spec": {" ": 1, "a": {"  ": 2, "": 3}}}`, opts: Options{SnakeCase: true},
			spec: map[string]any{"a": map[string]any{}}, notices: []NoticeKind{EmptyKey, EmptyKey, EmptyKey},
		},
		"an empty key below the top stays when not converted": {
			object: `{"spec": {"a": {"": 3}}}`, spec: map[string]any{"a": map[string]any{"": int64(3)}},
		},
		"the exact name wins a collision": {
			object: `{"spec": {"foo_bar": 1, "fooBar": 2, "foo-bar": 3}}`, opts: Options{SnakeCase: true},
			spec: map[string]any{"foo_bar": int64(1)}, notices: []NoticeKind{KeyCollision, KeyCollision},
		},
		"else the lexicographically first key wins": {
			object: `{"spec": {"x": [{"fooBar": 2, "foo-bar": 3}]}}`, opts: Options{SnakeCase: true},
			spec: map[string]any{"x": []any{map[string]any{"foo_bar": int64(3)}}}, notices: []NoticeKind{KeyCollision},
		},
		"a reserved name does not become a variable": {
			object: `{"spec": {"ansiblePythonInterpreter": "x", "vars": 1, "name": "n"}}`, opts: Options{SnakeCase: true},
			spec: map[string]any{"name": "n"}, notices: []NoticeKind{ReservedVariable, ReservedVariable},
		},
		"a name that could be evaluated does not become a variable": {
			object: `{"spec": {"{": 1, "db_{{ x }}": 1, "f(x)": 1, "x|f": 1, "9**9": 1, "a b": 2, "a.b": 3, "k:{a}": 1}}`, opts: Options{MarkUnsafe: true, AllowReserved: true},
			spec:    map[string]any{"a.b": int64(3)},
			notices: []NoticeKind{ExpressionName, ExpressionName, ExpressionName, ExpressionName, ExpressionName, ExpressionName, ExpressionName},
		},
		"unless strings are templates": {object: `{"spec": {"db_{{ x }}": 1}}`, spec: map[string]any{"db_{{ x }}": int64(1)}},
		"unless the author allows it": {
			object: `{"spec": {"ansiblePythonInterpreter": "x"}}`, opts: Options{SnakeCase: true, AllowReserved: true},
			spec: map[string]any{"ansible_python_interpreter": "x"},
		},
		"the variables that Rolewright sets cannot be replaced": {
			object:  `{"spec": {"ansible_operator_meta": {"name": "forged"}, "_g_k": 1, "_g_k_spec": 1}}`,
			opts:    Options{AllowReserved: true},
			notices: []NoticeKind{KeyCollision, KeyCollision, KeyCollision},
		},
		"control characters are replaced": {
			object: `{"spec": {"a\u001b": "\u001b[K\u0000\u007f\u009b\t\r\n é"}}`,
			spec:   map[string]any{"a�": "�[K���\t\r\n é"}, notices: []NoticeKind{ControlCharacters},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.opts.Group, tc.opts.Kind = "g", "K"
			in := object(t, tc.object)
			got, notices := Vars(in, tc.opts)
			raw, isMap := in["spec"].(map[string]any)
			if _, ok := got["_g_k_spec"].(map[string]any); !ok || isMap != (len(raw) > 0 || tc.object == `{"spec": {}}`) {
				t.Errorf("_g_k_spec is %v, want a map", got["_g_k_spec"])
			}
			if meta := got[OperatorMeta]; !cmp.Equal(meta, map[string]any{"name": "", "namespace": ""}) {
				t.Errorf("%s = %v", OperatorMeta, meta)
			}
			for _, own := range []string{OperatorMeta, "_g_k", "_g_k_spec"} {
				delete(got, own)
			}
			if tc.spec == nil {
				tc.spec = map[string]any{}
			}
			must.Be(t, "variables of the spec", tc.spec, got)
			must.Be(t, "notices", tc.notices, kinds(notices))
		})
	}
}

// TestVars_ReservedNamesStayReadable: a key that does not become a variable is still in the variable with the spec, under
// its own name.
func TestVars_ReservedNamesStayReadable(t *testing.T) {
	got, notices := Vars(object(t, `{"spec": {"ansibleHost": "h"}}`), Options{Group: "g", Kind: "K", SnakeCase: true, MarkUnsafe: true})
	must.Be(t, "_g_k_spec", map[string]any{"ansibleHost": Unsafe("h")}, got["_g_k_spec"])
	want := Notice{
		Kind:   ReservedVariable,
		Detail: `"ansibleHost" of the spec is not a variable, since Ansible reserves the name "ansible_host"; it is only in _g_k_spec`,
	}
	must.Be(t, "notices", []Notice{want}, notices)
}

func TestReserved(t *testing.T) {
	for _, name := range []string{
		"ansible_connection", "ansible_python_interpreter", "ansible_operator_meta", "ansible_x",
		"ANSIBLE_HOST", "Ansible_Host", "ansible-host", "ansible host", "ansible.host", "_ansible_loop_cache",
		"__ansible_unsafe", "__ansible_vault", " ansible_x", "ansible_x\t", "\u00a0ansible_x", "\ufeffansible_x",
		"ansible\u200b_x", "ａｎｓｉｂｌｅ_x", "ansible＿x", "ａnsible_host",
		"vars", " vars", "ｖars", "hostvars", "groups", "group_names", "inventory_hostname", "inventory_dir", "inventory_file",
		"omit", "lookup", "query", "q", "environment", "playbook_dir", "role_path", "role_name", "role_names", "role_uuid",
		"item", "become", "become_user", "become_method", "play_hosts", "delegated_vars", "sops_binary",
		"passwordstore", "passwordstore_backend", "lmdb_kv_db", "http_login_user", "http_login_password",
	} {
		if !Reserved(name) {
			t.Errorf("%q is not reserved", name)
		}
	}
	for _, name := range []string{
		"name", "state", "port", "tags", "hosts", "roles", "tasks", "handlers", "connection", "remote_user", "timeout",
		"size", "image", "replicas", "namespace", "serial", "when", "loop", "register", "ansible", "answer", "var",
		"host_vars", "group", "queries", "lookups", "omitted", "items", "environments", "inventory", "role", "日本", "", "_",
	} {
		if Reserved(name) {
			t.Errorf("%q is reserved", name)
		}
	}
}

func TestVars_NoticesAreBounded(t *testing.T) {
	spec := map[string]any{}
	for i := range 1000 {
		spec[fmt.Sprintf("ansible_%d\n%s", i, strings.Repeat("é\x1b", 500))] = 1
	}
	_, notices := Vars(map[string]any{"spec": spec}, Options{Kind: "K"})
	if len(notices) != maxNotices+1 || notices[maxNotices].Kind != NoticesOmitted {
		t.Fatalf("%d notices, the last one %v", len(notices), notices[len(notices)-1])
	}
	for _, n := range notices {
		if text := n.Detail; len(text) > 4*maxText || hasControl(text) || strings.Contains(text, "\n") {
			t.Fatalf("notice text %q", text)
		}
	}
}

func TestVars_DoesNotChangeTheObject(t *testing.T) {
	text := `{"metadata": {"name": "w"}, "spec": {"aB": ["\u001b", {"cD": "x"}], "vars": 1, "": 2}}`
	in := object(t, text)
	Vars(in, Options{SnakeCase: true, MarkUnsafe: true})
	must.Be(t, "the object was changed", object(t, text), in)
}

func TestBuild_TooDeepIsAnError(t *testing.T) {
	deep := func(levels int) map[string]any {
		return object(t, `{"spec": `+strings.Repeat(`{"a": `, levels)+"1"+strings.Repeat("}", levels)+"}")
	}
	if _, _, err := Build(deep(maxDepth-2), Options{}); err != nil {
		t.Errorf("Build: %v", err)
	}
	if _, _, err := Build(deep(maxDepth+1), Options{}); !errors.Is(err, ErrTooDeep) {
		t.Errorf("Build: %v, want %v", err, ErrTooDeep)
	}
	if _, _, err := Build(deep(9000), Options{SnakeCase: true}); !errors.Is(err, ErrTooDeep) {
		t.Errorf("Build: %v, want %v", err, ErrTooDeep)
	}
}

func TestBuild_ValuesThatJSONCannotHoldAreAnError(t *testing.T) {
	for _, value := range []any{make(chan int), map[any]any{1: 2}, func() {}} {
		if _, _, err := Build(nil, Options{Vars: map[string]any{"bad": value}}); err == nil || !strings.Contains(err.Error(), `"bad"`) {
			t.Errorf("Build with a %T: %v, want an error that names the variable", value, err)
		}
	}
}

// largeObject returns an object near the limit of what an API server stores.
func largeObject() map[string]any {
	items := make([]any, 0, 8000)
	for i := range 8000 {
		items = append(items, map[string]any{
			"containerName": fmt.Sprintf("name-%d", i), "imageURL": "docker.example.com/org/image", "hostPort": int64(i),
			"nodeSelector": map[string]any{"kubernetes.io/os": "linux", "topologyKey": "zone"},
		})
	}
	return map[string]any{
		"apiVersion": "example.com/v1", "kind": "Large", "metadata": map[string]any{"name": "l", "namespace": "n"},
		"spec": map[string]any{"bigList": items},
	}
}

func BenchmarkBuild_LargeObject(b *testing.B) {
	in := largeObject()
	text, _ := json.Marshal(in)
	for _, marker := range []bool{false, true} {
		if marker {
			in["spec"].(map[string]any)["m"] = map[string]any{"__ansible_vault": "x"}
		}
		b.Run(fmt.Sprintf("yaml=%v", marker), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Build(in, Options{Group: "example.com", Kind: "Large", SnakeCase: true, MarkUnsafe: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestBuild_IsDeterministic(t *testing.T) {
	in := object(t, `{"spec": {"aB": 1, "a-b": 2, "vars": 1, "z": {"__ansible_x": 1, "__ansible_a": {"c": 1}}, "": 1, "\u001b": 1, "\u001c": 2}}`)
	opts := Options{SnakeCase: true, MarkUnsafe: true, Vars: map[string]any{"b": 1, "c": map[string]any{"d": 1, "e": 2}}}
	first, firstNotices, err := Build(in, opts)
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		again, notices, _ := Build(maps.Clone(in), opts)
		if string(again) != string(first) || !slices.Equal(notices, firstNotices) {
			t.Fatalf("differs:\n%s %v\n%s %v", first, firstNotices, again, notices)
		}
	}
}

// The keys of other objects become variables, which those of the spec override, and are never templates.
func TestVars_OfOtherObjects(t *testing.T) {
	in := object(t, `{"apiVersion": "a.b/v1", "kind": "W", "metadata": {"name": "w", "namespace": "ns"}, "spec": {"db_user": "of the spec"}}`)
	vars, notices := Vars(in, Options{Group: "a.b", Kind: "W", Vars: map[string]any{"db_host": "of the watch"}, From: []Source{
		{Name: "secrets ns/one", Prefix: "db_", Data: map[string]string{"password": "{{ lookup('pipe', 'id') }}", "user": "x", "host": "x", "tls.crt": "x", "blob": "\xff"}},
		{Name: "configmaps ns/two", Data: map[string]string{"db_password": "later\x1b", "ansible_connection": "local", "": "x", "_a_b_w": "x"}},
	}})
	delete(vars, "ansible_operator_meta")
	delete(vars, "_a_b_w_spec")
	if _, whole := vars["_a_b_w"].(map[string]any); !whole {
		t.Errorf("the object is replaced: %v", vars["_a_b_w"])
	}
	delete(vars, "_a_b_w")
	must.Be(t, "variables", map[string]any{"db_password": Unsafe("later\ufffd"), "db_user": "of the spec", "db_host": "of the watch"}, vars)
	var details []string
	for _, n := range notices {
		details = append(details, n.Detail)
		if strings.Contains(n.Detail, "lookup") || strings.Contains(n.Detail, "later") {
			t.Errorf("a value is in a notice: %s", n.Detail)
		}
	}
	want := []string{
		`the key "blob" of secrets ns/one is not a variable, since its value is not UTF-8 text`,
		`the key "tls.crt" of secrets ns/one is not a variable, since "db_tls.crt" is not a valid variable name`,
		`the key "" of configmaps ns/two is not a variable, since "" is not a valid variable name`,
		`the key "ansible_connection" of configmaps ns/two is not a variable, since Ansible reserves the name "ansible_connection"`,
		`the variable "db_password" of an earlier varsFrom is replaced by that of configmaps ns/two`,
		`control characters in configmaps ns/two, and maybe elsewhere, were replaced by U+FFFD`,
		`the variable "db_user" of varsFrom is replaced by that of the spec`,
		`the variable "_a_b_w" of varsFrom is replaced by that of Rolewright itself`,
		`the variable "db_host" of varsFrom is replaced by that of the watch`,
	}
	must.Be(t, "notices", want, details)
	content, _, err := Build(in, Options{Group: "a.b", Kind: "W", From: []Source{{Name: "s", Data: map[string]string{"a": "{{ b }}"}}}})
	if err != nil || !strings.Contains(string(content), `"a": {"__ansible_unsafe": "{{ b }}"}`) {
		t.Errorf("%s, %v", content, err)
	}
}
