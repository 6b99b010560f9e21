package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// template shows what the run of the object gets, except what only the cluster adds to the object, and secret values.
func TestTemplate_ShowsWhatARunGets(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	k := s.kind()
	kept := t.TempDir()
	s.role("thing", `- name: Keep what the run was started with
  ansible.builtin.shell: cp -r "$(dirname "$K8S_AUTH_KUBECONFIG")"/{env,inventory} `+kept+`
  args: {executable: /bin/bash}
`)
	s.watch(k, "role: thing", "vars: {region: north}", "secretVars: [password]")
	s.start()
	k.create("it", map[string]any{"logLevel": "{{ debug }}", "password": "correct horse battery"})
	k.awaitReady("it")

	s.write("it.yaml", "apiVersion: "+k.gvk.GroupVersion().String()+"\nkind: "+k.gvk.Kind+
		"\nmetadata: {name: it, namespace: "+s.namespace+"}\nspec: {logLevel: '{{ debug }}', password: correct horse battery}\n")
	cmd := process(t, binary(t), "template", "-f", "it.yaml", "-o", "json")
	cmd.Dir, cmd.Env = s.dir, s.env
	out := must.Get(cmd.Output())(t)
	if strings.Contains(string(out), "correct horse") {
		t.Errorf("the password is shown:\n%s", out)
	}
	var shown struct {
		Inventory map[string]string
		ExtraVars map[string]any
	}
	must.Do(t, json.Unmarshal(out, &shown))
	var got map[string]any
	data, err := os.ReadFile(filepath.Join(kept, "env/extravars"))
	if err == nil {
		err = json.Unmarshal(data, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(shown.ExtraVars) || len(got) < 5 {
		t.Errorf("extra vars: %v, shown %v", got, shown.ExtraVars)
	}
	for name, value := range got {
		_, there := shown.ExtraVars[name]
		if whole := strings.HasPrefix(name, "_") || name == "password"; !there || !whole && !reflect.DeepEqual(value, shown.ExtraVars[name]) {
			t.Errorf("%s: %v, shown %v", name, value, shown.ExtraVars[name])
		}
	}
	hosts, err := os.ReadFile(filepath.Join(kept, "inventory/hosts"))
	if err != nil || string(hosts) != shown.Inventory["hosts"] {
		t.Errorf("inventory: %q, %v; shown %q", hosts, err, shown.Inventory["hosts"])
	}
}
