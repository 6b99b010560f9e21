package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/internal/lint"
	"github.com/rolewright/rolewright/test/must"
)

// scaffolded makes a project with one kind in a new working directory.
func scaffolded(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	t.Setenv("GITHUB_ACTIONS", "")
	for _, args := range [][]string{
		{"rolewright", "init", "--domain", "example.com", "--name", "shop"},
		{"rolewright", "create", "api", "--group", "apps", "--version", "v1", "--kind", "Web"},
	} {
		if code, _, stderr := invoke(args...); code != 0 {
			t.Fatalf("%s: code %d\n%s", strings.Join(args, " "), code, stderr)
		}
	}
}

// replaceIn replaces old, which must be there, in a file.
func replaceIn(t *testing.T, file, old, with string) {
	t.Helper()
	data := must.Get(os.ReadFile(file))(t)
	if !strings.Contains(string(data), old) {
		t.Fatalf("%s has no %q:\n%s", file, old, data)
	}
	must.Do(t, os.WriteFile(file, []byte(strings.Replace(string(data), old, with, 1)), 0o600))
}

func TestLint_FindsWhatDoesNotFitAndWhere(t *testing.T) {
	requireAnsible(t)
	const (
		spec     = "roles/web/meta/argument_specs.yml"
		defaults = "roles/web/defaults/main.yml"
		tasks    = "roles/web/tasks/main.yml"
		crd      = "config/crd/bases/apps.example.com_webs.yaml"
		sample   = "config/samples/apps_v1_web.yaml"
	)
	tests := map[string]struct {
		file, old, with string
		// want are parts of the output. Those that begin with RW are all findings.
		want []string
		code int
	}{
		"nothing":                 {"watches.yaml", "kind: Web", "kind: Web", nil, 0},
		"an unknown key":          {"watches.yaml", "role: web", "role: web\n  rolle: x", []string{"watches.yaml:8:3: warning: [0].rolle: unknown key", "RW001"}, 0},
		"a watch without a kind":  {"watches.yaml", "kind: Web", "knd: Web", []string{"watches.yaml:6:3: warning: [0].knd: unknown key", "RW001", "watches.yaml:4:3: error: [0]: invalid GVK", "RW001"}, 1},
		"a task of two modes":     {tasks, "  kubernetes.core.k8s:", "  command: ls\n  kubernetes.core.k8s:", []string{tasks + ":4:3: error: conflicting action statements", "RW002"}, 1},
		"no CRD":                  {crd, "kind: Web\n", "kind: Webb\n", []string{"watches.yaml:4:3: warning: no CRD in", "RW101"}, 0},
		"no status":               {crd, "      subresources:\n        # The operator and its roles write the status.\n        status: {}\n", "", []string{crd + ":15: warning: the version has no status", "RW102"}, 0},
		"a CRD that is behind":    {spec, "    options:\n", "    options:\n      size: {type: int}\n", []string{spec + ":8: warning: nothing in the role reads size", "RW204", crd + ":51: error: the CRD does not match", "rolewright generate crd", "RW103"}, 1},
		"a CRD beside others":     {crd, "---\n", "---\nkind: List\n---\n", []string{crd + ": warning: Web: its CRD is in a file of several documents", "RW103"}, 0},
		"another default":         {spec, "default: Hello", "default: Bye", []string{defaults + ":3: error: the default of text is not the one", "RW201", crd + ":49: error: the CRD does not match", "RW103"}, 1},
		"a default of other type": {defaults, "text: Hello", "text: [Hello]", []string{defaults + ":3: error: the default of text is of type list", "RW201"}, 1},
		"a default of no option":  {defaults, "text: Hello", "text: Hello\nsize: 1\n_own: 1", []string{defaults + ":4: warning: size is not an option", "RW202"}, 0},
		"a name of Ansible's":     {spec, "      text:\n", "      ansible_host:\n        type: str\n      text:\n", []string{spec + ":8: error: ansible_host is a name that Ansible reserves", "RW205", crd + ":51: error: the CRD does not match", "RW103"}, 1},
		"a sample's other field":  {sample, "text: Hello", "txet: Hello", []string{sample + ":7:3: error: Web: spec.txet is not in the schema", "RW301"}, 1},
		"a sample's other type":   {sample, "text: Hello", "text: [1]", []string{sample + ":7:3: error: Web: spec.text in body must be of type string", "RW301"}, 1},
		"a permission":            {"config/rbac/role.yaml", "list, watch, create, patch", "list, watch, patch", []string{"config/rbac/role.yaml: error: no permission to create configmaps in group \"\"", "RW401"}, 1},
		"an unknown kind":         {tasks, "kind: ConfigMap", `kind: "{{ k }}"`, []string{tasks + ":7: warning:", "RW402"}, 0},
		"modules of the operator": {tasks, "- name:", "- rolewright.operator.trigger_info:\n- operator_sdk.util.requeue_after: {time: 1h}\n- name:", nil, 0},
		"runs as Jobs":            {"watches.yaml", "role: web", "role: web\n  executor: job", []string{"watches.yaml:4:3: warning: Web says executor: job, and no file in config sets --job-url", "generate manifests", "RW403"}, 0},
		"a collection":            {"requirements.yml", "kubernetes.core\n", "community.general\n", []string{tasks + ":5: warning: ", "RW501"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			scaffolded(t)
			replaceIn(t, tt.file, tt.old, tt.with)
			args := []string{"rolewright", "lint"}
			if tt.file != tasks && tt.code+len(tt.want) > 0 {
				args = append(args, "--syntax-check=false") // Ansible takes a second, and finds nothing here
			}
			code, stdout, stderr := invoke(args...)
			if code != tt.code {
				t.Errorf("code %d, want %d\n%s", code, tt.code, stderr)
			}
			rules := 0
			for _, want := range tt.want {
				if !strings.Contains(stdout, want) {
					t.Errorf("no %q", want)
				}
				if strings.HasPrefix(want, "RW") {
					rules++
				}
			}
			if n := strings.Count(stdout, "[RW"); n != rules {
				t.Errorf("%d findings, want %d", n, rules)
			}
			if t.Failed() {
				t.Logf("%s%s", stdout, stderr)
			}
		})
	}
}

