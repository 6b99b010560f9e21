package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

// treeText returns the files of a directory, each below its name.
func treeText(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			fmt.Fprintf(&all, "-- %s -> %s --\n", rel, target)
			return err
		}
		data, err := os.ReadFile(path)
		fmt.Fprintf(&all, "-- %s --\n%s", rel, data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// A project with a kind of each sort has the files of the golden file. A second call of each command changes nothing.
func TestScaffold_Golden(t *testing.T) {
	golden := must.Get(filepath.Abs("testdata/scaffold.golden"))(t)
	t.Chdir(t.TempDir())
	must.Write(t, ".", map[string]string{
		"roles/cache/tasks/main.yml":    "---\n- name: Nothing\n  ansible.builtin.debug:\n",
		"roles/cache/defaults/main.yml": "---\n# How many.\nsize: 3\nmodes: [a]\nanything:\n_own: 1\n",
	})
	commands := []string{
		"init --domain example.com --name web-operator",
		"create api --group web --version v1 --kind Site --finalizer",
		"create api --group web --version v1 --kind Page --playbook playbooks/page.yml",
		"create api --group web --version v1alpha1 --kind Zone --cluster-scoped --role zones",
		"create api --group= --version v1 --kind Any --crd-from none",
		"create api --group web --version v1 --kind Cache --role cache --crd-from defaults",
	}
	run := func(command string) (said string) {
		t.Helper()
		code, stdout, stderr := invoke(append([]string{programName}, strings.Fields(command)...)...)
		if code != 0 {
			t.Fatalf("rolewright %s: code %d\n%s", command, code, stderr)
		}
		return stdout + stderr
	}
	for _, c := range commands {
		run(c)
	}
	got := treeText(t, ".")
	for _, c := range commands {
		if said := run(c); !strings.Contains(said, "nothing to do") {
			t.Errorf("rolewright %s, again:\n%s", c, said)
		}
	}
	if diff := cmp.Diff(got, treeText(t, ".")); diff != "" {
		t.Errorf("called again, the commands change (-before +after):\n%s", diff)
	}
	must.Golden(t, *update, golden, got)
}

// Commands name what is wrong with their input, say what to do, and write nothing.
func TestScaffold_RefusesBadInput(t *testing.T) {
	const api = "create api --group web --version v1 --kind Site "
	const watch = "- {group: web.example.com, version: v1, kind: Site, role: /opt/ansible/roles/sites}\n"
	for name, tt := range map[string]struct {
		command, file, text, want string
	}{
		"no project":             {command: "create api --version v1 --kind Site", file: "PROJECT", want: `make a project with "rolewright init"`},
		"a domain":               {command: "init --domain ex_ample --name other", want: "--domain"},
		"another project":        {command: "init --domain example.org --name other", want: `"rolewright create api" adds a kind`},
		"a kind in small":        {command: "create api --group web --version v1 --kind site", want: `--kind "site": it begins with a capital letter`},
		"a full group":           {command: "create api --group web.example.com --version v1 --kind Site", want: `--group "web.example.com": the domain of the project follows it: give "web"`},
		"no kind and no version": {command: "create api --group web --version=", want: "--version is missing: such as v1alpha1\n--kind is missing: such as Memcached"},
		"a version":              {command: "create api --group web --version 1 --kind Site", want: `--version "1": `},
		"no group":               {command: "create api --version v1 --kind Site", want: `--group is missing`},
		"a group":                {command: "create api --group Web --version v1 --kind Site", want: `--group "Web": lower-case letters, digits, - and .; `},
		"a role":                 {command: api + "--role ../site", want: `--role "../site": lower-case letters`},
		"a playbook elsewhere":   {command: api + "--playbook ../site.yml", want: `--playbook "../site.yml": a path in a directory below this one`},
		"a source":               {command: api + "--crd-from role", want: `--crd-from "role": argspec, defaults or none`},
		"no argument spec":       {command: api + "--crd-from argspec", file: "roles/site/tasks/main.yml", text: "[]\n", want: "the role has no meta/argument_specs.yml"},
		"a wrong argument spec":  {command: api, file: "roles/site/meta/argument_specs.yml", text: "argument_specs: {main: {options: {a: {type: string}}}}\n", want: "meta/argument_specs.yml:1: option a: type: "},
		"another role":           {command: api, file: "watches.yaml", text: watch, want: "watches.yaml:1: Site is already watched, but not with role: site; edit the entry"},
		"a playbook, later":      {command: api + "--role sites --playbook playbooks/site.yml", file: "watches.yaml", text: watch, want: "not with playbook: playbooks/site.yml"},
		"a finalizer, later":     {command: api + "--role sites --finalizer", file: "watches.yaml", text: watch, want: "without a finalizer: add one to the entry by hand"},
		"a file that differs":    {command: api, file: "config/samples/web_v1_site.yaml", text: "---\nmine: 1\n", want: "+++ config/samples/web_v1_site.yaml (new)\n@@ -1,2 +1,7 @@\n ---\n-mine: 1\n+apiVersion: web.example.com/v1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			if code, _, stderr := invoke(programName, "init", "--name", "web-operator"); code != 0 {
				t.Fatal(stderr)
			}
			if tt.file != "" {
				must.Do(t, os.MkdirAll(filepath.Dir(tt.file), 0o700))
				must.Do(t, os.WriteFile(tt.file, []byte(tt.text), 0o600))
			}
			if tt.file == "PROJECT" {
				must.Do(t, os.Remove(tt.file))
			}
			before := treeText(t, ".")
			code, stdout, stderr := invoke(append([]string{programName}, strings.Fields(tt.command)...)...)
			if stderr += stdout; code != 2 || !strings.Contains(stderr, tt.want) {
				t.Errorf("code %d\n%s\nwant %q", code, stderr, tt.want)
			}
			if diff := cmp.Diff(before, treeText(t, ".")); diff != "" {
				t.Errorf("it has written (-before +after):\n%s", diff)
			}
		})
	}
}

