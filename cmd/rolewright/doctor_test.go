package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// diagnose runs the doctor command.
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

// wrapper makes a shell script with that name, which executes the command. It returns the script's directory, which is
// called bin.
func wrapper(t *testing.T, name, command string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "bin")
	must.Do(t, os.Mkdir(dir, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\nexec "+command+" \"$@\"\n"), 0o755))
	return dir
}

// wrappedAnsible puts a shell script before ansible-playbook in the PATH.
func wrappedAnsible(t *testing.T) {
	t.Helper()
	requireAnsible(t)
	playbook := must.Get(exec.LookPath("ansible-playbook"))(t)
	t.Setenv("PATH", wrapper(t, "ansible-playbook", playbook)+":"+os.Getenv("PATH"))
}

// bareInterpreter makes modules run under a Python without site-packages.
func bareInterpreter(t *testing.T) {
	t.Helper()
	t.Setenv("VIRTUAL_ENV", filepath.Dir(wrapper(t, "python3", "/usr/bin/python3 -S")))
}

// soundWatches changes to the directory of a project without problems.
func soundWatches(t *testing.T) {
	t.Helper()
	t.Chdir(t.TempDir())
	must.Do(t, os.WriteFile("watches.yaml", nil, 0o600))
}

func TestDoctor_TellsWhatRunsWouldFind(t *testing.T) {
	const ansible = `(?m)^ok +Ansible +ansible-core 2\.\d+\.\S+, ansible-runner \d\S+, Python 3\.\S+( \(/\S+\))?$`
	const why = `executor +runs are not forked, each starts a new Python: no warm interpreter: \S+/ansible-playbook is not a Python script as pip or a distribution installs it$`
	for name, tt := range map[string]struct {
		change func(t *testing.T)
		args   []string
		want   []string
		failed bool
	}{
		"all is well": {change: soundWatches, args: []string{"--executor=warm"}, want: []string{
			ansible, `(?m)^ok +Kubernetes client +\d+\.`, `(?m)^ok +kubernetes\.core +\d+\.`, `(?m)^ok +executor +runs can be forked$`,
			`(?m)^ok +runner root +/`, `(?m)^ok +TMPDIR +/`, `(?m)^(ok|note) +memory `, `(?m)^(ok|note) +processes `, `(?m)^(ok|note) +CPUs `,
			`(?m)^ok +watches +\./watches\.yaml is valid`, `(?m)^2 checks skipped \(not verified\)$`,
		}},
		"nothing is to be forked, and what is left out counts": {change: soundWatches, args: []string{"--executor=runner", "--strict"}, failed: true,
			want: []string{ansible, `(?m)^ok +executor +ansible-runner is started for each run$`, `2 checks skipped`}},
		"no forks, and none needed":     {change: func(t *testing.T) { t.Helper(); wrappedAnsible(t); soundWatches(t) }, want: []string{ansible, `(?m)^note +` + why}},
		"no forks, and they are needed": {change: wrappedAnsible, args: []string{"--executor=warm"}, want: []string{ansible, `(?m)^failed +` + why}, failed: true},
		"no Kubernetes client, and none needed": {change: func(t *testing.T) {
			t.Helper()
			soundWatches(t)
			bareInterpreter(t)
			must.Do(t, os.WriteFile("watches.yaml", []byte("- {group: a.b, version: v1, kind: C, playbook: play.yml}\n"), 0o600))
			must.Do(t, os.WriteFile("play.yml", []byte("- hosts: localhost\n  tasks: [{rolewright.operator.wait_for: {api_version: v1, kind: Secret, name: a}}]\n"), 0o600))
		}, args: []string{"--executor=runner"},
			want: []string{`(?m)^note +Kubernetes client +is not installed: only tasks with modules of kubernetes.core need it; install the Python package`}},
		"no Kubernetes client, and tasks need it": {change: func(t *testing.T) {
			t.Helper()
			soundWatches(t)
			bareInterpreter(t)
			must.Do(t, os.WriteFile("watches.yaml", []byte("- {group: a.b, version: v1, kind: C, playbook: play.yml}\n"), 0o600))
			must.Do(t, os.WriteFile("play.yml", []byte("- hosts: localhost\n  tasks: [{k8s_info: {api_version: v1, kind: Secret}}]\n"), 0o600))
		}, args: []string{"--executor=runner"}, failed: true,
			want: []string{`(?m)^failed +Kubernetes client +is not installed, and tasks of the watches use modules of kubernetes.core; install the Python package`}},
		"no Ansible": {change: func(t *testing.T) { t.Helper(); t.Setenv("PATH", t.TempDir()) }, failed: true, want: []string{
			`(?m)^failed +Ansible +ansible-runner is unavailable: (.|\n)*not found in \$PATH(.|\n)*; install ansible-core and ansible-runner, or see --ansible-runner$`,
			`(?m)^note +executor +runs are not forked, each starts a new Python: .*not found in \$PATH$`,
		}},
		"places, and no watches file": {change: func(t *testing.T) {
			t.Helper()
			shared := t.TempDir()
			must.Do(t, os.Chmod(shared, 0o777))
			t.Setenv("ANSIBLE_LOCAL_TEMP", shared)
			t.Setenv("HOME", "/nowhere")
			t.Setenv("TMPDIR", t.TempDir()) // stands in for the home
		}, args: []string{"--executor=runner", "--runner-root=/proc/runner"}, failed: true, want: []string{
			`(?m)^failed +runner root +/proc cannot be written: .*; choose another with --runner-root`, `(?m)^note +HOME +stat /nowhere: no such file`,
			`(?m)^failed +ANSIBLE_LOCAL_TEMP +/\S+ is world-writable \(mode 0777\)`,
			`(?m)^failed +watches +\./watches\.yaml does not exist; pass the file with --watches-file, or run in its directory; "rolewright init" creates a project$`,
		}},
		"a watches file that is broken": {change: func(t *testing.T) {
			t.Helper()
			t.Chdir(t.TempDir())
			must.Do(t, os.WriteFile("watches.yaml", []byte("- kind: X\n"), 0o600))
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
		"--executor=fast": `--executor "fast": give one of ["auto" "warm" "runner" "job"]`,
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
	if got["healthy"] != false || got["failed"] != 1.0 || got["leftOut"] != 0.0 || len(findings) < 8 {
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
			t.Errorf("error = %v; it prints\n%s", err, out)
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
		`^ok +permissions +all \d+ that the watches and their content need`,
		`^note +permissions +1 place in the content does not say what is needed`, // the kind is missing
	)
	one := project(t, gvk)
	testenv.Eventually(t, "the API server publishes the schema of the kind", func(context.Context) error {
		if out, _ := diagnose(t, "--watches-file="+one, "--executor=runner"); strings.Contains(out, "the schema: ") {
			return errors.New(out)
		}
		return nil
	})
	look(false, []string{"--watches-file=" + one, "--strict"})
	// First a user without permissions, then a user with exactly those that are needed.
	const lease = `permissions +get, create, update on leases in the group "coordination\.k8s\.io" are missing in the namespace default: --leader-elect needs them; grant them, as config/rbac/leader_election_role\.yaml`
	look(true, []string{"--watches-file=" + one, "--as=system:serviceaccount:default:unknown"}, `^note +`+lease,
		`^note +permissions +create on tokenreviews in the group "authentication\.k8s\.io" are missing in all namespaces: --metrics-require-rbac needs them`,
		`^failed +permissions +get, list, watch on widgets in the group "`+gvk.Group+`" are missing in all namespaces; grant them; "rolewright generate rbac"`,
		`^failed +permissions +patch on widgets/status in the group`)
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, testenv.User(t, cfg, []rbacv1.PolicyRule{
		{APIGroups: []string{gvk.Group}, Resources: []string{"widgets"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{gvk.Group}, Resources: []string{"widgets/status"}, Verbs: []string{"patch"}},
	})))
	look(false, []string{"--watches-file=" + one, "--strict"}, `^ok +permissions +all 4 that`)
	// The operator's own permissions count if its flags are given.
	look(true, []string{"--watches-file=" + one, "--leader-elect", "--leader-election-namespace=default", "--metrics-require-rbac"}, `^failed +`+lease,
		`^failed +permissions +create on subjectaccessreviews in the group`)
	look(true, []string{"--watches-file=" + one, "--shards=auto", "--leader-election-namespace=default"},
		`^failed +permissions +list, delete on leases in the group "coordination\.k8s\.io" are missing in the namespace default: --shards needs them; grant them, as config/shards/kustomization\.yaml`)
	look(false, []string{"--watches-file=" + one, "--leader-elect"}, `^left out +permissions +those for the Lease of leader election: its namespace is not known; name it`)
	t.Setenv("KUBECONFIG", "nowhere")
	look(true, []string{"--watches-file=" + one}, `^failed +cluster +read kubeconfig \(KUBECONFIG=nowhere\).*; set KUBECONFIG, or pass --offline`, `^2 checks skipped`)
}
