package watches

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

// A command must be an executable file that only its owner can change. Otherwise the watch is refused, with its line and
// what to do.
func TestLoad_Command(t *testing.T) {
	t.Parallel()
	dir := project(t)
	bin := filepath.Join(dir, "bin")
	must.Do(t, os.Mkdir(bin, 0o755))
	for name, mode := range map[string]os.FileMode{"reconcile": 0o755, "text": 0o644, "shared": 0o775, "bin/tool": 0o755, "lib.py": 0o644} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), mode))
		must.Do(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	must.Do(t, os.Symlink("reconcile", filepath.Join(dir, "link")))
	for name, tt := range map[string]struct{ fields, want, problem string }{
		"path":              {"command: [./reconcile, -v, 'a; {{ x }}', 3]", "DIR/reconcile|-v|a; {{ x }}|3", ""},
		"link":              {"command: [./link]", "DIR/link", ""},
		"absolute":          {"command: [" + bin + "/tool]", "DIR/bin/tool", ""},
		"in PATH":           {"command: [tool, lib.py]", "DIR/bin/tool|lib.py", ""},
		"finalizer":         {"command: [./reconcile]\n  finalizer: {name: example.com/f, command: [tool, -d], timeout: 1m}", "DIR/reconcile; DIR/bin/tool|-d", ""},
		"finalizer alone":   {"command: [./reconcile, a]\n  finalizer: {name: example.com/f}", "DIR/reconcile|a; DIR/reconcile|a", ""},
		"check":             {"command: [./reconcile]\n  check: {command: [tool, -n]}", "DIR/reconcile; DIR/bin/tool|-n", ""},
		"check and role":    {"role: memcached\n  check: {command: [tool]}", "", "5:20: error: [0].check.command: \"command\" is for watches with a command; remove it"},
		"check is missing":  {"command: [./reconcile]\n  check: {command: [./missing]}", "", "5:20: error: [0].check.command: command: DIR/missing was not found"},
		"text":              {"command: ./reconcile -v", "", `4:12: error: [0].command: "./reconcile -v" is not a list`},
		"empty":             {"command: []", "", "4:12: error: [0].command: the command names no executable; write for example command: [./reconcile.sh]"},
		"empty name":        {"command: ['', a]", "", "4:12: error: [0].command: the command names no executable"},
		"nested":            {"command: [[./reconcile]]", "", "4:13: error: [0].command[0]: a list is not a string"},
		"missing":           {"command: [./missing]", "", "4:12: error: [0].command: command: DIR/missing was not found; write the path of an executable, absolute or relative to DIR"},
		"not in PATH":       {"command: [reconcile]", "", "4:12: error: [0].command: command: reconcile was not found in PATH; write ./reconcile for the file next to"},
		"nowhere":           {"command: [kubctl]", "", "4:12: error: [0].command: command: kubctl was not found in PATH; install it"},
		"directory":         {"command: [./roles]", "", "DIR/roles is not a regular file"},
		"not executable":    {"command: [./text]", "", "DIR/text is not executable; run chmod +x DIR/text"},
		"others may write":  {"command: [./shared]", "", "is writable by users other than its owner (mode 0775); run chmod go-w DIR/shared"},
		"with a role":       {"command: [./reconcile]\n  role: memcached", "", `5:9: error: [0].role: "role" is for watches with a role or playbook; remove it`},
		"with a playbook":   {"playbook: playbooks/deploy.yml\n  command: [./reconcile]", "", `4:13: error: [0].playbook: "playbook" is for watches with a role or playbook`},
		"with vars":         {"command: [./reconcile]\n  vars: {a: b}", "", `5:9: error: [0].vars: "vars" is for watches with a role or playbook`},
		"with an executor":  {"command: [./reconcile]\n  executor: warm", "", `5:13: error: [0].executor: executor "warm" is for roles and playbooks; remove it, or write job`},
		"reports":           {"command: [./reconcile]\n  references: [{version: v1, kind: Secret, reported: true}]", "DIR/reconcile", ""},
		"reports a field":   {"command: [./reconcile]\n  references: [{version: v1, kind: Secret, reported: true, fromField: spec.a}]", "", "5:16: error: [0].references[0]: a reference with reported: true cannot have fromField or namespaceField"},
		"a role reports":    {"role: memcached\n  references: [{version: v1, kind: Secret, reported: true}]", "", "only commands can report references"},
		"as Jobs":           {"command: [./reconcile]\n  executor: job\n  job: {spec: {nodeSelector: {a: b}}}", "DIR/reconcile", ""},
		"finalizer's role":  {"command: [./reconcile]\n  finalizer: {name: example.com/f, role: backup}", "", `5:42: error: [0].finalizer.role: "role" is for watches with a role or playbook`},
		"role and command":  {"role: memcached\n  finalizer: {name: example.com/f, command: [tool]}", "", "5:45: error: [0].finalizer.command: the watch runs a role or playbook, but its finalizer runs a command"},
		"inherits":          {"command: [./link]\n  inheritEnv: [AWS_REGION, x]", "DIR/link", ""},
		"inherits its way":  {"command: [./link]\n  inheritEnv: [KUBERNETES_SERVICE_HOST]", "", "5:16: error: [0].inheritEnv[0]: KUBERNETES_SERVICE_HOST is reserved: each run has its own value, or requests would bypass the API proxy"},
		"inherits patterns": {"command: [./link]\n  inheritEnv: [AWS_*]", "", `"AWS_*" is not a name of an environment variable`},
		"sets":              {"command: [./link]\n  env: {LEVEL: 'a {{ x }} $(id)', COUNT: 1}\n  secrets: [{name: db, key: password}, {name: db, key: ca.crt, file: ca, optional: true}]", "DIR/link", ""},
		"stops":             {"command: [./link]\n  requireResult: true\n  stop: {signal: SIGINT, grace: 2m}\n  finalizer: {name: example.com/f}", "DIR/link; DIR/link", ""},
		"stops oddly":       {"command: [./link]\n  stop: {signal: SIGKILL}", "", `5:18: error: [0].stop.signal: "SIGKILL" is not a valid stop signal; write SIGTERM, SIGINT,`},
		"stops late":        {"command: [./link]\n  stop: {grace: 11m}", "", "5:17: error: [0].stop.grace: the grace period 11m0s is not between 0 and 10m"},
		"role stops":        {"role: memcached\n  stop: {grace: 1m}", "", "5:9: error: [0].stop: \"stop\" is for watches with a command; remove it"},
		"sets its way":      {"command: [./link]\n  env: {KUBECONFIG: /root/.kube/config}", "", "5:9: error: [0].env.KUBECONFIG: KUBECONFIG is reserved: each run has its own value, or requests would bypass the API proxy"},
		"sets a boolean":    {"command: [./link]\n  env: {Y: 1}", "", "5:9: error: [0].env.true: YAML reads the name of this variable as true; choose another name"},
		"sets a list":       {"command: [./link]\n  env: {A: [b]}", "", "5:12: error: [0].env.A: a list is not a string"},
		"role sets":         {"role: memcached\n  env: {A: b}", "", "5:8: error: [0].env: \"env\" is for watches with a command; remove it: roles and playbooks have"},
		"role has secrets":  {"role: memcached\n  secrets: [{name: db, key: k}]", "", "5:12: error: [0].secrets: \"secrets\" is for watches with a command; use varsFrom"},
		"secret elsewhere":  {"command: [./link]\n  secrets: [{name: db, key: k, file: ../k}]", "", `"../k" is not a valid name of a file`},
		"secret of no key":  {"command: [./link]\n  secrets: [{name: db}]", "", "5:13: error: [0].secrets[0]: a secret must have name and key; write for example {name: database, key: password}"},
		"a file twice":      {"command: [./link]\n  secrets: [{name: a, key: k}, {name: b, key: c, file: k}]", "", `5:32: error: [0].secrets[1]: two secrets have the same file name, "k"`},
		"role inherits":     {"role: memcached\n  inheritEnv: [A]", "", "5:15: error: [0].inheritEnv: \"inheritEnv\" is for watches with a command"},
		"NUL in an element": {`command: [./reconcile, "a\0b"]`, "", "an argument cannot have a NUL character"},
	} {
		text := "- version: v1\n  kind: A\n  group: g.example.com\n  " + tt.fields + "\n"
		got := loadText(t, dir, text, Options{LookupEnv: lookup(map[string]string{"PATH": ":.:" + bin})})
		problem := tt.problem
		if (got.err == nil) != (problem == "") || problem != "" && (len(got.problems) != 1 || !strings.Contains(got.problems[0], problem)) {
			t.Errorf("%s: %v, %q; want %q", name, got.err, got.problems, problem)
			continue
		}
		if problem != "" {
			continue
		}
		w := got.watches[0]
		commands := []*Command{w.Content.Command}
		if w.Finalizer != nil {
			commands = append(commands, w.Finalizer.Content.Command)
		}
		if w.CheckCommand != nil {
			commands = append(commands, w.CheckCommand)
		}
		var all []string
		for _, c := range commands {
			all = append(all, strings.Join(append([]string{c.Path}, c.Args...), "|"))
			must.Be(t, "directory", dir, c.Dir)
		}
		must.Be(t, name, strings.ReplaceAll(tt.want, "DIR", dir), strings.Join(all, "; "))
		if name == "stops" {
			must.Be(t, "stop", Stop{"SIGINT", 2 * time.Minute}, w.Content.Command.Stop)
			must.Be(t, "requireResult", true, w.Content.Command.RequireResult)
		}
		if name == "sets" {
			must.Be(t, "env", map[string]string{"LEVEL": "a {{ x }} $(id)", "COUNT": "1"}, w.Content.Command.Env)
			must.Be(t, "secrets", []VarsFrom{
				{Secret: true, Name: "db", Key: "password", File: "password"}, {Secret: true, Name: "db", Key: "ca.crt", File: "ca", Optional: true},
			}, w.VarsFrom)
		}
		if name == "in PATH" {
			must.Be(t, "files", []string{filepath.Join(bin, "tool"), filepath.Join(dir, "lib.py")}, w.Content.Command.Files())
		}
	}
}

// Relative paths of inputs start at the directory of the watches file, wherever the operator was started.
func TestLoad_FilesOfInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "watches.yaml")
	must.Do(t, os.WriteFile(file, []byte("- version: v1\n  kind: A\n  command: [/bin/true]\n  inputs: {files: [files/*, -./files/noise, ../beside, /etc/app/*, -/etc/app/noise]}\n"), 0o600))
	watched, problems, err := Load(file, Options{})
	if err != nil {
		t.Fatal(err, problems)
	}
	want := []string{dir + "/files/*", "-" + dir + "/files/noise", filepath.Dir(dir) + "/beside", "/etc/app/*", "-/etc/app/noise"}
	if diff := cmp.Diff(want, watched[0].Inputs.Files); diff != "" {
		t.Error(diff)
	}
}