// Both versions of a kind get the new options of the role that both run. A second watch of a version has no part in its CRD.
func TestGenerateCRD_OfTwoVersions(t *testing.T) {
	scaffolded(t)
	const crd = "config/crd/bases/apps.example.com_webs.yaml"
	if code, _, stderr := invoke("rolewright", "create", "api", "--group=apps", "--version", "v1beta1", "--kind", "Web", "--role", "web"); code != 0 {
		t.Fatal(stderr)
	}
	replaceIn(t, "roles/web/meta/argument_specs.yml", "    options:\n", "    options:\n      size: {type: int}\n")
	if code, _, stderr := invoke("rolewright", "generate", "crd"); code != 0 {
		t.Fatal(stderr)
	}
	if text := string(must.Get(os.ReadFile(crd))(t)); strings.Count(text, "                size:\n") != 2 {
		t.Errorf("the CRD is\n%s", text)
	}
	must.Do(t, os.Remove(crd))
	if code, _, stderr := invoke("rolewright", "generate", "crd"); code != 0 {
		t.Errorf("without a CRD: %s", stderr)
	}
	if text := string(must.Get(os.ReadFile(crd))(t)); strings.Count(text, "                size:\n") != 2 || strings.Count(text, "storage: true") != 1 {
		t.Errorf("the new CRD is\n%s", text)
	}
	must.Do(t, os.CopyFS("roles/other", os.DirFS("roles/web")))
	replaceIn(t, "roles/other/meta/argument_specs.yml", "size: {type: int}", "colour: {}")
	replaceIn(t, "watches.yaml", "- group: apps.example.com", "- {group: apps.example.com, version: v1, kind: Web, role: other, selector: {matchLabels: {a: b}}}\n- selector: {matchLabels: {a: c}}\n  group: apps.example.com")
	for _, args := range []string{"generate crd --allow-breaking", "generate crd --check"} {
		code, _, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...)
		if code != 0 || !strings.Contains(stderr, "several watches of v1 run different content") {
			t.Errorf("%s: code %d: %s", args, code, stderr)
		}
	}
}
