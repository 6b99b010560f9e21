package watches

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

func updateFlag() *bool {
	if f := flag.Lookup("update"); f != nil {
		v := f.Value.(flag.Getter).Get().(bool)
		return &v
	}
	return flag.Bool("update", false, "write the golden files")
}

func TestMain(m *testing.M) {
	updateFlag()
	os.Exit(m.Run())
}

// project returns a working directory with roles and playbooks for watches.
func project(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"roles/memcached/", "roles/backup/", "roles/restore/", "roles/mesh_ingress/", "roles/watch_secrets/",
		"playbooks/suite.yml", "playbooks/mesh_ingress_finalize.yml", "playbooks/deploy.yml", "playbooks/remove.yml",
		"collections/ansible_collections/acme/console/roles/extension/",
	} {
		create(t, dir, name)
	}
	return dir
}

// create makes a file, or a directory if the name ends in a slash.
func create(t testing.TB, dir, name string) {
	t.Helper()
	path := filepath.Join(dir, name)
	parent := filepath.Dir(path)
	if strings.HasSuffix(name, "/") {
		parent = path
	}
	must.Do(t, os.MkdirAll(parent, 0o755))
	if parent != path {
		must.Do(t, os.WriteFile(path, []byte("- hosts: localhost\n"), 0o644))
	}
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		value, ok := env[name]
		return value, ok
	}
}

// loaded is the outcome of loading one text.
type loaded struct {
	watches  []Watch
	problems []string // without the name of the working directory
	raw      []Problem
	err      error
}

func loadText(t testing.TB, dir, text string, opts Options) loaded {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(dir, "watches.yaml"), []byte(text), 0o644))
	opts.Dir = dir
	var got loaded
	got.watches, got.raw, got.err = Load("watches.yaml", opts)
	for _, p := range got.raw {
		got.problems = append(got.problems, strings.ReplaceAll(p.String(), dir, "DIR"))
	}
	return got
}

// TestLoad_Documents reads whole files: some are like those of real operators, one has the settings in all their
// spellings, and one has a minimal watch. The golden files of the others only have what differs from the minimal watch.
func TestLoad_Documents(t *testing.T) {
	env := map[string]string{
		"CONSOLE_PLAYBOOKS": "playbooks", "CONSOLE_PERIOD": "1h30m", "CONSOLE_WATCH": "no", "CONSOLE_IMAGE": "console:1",
		"ANSIBLE_COLLECTIONS_PATH": "/nowhere:collections", "HOME": "/nowhere",
		"MAX_CONCURRENT_RECONCILES_SUITE_SUITE_EXAMPLE_COM": "3", "WORKER_SECRET_": "4", "ANSIBLE_VERBOSITY_SECRET_": "0",
	}
	opts := Options{LookupEnv: lookup(env), Defaults: Defaults{MaxConcurrentReconciles: 8, AnsibleVerbosity: 2, Executor: ExecutorAuto}}
	plain := asJSON(t, loadText(t, project(t), watch(), opts).watches[0])
	for _, name := range []string{"plain", "suite", "console", "settings", "wrong"} {
		t.Run(name, func(t *testing.T) {
			text := watch()
			if name != "plain" {
				text = string(must.Get(os.ReadFile("testdata/" + name + ".yaml"))(t))
			}
			dir := project(t)
			got := loadText(t, dir, text, opts)
			if (got.err != nil) != (name == "wrong") {
				t.Errorf("error: %v", got.err)
			}
			var list []any
			for _, w := range got.watches {
				if is := asJSON(t, w); name == "plain" {
					list = append(list, is)
				} else {
					list = append(list, beside(is, plain))
				}
			}
			watches := must.Get(json.MarshalIndent(list, "", "  "))(t)
			must.Golden(t, *updateFlag(), "testdata/"+name+".golden", strings.Join(got.problems, "\n")+"\n\n"+strings.ReplaceAll(string(watches), dir, "DIR")+"\n")
		})
	}
}

func asJSON(t *testing.T, w Watch) (out any) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(w))(t), &out))
	return out
}

// beside returns a value without the parts that are equal in another value.
func beside(value, other any) any {
	is, ok := value.(map[string]any)
	was, alike := other.(map[string]any)
	if !ok || !alike {
		return value
	}
	out := map[string]any{}
	for key, v := range is {
		if !cmp.Equal(v, was[key]) {
			out[key] = beside(v, was[key])
		}
	}
	return out
}

// watch returns a minimal valid watch with more lines.
func watch(lines ...string) string {
	return "- version: v1\n  kind: A\n  role: memcached\n" + strings.Join(append(lines, ""), "\n")
}

