package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// validateProject changes to a new directory with a watches file and content.
func validateProject(t *testing.T, watchesFile string) {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{
		"watches.yaml":                 watchesFile,
		"roles/good/tasks/main.yml":    "- ansible.builtin.debug: {msg: hi}\n",
		"roles/bad/tasks/main.yml":     "- name: two actions\n  ansible.builtin.debug: {msg: hi}\n  ansible.builtin.command: ls\n",
		"playbooks/good.yml":           "- hosts: localhost\n  tasks: []\n",
		"elsewhere/far/tasks/main.yml": "- ansible.builtin.debug: {msg: hi}\n",
		"collections/ansible_collections/a/b/roles/c/tasks/main.yml": "- ansible.builtin.debug: {msg: hi}\n",
		"roles/sets/tasks/main.yml":                                  "- ansible.builtin.debug: {msg: hi}\n  register: result\n- ansible.builtin.set_fact: {image_name: x, own: x, item: x, strict: x}\n",
		"crds/patches/patch.yaml":                                    "- op: add\n  path: /x\n", "crds/templates/crd.yaml": "kind: {{ kind }}\n",
		"crds/open.yaml": definition("Open", "{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {imageName: {type: string}}}") +
			"---\n" + definition("Closed", "{type: object, properties: {imageName: {type: string}}}"),
	})
	t.Chdir(dir)
}

// definition returns a CustomResourceDefinition with that schema of the spec.
func definition(kind, spec string) string {
	return "kind: CustomResourceDefinition\nspec:\n  group: example.com\n  names: {kind: " + kind + "}\n" +
		"  versions: [{name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: " + spec + "}}}}]\n"
}

// validate runs the command.
func validate(ctx context.Context, args ...string) (stdout string, err error) {
	var out, errs bytes.Buffer
	cmd := newValidateCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(ctx)
	return out.String() + errs.String(), err
}

func requireAnsible(t *testing.T) {
	t.Helper()
	parts.Ansible(t)
}

const goodWatch = "- version: v1\n  group: example.com\n  kind: Good\n  role: good\n"

