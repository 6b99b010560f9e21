package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/testenv"
)

// diagnose runs the command.
func diagnose(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newDoctorCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// wrappedAnsible puts a shell script before ansible-playbook in the PATH.
func wrappedAnsible(t *testing.T) {
	t.Helper()
	requireAnsible(t)
	playbook, err := exec.LookPath("ansible-playbook")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "ansible-playbook"), []byte("#!/bin/sh\nexec "+playbook+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// fakeAnsible puts programs of other versions before all others in the PATH.
func fakeAnsible(t *testing.T, core, ansibleRunner string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ansible-playbook": "ansible-playbook [core " + core + "]\n  python version = 3.12.1 (main, Jan 1 2025, 00:00:00) [GCC] (/opt/python/bin/python3)",
		"ansible-runner":   ansibleRunner,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\ncat <<'END'\n"+text+"\nEND\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestDoctor_TellsWhatRunsWouldFind(t *testing.T) {
	const ansible = `(?m)^ok +Ansible +ansible-core 2\.\d+\.\S+, ansible-runner \d\S+, Python 3\.\S+( \(/\S+\))?$`
	const why = `executor +runs start Python anew: no warm interpreter: \S+/ansible-playbook is no Python script as installers write them$`
	for name, tt := range map[string]struct {
		change func(t *testing.T)
		args   []string
		want   []string
		failed bool
	}{
		"all is well": {args: []string{"--executor=warm"}, want: []string{
			ansible, `(?m)^ok +ansible-core +2\.`, `(?m)^ok +Kubernetes client +\d+\.`, `(?m)^ok +kubernetes\.core +\d+\.`, `(?m)^ok +executor +runs can be forked$`,
			`(?m)^ok +runner root +/`, `(?m)^ok +TMPDIR +/`, `(?m)^(ok|note) +memory `, `(?m)^(ok|note) +processes `, `(?m)^(ok|note) +CPUs `,
			`(?m)^left out +watches +stat \./watches\.yaml: no such file or directory; name it with --watches-file`,
			`(?m)^1 check was left out: what is wrong there is not known$`,
		}},
		"what is left out counts":       {args: []string{"--executor=runner", "--strict"}, failed: true, want: []string{`left out: what is wrong`}},
		"nothing is to be forked":       {args: []string{"--executor=runner"}, want: []string{ansible, `(?m)^ok +executor +ansible-runner is started for each run$`}},
		"no forks, and none needed":     {change: wrappedAnsible, want: []string{ansible, `(?m)^note +` + why}},
		"no forks, and they are needed": {change: wrappedAnsible, args: []string{"--executor=warm"}, want: []string{ansible, `(?m)^failed +` + why}, failed: true},
		"no Ansible": {change: func(t *testing.T) { t.Helper(); t.Setenv("PATH", t.TempDir()) }, failed: true, want: []string{
			`(?m)^failed +Ansible +ansible-runner is unavailable: (.|\n)*not found in \$PATH(.|\n)*; install ansible-core and ansible-runner, or see --ansible-runner$`,
			`(?m)^note +executor +runs start Python anew: .*not found in \$PATH$`,
		}},
		"known vulnerabilities": {change: func(t *testing.T) { t.Helper(); fakeAnsible(t, "2.16.3", "2.0.1") }, args: []string{"--executor=runner"}, failed: true, want: []string{
			`(?m)^failed +ansible-core +2\.16\.3 has known vulnerabilities: CVE-2024-8775 \(.*; use ansible-core 2\.16\.14, 2\.17\.7, 2\.18\.1 or newer, or a package`,
			`(?m)^failed +ansible-runner +2\.0\.1 has known vulnerabilities: CVE-2021-3701`,
			`(?m)^failed +Kubernetes client +ask /opt/python/bin/python3 for its packages: .*no such file or directory`,
		}},
		"places": {change: func(t *testing.T) {
			t.Helper()
			shared := t.TempDir()
			if err := os.Chmod(shared, 0o777); err != nil {
				t.Fatal(err)
			}
			t.Setenv("ANSIBLE_LOCAL_TEMP", shared)
			t.Setenv("HOME", "/nowhere")
		}, args: []string{"--executor=runner", "--runner-root=/proc/runner"}, failed: true, want: []string{
			`(?m)^failed +runner root +/proc cannot be written: .*; choose another with --runner-root`, `(?m)^note +HOME +stat /nowhere: no such file`,
			`(?m)^failed +ANSIBLE_LOCAL_TEMP +/\S+ can be written by everybody \(mode 0777\)`,
		}},
		"a watches file that is broken": {change: func(t *testing.T) {
			t.Helper()
			t.Chdir(t.TempDir())
			if err := os.WriteFile("watches.yaml", []byte("- kind: X\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, args: []string{"--executor=runner"}, failed: true, want: []string{`(?m)^failed +watches +.*watches\.yaml:1:3: .*version must not be empty.*; see "rolewright validate"$`}},
	} {
		t.Run(name, func(t *testing.T) {
			requireAnsible(t)
			if tt.change != nil {
				tt.change(t)
			}
			got, err := diagnose(t, append(tt.args, "--offline")...)
			if errors.Is(err, errInvalid) != tt.failed || err != nil && !tt.failed {
				t.Errorf("error = %v", err)
			}
			for _, want := range tt.want {
				if !regexp.MustCompile(want).MatchString(got) {
					t.Errorf("it prints\n%s\nwant\n%s", got, want)
				}
			}
		})
	}
}

func TestDoctor_RefusesUnknownWords(t *testing.T) {
	for arg, want := range map[string]string{
		"--executor=fast": `--executor "fast": give one of ["auto" "warm" "runner"]`,
		"--output=xml":    `--output must be text or json, not "xml"`,
	} {
		if _, err := diagnose(t, arg); err == nil || err.Error() != want {
			t.Errorf("%s: error = %v", arg, err)
		}
	}
}

func TestDoctor_PrintsJSON(t *testing.T) {
	requireAnsible(t)
	out, err := diagnose(t, "--offline", "--executor=runner", "-o", "json", "--strict")
	if !errors.Is(err, errInvalid) {
		t.Errorf("error = %v", err)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	findings, _ := got["findings"].([]any)
	if got["healthy"] != false || got["failed"] != 0.0 || got["leftOut"] != 1.0 || len(findings) < 8 {
		t.Errorf("it prints\n%s", out)
	}
	for _, f := range findings {
		if keys := slices.Sorted(maps.Keys(f.(map[string]any))); !slices.Equal(keys, []string{"check", "found", "remedy", "state"}) {
			t.Errorf("a finding has the keys %v", keys)
		}
	}
}

func TestDoctor_LooksAtTheCluster(t *testing.T) {
	requireAnsible(t)
	cfg := testenv.Config(t)
	gvk := testenv.CRD(t, cfg)
	bare := testenv.CRD(t, cfg, testenv.WithKind("Bare"), testenv.WithoutStatus(), testenv.WithGroup(gvk.Group))
	missing := schema.GroupVersionKind{Group: gvk.Group, Version: "v9", Kind: "Missing"}
	file := project(t, gvk, bare, missing)
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, cfg))
	t.Setenv("WATCH_NAMESPACE", "")
	look := func(failed bool, args []string, want ...string) {
		t.Helper()
		out, err := diagnose(t, append(args, "--executor=runner")...)
		if errors.Is(err, errInvalid) != failed || err != nil && !failed {
			t.Errorf("error = %v", err)
		}
		for _, w := range want {
			if !regexp.MustCompile("(?m)" + w).MatchString(out) {
				t.Errorf("it prints\n%s\nwant\n%s", out, w)
			}
		}
	}
	look(true, []string{"--watches-file=" + file},
		`^ok +cluster +the API server https://\S+ \(from KUBECONFIG=`,
		`^ok +kind Widget +widgets\.`+regexp.QuoteMeta(gvk.Group)+`/v1alpha1 is installed$`,
		`^failed +kind Bare +it has no status subresource.*; add "subresources: \{status: \{\}\}"`,
		`^failed +kind Missing +`+regexp.QuoteMeta(gvk.Group)+`/v9 has no such kind; install its CustomResourceDefinition`,
		`^ok +permissions +all \d+ that the watches and their tasks need`,
		`^note +permissions +1 place in the tasks does not tell what is needed`, // the kind that is missing
	)
	one := project(t, gvk)
	look(false, []string{"--watches-file=" + one, "--strict"})
	// Somebody who may do nothing, and somebody who may do what is written.
	const lease = `permissions +get, create, update on leases in the group "coordination\.k8s\.io" are missing in the namespace default: --leader-elect needs them; grant them, as config/rbac/leader_election_role\.yaml`
	look(true, []string{"--watches-file=" + one, "--as=system:serviceaccount:default:nobody"}, `^note +`+lease,
		`^note +permissions +create on tokenreviews in the group "authentication\.k8s\.io" are missing in all namespaces: --metrics-require-rbac needs them`,
		`^failed +permissions +get, list, watch on widgets in the group "`+gvk.Group+`" are missing in all namespaces; grant them; "rolewright generate rbac"`,
		`^failed +permissions +patch on widgets/status in the group`)
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, testenv.User(t, cfg, []rbacv1.PolicyRule{
		{APIGroups: []string{gvk.Group}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{gvk.Group}, Resources: []string{"widgets/status"}, Verbs: []string{"patch"}},
	})))
	look(false, []string{"--watches-file=" + one, "--strict"}, `^ok +permissions +all 4 that`)
	// The operator's own needs count where it is said that it has them.
	look(true, []string{"--watches-file=" + one, "--leader-elect", "--leader-election-namespace=default"}, `^failed +`+lease)
	look(true, []string{"--watches-file=" + one, "--metrics-require-rbac"}, `^failed +permissions +create on subjectaccessreviews in the group`)
	look(false, []string{"--watches-file=" + one, "--leader-elect"}, `^left out +permissions +those for the Lease of leader election: its namespace is not known; name it`)
	// No cluster at all.
	t.Setenv("KUBECONFIG", "nowhere")
	look(false, []string{"--watches-file=" + one}, `^left out +permissions +read kubeconfig \(KUBECONFIG=nowhere\)`, `^2 checks were left out`)
}

func TestRun_JudgesTheVersionsOfAnsible(t *testing.T) {
	cfg := testenv.Config(t)
	gvk := testenv.CRD(t, cfg)
	env := []string{"KUBECONFIG=" + testenv.Kubeconfig(t, cfg)}
	file := project(t, gvk)
	fakeAnsible(t, "2.16.3", "2.3.1")
	refused := startRun(t, env, "--watches-file="+file, "--executor=runner", "--refuse-vulnerable-ansible")
	if code := refused.exit(); code != 1 || !strings.Contains(refused.output.String(), "Error: --refuse-vulnerable-ansible: ansible-core 2.16.3 has known vulnerabilities: CVE-2024-8775") {
		t.Errorf("exit code %d\n%s", code, refused.output.String())
	}
	warned := startRun(t, env, "--watches-file="+file, "--executor=runner")
	warned.eventuallyLogs(t, "Warning: known vulnerabilities concern this Ansible")
	warned.eventuallyAnswers(t, warned.health+"/readyz", http.StatusOK)
}