// TestLoad_Problems covers every class of problem with its exact message.
func TestLoad_Problems(t *testing.T) {
	tests := map[string]struct {
		text string
		env  map[string]string
		// want is the messages. Load fails if one of them is an error.
		want []string
		// strict is the number of errors in strict mode.
		strict int
	}{
		"empty file":         {text: "", want: []string{"1:1: warning: the file has no watches; the operator will do nothing"}, strict: 1},
		"only comments":      {text: "---\n# nothing\n", want: []string{"1:1: warning: the file has no watches; the operator will do nothing"}, strict: 1},
		"empty list":         {text: "\n[]\n", want: []string{"2:1: warning: the file has no watches; the operator will do nothing"}, strict: 1},
		"a mapping":          {text: "kind: A\n", want: []string{`1:1: error: a mapping is not a list of watches; begin each watch with "- "`}, strict: 1},
		"a text":             {text: "hello\n", want: []string{`1:1: error: "hello" is not a list of watches; begin each watch with "- "`}, strict: 1},
		"a list of texts":    {text: "- hello\n", want: []string{`1:3: error: [0]: "hello" is not a watch; write "version:", "kind:" and "role:", "playbook:", "command:" or "chart:" after the "- "`}, strict: 1},
		"binary":             {text: "- a\n- b\x00c\n", want: []string{"2:4: error: not a text file: character U+0000 is not allowed; save the file as UTF-8 text without control characters"}, strict: 1},
		"latin 1":            {text: "- kind: h\xe9llo\n", want: []string{"1:10: error: not a text file: byte 0xE9 is not UTF-8; save the file as UTF-8 text without control characters"}, strict: 1},
		"tab indentation":    {text: watch("\tvars: {}"), want: []string{"4:2: error: not valid YAML: found a tab character that violates indentation; indent with spaces; YAML allows no tabs there"}, strict: 1},
		"unclosed quote":     {text: watch("  vars: {a: \"x}"), want: []string{"4:3: error: not valid YAML: found unexpected end of stream; check indentation, quotes and brackets in this line and the one before"}, strict: 1},
		"bad indentation":    {text: watch("   vars: {}"), want: []string{"4:4: error: not valid YAML: mapping values are not allowed in this context; check indentation, quotes and brackets in this line and the one before"}, strict: 1},
		"lost indentation":   {text: watch(" vars: {}", "  # end"), want: []string{"4:2: error: not valid YAML: did not find expected '-' indicator; check indentation, quotes and brackets in this line and the one before"}, strict: 1},
		"value to be quoted": {text: watch("  vars: {}", "  group: @x"), want: []string{"5:3: error: not valid YAML: found character that cannot start any token; put the value in quotes"}, strict: 1},
		"template unquoted":  {text: watch("  vars:", "    a: {{ x }}"), want: []string{`5:9: error: [0].vars.a: invalid map key: a mapping or a list cannot be a key; put a value that begins with "{{" or "[" in quotes`}, strict: 1},
		"unknown anchor":     {text: watch("  vars: *a"), want: []string{"4:3: error: not valid YAML: unknown anchor 'a' referenced; check indentation, quotes and brackets in this line and the one before"}, strict: 1},
		"cycle":              {text: watch("  vars: &a {x: *a}"), want: []string{"4:16: error: [0].vars.x.x: anchor 'a' value contains itself"}, strict: 1},
		"second document":    {text: watch("---", "- kind: B"), want: []string{`5:1: warning: only the first YAML document is read; put all watches into one list and remove the "---" between them`}, strict: 1},
		"broken second document": {text: watch("---", "- kind: }B"), want: []string{
			`5:1: warning: only the first YAML document is read; put all watches into one list and remove the "---" between them`}, strict: 1},

		"null watch": {text: "-\n", want: []string{
			`1:2: error: [0]: invalid GVK: /, Kind=: version must not be empty; add "version:", such as v1`,
			`1:2: error: [0]: invalid GVK: /, Kind=: kind must not be empty; add "kind:", such as Memcached`,
			`1:2: error: [0]: must specify Role or Playbook; add "role:", "playbook:", "command:" or "chart:"`}, strict: 3},
		"empty version": {text: "- kind: A\n  version: ''\n  role: memcached\n", want: []string{
			`2:12: error: [0].version: invalid GVK: /, Kind=A: version must not be empty; add "version:", such as v1`}, strict: 1},
		"duplicate kind": {text: watch() + watch(), want: []string{`4:3: error: [1]: duplicate GVK: /v1, Kind=A; first watched at line 1; ` +
			`merge the two watches into one, or give each a selector so that no object matches both, such as matchLabels with two values of one key`}, strict: 1},
		"labels beside matchLabels": {text: watch("  selector: {app: web}"), want: []string{
			`4:14: warning: [0].selector.app: unknown key "app" has no effect; write "matchLabels: {app: web}"; the key is ignored otherwise, and objects without that label run too`}, strict: 1},
		"duplicate kind with disjoint selectors": {text: watch("  selector: {matchLabels: {a: x}}") + watch("  selector: {matchLabels: {a: z}}")},
		"finalizers of one name": {text: watch("  selector: {matchLabels: {a: x}}", "  finalizer: {name: example.com/end, vars: {state: absent}}") +
			watch("  selector: {matchLabels: {a: w}}", "  finalizer: {name: example.com/end, vars: {state: absent}}") +
			watch("  selector: {matchLabels: {a: z}}", "  finalizer: {name: example.com/end, vars: {state: gone}}"), want: []string{
			`15:21: warning: [2].finalizer.name: the watch at line 1 has a finalizer of the same name that runs something else: an object whose labels change while it is being deleted gets the wrong finalizer run; use a different name for each finalizer`}, strict: 1},
		"duplicate kind with overlapping selectors": {text: watch("  selector: {matchLabels: {a: x}}") + watch("  selector: {matchLabels: {a: z}}") +
			watch("  selector: {matchLabels: {b: x}}"), want: []string{
			`9:3: error: [2]: duplicate GVK: /v1, Kind=A; first watched at line 1: an object may match both selectors, a=x and b=x; ` +
				`make the selectors mutually exclusive on one key, such as matchLabels with two values of it, or In and NotIn`}, strict: 1},
		"two versions": {text: watch() + strings.ReplaceAll(watch("  selector: {matchLabels: {a: x}}"), "v1", "v2"), want: []string{
			`4:3: warning: [1]: A is also watched in version v1 at line 1: each object exists in all versions, and only that watch runs objects that both match; ` +
				`keep one of the two watches, or put the one that should run the objects first`}, strict: 1},
		"two versions with disjoint selectors": {text: watch("  selector: {matchLabels: {a: x}}") +
			strings.ReplaceAll(watch("  selector: {matchExpressions: [{key: a, operator: NotIn, values: [x, other]}]}"), "v1", "v2")},
		"two groups": {text: watch() + watch("  group: example.com")},

		"unknown key": {text: watch("  snakeCaseParameter: true"), want: []string{
			`4:3: warning: [0].snakeCaseParameter: unknown key "snakeCaseParameter" has no effect; did you mean "snakeCaseParameters"?`}, strict: 1},
		"far unknown key": {text: watch("  finalizer: {name: example.com/x, vars: {a: 1}, zzzzzzzz: 1}"), want: []string{
			`4:50: warning: [0].finalizer.zzzzzzzz: unknown key "zzzzzzzz" has no effect; remove it; known keys: name, playbook, role, command, handler, vars, timeout, idleTimeout, onFailure`}, strict: 1},
		"legacy keys": {text: watch("  maxWorkers: 5", "  ansibleVerbosity: 5"), want: []string{
			`4:3: warning: [0].maxWorkers: unknown key "maxWorkers" has no effect; use the flag --max-concurrent-reconciles or the environment variable MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>`,
			`5:3: warning: [0].ansibleVerbosity: unknown key "ansibleVerbosity" has no effect; use the flag --ansible-verbosity or the environment variable ANSIBLE_VERBOSITY_<KIND>_<GROUP>`}, strict: 2},
		"key twice": {text: watch("  kind: B"), want: []string{
			`4:3: warning: [0].kind: duplicate key "kind", first at line 2; this one is used; remove one of the two`}, strict: 1},
		"key twice in another case": {text: watch("  Kind: B"), want: []string{
			`4:3: warning: [0].Kind: keys "kind" and "Kind" are the same key; "kind" is used; remove one of the two`}, strict: 1},
		"variable twice": {text: watch("  vars: {a: 1, a: 2}"), want: []string{
			`4:16: warning: [0].vars.a: duplicate key "a", first at line 4; this one is used; remove one of the two`}, strict: 1},

		"group with version": {text: "- group: example.com/v1\n  version: v1\n  kind: A\n  role: memcached\n", want: []string{
			`1:10: warning: [0].group: group cannot contain a slash; write "group:" and "version:" as two keys`}, strict: 1},
		"number for a text": {text: watch("  group: 1.10"), want: []string{`4:10: warning: [0].group: 1.10 is read as "1.1"; write "1.10" to keep it as it is`}, strict: 1},
		"map for a text": {text: "- version: v1\n  kind: {A: }\n  role: memcached\n", want: []string{
			"2:9: error: [0].kind: a mapping is not a string; write a single word or a text in quotes"}, strict: 1},

		"references": {text: watch("  references:", "  - {kind: Secret}", "  - {version: v1, kind: Secret, fromField: status.name}", "  - {version: v1, kind: Secret, fromField: 'spec.[*]'}",
			"  varsFrom:", "  - {prefix: 1x}", "  - secretRef: {name: A_b}", "  - secretRef: {name: a, nameField: spec.x}", "  - configMapRef: {name: a, namespace: b}", "  ownNamespaceOnly: true"), want: []string{
			"5:5: error: [0].references[0]: a reference must have version; write version and kind of the referenced object, and the field that names it, such as fromField: spec.passwordSecretName",
			"5:5: error: [0].references[0]: a reference must have fromField; write version and kind of the referenced object, and the field that names it, such as fromField: spec.passwordSecretName",
			"6:44: error: [0].references[1].fromField: a field of the status cannot be used: runs write the status themselves; use a field of the spec",
			`7:44: error: [0].references[2].fromField: "spec.[*]" is not a path to a field; write keys separated by dots, such as spec.passwordSecretName; a path through a list applies to each element`,
			"9:3: error: [0].varsFrom: a namespace in varsFrom cannot be combined with ownNamespaceOnly; remove one of them",
			"9:5: error: [0].varsFrom[0]: exactly one of secretRef and configMapRef must be set; write one of them in each element of the list",
			`9:14: error: [0].varsFrom[0].prefix: the name of a variable cannot begin with "1x"; write letters, digits and underscores, such as db_`,
			`10:23: error: [0].varsFrom[1].secretRef.name: "A_b" is not a valid name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'); write the name as kubectl shows it`,
			"11:16: error: [0].varsFrom[2].secretRef: exactly one of name and nameField must be set; write \"name:\" with a name, or \"nameField:\" with the field that names it"}, strict: 9},
		"playbook and role": {text: watch("  playbook: playbooks/suite.yml"), want: []string{
			"3:9: warning: [0].role: both playbook and role are set: the playbook runs, the role is ignored; remove one of them"}, strict: 1},
		"no content": {text: "- version: v1\n  kind: A\n", want: []string{`1:3: error: [0]: must specify Role or Playbook; add "role:", "playbook:", "command:" or "chart:"`}, strict: 1},
		"missing playbook": {text: "- version: v1\n  kind: A\n  playbook: playbooks/gone.yml\n", want: []string{
			"3:13: error: [0].playbook: playbook: DIR/playbooks/gone.yml was not found; write the path of a file, absolute or relative to DIR"}, strict: 1},
		"playbook below a file": {text: "- version: v1\n  kind: A\n  playbook: playbooks/suite.yml/x\n", want: []string{
			"3:13: error: [0].playbook: playbook: DIR/playbooks/suite.yml/x was not found; write the path of a file, absolute or relative to DIR"}, strict: 1},
		"playbook is a directory": {text: "- version: v1\n  kind: A\n  playbook: playbooks\n", want: []string{
			`3:13: error: [0].playbook: playbook: DIR/playbooks is a directory; write the path of a playbook file; for a role, use "role:"`}, strict: 1},
		"playbook with a tilde": {text: "- version: v1\n  kind: A\n  playbook: ~/x.yml\n", want: []string{
			`3:13: error: [0].playbook: playbook: DIR/~/x.yml was not found; "~" is not expanded; write ${HOME}`}, strict: 1},
		"playbook is a device": {text: "- version: v1\n  kind: A\n  playbook: /dev/null\n", want: []string{
			"3:13: error: [0].playbook: playbook: /dev/null is not a regular file; write the path of a playbook file"}, strict: 1},
		"missing role": {text: "- version: v1\n  kind: A\n  role: gone\n", want: []string{
			"3:9: error: [0].role: role: gone was not found; looked for DIR/roles/gone, DIR/gone"}, strict: 1},
		"role is a file": {text: "- version: v1\n  kind: A\n  role: playbooks/suite.yml\n", want: []string{
			`3:9: error: [0].role: role: playbooks/suite.yml is not a directory; write the directory of a role; for a playbook file, use "playbook:"`}, strict: 1},
		"role from an unset variable": {text: "- version: v1\n  kind: A\n  role: ${ROLE}\n", want: []string{
			"3:9: error: [0].role: role: ${ROLE} was not found; the environment variable ROLE is not set"}, strict: 1},

		"boolean text":       {text: watch("  manageStatus: 'true'"), want: []string{`4:17: error: [0].manageStatus: "true" is not a boolean; write true or false`}, strict: 1},
		"artifacts fraction": {text: watch("  maxRunnerArtifacts: 1.5"), want: []string{`4:23: error: [0].maxRunnerArtifacts: "1.5" is not an integer; write a whole number, such as 20`}, strict: 1},
		"artifacts zero": {text: watch("  maxRunnerArtifacts: 0"), want: []string{
			`4:23: warning: [0].maxRunnerArtifacts: 0 keeps no artifacts; ansible-operator treated it as unset and kept 20; remove the key to keep 20, write a negative number to keep all`}},
		"vars list": {text: watch("  vars: [a]"), want: []string{`4:9: error: [0].vars: a list is not a mapping; write "key: value" lines, indented below the key`}, strict: 1},
		"vars infinite": {text: watch("  vars: {a: [.inf]}"), want: []string{
			`4:14: error: [0].vars.a[0]: .inf cannot be a variable: variables are passed as JSON, which has no such number; put it in quotes`}, strict: 1},
		"vars null key": {text: watch("  vars: {~: 1}"), want: []string{`4:10: error: [0].vars: unsupported map key "~"; put it in quotes`}, strict: 1},
		"vars bad tag":  {text: watch("  vars: {a: !!int x}"), want: []string{"4:13: error: [0].vars.a: cannot decode !!str `x` as a !!int; remove the tag, or write a value that fits it"}, strict: 1},
		"vars bad merge": {text: watch("  vars: {<<: 5}"), want: []string{
			`4:14: error: [0].vars: map merge requires map or sequence of maps as the value; write "<<: *name" with the anchor of a mapping`}, strict: 1},

		"period number":         {text: watch("  reconcilePeriod: 30"), want: []string{`4:20: error: [0].reconcilePeriod: 30 has no unit; write "30s" for seconds`}, strict: 1},
		"period text of digits": {text: watch("  reconcilePeriod: '30'"), want: []string{`4:20: error: [0].reconcilePeriod: time: missing unit in duration "30"; write "30s" for seconds`}, strict: 1},
		"period nonsense":       {text: watch("  reconcilePeriod: daily"), want: []string{`4:20: error: [0].reconcilePeriod: time: invalid duration "daily"; write a number with a unit, such as "30s", "10m" or "1h30m"`}, strict: 1},
		"period boolean":        {text: watch("  reconcilePeriod: off"), want: []string{`4:20: error: [0].reconcilePeriod: "off" is not a duration; write a number with a unit in quotes, such as "30s" or "10m"`}, strict: 1},
		"period negative":       {text: watch("  reconcilePeriod: -1s"), want: []string{`4:20: warning: [0].reconcilePeriod: the period -1s is negative, which switches periodic reconciliation off; write "0s"`}, strict: 1},
		"period short":          {text: watch("  reconcilePeriod: 1ms"), want: []string{`4:20: warning: [0].reconcilePeriod: the period 1ms is below the minimum; 1s is used; write "1s" or more`}, strict: 1},
		"period zero": {text: watch("  reconcilePeriod: 0s"), want: []string{
			`4:20: warning: [0].reconcilePeriod: 0 switches periodic reconciliation off; ansible-operator treated it as unset; remove the key to use the period of the flag --reconcile-period`}},

		"finalizer without name":    {text: watch("  finalizer:", "    role: memcached"), want: []string{`5:5: error: [0].finalizer: finalizer must have name; write a name with a domain, such as example.com/finalizer`}, strict: 1},
		"finalizer without content": {text: watch("  finalizer:", "    name: example.com/x", "    vars: {}"), want: []string{`5:5: error: [0].finalizer: must specify Role or Playbook; add "role:", "playbook:", "command:" or "chart:"`}, strict: 1},
		"finalizer missing role":    {text: watch("  finalizer:", "    name: example.com/x", "    role: gone"), want: []string{"6:11: error: [0].finalizer.role: role: gone was not found; looked for DIR/roles/gone, DIR/gone"}, strict: 1},
		"finalizer missing role beside vars": {text: watch("  finalizer:", "    name: example.com/x", "    role: gone", "    vars: {a: 1}"), want: []string{
			"6:11: warning: [0].finalizer.role: role: gone was not found; looked for DIR/roles/gone, DIR/gone"}, strict: 1},
		"finalizer name refused":        {text: watch("  finalizer: {name: Example.com/x, role: memcached}"), want: []string{`4:21: error: [0].finalizer.name: the API server refuses the finalizer name "Example.com/x": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'); write a name with a domain, such as example.com/finalizer`}, strict: 1},
		"finalizer name without domain": {text: watch("  finalizer: {name: finalizer.example.com, role: memcached}"), want: []string{`4:21: warning: [0].finalizer.name: the finalizer name "finalizer.example.com" has no domain; another operator may use the same name; write a name with a domain, such as example.com/finalizer`}, strict: 1},
		"finalizer text":                {text: watch("  finalizer: x"), want: []string{`4:14: error: [0].finalizer: "x" is not a mapping; write "key: value" lines, indented below the key`}, strict: 1},

		"selector operator": {text: watch("  selector:", "    matchExpressions:", "    - {key: a, operator: Inn}"), want: []string{
			`6:7: error: [0].selector.matchExpressions[0]: error constructing predicate from watches selector: "Inn" is not a valid label selector operator; use In or NotIn with values, Exists or DoesNotExist without values`}, strict: 1},
		"selector label": {text: watch("  selector: {matchLabels: {a: b, c: 'd e'}}"), want: []string{
			`4:34: error: [0].selector.matchLabels.c: error constructing predicate from watches selector: values[0][c]: Invalid value: "d e": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'); write a label with a value that Kubernetes allows`}, strict: 1},
		"selector list": {text: watch("  selector: [a]"), want: []string{`4:13: error: [0].selector: a list is not a mapping; write "key: value" lines, indented below the key`}, strict: 1},

		"blacklist incomplete": {text: watch("  blacklist:", "  - kind: Event"), want: []string{`5:5: warning: [0].blacklist[0]: /, Kind=Event matches no kind: version and kind must not be empty; add "version:" and "kind:"`}, strict: 1},
		"blacklist text":       {text: watch("  blacklist: [Event]"), want: []string{`4:15: error: [0].blacklist[0]: "Event" is not a mapping; write "key: value" lines, indented below the key`}, strict: 1},
		"blacklist apiVersion": {text: watch("  blacklist: [{apiVersion: v1, version: v1, kind: Event}]"), want: []string{`4:16: warning: [0].blacklist[0].apiVersion: unknown key "apiVersion" has no effect; write "group:" and "version:"`}, strict: 1},

		"job unknown field":   {text: watch("  executor: job", "  job: {spec: {container: []}}"), want: []string{`5:8: error: [0].job: not a Pod template: json: unknown field "container"; write metadata and spec as in a Pod, with no container other than run`}, strict: 1},
		"job other container": {text: watch("  executor: job", "  job: {spec: {containers: [{name: side}]}}"), want: []string{`5:8: error: [0].job: container "side": only one container is allowed, named "run"; make others init containers with restartPolicy: Always; write metadata and spec as in a Pod, with no container other than run`}, strict: 1},
		"job without effect":  {text: watch("  job: {}"), want: []string{`4:8: warning: [0].job: job has no effect without executor: job, and this watch has executor: auto; remove it, or set executor: job`}, strict: 1},
		"executor unknown":    {text: watch("  executor: cold"), want: []string{`4:13: error: [0].executor: "cold" is not a valid executor; write auto, warm, runner or job`}, strict: 1},
		"onChange unknown":    {text: watch("  onChange: cancel"), want: []string{`4:13: error: [0].onChange: "cancel" is not a valid value of onChange; write wait or restart`}, strict: 1},
		"timeout negative":    {text: watch("  timeout: -1s"), want: []string{`4:12: error: [0].timeout: the limit -1s is negative; write "0s" for no limit`}, strict: 1},
		"timeout unitless":    {text: watch("  idleTimeout: 30"), want: []string{`4:16: error: [0].idleTimeout: 30 has no unit; write "30s" for seconds`}, strict: 1},
		"finalizer's answer":  {text: watch("  finalizer: {name: example.com/x, vars: {a: b}, onFailure: ignore}"), want: []string{`4:61: error: [0].finalizer.onFailure: "ignore" is not a valid value of onFailure; write retry or orphan`}, strict: 1},
		"retry":               {text: watch("  retry: {initial: 5s, max: 1h, factor: 1.5, maxAttempts: 3, onExhausted: continue}")},
		"retry wrong": {text: watch("  retry: {initial: -1s, max: 5, factor: .nan, maxAttempts: 0, onExhausted: stop}"), want: []string{
			`4:20: error: [0].retry.initial: the interval -1s is not positive; write "1s" or more`,
			`4:30: error: [0].retry.max: 5 has no unit; write "5s" for seconds`,
			`4:41: error: [0].retry.factor: the factor .nan is not between 1 and 100; write 1 for equal intervals, 2 to double them`,
			`4:60: error: [0].retry.maxAttempts: the number of attempts 0 is not positive; write 1 or more, or remove the key for no limit`,
			`4:76: error: [0].retry.onExhausted: "stop" is not a valid value of onExhausted; write stall or continue`}, strict: 5},
		"retry types": {text: watch("  retry: {factor: often, maxAttempts: 1.5, attempts: 3}"), want: []string{
			`4:19: error: [0].retry.factor: "often" is not a number; write a number, such as 1.5`,
			`4:39: error: [0].retry.maxAttempts: "1.5" is not an integer; write a whole number, such as 20`,
			`4:44: warning: [0].retry.attempts: unknown key "attempts" has no effect; remove it; known keys: initial, max, factor, maxAttempts, onExhausted`}, strict: 3},
		"retry together": {text: watch("  retry: {initial: 1h, max: 1m, onExhausted: stall}"), want: []string{
			`4:29: error: [0].retry.max: max (1m0s) is less than initial (1h0m0s); set max to initial or more`,
			`4:46: warning: [0].retry.onExhausted: onExhausted has no effect without maxAttempts; add "maxAttempts:", or remove it`}, strict: 2},
		"retry short":        {text: watch("  retry: {initial: 1ms}"), want: []string{`4:20: warning: [0].retry.initial: the interval 1ms is below the minimum; 1s is used; write "1s" or more`}, strict: 1},
		"retry text":         {text: watch("  retry: often"), want: []string{`4:10: error: [0].retry: "often" is not a mapping; write "key: value" lines, indented below the key`}, strict: 1},
		"finalizer's limits": {text: watch("  finalizer: {name: example.com/x, vars: {a: b}, timeout: soon}"), want: []string{`4:59: error: [0].finalizer.timeout: time: invalid duration "soon"; write a number with a unit, such as "30s", "10m" or "1h30m"`}, strict: 1},
		"adopt unknown":      {text: watch("  adopt: always"), want: []string{`4:10: error: [0].adopt: "always" is not a valid value of adopt; write never or ifUnowned`}, strict: 1},
		"adopt case":         {text: watch("  adopt: ifunowned"), want: []string{`4:10: error: [0].adopt: "ifunowned" is not a valid value of adopt; write never or ifUnowned`}, strict: 1},
		"adopt boolean":      {text: watch("  adopt: no"), want: []string{`4:10: error: [0].adopt: "no" is not a valid value of adopt; write never or ifUnowned`}, strict: 1},
		"adopt empty":        {text: watch("  adopt: ''"), want: []string{`4:10: error: [0].adopt: "" is not a valid value of adopt; write never or ifUnowned`}, strict: 1},
		"adopt bad tag":      {text: watch("  adopt: !!int never"), want: []string{`4:10: error: [0].adopt: "never" is not a valid value of adopt; write never or ifUnowned`}, strict: 1},
		"adopt list":         {text: watch("  adopt: [never]"), want: []string{`4:10: error: [0].adopt: a list is not a string; write a single word or a text in quotes`}, strict: 1},
		"adopt unset":        {text: watch("  adopt: ${ADOPT}"), want: []string{`4:10: error: [0].adopt: "${ADOPT}" is not a valid value of adopt; the environment variable ADOPT is not set`}, strict: 1},
		"secretVars path":    {text: watch("  secretVars: [a.b, a..b]"), want: []string{`4:21: error: [0].secretVars[1]: "a..b" is not a path to a variable; write keys separated by dots, such as database.password`}, strict: 1},
		"secretVars index":   {text: watch("  secretVars: ['users[0].token']"), want: []string{`4:16: error: [0].secretVars[0]: "users[0].token" is not a path to a variable; write only keys separated by dots: a path includes everything below it, and applies to each element of a list`}, strict: 1},
		"schedule":           {text: watch(`  schedule: {cron: "0 3 * * *", timeZone: Europe/Berlin, jitter: 10m, windows: [{start: "0 22 * * 1-5", duration: 4h}]}`)},
		"schedule wrong": {text: watch("  schedule:", "    cron: 0 0 30 2 *", "    timeZone: Europe/Berlim", "    jitter: -1s", "    windows:", "    - {start: 0 22 * *, duration: 4h}",
			"    - {start: 0 22 * * *}", "    - {start: 0 22 * * *, duration: 0s}", "    - now"), want: []string{
			`5:11: error: [0].schedule.cron: "0 0 30 2 *" is not a cron expression: it never fires: none of its months has such a day; write minute, hour, day of the month, month and day of the week, such as "0 3 * * *"`,
			`6:15: error: [0].schedule.timeZone: "Europe/Berlim" is not a time zone of the IANA database; write a name such as Europe/Berlin, or UTC`,
			`7:13: error: [0].schedule.jitter: the limit -1s is negative; write "0s" for no limit`,
			`9:15: error: [0].schedule.windows[0].start: "0 22 * *" is not a cron expression: expected exactly 5 fields, found 4: [0 22 * *]; write minute, hour, day of the month, month and day of the week, such as "0 3 * * *"`,
			`10:7: error: [0].schedule.windows[1]: a window must have duration; write when it opens and for how long: {start: "0 22 * * *", duration: 4h}`,
			`11:37: error: [0].schedule.windows[2].duration: a window of 0s is too short; write "1m" or more`,
			`12:7: error: [0].schedule.windows[3]: "now" is not a mapping; write "key: value" lines, indented below the key`}, strict: 7},
		"schedule of nothing": {text: watch("  schedule: {jitter: 1m}"), want: []string{
			`4:13: warning: [0].schedule: a schedule without cron and windows has no effect; add "cron:" or "windows:"`,
			`4:22: warning: [0].schedule.jitter: jitter has no effect without cron; add "cron:", or remove it`}, strict: 2},
		"enabledIf": {text: watch("  enabledIf: {apis: [monitoring.coreos.com/v1/ServiceMonitor, v1/Secret]}")},
		"enabledIf wrong": {text: watch("  enabledIf: {apis: [ServiceMonitor, monitoring.coreos.com/ServiceMonitor, a/b/v1/C]}"), want: []string{
			`4:22: error: [0].enabledIf.apis[0]: "ServiceMonitor" is not an API; write group/version/Kind, such as monitoring.coreos.com/v1/ServiceMonitor, or v1/Secret for the core group`,
			`4:38: error: [0].enabledIf.apis[1]: "monitoring.coreos.com/ServiceMonitor" is not an API; write group/version/Kind, such as monitoring.coreos.com/v1/ServiceMonitor, or v1/Secret for the core group`,
			`4:76: error: [0].enabledIf.apis[2]: "a/b/v1/C" is not an API; write group/version/Kind, such as monitoring.coreos.com/v1/ServiceMonitor, or v1/Secret for the core group`}, strict: 3},
		"rollout":               {text: watch(`  rollout: {maxParallel: 2, interval: "10s", stopOnFailures: 3}`)},
		"rollout negative":      {text: watch("  rollout: {maxParallel: -1}"), want: []string{`4:26: error: [0].rollout.maxParallel: the number -1 is negative; write 0 for no limit`}, strict: 1},
		"inputs":                {text: watch("  inputs: {env: [APP_*, -APP_BUILD_*], files: [/etc/app/*, -/etc/app/noise]}")},
		"inputs env":            {text: watch("  inputs: {env: [A=b]}"), want: []string{`4:18: error: [0].inputs.env[0]: "A=b" is neither the name of an environment variable nor a pattern; write for example "APP_*", or "-APP_BUILD_*" to exclude variables`}, strict: 1},
		"inputs files":          {text: watch("  inputs: {files: [~/app]}"), want: []string{`4:20: error: [0].inputs.files[0]: "~/app" is neither a path nor a pattern; write for example "/etc/app/*", or "files/*" relative to the watches file; "~" is not expanded`}, strict: 1},
		"inputs files, none":    {text: watch("  inputs: {files: ['-']}"), want: []string{`4:20: error: [0].inputs.files[0]: "-" is neither a path nor a pattern; write for example "/etc/app/*", or "files/*" relative to the watches file; "~" is not expanded`}, strict: 1},
		"trigger":               {text: watch("  triggers: [{version: v1, kind: ConfigMap, selector: {}}]")},
		"trigger of its kind":   {text: watch("  triggers: [{version: v2, kind: A, selector: {}}]"), want: []string{`4:34: error: [0].triggers[0].kind: the trigger has the kind of the watch: each object would start all others; write another kind, or use references`}, strict: 1},
		"trigger on everything": {text: watch("  triggers: [{version: v1, kind: Pod, selector: {}}]"), want: []string{`4:49: error: [0].triggers[0].selector: objects of the kind Pod change constantly: a trigger for all of them would start runs all the time; select some of them by labels`}, strict: 1},
		"trigger selector":      {text: watch("  triggers: [{version: v1, kind: Secret}]"), want: []string{`4:14: error: [0].triggers[0]: a trigger must have selector or nameFromLabel; write the labels of the objects that start runs; selector: {} selects all of the kind`}, strict: 1},
		"trigger on": {text: watch("  triggers:", "  - {version: v1, kind: Node, selector: {}, on: [create, delete]}", "  - {version: v1, kind: Secret, selector: {}, on: [created]}",
			"  - {version: v1, kind: Secret, selector: {}, on: []}", "  - {version: v1, kind: Node, selector: {}, on: [update]}", "  - {version: v1, kind: Pod, selector: {}, on: [create]}"), want: []string{
			`6:52: error: [0].triggers[1].on[0]: "created" is not a valid value of on; write create, update or delete`,
			`7:51: error: [0].triggers[2].on: on is empty, so no change starts runs; write create, update or delete, or remove the key for all of them`,
			`8:41: error: [0].triggers[3].selector: objects of the kind Node change constantly: a trigger for all of them would start runs all the time; select some of them by labels`,
			`9:40: error: [0].triggers[4].selector: objects of the kind Pod change constantly: a trigger for all of them would start runs all the time; select some of them by labels`}, strict: 4},
		"trigger by namespace": {text: watch("  triggers:", "  - {version: v1, kind: Secret, selector: {}, namespaceSelector: {matchLabels: {team: a}}}",
			"  - {version: v1, kind: Namespace, selector: {}, namespaceSelector: {matchLabels: {team: a}}}", "  - {version: v1, kind: Secret, selector: {}, namespaceSelector: {matchLabels: {team: 'a b'}}}"), want: []string{
			`6:69: error: [0].triggers[1].namespaceSelector: a trigger for Namespaces cannot have namespaceSelector; write the labels in selector`,
			`7:81: error: [0].triggers[2].namespaceSelector.matchLabels.team: error constructing predicate from watches selector: values[0][team]: Invalid value: "a b": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'); write a label with a value that Kubernetes allows`}, strict: 2},
		"trigger of all kinds": {text: watch("  triggers: [{version: v1, kind: '*', selector: {}}]"), want: []string{`4:14: error: [0].triggers[0]: a trigger is for one kind, and patterns are not supported; write a trigger for each kind`}, strict: 1},
		"trigger cycle": {text: watch("  triggers: [{version: v1, kind: B, selector: {}}]", "- version: v1", "  kind: B", "  role: memcached", "  references: [{version: v1, kind: A, fromField: spec.a}]"), want: []string{
			`4:34: warning: [0].triggers[0].kind: runs may start each other in an endless loop: A is started by B is started by A; remove one of these triggers or references, or make sure that the roles write only what differs`}, strict: 1},
		"names each other": {text: watch("  references: [{version: v1, kind: B, fromField: spec.b}, {version: v1, kind: A, fromField: spec.a}]", "- version: v1", "  kind: B", "  role: memcached", "  references: [{version: v1, kind: A, fromField: spec.a}]")},
		"trigger namespaces": {text: watch("  ownNamespaceOnly: true", "  triggers: [{version: v1, kind: Secret, selector: {}, mapTo: all}]"), want: []string{
			`5:13: error: [0].triggers: mapTo: all in triggers cannot be combined with ownNamespaceOnly; remove one of them`}, strict: 1},
		"secretVars text":        {text: watch("  secretVars: a.b"), want: []string{`4:15: error: [0].secretVars: "a.b" is not a list; write a list: "- " before each element`}, strict: 1},
		"adopt misspelt":         {text: watch("  adopts: never"), want: []string{`4:3: warning: [0].adopts: unknown key "adopts" has no effect; did you mean "adopt"?`}, strict: 1},
		"prune without watching": {text: watch("  prune: true", "  watchDependentResources: false"), want: []string{`4:10: error: [0].prune: prune cannot be combined with watchDependentResources: false: the operator would not know what its objects own; remove one of them`}, strict: 1},
		"pruneKinds alone":       {text: watch("  pruneKinds: [{version: v1, kind: Secret}]"), want: []string{`4:15: error: [0].pruneKinds: pruneKinds has no effect without prune; add prune: true, or remove it`}, strict: 1},
		"pruneKinds incomplete":  {text: watch("  prune: true", "  pruneKinds: [{kind: Secret}]"), want: []string{`5:16: error: [0].pruneKinds[0]: a kind to prune must have version and kind; add "version:" and "kind:"`}, strict: 1},
		"prune text":             {text: watch("  pruneOnDelete: always"), want: []string{`4:18: error: [0].pruneOnDelete: "always" is not a boolean; write true or false`}, strict: 1},
		"prune without a status": {text: watch("  pruneOnDelete: true", "  manageStatus: false"), want: []string{
			`4:18: error: [0].pruneOnDelete: pruneOnDelete cannot be combined with manageStatus: false: after a restart the operator would not know which kinds an object owns, and the object would be deleted before them; remove one of them`}, strict: 1},
		"dependent status list": {text: watch("  watchDependentStatus: [a]"), want: []string{
			`4:25: error: [0].watchDependentStatus: a list is not a boolean; write true or false`}, strict: 1},

		"rewritten reference": {text: watch("  vars:", "    a: pa$$word # $$"), want: []string{"5:10: warning: $$ becomes ${$}, because no environment variable has the name $; a dollar sign cannot be escaped: set the variable, or move the text into the role"}, strict: 1},
		"reference breaks the syntax": {text: watch("  vars: {a: ${NOT_SET}}"), want: []string{
			"4:3: error: not valid YAML: did not find expected ',' or '}'; the environment variable NOT_SET is not set"}, strict: 1},
		"removed reference": {text: watch("  vars: {a: x${}y}"), want: []string{"4:14: warning: malformed environment reference ${} is removed; write ${NAME} with the name of an environment variable"}, strict: 1},
		"kept reference":    {text: watch("  vars: {a: '${NOT_SET} ${NOT_SET:-x} 5 $ $'} # costs $5")},

		"workers deprecated": {text: watch(), env: map[string]string{"WORKER_A_": "5"}, want: []string{"2:9: warning: [0].kind: Environment variable WORKER_A_ is deprecated, use MAX_CONCURRENT_RECONCILES_A_ instead; rename the variable"}, strict: 1},
		"workers not a number": {text: watch(), env: map[string]string{"MAX_CONCURRENT_RECONCILES_A_": "x", "WORKER_A_": "5"}, want: []string{
			`2:9: warning: [0].kind: Could not parse environment variable as an integer; using default value: MAX_CONCURRENT_RECONCILES_A_="x"; set it to a whole number`}, strict: 1},
		"workers zero": {text: watch(), env: map[string]string{"MAX_CONCURRENT_RECONCILES_A_": "0"}, want: []string{"2:9: warning: [0].kind: environment variable MAX_CONCURRENT_RECONCILES_A_=0 is not positive; using default value 8; set it to 1 or more"}, strict: 1},
		"workers beyond": {text: watch(), env: map[string]string{"MAX_CONCURRENT_RECONCILES_A_": "9223372036854775807"}, want: []string{
			"2:9: warning: [0].kind: environment variable MAX_CONCURRENT_RECONCILES_A_=9223372036854775807 is above 10000; using 10000; set it to 10000 or less"}, strict: 1},
		"verbosity big": {text: watch(), env: map[string]string{"ANSIBLE_VERBOSITY_A_": "8"}, want: []string{"2:9: warning: [0].kind: environment variable ANSIBLE_VERBOSITY_A_=8 is out of range; using default value 2; set it to 0 … 7"}, strict: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			opts := Options{LookupEnv: lookup(tt.env), Defaults: Defaults{MaxConcurrentReconciles: 8, AnsibleVerbosity: 2, Executor: ExecutorAuto}}
			dir := project(t)
			got := loadText(t, dir, tt.text, opts)
			var want []string
			for _, w := range tt.want {
				want = append(want, "watches.yaml:"+w)
			}
			must.Be(t, "problems", want, got.problems)
			errorCount, _ := Count(got.raw)
			if invalid := errors.Is(got.err, ErrInvalid); invalid != (errorCount > 0) {
				t.Errorf("%d errors, but Load says %v", errorCount, got.err)
			}
			opts.Strict = true
			if n, _ := Count(loadText(t, dir, tt.text, opts).raw); n != tt.strict {
				t.Errorf("%d errors in strict mode, want %d", n, tt.strict)
			}
		})
	}
}

