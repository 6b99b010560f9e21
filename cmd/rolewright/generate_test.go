package main

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// generateRBAC runs the command in a directory.
func generateRBAC(t *testing.T, dir string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	t.Chdir(dir)
	var out, errs bytes.Buffer
	cmd := newGenerateCommand()
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append([]string{"rbac"}, args...))
	cmd.SetOut(&out)
	cmd.SetErr(&errs)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), errs.String(), err
}

func TestGenerateRBAC_TheExampleHasWhatItWrites(t *testing.T) {
	const remedy = "write it with `rolewright generate rbac --offline --strict --output config/rbac/role.yaml`"
	root := absolutePath(filepath.Join("..", ".."))
	got, stderr, err := generateRBAC(t, root, "--offline", "--strict")
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s", err, stderr)
	}
	have := must.Get(os.ReadFile(filepath.Join(root, "config", "rbac", "role.yaml")))(t)
	if diff := cmp.Diff(string(have), got); diff != "" {
		t.Errorf("config/rbac/role.yaml is not what the example needs; %s (-file +command):\n%s", remedy, diff)
	}
}

// What Jobs need is granted only in the operator's namespace, as in config/jobs.
func TestGenerateRBAC_Jobs(t *testing.T) {
	project, config := t.TempDir(), must.Get(os.ReadFile("../../config/jobs/role.yaml"))(t)
	write(t, filepath.Join(project, "watches.yaml"), "- {version: v1, group: apps.example.com, kind: Shop, playbook: "+filepath.Join(project, "shop.yml")+", executor: job}\n")
	write(t, filepath.Join(project, "shop.yml"), "- hosts: localhost\n  tasks: []\n")
	got, _, err := generateRBAC(t, project, "--offline", "--allow-unknown", "--name=rules")
	if err != nil {
		t.Fatal(err)
	}
	_, role, found := strings.Cut(got, "\nkind: Role\n")
	role, binding, bound := strings.Cut(role, "\n---\n")
	var have, want rbacv1.Role
	must.Do(t, yaml.Unmarshal([]byte(role), &have))
	must.Do(t, yaml.Unmarshal(config, &want))
	if !found || !bound || have.Name != "rules-jobs" || have.Namespace != want.Namespace || !strings.Contains(binding, "name: rules-jobs\n") {
		t.Fatalf("there is no Role with its binding:\n%s", got)
	}
	if have, want := verbsOf(have.Rules), verbsOf(want.Rules); !maps.Equal(have, want) {
		t.Errorf("granted is %v, and config/jobs has %v", have, want)
	}
}

// verbsOf returns the sorted verbs of each resource.
func verbsOf(rules []rbacv1.PolicyRule) map[string]string {
	of := map[string]string{}
	for _, r := range rules {
		slices.Sort(r.Verbs)
		for _, resource := range r.Resources {
			of[r.APIGroups[0]+"/"+resource] += strings.Join(r.Verbs, ",")
		}
	}
	return of
}

// The project of testdata/generate has a role, a playbook with a finalizer, and most kinds of gaps.
func TestGenerateRBAC_WritesStableManifests(t *testing.T) {
	project := absolutePath(filepath.Join("testdata", "generate"))
	for name, args := range map[string][]string{
		"all":       {"--allow-unknown"},
		"namespace": {"--allow-unknown", "--namespace=two,one", "--name=content"},
		"recorded":  {"--scan=false", "--api-calls=calls-1.jsonl", "--api-calls=calls-2.jsonl"},
		"unwatched": {"--allow-unknown", "--inject-owner-ref=false"},
	} {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, err := generateRBAC(t, project, append(args, "--offline", "--crd-dir=crds")...)
			if err != nil {
				t.Fatal(err)
			}
			got := stdout + "\n# stderr\n" + stderr
			must.Golden(t, *update, filepath.Join(project, "golden", name+".yaml"), got)
		})
	}
}

