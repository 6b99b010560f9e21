package migrate

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/test/must"
)

// known is a Rolewright that knows one flag and one reserved name.
func known() Options {
	return Options{
		KnownFlag: func(name string) bool { return name == "leader-elect" },
		Variable: func(key string) string {
			if key == "environment" {
				return "makes no variable of it"
			}
			return ""
		},
		LookupEnv: func(string) (string, bool) { return "", false },
	}
}

// changed returns what a plan makes of a file's text in a project with a watch.
func changed(t testing.TB, file, text string) (string, string) {
	t.Helper()
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{
		"watches.yaml": "- {version: v1, group: example.com, kind: Tea, role: .}\n",
		file:           text,
	})
	p := must.Get(NewPlan(dir, Safe, known()))(t)
	done, _, err := p.Make(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	must.Be(t, "the diff of what was made", p.Diff(), DiffOf(done))
	again := must.Get(NewPlan(dir, Safe, known()))(t)
	if len(again.Steps) > 0 {
		t.Errorf("a second time there is something to do: %+v", again.Steps)
	}
	got := must.Get(os.ReadFile(filepath.Join(dir, file)))(t)
	return string(got), p.Diff()
}

// If a step fails, there is a diff of the steps before it.
func TestPlan_DiffOfWhatWasMade(t *testing.T) {
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{"a": "1\n", "b": "changed meanwhile\n"})
	p := Plan{Steps: []Step{
		{Files: []FileChange{{"a", "1\n", "2\n"}}}, {Files: []FileChange{{"a", "2\n", "3\n"}}}, {Files: []FileChange{{"b", "1\n", "2\n"}}},
	}}
	done, _, err := p.Make(t.Context(), dir)
	if err == nil {
		t.Error("no error")
	}
	must.Be(t, "diff", "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+3\n", DiffOf(done))
}