// TestLoad_UnreadableFiles: the file does not exist, is a directory, or is too large.
func TestLoad_UnreadableFiles(t *testing.T) {
	dir := t.TempDir()
	_, problems, err := Load("gone.yaml", Options{Dir: dir})
	if !errors.Is(err, fs.ErrNotExist) || len(problems) != 1 || !strings.Contains(problems[0].String(), "gone.yaml: no such file or directory; pass the path of the file") {
		t.Errorf("missing file: %v, %v", problems, err)
	}
	_, problems, err = Load(".", Options{Dir: dir})
	if err == nil || len(problems) != 1 || !strings.Contains(problems[0].String(), "is a directory; pass the file in it, such as watches.yaml") {
		t.Errorf("directory: %v, %v", problems, err)
	}
	create(t, dir, "watches.yaml")
	must.Do(t, os.Truncate(filepath.Join(dir, "watches.yaml"), maxBytes+1))
	_, problems, err = Load("watches.yaml", Options{Dir: dir})
	if err == nil || len(problems) != 1 || !strings.Contains(problems[0].String(), "larger than 1048576 bytes") {
		t.Errorf("huge file: %v, %v", problems, err)
	}
}

// TestLoad_Bombs: neither aliases nor environment variables can make a small file large.
func TestLoad_Bombs(t *testing.T) {
	var aliases strings.Builder
	aliases.WriteString("- version: v1\n  kind: A\n  role: memcached\n  vars:\n    a0: &a0 [x, x, x, x, x, x, x, x, x]\n")
	for i := range 9 {
		a := string(rune('0' + i))
		b := string(rune('1' + i))
		aliases.WriteString("    a" + b + ": &a" + b + " [" + strings.Repeat("*a"+a+", ", 9) + "]\n")
	}
	got := loadText(t, project(t), aliases.String(), Options{})
	if len(got.problems) != 1 || !strings.Contains(got.problems[0], "the document has more than 100000 values; use fewer YAML aliases") {
		t.Errorf("aliases: %v", got.problems)
	}
	merges := "- &m {" + strings.Repeat("a, ", 1000) + "}\n- {<<: [" + strings.Repeat("*m, ", 1000) + "]}\n"
	got = loadText(t, project(t), merges, Options{})
	if len(got.watches) != 0 || !errors.Is(got.err, ErrInvalid) {
		t.Errorf("merges: %v", got.err)
	}
	env := map[string]string{"BIG": strings.Repeat("x", 100_000)}
	got = loadText(t, project(t), "# "+strings.Repeat("$BIG ", 100), Options{LookupEnv: lookup(env)})
	want := []string{"watches.yaml:1:1: error: larger than 1048576 bytes after environment expansion; put large values into the role's defaults"}
	if diff := cmp.Diff(want, got.problems); diff != "" {
		t.Error(diff)
	}
	deep := loadText(t, project(t), "- vars: "+strings.Repeat("[", 12_000), Options{})
	if !errors.Is(deep.err, ErrInvalid) {
		t.Errorf("nesting: %v", deep.err)
	}
}