func TestGenerateRBAC_SaysWhatIsWrong(t *testing.T) {
	project := t.TempDir()
	must.Do(t, os.CopyFS(project, os.DirFS(filepath.Join("testdata", "generate"))))
	must.Do(t, os.MkdirAll(filepath.Join(project, "config", "rbac"), 0o755))
	binds := func(kind string) {
		must.Do(t, os.WriteFile(filepath.Join(project, bindingFile), []byte("kind: "+kind+"Binding\nroleRef:\n  kind: "+kind+"\n"), 0o600))
	}
	binds("ClusterRole")
	dir := t.TempDir()
	output := filepath.Join(dir, "role.yaml")
	bad := filepath.Join(dir, "bad.jsonl")
	must.Do(t, os.WriteFile(bad, []byte("{\"verb\":\"get\",\"group\":\"\",\"version\":\"v1\",\"resource\":\"pods\"}\n{\"verb\":1}\n"), 0o600))
	for name, tt := range map[string]struct {
		args []string
		want string
	}{
		"places that are not known":   {[]string{"--strict", "--output=" + output}, "places are not known (--strict)"},
		"a role that may not work":    {nil, "places are not known, so the role may lack permissions: record the requests"},
		"a record of no own requests": {[]string{"--scan=false", "--api-calls=calls-1.jsonl"}, "watches.yaml:1: not known: the resource name of the watched kind"},
		"no watches file":             {[]string{"--watches-file=nowhere.yaml"}, "nowhere.yaml"},
		"nothing to read":             {[]string{"--scan=false"}, "give a record of runs with --api-calls"},
		"no record":                   {[]string{"--api-calls=nowhere.jsonl"}, "--api-calls: read the record of API calls: open nowhere.jsonl"},
		"a record that is none":       {[]string{"--api-calls=" + bad}, bad + ":2: this is not a recorded API call"},
		"a name that is none":         {[]string{"--name=a/b"}, `--name "a/b" is not a name of a role`},
		"a namespace that is none":    {[]string{"--namespace=A_B"}, `--namespace "A_B" is not a name of a namespace`},
		"Roles in config/default":     {[]string{"--namespace=one", "--output=config/rbac/role.yaml"}, "write the Roles for --namespace to a file elsewhere"},
		"nowhere to write":            {[]string{"--output=" + dir + "/none/role.yaml"}, "--output: open"},
		"no definitions":              {[]string{"--crd-dir=nowhere"}, "--crd-dir: stat nowhere: no such file"},
		"a definition that is broken": {[]string{"--crd-dir=broken"}, "--crd-dir: read the CustomResourceDefinitions: broken/crd.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := generateRBAC(t, project, append(tt.args, "--offline")...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := os.Stat(output); err == nil {
		t.Error("it has written in spite of --strict")
	}
	binds("Role") // the project may bind it in the operator's namespace
	if _, _, err := generateRBAC(t, project, "--namespace=one", "--output="+rulesFile, "--allow-unknown", "--offline"); err != nil {
		t.Error(err)
	}
}

func TestGenerateRBAC_AsksTheClusterForKindsItDoesNotKnow(t *testing.T) {
	cfg := testenv.Config(t)
	gvk := testenv.CRD(t, cfg)
	cluster := testenv.CRD(t, cfg, testenv.WithKind("Globe"), testenv.ClusterScoped(), testenv.WithGroup(gvk.Group))
	watchesFile := project(t, gvk, cluster)
	t.Setenv("KUBECONFIG", testenv.Kubeconfig(t, cfg))
	stdout, stderr, err := generateRBAC(t, filepath.Dir(watchesFile), "--namespace=here")
	if err != nil || stderr != "" {
		t.Fatalf("%v\n%s", err, stderr)
	}
	role, global, _ := strings.Cut(stdout, "kind: ClusterRole")
	if !strings.Contains(role, "resources: [widgets]\n") || !strings.Contains(global, "resources: [globes]\n") {
		t.Errorf("it writes\n%s", stdout)
	}
	t.Setenv("KUBECONFIG", "nowhere")
	stdout, stderr, err = generateRBAC(t, filepath.Dir(watchesFile), "--allow-unknown")
	if err != nil || !strings.Contains(stderr, "the cluster was not asked for kinds: read kubeconfig (KUBECONFIG=nowhere)") || !strings.Contains(stderr, "not known: watches.yaml:1: the resource name of the watched kind") {
		t.Errorf("without a cluster: %v\n%s%s", err, stdout, stderr)
	}
}
