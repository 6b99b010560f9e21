package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// dumpTasks writes the variables of a run that the list names contains, as JSON, into $DUMP/<object>.json. A value that
// cannot be used fails the task.
const dumpTasks = `- name: Write down the variables
  ansible.builtin.copy:
    content: >-
      {{ dict(names | zip(query('vars', *names))) | to_nice_json }}
    dest: "{{ lookup('env', 'DUMP') }}/{{ ansible_operator_meta.name }}.json"
    mode: "0600"
`

func TestExtraVars_ArriveAsTheIncumbents(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	dump := t.TempDir()
	s.env = append(s.env, "DUMP="+dump)
	s.role("dump", dumpTasks)
	group := testenv.Random("vars-") + ".rolewright.test"
	spec := map[string]any{
		"camelCase": "text", "clusterIPRange": "10.0.0.0/8", "dbURL": "db://x", "replicas": int64(3), "ratio": 0.5, "on": true, "none": nil,
		"deepMap": map[string]any{"innerKey": []any{map[string]any{"leafName": "yes"}}},
		"expr":    "{{ 'a' ~ 'b' }}", "lines": "a\n{% if x %}",
		"ansiblePythonInterpreter": "/bin/false",
	}
	converted := map[string]any{
		"camel_case": "text", "cluster_ip_range": "10.0.0.0/8", "db_url": "db://x", "replicas": 3.0, "ratio": 0.5, "on": true, "none": nil,
		"deep_map": map[string]any{"inner_key": []any{map[string]any{"leaf_name": "yes"}}},
		"expr":     "{{ 'a' ~ 'b' }}", "lines": "a\n{% if x %}",
	}
	verbatim := map[string]any{
		"camelCase": "text", "clusterIPRange": "10.0.0.0/8", "dbURL": "db://x",
		"deepMap": map[string]any{"innerKey": []any{map[string]any{"leafName": "yes"}}},
		"expr":    "{{ 'a' ~ 'b' }}",
	}
	tests := []struct {
		kind  string
		watch []string
		want  map[string]any // variables from the spec
		meta  map[string]any // variables from the watch
	}{
		{kind: "Plain", want: converted},
		{kind: "Verbatim", watch: []string{"snakeCaseParameters: false"}, want: verbatim},
		{
			kind:  "Templated",
			watch: []string{"vars: {greeting: 'hello {{ ansible_operator_meta.name }}', camel_case: the watch wins}"},
			want:  map[string]any{"expr": "{{ 'a' ~ 'b' }}"},
			meta:  map[string]any{"greeting": "hello templated", "camel_case": "the watch wins"},
		},
		{kind: "Trusting", watch: []string{"markUnsafe: false"}, want: map[string]any{"expr": "ab", "camel_case": "text"}},
	}
	kinds := map[string]kind{}
	for _, tt := range tests {
		k := s.kind(testenv.WithGroup(group), testenv.WithKind(tt.kind))
		s.watch(k, append(tt.watch, "role: dump")...)
		kinds[tt.kind] = k
	}
	s.start()
	for _, tt := range tests {
		t.Run(tt.kind, func(t *testing.T) {
			k := kinds[tt.kind]
			k.t = t
			name := strings.ToLower(tt.kind)
			whole := "_" + strings.NewReplacer(".", "_", "-", "_").Replace(group) + "_" + name
			names := []any{"ansible_operator_meta", whole, whole + "_spec"}
			for _, variables := range []map[string]any{tt.want, tt.meta} {
				for key := range variables {
					names = append(names, key)
				}
			}
			given := map[string]any{"names": names}
			for key, value := range spec {
				if tt.kind != "Trusting" || !strings.Contains(key, "lines") { // it is not a template
					given[key] = value
				}
			}
			made := k.create(name, given)
			k.awaitReady(name)
			got := readDump(t, filepath.Join(dump, name+".json"))

			object, _ := got[whole].(map[string]any)
			metadata, _ := object["metadata"].(map[string]any)
			if object["kind"] != tt.kind || metadata["uid"] != string(made.GetUID()) {
				t.Errorf("%s = %v", whole, object)
			}
			raw, _ := got[whole+"_spec"].(map[string]any)
			if raw["camelCase"] != "text" || raw["ansiblePythonInterpreter"] != "/bin/false" {
				t.Errorf("%s_spec = %v", whole, raw)
			}
			delete(got, whole)
			delete(got, whole+"_spec")
			want := map[string]any{"ansible_operator_meta": map[string]any{"name": name, "namespace": s.namespace}}
			for _, variables := range []map[string]any{tt.want, tt.meta} {
				for key, value := range variables {
					want[key] = value
				}
			}
			must.Be(t, "variables", want, got)
		})
	}
}

func readDump(t *testing.T, path string) map[string]any {
	t.Helper()
	data := must.Get(os.ReadFile(path))(t)
	var dump map[string]any
	if err := json.Unmarshal(data, &dump); err != nil {
		t.Fatalf("decode what the role wrote: %v\n%s", err, data)
	}
	return dump
}
