package controller

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
)

func TestNamedFiles_AreThoseThatNoRunWrites(t *testing.T) {
	n := namedFiles{
		without: []string{"/etc/app/*", "-/etc/app/noise*"}, within: []string{"/opt/ansible/roles/one"},
		mayWrite: func(path string) bool { return strings.HasPrefix(path, "/opt/ansible/") },
	}
	for path, want := range map[string]bool{
		"/etc/app/vars.yml": true, "/etc/app/missing": true, "/etc/app/noise.yml": false, "/opt/ansible/roles/one/vars/a.yml": false,
		"/opt/ansible/cache": false, "/tmp/made": false, "/var/run/secrets/kubernetes.io/serviceaccount/token": false, "/etc/hostname": false,
	} {
		if got := n.counts(path); got != want {
			t.Errorf("%s counts: %v, want %v", path, got, want)
		}
	}
	dir := t.TempDir()
	if !mayWrite(filepath.Join(dir, "none/missing")) || os.Geteuid() != 0 && mayWrite("/etc/passwd") {
		t.Error("a file that can be made cannot be written, or the system's can")
	}
}

// If an input of a run has changed, the trigger names it, and a run is due.
func TestTrigger_NamesTheChangedInput(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("HOME", dir)
	t.Setenv("DEFAULT_TEA_VERSION", "1")
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	play := func(more string) string {
		return "- hosts: localhost\n  vars_files: [" + dir + "/named/a.yml]\n  vars: {more: " + more + "}\n" +
			"  tasks:\n  - include_vars: " + dir + "/named/b.yml\n" +
			"  - debug: {msg: \"{{ lookup('file', '" + dir + "/named/c.txt') }}\"}\n" +
			"  - debug: {msg: \"{{ lookup('template', '" + dir + "/named/d.j2') }}\"}\n"
	}
	write("play/site.yml", play("a"))
	core := "2.16.1"
	var unknown error
	w := watches.Watch{Content: watches.Content{Playbook: filepath.Join(dir, "play/site.yml")}, Inputs: watches.Inputs{Files: []string{dir + "/mounted/*"}}}
	opts := &Options{
		AnsibleArgs: "-e @" + dir + "/args.yml --vault-password-file " + dir + "/password", CollectionsPath: []string{filepath.Join(dir, "coll")},
		Versions: func(context.Context) (runner.Versions, error) {
			return runner.Versions{Core: core, Runner: "2.4.0"}, unknown
		},
	}
	is := func() *contents {
		c := contentsOf(w, opts, vault.New(opts.AnsibleArgs, os.LookupEnv))
		c.counts = func(path string) bool { return strings.HasPrefix(path, dir+"/named/") }
		return c
	}
	r := &reconciler{objects: newObjects(), opts: opts, now: time.Now}
	obj := object(schema.GroupVersionKind{Version: "v1", Kind: "Tea"}, "ns", "it", map[string]any{"a": int64(1)})
	obj.SetGeneration(1)
	s := &scope{key: types.NamespacedName{Namespace: "ns", Name: "it"}, object: obj, memory: &memory{last: &status.Run{Generation: obj.GetGeneration()}}}
	look := func() (trigger string, cause cause) {
		t.Helper()
		s.fingerprint = must.Get(is().fingerprint(t.Context(), s))(t)
		s.plan = decide(r.now(), r.situation(s))
		trigger = r.trigger(s)
		s.memory.last.Fingerprint, s.memory.last.Inputs = s.fingerprint, fingerprint.Pack(s.parts)
		return trigger, s.plan.cause
	}
	for _, tt := range []struct {
		name   string
		change func()
		want   string
		cause  cause
	}{
		{"a record of before", func() {}, "", causeContent},
		{"nothing", func() {}, "", ""},
		{"playbook", func() { write("play/site.yml", play("b")) }, "content: roles and playbooks", causeContent},
		{"collection", func() { write("coll/ansible_collections/a/b/MANIFEST.json", "{}") }, "content: collections", causeContent},
		{"mounted file", func() { write("mounted/vars.yml", "a: 1") }, "files: " + dir + "/mounted/*", causeContent},
		{"named file", func() { write("named/a.yml", "a: 1") }, "files: " + dir + "/named/a.yml", causeContent},
		{"named by include_vars", func() { write("named/b.yml", "b: 1") }, "files: " + dir + "/named/b.yml", causeContent},
		{"named by lookup of a file", func() { write("named/c.txt", "c") }, "files: " + dir + "/named/c.txt", causeContent},
		{"named by lookup of a template", func() { write("named/d.j2", "d") }, "files: " + dir + "/named/d.j2", causeContent},
		{"file of the arguments", func() { write("args.yml", "a: 1") }, "configuration: " + dir + "/args.yml", causeContent},
		{"password", func() { write("password", "x") }, "configuration: " + dir + "/password", causeContent},
		{"configuration at home", func() { write(".ansible.cfg", "[defaults]\n") }, "configuration: ~/.ansible.cfg", causeContent},
		{"vars", func() { w.Vars = map[string]any{"a": 1} }, "settings: vars", causeContent},
		{"Ansible", func() { core = "2.19.0" }, "ansible: core 2.19.0", causeContent},
		{"environment", func() { t.Setenv("DEFAULT_TEA_VERSION", "2") }, "environment: DEFAULT_TEA_VERSION", causeEnvironment},
		{"spec, there and back, and environment", func() { obj.SetGeneration(3); t.Setenv("DEFAULT_TEA_VERSION", "0") },
			"environment: DEFAULT_TEA_VERSION", causeEnvironment},
		{"environment and playbook", func() { t.Setenv("DEFAULT_TEA_VERSION", "3"); write("play/site.yml", play("c")) },
			"content: roles and playbooks; environment: DEFAULT_TEA_VERSION", causeContent},
		{"a new default in the CRD", func() { obj.Object["new"] = "x" }, "object", causeContent},
		{"annotations become inputs", func() { w.WatchAnnotationsChanges = true; obj.SetAnnotations(map[string]string{"a": "a"}) },
			"object; settings: watchAnnotationsChanges", causeContent},
		{"annotation and playbook", func() { obj.SetAnnotations(map[string]string{"a": "b"}); write("play/site.yml", play("d")) },
			"object; content: roles and playbooks", causeContent},
		{"annotations are inputs no more", func() { w.WatchAnnotationsChanges = false }, "object; settings", causeContent},
		{"object", func() { obj.SetGeneration(7); obj.Object["spec"] = map[string]any{"a": int64(2)} }, "object", causeChanged},
		{"kind without a generation", func() { obj.SetGeneration(0) }, "object", causeChanged},
		{"playbook of such a kind", func() { write("play/site.yml", play("e")) }, "content: roles and playbooks", causeContent},
		{"annotation of such a kind", func() { obj.SetAnnotations(nil) }, "object", causeChanged},
		{"a record of before of such a kind", func() { s.memory.last.Inputs = ""; t.Setenv("DEFAULT_TEA_VERSION", "4") }, "", causeChanged},
	} {
		tt.change()
		r.watch = w
		trigger, cause := look()
		s.memory.last.Generation = obj.GetGeneration()
		if trigger != tt.want || cause != tt.cause {
			t.Errorf("%s: %s, %q; want %s, %q", tt.name, cause, trigger, tt.cause, tt.want)
		}
	}

	r.touch(s.key, "", "configmaps ns/one was changed", false)
	r.touch(s.key, "", "configmaps ns/two was changed", false)
	if trigger, cause := look(); cause != causeDependent || trigger != "configmaps ns/one was changed" {
		t.Errorf("dependent: %s, %q", cause, trigger)
	}

	unknown = runner.ErrUnavailable
	if _, err := is().fingerprint(t.Context(), s); err != nil {
		t.Errorf("without versions, a run that is due cannot tell why it fails: %v", err)
	}
	s.memory.last.Result = status.Succeeded
	if _, err := is().fingerprint(t.Context(), s); !errors.Is(err, runner.ErrUnavailable) {
		t.Errorf("without versions, what has succeeded is judged: %v", err)
	}
}