// A change keeps comments, layout and quotes. A value that does not have a line of its own is left to people.
func TestPlan_MakesTheSmallestChange(t *testing.T) {
	const head = "kind: Deployment\nspec:\n  selector: {}\n  template:\n    spec:\n"
	tests := map[string]struct{ file, text, want string }{
		"a value in quotes":     {"m.yaml", head + "      terminationGracePeriodSeconds: \"10\" # short\n      containers: [{name: manager}]\n", head + "      terminationGracePeriodSeconds: 45 # short\n      containers: [{name: manager}]\n"},
		"no newline at the end": {"m.yaml", head + "      containers: [{name: manager}]\n      terminationGracePeriodSeconds: 10", head + "      containers: [{name: manager}]\n      terminationGracePeriodSeconds: 45"},
		"all in one line":       {"m.yaml", "{kind: Deployment, spec: {selector: {}, template: {spec: {containers: [{name: manager}]}}}}\n", ""},
		"an anchor":             {"m.yaml", head + "      containers: &c [{name: manager}]\n      terminationGracePeriodSeconds: &g 10\n", ""},
		"letters before it":     {"m.yaml", "# tée\nkind: Deployment\nspec: {template: {spec: {é: 1, containers: [{name: manager, resources: {limits: {memory: 64Mi}}}]}}}\n", "# tée\nkind: Deployment\nspec: {template: {spec: {é: 1, containers: [{name: manager, resources: {limits: {memory: 768Mi}}}]}}}\n"},
		"verbs in lines":        {"r.yaml", "kind: Role\nrules:\n- apiGroups: [example.com]\n  resources: [teas/status]\n  verbs:\n  - 'update' # all of it\n", "kind: Role\nrules:\n- apiGroups: [example.com]\n  resources: [teas/status]\n  verbs:\n  - 'update' # all of it\n  - patch\n"},
		"verbs of another":      {"r.yaml", "kind: Role\nrules:\n- apiGroups: [example.org]\n  resources: [teas]\n  verbs: [update]\n", ""},
		"the second document":   {"r.yaml", "kind: Service\n---\nkind: Role\nrules: [{apiGroups: [example.com], resources: ['*'], verbs: [\"update\"]}]\n", "kind: Service\n---\nkind: Role\nrules: [{apiGroups: [example.com], resources: ['*'], verbs: [\"update\", patch]}]\n"},
		"lines of Windows":      {"Dockerfile", "FROM x/ansible-operator:v1\r\nUSER 0\r\n", "FROM rolewright/operator\r\nUSER 0\r\n"},
		"of helm-operator":      {"Dockerfile", "FROM x/helm-operator:v1.42.3 AS op\n", "FROM rolewright/charts AS op\n"},
		"Red Hat's build":       {"Dockerfile", "FROM r/openshift4/ose-helm-rhel9-operator:v4.16\n", "FROM rolewright/charts\n"},
		"its target":            {"Makefile", "run: helm-operator\n\t$(HELM_OPERATOR) run\n", "run:\n\trolewright run\n"},
		"a stage":               {"build/Dockerfile.ci", "FROM --platform=linux/amd64 x/ansible-operator@sha256:0 AS op\n", "FROM --platform=linux/amd64 rolewright/operator AS op\n"},
		"the tool's target":     {"Makefile", "run: ansible-operator ## Run it\n\tX=1 $(ANSIBLE_OPERATOR) run --strict\n", "run: ## Run it\n\tX=1 rolewright run --strict\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, _ := changed(t, tt.file, tt.text)
			if tt.want == "" {
				tt.want = tt.text
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// The hooks of a chart are named if the watch does not say how long its runs may take.
func TestRead_HooksOfCharts(t *testing.T) {
	for timeout, want := range map[string]string{"": "[helm-charts/tea/templates/a.yaml 3 \"helm.sh/hook\": post-install]", ", timeout: 1h": "[]"} {
		dir := t.TempDir()
		must.Write(t, dir, map[string]string{
			"watches.yaml":                       "- {version: v1, group: example.com, kind: Tea, chart: helm-charts/tea" + timeout + "}\n",
			"helm-charts/tea/Chart.yaml":         "{apiVersion: v2, name: tea, version: 0.1.0}\n",
			"helm-charts/tea/templates/a.yaml":   "metadata:\n  annotations:\n    \"helm.sh/hook\": post-install,post-upgrade\n    helm.sh/hook-weight: '1'\n",
			"helm-charts/tea/templates/t/b.yaml": "metadata: {annotations: {helm.sh/hook: test}}\n",
		})
		r := must.Get(Read(dir, known()))(t)
		got := []string{}
		for _, d := range r.Differences {
			if d.Rule == chartHook {
				got = append(got, fmt.Sprint(d.File, " ", d.Line, " ", d.Text))
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("timeout %q: %v", timeout, got)
		}
	}
}

// A chart may be named by its path in the image.
func TestRead_AChartInTheImage(t *testing.T) {
	for chart, want := range map[string]string{"tea": "[]", "coffee": "[[0].chart: /opt/helm/helm-charts/coffee]"} {
		dir := t.TempDir()
		must.Write(t, dir, map[string]string{
			"watches.yaml":               "- {version: v1, group: example.com, kind: Tea, chart: /opt/helm/helm-charts/" + chart + "}\n",
			"helm-charts/tea/Chart.yaml": "{apiVersion: v2, name: tea, version: 0.1.0}\n",
		})
		r := must.Get(Read(dir, known()))(t)
		got := []string{}
		for _, d := range r.Differences {
			if d.Rule == badWatch || d.Rule == otherWatch {
				got = append(got, d.Text)
			}
		}
		must.Be(t, chart, want, fmt.Sprint(got))
	}
}

// TestRead_StaysInTheProject: a file outside the project is not opened, and is reported.
func TestRead_StaysInTheProject(t *testing.T) {
	outside, dir := t.TempDir(), t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(outside, "Dockerfile"), []byte("FROM x/ansible-operator\n"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(outside, "watches.yaml"), []byte("[]"), 0o600))
	for name, to := range map[string]string{"Dockerfile": "Dockerfile", "watches.yaml": "watches.yaml", "config": "."} {
		must.Do(t, os.Symlink(filepath.Join(outside, to), filepath.Join(dir, name)))
	}
	r := must.Get(Read(dir, known()))(t)
	var got []string
	for _, d := range r.Differences {
		got = append(got, d.Rule+" "+d.File)
	}
	if diff := cmp.Diff([]string{"RW641 Dockerfile", "RW641 config", "RW641 watches.yaml", "RW641 watches.yaml"}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Programs that only UBI or its packages have are found where they are called: in build stages based on Rolewright's
// image, and in tasks.
func TestRead_ProgramsThatTheImageDoesNotHave(t *testing.T) {
	const base = "FROM x/ose-ansible-rhel9-operator:v4 AS base\n"
	tests := map[string]struct {
		dockerfile, tasks string
		want              []string
	}{
		"at the beginning of a command": {base + "RUN curl -s x | tar x; rpm -q y && \\\n  # unzip\n  /usr/bin/git clone z\n", "", []string{"RW626 2 curl -s x", "RW626 2 rpm -q y", "RW626 4 git clone z"}},
		"as an argument":                {base + "RUN echo curl \\\n  git\nENV curl=1\n", "", nil},
		"in a stage on another image":   {"FROM golang AS b\nRUN curl x\n" + base + "FROM base\nRUN --mount=type=cache,target=/x unzip y\n", "", []string{"RW626 5 unzip y"}},
		"installed":                     {base + "RUN apt-get update && apt-get install -y \\\n  curl\nRUN curl x\n", "- command: curl x\n", nil},
		"in tasks":                      {base, "- name: curl x\n- ansible.builtin.command: curl x\n- shell:\n    cmd: \"git log\"\n- shell: |\n    curl -s x\n- debug: {msg: git x}\n", []string{"RW626 2 - ansible.builtin.command: curl x", "RW626 4 cmd: \"git log\"", "RW626 6 curl -s x"}},
		"in an image of its own":        {"FROM python\nRUN curl x\nCOPY --from=rolewright/binary /rolewright /bin/ansible-operator\n", "- command: curl x\n", nil},
		"in an image of others":         {"FROM python\nRUN curl x\n", "- command: curl x\n", []string{"RW644 0 no FROM line of a Dockerfile names ansible-operator's image or Rolewright's"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newReporter(known())
			r.file = "Dockerfile"
			r.dockerfile(tt.dockerfile)
			r.file = "roles/tea/tasks/main.yml"
			r.content(tt.tasks)
			r.ownImage()
			var got []string
			for _, d := range r.Differences {
				if d.Rule == noProgram || d.Rule == otherImage {
					got = append(got, fmt.Sprintf("%s %d %s", d.Rule, d.Line, d.Text))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// Roles name kinds by their English plurals.
func TestReport_KnowsPlurals(t *testing.T) {
	for name, resource := range map[string]string{"Tea": "teas", "Gateway": "gateways", "Mailbox": "mailboxes", "Policy": "policies", "Patch": "patches/status"} {
		r := newReporter(known())
		r.watchesText("- {group: example.com, version: v1, kind: " + name + ", role: x}\n")
		r.manifests("kind: Role\nrules: [{apiGroups: [example.com], resources: [" + resource + "], verbs: [update]}]\n")
		if !slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.Rule == noPatch }) {
			t.Errorf("%s is not known as %s", resource, name)
		}
	}
}

// ansible-operator's tasks can get objects by name with only the permission to list them.
func TestReport_ListWithoutGet(t *testing.T) {
	for rules, want := range map[string]bool{
		"{apiGroups: [''], resources: [secrets], verbs: [list, watch]}": true, "{apiGroups: [''], resources: [secrets], verbs: [list, get]}": false,
		"{apiGroups: [''], resources: [secrets], verbs: ['*']}": false, "{apiGroups: [''], resources: [secrets], verbs: [create]}": false,
		"{apiGroups: [''], resources: [pods], verbs: [list]}, {apiGroups: [''], resources: ['*'], verbs: [get]}":                      false,
		"{apiGroups: [''], resources: [pods, secrets], verbs: [list]}, {apiGroups: [''], resources: [pods], verbs: [get]}":            true,
		"{apiGroups: [''], resources: [pods], verbs: [list]}, {apiGroups: [''], resources: [pods], resourceNames: [a], verbs: [get]}": true,
	} {
		r := newReporter(known())
		r.manifests("kind: ClusterRole\nrules: [" + rules + "]\n")
		if got := slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.Rule == noGet && d.Level == DropIn }); got != want {
			t.Errorf("%s: found %v", rules, got)
		}
	}
}

// FuzzPlan: whatever the files of a project contain, they are compared, and changed files can still be read.
func FuzzPlan(f *testing.F) {
	for _, seed := range []string{
		"", "- 1\n- {kind: Tea, markUnsafe: no}\n", "kind: Deployment\nspec: {template: {spec: {containers: [{name: manager}]}}}\n", "FROM ansible-operator\\\nENTRYPOINT [\"--\n", "a: &a [*a]\n", "\tansible-operator run\n",
		"kind: Role\nrules: [{apiGroups: [example.com], resources: [teas], verbs: [update]}]\n", "? {a: b}\n: |\n  x\n", "kind: CustomResourceDefinition\nspec: {group: example.com, names: {kind: Tea}, versions: [{schema: {openAPIV3Schema: {properties: {status: {a: b}}}}}]}\n",
		"kind: Deployment\nspec:\n  selector:\n  template:\n    spec:\n      containers:\n      - name: manager\n        resources:\n          limits:\n            memory: 1\n      terminationGracePeriodSeconds: 1\n",
	} {
		f.Add(seed)
	}
	// inMemory compares one file and returns the plan.
	inMemory := func(t *testing.T, file string, compare func(*reporter, string), text string) Plan {
		t.Helper()
		r := newReporter(known())
		r.file, r.kinds = file, []kind{{schema.GroupKind{Group: "example.com", Kind: "Tea"}, "teas", true, false, false}}
		compare(r, text)
		p := must.Get(r.plan(Safe))(t)
		return p
	}
	f.Fuzz(func(t *testing.T, text string) {
		for file, compare := range map[string]func(*reporter, string){
			"m.yaml": (*reporter).manifests, "Dockerfile": (*reporter).dockerfile, "Makefile": (*reporter).makefile,
			"roles/tea/tasks/main.yml": (*reporter).content, "watches.yaml": (*reporter).watchesText,
		} {
			p := inMemory(t, file, compare, text)
			_ = p.Diff()
			for _, s := range p.Steps[max(0, len(p.Steps)-1):] {
				if again := inMemory(t, file, compare, s.Files[0].New); len(again.Steps) > 0 {
					t.Errorf("%s: a second time there is something to do: %+v", file, again.Steps)
				}
			}
		}
	})
}