// The CRD is compared with the watch that generate crd makes it from: the first whose role says what the spec is.
func TestLint_ComparesTheCRDWithAnArgumentSpec(t *testing.T) {
	scaffolded(t)
	must.Write(t, ".", map[string]string{"roles/other/tasks/main.yml": "[]\n"})
	replaceIn(t, "watches.yaml", "- group: apps.example.com", "- {group: apps.example.com, version: v1, kind: Web, role: other, selector: {matchLabels: {a: b}}}\n- selector: {matchLabels: {a: c}}\n  group: apps.example.com")
	replaceIn(t, "roles/web/meta/argument_specs.yml", "    options:\n", "    options:\n      size: {type: int}\n")
	if code, stdout, _ := invoke("rolewright", "lint", "--syntax-check=false"); code != 1 || !strings.Contains(stdout, "the CRD does not match") {
		t.Errorf("code %d\n%s", code, stdout)
	}
}

// A project may share its role, its manifests or its CRDs with others through links.
func TestLint_FollowsLinks(t *testing.T) {
	scaffolded(t)
	replaceIn(t, "requirements.yml", "kubernetes.core\n", "community.general\n")
	replaceIn(t, "watches.yaml", "role: web", "role: web\n  executor: job")
	if code, _, stderr := invoke("rolewright", "generate", "manifests"); code != 0 {
		t.Fatal(stderr)
	}
	must.Do(t, os.Mkdir("shared", 0o755))
	for _, link := range []struct{ path, shared, target string }{
		{"roles/web", "shared/web", "../shared/web"}, {"config/crd", "shared/crd", "../crd"}, {"config", "shared/config", "shared/config"},
	} {
		must.Do(t, os.Rename(link.path, link.shared))
		must.Do(t, os.Symlink(link.target, link.path))
	}
	_, stdout, _ := invoke("rolewright", "lint", "--syntax-check=false")
	if strings.Count(stdout, "[RW") != 1 || !strings.HasPrefix(stdout, "roles/web/tasks/main.yml:5: warning: ") || !strings.Contains(stdout, "[RW501]") {
		t.Error(stdout)
	}
}

// A CRD that accepts any spec, as operator-sdk makes it, is right for a role without an argument spec: objects may set
// more than what has a default in the role.
func TestLint_KeepsAnOpenCRD(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GITHUB_ACTIONS", "")
	must.Write(t, ".", map[string]string{"roles/web/tasks/main.yml": "[]\n", "roles/web/defaults/main.yml": "size: 1\n"})
	for _, args := range []string{"init --name shop", "create api --group apps --version v1 --kind Web --crd-from none"} {
		if code, _, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...); code != 0 {
			t.Fatal(stderr)
		}
	}
	code, stdout, _ := invoke("rolewright", "lint", "--syntax-check=false")
	if code != 0 || !strings.Contains(stdout, "_webs.yaml:46: warning: the CRD does not match") || !strings.Contains(stdout, "    rolewright generate argspec, and add to") {
		t.Errorf("code %d\n%s", code, stdout)
	}
}

// If a CRD was made from the defaults of a role, lint reports that it is outdated when they change.
func TestLint_AClosedCRDOfDefaultsIsBehind(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("GITHUB_ACTIONS", "")
	must.Write(t, ".", map[string]string{"roles/web/tasks/main.yml": "[]\n", "roles/web/defaults/main.yml": "size: 1\n"})
	for _, args := range []string{"init --name shop", "create api --group apps --version v1 --kind Web"} {
		if code, _, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...); code != 0 {
			t.Fatal(stderr)
		}
	}
	replaceIn(t, "roles/web/defaults/main.yml", "1", "small")
	code, stdout, _ := invoke("rolewright", "lint", "--syntax-check=false")
	if code != 1 || !strings.Contains(stdout, " error: the CRD does not match") || strings.Contains(stdout, "generate argspec, and add to") {
		t.Errorf("code %d\n%s", code, stdout)
	}
}