// TestLoad_ManyProblems: the list of problems is bounded. An error beyond its end still makes Load fail.
func TestLoad_ManyProblems(t *testing.T) {
	var many strings.Builder
	for i := range 300 {
		many.WriteString(watch(fmt.Sprintf("  group: g%d.com", i), "  foo: 1"))
	}
	got := loadText(t, project(t), many.String(), Options{})
	if n := len(got.problems); n != maxProblems+1 || got.err != nil || got.problems[n-1] != "watches.yaml:1000:3: warning: 100 more problems are not shown" {
		t.Errorf("%d problems, the last is %s; error %v", n, got.problems[n-1], got.err)
	}
	got = loadText(t, project(t), many.String()+"- {}\n", Options{})
	if n := len(got.problems); !errors.Is(got.err, ErrInvalid) || got.problems[n-1] != "watches.yaml:1000:3: error: 103 more problems are not shown" {
		t.Errorf("the last problem is %s; error %v", got.problems[n-1], got.err)
	}
}

// TestLoad_TheOthersAreReturned: Load still returns the other watches to tools if one is broken, and not the broken one.
func TestLoad_TheOthersAreReturned(t *testing.T) {
	got := loadText(t, project(t), watch()+"- kind: B\n  role: backup\n- version: v2\n  kind: A\n  role: backup\n", Options{})
	if !errors.Is(got.err, ErrInvalid) || len(got.watches) != 2 || got.watches[1].GVK.Version != "v2" {
		t.Errorf("watches %v, error %v", got.watches, got.err)
	}
}

// TestLoad_GroupsAndVersionsAreKindsOfTheirOwn: a watch is a duplicate only if group, version and kind are all the same.
func TestLoad_GroupsAndVersionsAreKindsOfTheirOwn(t *testing.T) {
	got := loadText(t, project(t), watch("  group: a.com")+watch("  group: b.com")+watch("  group: a.com", "  version: v2 "), Options{})
	if got.err != nil || len(got.watches) != 3 {
		t.Errorf("watches %v, problems %v", got.watches, got.problems)
	}
}
