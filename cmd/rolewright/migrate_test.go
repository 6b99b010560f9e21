package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/internal/migrate"
	"github.com/rolewright/rolewright/test/must"
)

// ofEachRule is a project in ansible-operator's layout with those differences that the layouts of public operators do not
// have.
func ofEachRule() map[string]string {
	return map[string]string{
		"watches.yaml": `---
- version: v1
  group: example.com
  kind: Tea
  role: tea
  colour: green
- version: v1
  group: example.com
  kind: Pot
  playbook: playbooks/pot.yml
  finalizer: {name: example.com/pot, role: gone}
- version: v1
  group: example.com
  kind: Cup
  role: kitchen.china.cup
`,
		"Dockerfile": `FROM scratch
# dnf install -y nothing
ENTRYPOINT ["/usr/local/bin/ansible-operator", "run", \
  # a comment within
  "--watches-file=./watches.yaml", "--colour"]
`,
		"roles/tea/tasks/main.yml": "- uri: {url: \"http://localhost:8888/api/v1/pods\"}\n- command: kubectl get pods --as=cook\n",
		"playbooks/pot.yml":        "- hosts: backends\n",
		"config/manager/manager.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: m}
spec:
  template:
    spec:
      containers:
        - name: kube-rbac-proxy
          args: [--colour]
        - name: manager
          args: [--leader-elect, --colour=green]
          resources: {limits: {cpu: 500m, memory: 128Mi}}
        - name: beside
          args: [--whatever]
`,
		"config/others.yaml":            "kind: Deployment\nspec: {template: {spec: {containers: [{name: db, args: [--colour]}]}}}\n",
		"config/prometheus/rules.yaml":  "expr: rate(controller_runtime_reconcile_errors_total[5m]) > 0\n",
		"config/grafana/queue.json":     "{\"expr\": \"workqueue_depth + rate(controller_runtime_reconcile_time_seconds_sum[5m])\"}\n",
		"config/samples/tea.yaml":       "apiVersion: example.com/v1\nkind: Tea\nspec: {ansibleUser: root}\n",
		"tests/e2e/tea/00-assert.yaml":  "apiVersion: example.com/v1\nkind: Tea\nstatus:\n  conditions:\n    - {type: Running}\n---\napiVersion: v1\nkind: Pod\nstatus: {conditions: [{type: Ready}]}\n",
		"tests/chainsaw-test.yaml":      "kind: Test\nspec: {steps: [{try: [{assert: {resource: {apiVersion: example.com/v1, kind: Cup, status: {conditions: [{type: Running}]}}}}]}]}\n",
		"tests/e2e/tea/00-install.yaml": "apiVersion: example.com/v1\nkind: Tea\nspec: {ansibleUser: root}\nstatus: {conditions: []}\n",
		"chart/templates/role.yaml":     "kind: ClusterRole\nmetadata: {name: \"{{ .Release.Name }}\"}\n",
	}
}

func writeProject(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	must.Write(t, ".", files)
}

var headOfDifference = regexp.MustCompile(`(?m)^\S+: (?:blocked|change|different|better|unread): .*$`)

func TestMigrateReport_NamesEachDifferenceAndItsPlace(t *testing.T) {
	writeProject(t, ofEachRule())
	outside := t.TempDir()
	must.Do(t, os.Symlink(outside, "roles/elsewhere"))
	code, stdout, stderr := invoke("rolewright", "migrate", "report")
	if code != 1 {
		t.Errorf("code %d\n%s", code, stderr)
	}
	want := []string{
		`Dockerfile:5: blocked: --colour [RW605]`,
		`config/manager/manager.yaml:11: blocked: --colour=green [RW605]`,
		`watches.yaml:11: blocked: [1].finalizer.role: gone [RW608]`,
		`roles/tea/tasks/main.yml:2: blocked: --as= [RW627]`,
		`config/manager/manager.yaml:12: different: memory: 128Mi [RW612]`,
		`config/manager/manager.yaml:12: different: cpu: 500m [RW614]`,
		`watches.yaml:2: different: Tea: markUnsafe is not set [RW617]`,
		`watches.yaml:7: different: Pot: markUnsafe is not set [RW617]`,
		`watches.yaml:12: different: Cup: markUnsafe is not set [RW617]`,
		`config/samples/tea.yaml:3: different: ansibleUser [RW618]`,
		`roles/tea/tasks/main.yml:1: different: localhost:8888 [RW622]`,
		`config/prometheus/rules.yaml:1: different: controller_runtime_reconcile_errors_total [RW624]`,
		`watches.yaml:6: different: [0].colour: colour [RW625]`,
		`config/grafana/queue.json:1: different: workqueue_depth [RW628]`,
		`config/grafana/queue.json:1: different: controller_runtime_reconcile_time_seconds_sum [RW628]`,
		`tests/chainsaw-test.yaml:2: different: Cup: status.conditions [RW629]`,
		`tests/e2e/tea/00-assert.yaml:5: different: Tea: status.conditions [RW629]`,
		`playbooks/pot.yml:1: better: - hosts: backends [RW633]`,
		`watches.yaml:11: better: Pot: example.com/pot [RW634]`,
		`chart/templates/role.yaml: unread: the ClusterRole in it was not compared: it is a template [RW641]`,
		`roles/elsewhere: unread: the link is not followed: statat roles/elsewhere: path escapes from parent [RW641]`,
		`watches.yaml:15: unread: [2].role: kitchen.china.cup [RW643]`,
		`.: unread: no FROM line of a Dockerfile names ansible-operator's image or Rolewright's [RW644]`,
	}
	if diff := cmp.Diff(want, headOfDifference.FindAllString(stdout, -1)); diff != "" {
		t.Errorf("-want +got:\n%s\n%s", diff, stdout)
	}
	if first, _, _ := strings.Cut(stdout, "\n"); first != "DROP-IN: no, 4 blocked, 13 different, 2 better, 4 unread" {
		t.Error(first)
	}
	if code, stdout, _ := invoke("rolewright", "migrate", "report", "-o", "sarif"); code != 1 || strings.Count(stdout, `"ruleId"`) != len(want) || !strings.Contains(stdout, `"level": "note"`) {
		t.Errorf("code %d\n%s", code, stdout)
	}
	if code, stdout, _ := invoke("rolewright", "explain", "RW605"); code != 0 || !strings.Contains(stdout, "do: remove the flag") {
		t.Errorf("code %d: %s", code, stdout)
	}
}

// TestMigrateReport_OfAProjectThatFits: a scaffolded project has no blockers, and apply has nothing to do.
func TestMigrateReport_OfAProjectThatFits(t *testing.T) {
	scaffolded(t)
	code, stdout, stderr := invoke("rolewright", "migrate", "report", "-o", "json")
	if code != 0 || !strings.Contains(stdout, `"dropIn": true`) || strings.Contains(stdout, `"blocked"`) || strings.Contains(stdout, `"unread"`) {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := invoke("rolewright", "migrate", "apply", "--level", "safe"); code != 0 || stdout != "" || !strings.Contains(stderr, "nothing to do") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	t.Chdir(t.TempDir())
	for _, args := range [][]string{{"report"}, {"report", "missing"}, {"report", ".", "--root", "."}, {"report", "-o", "yaml"}, {"report", "--deployment", "x"}, {"apply", "--level", "most"}, {"simulate", "."}} {
		if code, _, stderr := invoke(append([]string{"rolewright", "migrate"}, args...)...); code != 2 || stderr == "" {
			t.Errorf("%q: code %d: %s", args, code, stderr)
		}
	}
}

// git runs git in the working directory and returns its output.
func git(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// commitAll makes the working directory a git repository.
func commitAll(t *testing.T) {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_SYSTEM", "/dev/null")
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "cook@example.com")
	}
	git(t, "init", "-q")
	git(t, "add", "-A")
	git(t, "commit", "-q", "-m", "All")
}

// The layouts are those of public operators: AWX, EDA, Kiali, Tackle, visitors, the SDK's sample, and what the SDK makes
// for helm-operator. Each golden file has the report, the changes that apply makes, and what is left.
func TestMigrate_LayoutsOfPublicOperators(t *testing.T) {
	here := must.Get(filepath.Abs("testdata/migrate"))(t)
	withChartProgram(t)
	var seen strings.Builder
	for _, name := range []string{"awx", "eda", "helm", "kiali", "memcached", "tackle", "visitors"} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			must.Do(t, os.CopyFS(".", os.DirFS(filepath.Join(here, name))))
			commitAll(t)
			_, report, _ := invoke("rolewright", "migrate", "report")
			seen.WriteString(report)
			_, diff, planned := invoke("rolewright", "migrate", "apply", "--dry-run", "--level", "safe")
			if out := git(t, "status", "--porcelain"); out != "" {
				t.Errorf("the dry run has changed:\n%s", out)
			}
			code, stdout, stderr := invoke("rolewright", "migrate", "apply", "--level", "safe")
			if code != 0 || stdout != "" {
				t.Fatalf("code %d\n%s%s", code, stdout, stderr)
			}
			if got := strings.Count(git(t, "log", "--format=%h"), "\n") - 1; got != strings.Count(planned, "\n") {
				t.Errorf("%d commits for:\n%s", got, planned)
			}
			if made := git(t, "diff", fmt.Sprintf("HEAD~%d", strings.Count(planned, "\n"))); withoutIndex(made) != diff {
				t.Errorf("the dry run has another diff (-git +dry run):\n%s", cmp.Diff(withoutIndex(made), diff))
			}
			_, after, _ := invoke("rolewright", "migrate", "report")
			if code, _, again := invoke("rolewright", "migrate", "apply", "--level", "safe"); code != 0 || !strings.Contains(again, "nothing to do") {
				t.Errorf("a second time: code %d\n%s", code, again)
			}
			_, back, _ := strings.Cut(stderr, "to take it back: git ")
			git(t, strings.Fields(back)...)
			if out := git(t, "diff", "HEAD", git(t, "rev-list", "--max-parents=0", "HEAD")[:40]); out != "" {
				t.Errorf("it is not taken back:\n%s", out)
			}
			first, _, _ := strings.Cut(after, "\n")
			must.Golden(t, *update, filepath.Join(here, name+".txt"), report+"\n# apply --level safe\n"+planned+"\n"+diff+"\n# report afterwards\n"+first+"\n"+
				strings.Join(headOfDifference.FindAllString(after, -1), "\n")+"\n")
		})
	}
	writeProject(t, ofEachRule())
	_, more, _ := invoke("rolewright", "migrate", "report")
	for _, rule := range migrate.Rules() {
		// These rules have tests of their own: TestMigrateReport_Command, TestRead_ProgramsThatTheImageDoesNotHave,
		// TestRead_HooksOfCharts, TestReport_ListWithoutGet.
		elsewhere := []string{"RW609", "RW626", "RW630", "RW636"}
		if !strings.Contains(seen.String()+more, "["+rule.ID+"]") && !slices.Contains(elsewhere, rule.ID) {
			t.Errorf("no project has %s, %s", rule.ID, rule.Title)
		}
	}
}

// withoutIndex turns a diff of git into the form of diff -u.
func withoutIndex(diff string) string {
	return regexp.MustCompile(`(?m)^(?:diff|index) .*\n|(^@@ .* @@).*`).ReplaceAllString(diff, "$1")
}

func TestMigrateApply_RefusesAndTakesBack(t *testing.T) {
	project := map[string]string{
		"watches.yaml":          "- {version: v1, group: example.com, kind: Tea, role: tea, markUnsafe: false}\n",
		"roles/tea/tasks/a.yml": "",
		"Dockerfile":            "FROM example.com/ansible-operator:v1\n",
	}
	read := func() string {
		data := must.Get(os.ReadFile("Dockerfile"))(t)
		return string(data)
	}
	t.Run("without git it writes and shows the diff", func(t *testing.T) {
		writeProject(t, project)
		code, stdout, stderr := invoke("rolewright", "migrate", "apply")
		if code != 0 || read() != "FROM rolewright/operator\n" || !strings.Contains(stdout, "+FROM rolewright/operator\n") || !strings.Contains(stderr, "no git repository") {
			t.Fatalf("code %d\n%s%s", code, stdout, stderr)
		}
		cmd := exec.CommandContext(t.Context(), "git", "apply", "-R")
		cmd.Stdin = strings.NewReader(stdout)
		if out, err := cmd.CombinedOutput(); err != nil || read() != project["Dockerfile"] {
			t.Errorf("the diff cannot be taken back: %v\n%s%s", err, out, stdout)
		}
	})
	t.Run("a work tree with changes", func(t *testing.T) {
		writeProject(t, project)
		commitAll(t)
		must.Do(t, os.WriteFile("notes", nil, 0o600))
		if code, _, stderr := invoke("rolewright", "migrate", "apply"); code != 1 || !strings.Contains(stderr, "?? notes") || read() != project["Dockerfile"] {
			t.Errorf("code %d: %s", code, stderr)
		}
	})
	t.Run("a commit that is refused", func(t *testing.T) {
		writeProject(t, project)
		commitAll(t)
		must.Do(t, os.WriteFile(".git/hooks/commit-msg", []byte("#!/bin/sh\ngrep -q 'Build the image' $1 || { echo not this one >&2; exit 1; }\n"), 0o700))
		code, _, stderr := invoke("rolewright", "migrate", "apply", "--level", "safe")
		if code != 1 || !strings.Contains(stderr, "Build the image") || !strings.Contains(stderr, "not this one") || !strings.Contains(stderr, "to take it back") {
			t.Errorf("code %d: %s", code, stderr)
		}
		if out := git(t, "status", "--porcelain"); out != "" || read() != "FROM rolewright/operator\n" {
			t.Errorf("the step that failed has left:\n%s", out)
		}
	})
}

// The report takes the root of an image, and the Deployment of a cluster.
func TestMigrateReport_OfAnImageAndADeployment(t *testing.T) {
	writeProject(t, map[string]string{
		"image/opt/ansible/watches.yaml":             "- {version: v1, group: example.com, kind: Tea, role: /opt/ansible/roles/tea, markUnsafe: true}\n- {version: v1, group: example.com, kind: Pot, role: kitchen.china.pot, markUnsafe: true}\n",
		"image/opt/ansible/roles/tea/tasks/main.yml": "",
		"image/opt/ansible/.ansible/collections/ansible_collections/kitchen/china/roles/pot/tasks/main.yml": "",
	})
	code, stdout, stderr := invoke("rolewright", "migrate", "report", "--root", "image")
	if want := "DROP-IN: yes, 1 unread\n\n.: unread: the entrypoint and the environment of an image are not among its files [RW641]\n"; code != 0 || !strings.HasPrefix(stdout, want) {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	writeProject(t, map[string]string{
		"image/opt/helm/watches.yaml":                "- {version: v1, group: example.com, kind: Tea, chart: helm-charts/tea}\n",
		"image/opt/helm/helm-charts/tea/Chart.yaml":  "{apiVersion: v2, name: tea, version: 0.1.0}\n",
		"image/opt/helm/helm-charts/tea/values.yaml": "{}\n",
	})
	code, stdout, stderr = invoke("rolewright", "migrate", "report", "--root", "image")
	if !strings.HasPrefix(stdout, "DROP-IN: ") { // whether the program for charts is here or not
		t.Errorf("of helm-operator: code %d\n%s%s", code, stdout, stderr)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/apis/apps/v1/namespaces/kitchen/deployments/tea" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"tea"},"spec":{"selector":{},"template":{"spec":{
			"containers":[{"name":"any","args":["--colour"],"resources":{"limits":{"memory":"64Mi"}}}],"terminationGracePeriodSeconds":10}}}}`))
	}))
	defer server.Close()
	writeProject(t, map[string]string{"kubeconfig": "apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: \"" + server.URL + "\"}}]\ncontexts: [{name: c, context: {cluster: c}}]\ncurrent-context: c\n"})
	t.Setenv("KUBECONFIG", "kubeconfig")
	code, stdout, stderr = invoke("rolewright", "migrate", "report", "--deployment", "kitchen/tea")
	want := []string{"deployment/kitchen/tea: blocked: --colour [RW605]", "deployment/kitchen/tea: different: terminationGracePeriodSeconds: 10 [RW611]", "deployment/kitchen/tea: different: memory: 64Mi [RW612]"}
	if got := headOfDifference.FindAllString(stdout, -1); code != 1 || !slices.Equal(got, want) || strings.Contains(stdout, "migrate apply") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
	if code, _, stderr := invoke("rolewright", "migrate", "report", "--deployment", "kitchen/pot"); code != 3 {
		t.Errorf("code %d: %s", code, stderr)
	}
}

// ansible-operator has no commands, so a watch of a command has no templates to mark.
func TestMigrateReport_Command(t *testing.T) {
	writeProject(t, map[string]string{"watches.yaml": "- {group: example.com, version: v1, kind: Cup, command: [/bin/sh]}\n"})
	if code, stdout, stderr := invoke("rolewright", "migrate", "report"); code != 1 || strings.Contains(stdout, "markUnsafe") ||
		!strings.HasPrefix(stdout, "DROP-IN: no, 1 blocked\n\nwatches.yaml:1: blocked: Cup: command [RW609]\n") {
		t.Errorf("code %d\n%s%s", code, stdout, stderr)
	}
}
