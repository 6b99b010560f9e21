package main

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each case has one mistake in a project. The command names its place and says what to do, and writes nothing.
func TestBadInput_IsRefusedWithItsPlaceAndNothingIsWritten(t *testing.T) {
	const (
		spec   = "roles/web/meta/argument_specs.yml"
		sample = "config/samples/apps_v1_web.yaml"
		viewer = "config/rbac/web_viewer_role.yaml"
	)
	api := func(more string) string {
		return "create api --group apps --version v1 --kind Web " + more
	}
	for name, tt := range map[string]struct {
		file, old, with string // the change to the project; a new file if old is empty
		args            string
		code            int
		want            string // part of the output
	}{
		"a project with kinds":           {"Makefile", "VERSION ?= 0.1.0", "VERSION ?= 0.2.0", "init --domain example.com --name shop", 0, "this is already a project"},
		"no domain":                      {"PROJECT", "domain: example.com\nlayout", "layout", "init", 0, "this is already a project"},
		"a directory for watches":        {"dir/x", "", "x", "validate dir", 2, "is a directory; pass the file in it, such as dir/watches.yaml"},
		"another domain":                 {"Makefile", "0.1.0", "0.2.0", "init --domain other.com --name shop --force", 2, `PROJECT has the name "shop" and the domain "example.com"`},
		"a manifest that differs":        {viewer, "[get, list, watch]", "[get]", api(""), 2, "-    verbs: [get]\n+    verbs: [get, list, watch]\n"},
		"tasks that are not YAML":        {"roles/bad/tasks/main.yml", "", "- name: x\n   a: [\n", "create api --group apps --version v1 --kind Bad", 2, "roles/bad/tasks/main.yml: yaml: line 2"},
		"a playbook's ending":            {"x", "", "x", api("--playbook playbooks/web.txt"), 2, "with the ending .yml or .yaml, such as playbooks/web.yml"},
		"an argument's type":             {spec, "type: str", "type: string", "generate crd", 2, spec + ":9: option text: type: one of str"},
		"a default of another type":      {spec, "type: str", "type: int", "generate sample", 2, spec + ":10: option text: the default is of type str, and the option is of type int"},
		"a default that is not a choice": {spec, "default: Hello", "choices: [a, b]\n        default: c", api(""), 2, spec + ":11: option text: the default is c, which is none of the choices"},
		"defaults that contradict":       {spec, "default: Hello", "default: Bye", "generate crd --check", 1, "note: roles/web/defaults/main.yml:3: the default of text is not the one"},
		"no mapping":                     {spec, "argument_specs:", "- argument_specs:", "lint --syntax-check=false", 2, "meta/argument_specs.yml:"},
		"from what":                      {"x", "", "x", "generate crd --from argspecs", 2, `--from "argspecs": argspec or defaults expected`},
		"a role that is not there":       {"x", "", "x", "generate argspec wep", 2, "there is no role wep"},
		"a module that is not there":     {"roles/web/tasks/main.yml", "kubernetes.core.k8s:", "kubernetes.core.k9s:", "generate rbac --offline", 1, "roles/web/tasks/main.yml:5: the requests of the module kubernetes.core.k9s"},
		"two objects":                    {sample, "spec:\n", "spec: {}\n---\nkind: Web\nspec:\n", "template -f " + sample, 2, "it has several objects"},
		"a list":                         {"x", "", "x", "template -f watches.yaml", 2, "an object with apiVersion, kind and metadata.name is expected"},
		"no name":                        {sample, "name:", "generateName:", "template -f " + sample, 2, "an object with apiVersion, kind and metadata.name is expected"},
	} {
		t.Run(name, func(t *testing.T) {
			scaffolded(t)
			if tt.old != "" {
				replaceIn(t, tt.file, tt.old, tt.with)
			} else if err := os.MkdirAll(filepath.Dir(tt.file), 0o700); err != nil {
				t.Fatal(err)
			} else if err := os.WriteFile(tt.file, []byte(tt.with), 0o600); err != nil {
				t.Fatal(err)
			}
			before := textsIn(t, ".")
			code, stdout, stderr := invoke(append([]string{"rolewright"}, strings.Fields(tt.args)...)...)
			if code != tt.code || !strings.Contains(stdout+stderr, tt.want) {
				t.Errorf("code %d, want %d and %q:\n%s%s", code, tt.code, tt.want, stdout, stderr)
			}
			if !maps.Equal(before, textsIn(t, ".")) {
				t.Error("it has written something")
			}
		})
	}
}

// The list of files is JSON, and stdout contains nothing else.
func TestFiles_AreListedInJSON(t *testing.T) {
	scaffolded(t)
	again := []string{"rolewright", "create", "api", "--group", "apps", "--version", "v1", "--kind", "Web", "-o", "json"}
	list := func(code int, args ...string) map[string]fileJSON {
		t.Helper()
		got, stdout, stderr := invoke(args...)
		var all filesJSON
		if err := json.Unmarshal([]byte(stdout), &all); err != nil || got != code || all.Files == nil || all.Notes == nil {
			t.Fatalf("%q: code %d, %v\n%s%s", args, got, err, stdout, stderr)
		}
		byPath := map[string]fileJSON{}
		for _, f := range all.Files {
			byPath[f.Path] = f
		}
		return byPath
	}
	const viewer, role = "config/rbac/web_viewer_role.yaml", "roles/web/defaults/main.yml"
	if got := list(0, again...); got[viewer].Did != "unchanged" {
		t.Errorf("%v", got)
	}
	replaceIn(t, viewer, "[get, list, watch]", "[get]")
	if got := list(2, again...)[viewer]; got.Did != "differs" || !strings.Contains(got.Diff, "\n-    verbs: [get]\n") {
		t.Errorf("%v", got)
	}
	if got := list(0, append(again, "--force")...); got[viewer].Did != "changed" {
		t.Errorf("%v", got)
	}
	replaceIn(t, role, "text: Hello", "text: Hello\nsize: 3")
	if got := list(1, "rolewright", "generate", "crd", "--from", "defaults", "--check", "-o", "json"); got["config/crd/bases/apps.example.com_webs.yaml"].Did != "differs" {
		t.Errorf("%v", got)
	}
	list(0, "rolewright", "init", "--domain", "example.com", "--name", "shop", "-o", "json")
	list(0, "rolewright", "generate", "argspec", "-o", "json")
}