func TestValidate_SaysWhatIsWrongAndWhere(t *testing.T) {
	requireAnsible(t)
	tests := map[string]struct {
		watches string
		args    []string
		// want is the whole output; valid means that the exit code is 0.
		want  string
		valid bool
	}{
		"valid": {goodWatch, nil, "watches.yaml is valid: 1 watch\n", true},
		"valid with warnings": {goodWatch + "  rolle: x\n", nil,
			"watches.yaml:5:3: warning: [0].rolle: unknown key \"rolle\" has no effect; did you mean \"role\"?\n" +
				"watches.yaml is valid: 1 watch, 1 warning\n", true},
		"strict": {goodWatch + "  rolle: x\n", []string{"--strict"},
			"watches.yaml:5:3: error: [0].rolle: unknown key \"rolle\" has no effect; did you mean \"role\"?\n" +
				"1 error in watches.yaml\n", false},
		"no watches": {"[]\n", nil,
			"watches.yaml:1:1: warning: the file has no watches; the operator will do nothing\nwatches.yaml is valid: 0 watches, 1 warning\n", true},
		"all problems at once, those of good watches' content too": {
			goodWatch + "- version: v1\n  kind: Bad\n  role: bad\n  finalizer: {name: example.com/x, role: bad}\n- kind: NoVersion\n  role: good\n  reconcilePeriod: 5\n", nil,
			"watches.yaml:9:3: error: [2]: invalid GVK: /, Kind=NoVersion: version must not be empty; add \"version:\", such as v1\n" +
				"watches.yaml:11:20: error: [2].reconcilePeriod: 5 has no unit; write \"5s\" for seconds\n" +
				"roles/bad/tasks/main.yml:1:3: error: conflicting action statements: ansible.builtin.debug, ansible.builtin.command; used by the watch of /v1, Kind=Bad in watches.yaml:5\n" +
				"3 errors in watches.yaml\n", false},
		"schemas that keep fields": {
			"- {version: v1, group: example.com, kind: Closed, role: sets}\n- {version: v1, group: example.com, kind: Open, role: sets, vars: {own: x}}\n", []string{"--crd-dir=crds"},
			"watches.yaml:2:3: warning: Open: the schema keeps fields of the spec that it does not declare, and extra vars replace variables that the content sets itself: " +
				"an object can set result, strict; declare the fields of the spec, and remove x-kubernetes-preserve-unknown-fields from it\n" +
				"watches.yaml is valid: 2 watches, 1 warning\n", true},
		"without the syntax check": {"- version: v1\n  kind: Bad\n  role: bad\n", []string{"--syntax-check=false"},
			"watches.yaml is valid: 1 watch (syntax of the content not checked)\n", true},
		"roles path by flag":       {"- version: v1\n  kind: A\n  role: far\n", []string{"--ansible-roles-path", "elsewhere"}, "watches.yaml is valid: 1 watch\n", true},
		"collections path by flag": {"- version: v1\n  kind: A\n  role: a.b.c\n", []string{"--ansible-collections-path=collections"}, "watches.yaml is valid: 1 watch\n", true},
		"other file":               {"", []string{"gone.yaml"}, "gone.yaml: error: open DIR/gone.yaml: no such file or directory; pass the path of the file, or run in its directory; \"rolewright init\" creates a project\n1 error in gone.yaml\n", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			validateProject(t, tt.watches)
			t.Setenv("ANSIBLE_ROLES_PATH", "/nowhere")
			t.Setenv("ANSIBLE_COLLECTIONS_PATH", "/nowhere")
			got, err := validate(t.Context(), tt.args...)
			if tt.valid && err != nil || !tt.valid && !errors.Is(err, errInvalid) {
				t.Errorf("error %v", err)
			}
			dir, _ := os.Getwd()
			if diff := cmp.Diff(tt.want, strings.ReplaceAll(got, dir, "DIR")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// CI jobs read this output.
func TestValidate_JSON(t *testing.T) {
	requireAnsible(t)
	validateProject(t, goodWatch+"  manageStatus: \"<yes>\"\n- version: v1\n  kind: Bad\n  role: bad\n  maxRunnerArtifacts: 0\n")
	got, err := validate(t.Context(), "-o", "json", "--strict")
	if !errors.Is(err, errInvalid) {
		t.Errorf("error %v", err)
	}
	const want = `{
  "file": "watches.yaml",
  "valid": false,
  "strict": true,
  "watches": 1,
  "errors": 2,
  "warnings": 1,
  "syntaxCheck": "failed",
  "problems": [
    {
      "file": "watches.yaml",
      "line": 5,
      "column": 17,
      "severity": "error",
      "path": "[0].manageStatus",
      "text": "<yes>",
      "message": "\"<yes>\" is not a boolean",
      "hint": "write true or false"
    },
    {
      "file": "watches.yaml",
      "line": 9,
      "column": 23,
      "severity": "warning",
      "path": "[1].maxRunnerArtifacts",
      "text": "0",
      "message": "0 keeps no artifacts; ansible-operator treated it as unset and kept 20",
      "hint": "remove the key to keep 20, write a negative number to keep all"
    },
    {
      "file": "roles/bad/tasks/main.yml",
      "line": 1,
      "column": 3,
      "severity": "error",
      "path": "",
      "text": "",
      "message": "conflicting action statements: ansible.builtin.debug, ansible.builtin.command",
      "hint": "used by the watch of /v1, Kind=Bad in watches.yaml:6"
    }
  ]
}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	validateProject(t, goodWatch)
	got, err = validate(t.Context(), "-o", "json")
	var v validationReport
	if err != nil || json.Unmarshal([]byte(got), &v) != nil || !v.Valid || v.Problems == nil || v.SyntaxCheck != syntaxPassed {
		t.Errorf("valid file: %v, %s", err, got)
	}
}

// TestValidate_WithoutAnsible: if the content cannot be checked, this is an error, unless the check is switched off.
func TestValidate_WithoutAnsible(t *testing.T) {
	validateProject(t, goodWatch)
	t.Setenv("PATH", t.TempDir())
	got, err := validate(t.Context())
	if !errors.Is(err, errInvalid) || !strings.Contains(got, "was not checked") || !strings.Contains(got, "install ansible-core, or leave the check out with --syntax-check=false\n1 error in watches.yaml\n") {
		t.Errorf("%v\n%s", err, got)
	}
	got, err = validate(t.Context(), "-o", "json")
	if !errors.Is(err, errInvalid) || !strings.Contains(got, `"syntaxCheck": "unavailable"`) {
		t.Errorf("%v\n%s", err, got)
	}
	if got, err = validate(t.Context(), "--syntax-check=false"); err != nil {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestValidate_UsageErrors: main prints these errors, not the command.
func TestValidate_UsageErrors(t *testing.T) {
	validateProject(t, goodWatch)
	for _, args := range [][]string{{"a", "b"}, {"-o", "yaml"}, {"--nope"}} {
		if got, err := validate(t.Context(), args...); err == nil || errors.Is(err, errInvalid) || got != "" {
			t.Errorf("%q: %v, printed %q", args, err, got)
		}
	}
}

// TestValidate_StopsWithItsContext: after Ctrl-C there is no verdict.
func TestValidate_StopsWithItsContext(t *testing.T) {
	requireAnsible(t)
	validateProject(t, goodWatch)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, err := validate(ctx); !errors.Is(err, context.Canceled) || got != "" {
		t.Errorf("%v, printed %q", err, got)
	}
}