// TestLint_SpeaksTheFormsOfPipelines checks a warning in each output format, its exit code with --strict, and a file that
// cannot be read.
func TestLint_SpeaksTheFormsOfPipelines(t *testing.T) {
	scaffolded(t)
	replaceIn(t, "roles/web/defaults/main.yml", "text: Hello", "text: Hello\nsize: 1")
	const message = "size is not an option of the argument spec"

	code, stdout, _ := invoke("rolewright", "lint", "--syntax-check=false", "-o", "sarif")
	var sarif struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID, Level string
				Message       struct{ Text string }
				Locations     []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(stdout), &sarif); err != nil || code != 0 {
		t.Fatalf("code %d, %v\n%s", code, err, stdout)
	}
	run := sarif.Runs[0]
	result := run.Results[0]
	place := result.Locations[0].PhysicalLocation
	if sarif.Version != "2.1.0" || len(run.Tool.Driver.Rules) != len(lint.Rules()) || result.RuleID != "RW202" || result.Level != "warning" ||
		!strings.HasPrefix(result.Message.Text, message) || place.ArtifactLocation.URI != "roles/web/defaults/main.yml" || place.Region.StartLine != 4 {
		t.Errorf("%s", stdout)
	}

	t.Setenv("GITHUB_ACTIONS", "true")
	_, stdout, _ = invoke("rolewright", "lint", "--syntax-check=false")
	if want := "::warning file=roles/web/defaults/main.yml,line=4,col=1,title=RW202::" + message + "%0A"; !strings.HasPrefix(stdout, want) {
		t.Errorf("%s\nwant %s", stdout, want)
	}
	if code, _, _ := invoke("rolewright", "lint", "--syntax-check=false", "--strict"); code != 1 {
		t.Errorf("--strict: code %d, want 1", code)
	}
	if code, stdout, _ := invoke("rolewright", "lint", "--watches-file", "gone.yaml"); code != 2 || !strings.Contains(stdout, "file=gone.yaml") {
		t.Errorf("code %d: %s", code, stdout)
	}
}

// lint compares the role of a playbook like the role of a watch, apart from what the playbook may read.
func TestLint_LooksAtTheRoleOfAPlaybook(t *testing.T) {
	scaffolded(t)
	if code, _, stderr := invoke("rolewright", "create", "api", "--group=", "--version", "v1", "--kind", "Page", "--playbook", "playbooks/page.yml"); code != 0 {
		t.Fatal(stderr)
	}
	replaceIn(t, "roles/page/defaults/main.yml", "text: Hello", "text: [Hello]\nsize: 1")
	replaceIn(t, "roles/page/tasks/main.yml", "{{ text }}", "x")
	_, stdout, _ := invoke("rolewright", "lint", "--syntax-check=false")
	if strings.Count(stdout, "[RW") != 2 || !strings.Contains(stdout, "roles/page/defaults/main.yml:3: error: the default of text is of type list") ||
		!strings.Contains(stdout, "roles/page/defaults/main.yml:4: warning: size is not an option") {
		t.Error(stdout)
	}
}

// A kind of Kubernetes itself has no CRD in the project, and needs none.
func TestProject_WatchesAKindOfKubernetes(t *testing.T) {
	scaffolded(t)
	replaceIn(t, "watches.yaml", "- group: apps.example.com", "- {version: v1, group: '', kind: Namespace, role: web}\n- group: apps.example.com")
	for _, args := range []string{"generate manifests --force", "generate crd", "lint --syntax-check=false"} {
		code, stdout, stderr := invoke(append([]string{"rolewright"}, strings.Fields(args)...)...)
		if code != 0 || strings.Contains(stdout, "RW") {
			t.Errorf("%s: code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	if n := len(must.Get(filepath.Glob("config/crd/bases/*"))(t)) + len(must.Get(filepath.Glob("config/samples/*v1_*"))(t)); n != 2 {
		t.Errorf("%d CRDs and samples", n)
	}
}

func TestExplain_SaysWhatARuleMeans(t *testing.T) {
	for _, r := range lint.Rules() {
		if code, stdout, _ := invoke("rolewright", "explain", strings.ToLower(r.ID)); code != 0 || !strings.HasPrefix(stdout, r.ID+": ") {
			t.Errorf("%s: code %d\n%s", r.ID, code, stdout)
		}
	}
	if code, _, stderr := invoke("rolewright", "explain", "RW999"); code != 2 || !strings.Contains(stderr, "RW103") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
