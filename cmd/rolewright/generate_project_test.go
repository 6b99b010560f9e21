package main

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
)

// textsIn returns the files below a directory by their paths.
func textsIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		texts[path] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// If a project has lost its config directory, generate manifests writes it as init and create api would.
func TestGenerateManifests_WritesWhatIsMissingAndKeepsWhatDiffers(t *testing.T) {
	scaffolded(t)
	if code, _, stderr := invoke("rolewright", "create", "api", "--group", "net", "--version", "v1", "--kind", "Zone", "--cluster-scoped", "--playbook", "playbooks/zone.yml"); code != 0 {
		t.Fatal(stderr)
	}
	want := textsIn(t, "config")
	generate := func(code int, args ...string) (stdout, stderr string) {
		t.Helper()
		got, stdout, stderr := invoke(append([]string{"rolewright", "generate", "manifests"}, args...)...)
		if got != code {
			t.Errorf("%q: code %d, want %d\n%s%s", args, got, code, stdout, stderr)
		}
		return stdout, stderr
	}
	generate(0, "--check")
	must.Do(t, os.RemoveAll("config"))
	generate(0)
	if diff := cmp.Diff(want, textsIn(t, "config")); diff != "" {
		t.Errorf("-had +has: %s", diff)
	}

	const changed, lost, list = "config/manager/manager.yaml", "config/rbac/role_binding.yaml", "config/crd/kustomization.yaml"
	replaceIn(t, changed, "cpu: 10m", "cpu: 20m")
	replaceIn(t, list, "  - bases/net.example.com_zones.yaml\n", "")
	must.Do(t, os.Remove(lost))
	before := textsIn(t, "config")
	generate(1, "--check")
	if diff := cmp.Diff(before, textsIn(t, "config")); diff != "" {
		t.Errorf("--check writes: %s", diff)
	}
	stdout, stderr := generate(1)
	if !strings.Contains(stdout, "-              cpu: 20m\n+              cpu: 10m\n") || !strings.Contains(stderr, changed) {
		t.Errorf("%s%s", stdout, stderr)
	}
	now := maps.Clone(want)
	now[changed] = before[changed]
	if diff := cmp.Diff(now, textsIn(t, "config")); diff != "" {
		t.Errorf("-want +has: %s", diff)
	}
	generate(0, "--force")
	if diff := cmp.Diff(want, textsIn(t, "config")); diff != "" {
		t.Errorf("--force: -want +has: %s", diff)
	}
}

// If the resource of a watched kind is not known, the role is written without it, and the command fails.
func TestGenerateManifests_AKindWhoseResourceIsNotKnown(t *testing.T) {
	scaffolded(t)
	replaceIn(t, "watches.yaml", "role: web", "role: web\n  triggers: [{group: a.b, version: v1, kind: Cup, selector: {}}]")
	for _, args := range [][]string{{}, {"--check"}} {
		code, _, stderr := invoke(append([]string{"rolewright", "generate", "manifests"}, args...)...)
		if code != 1 || !strings.Contains(stderr, "a.b/v1, Kind=Cup") || !strings.Contains(stderr, "the operator cannot work with this role") {
			t.Errorf("%q: code %d\n%s", args, code, stderr)
		}
	}
}

// If a watch makes Jobs, the project gets what they need, and the operator starts as config/default deploys it.
func TestGenerateManifests_Jobs(t *testing.T) {
	scaffolded(t)
	run := func(args ...string) {
		t.Helper()
		if code, stdout, stderr := invoke(append([]string{"rolewright"}, args...)...); code != 0 {
			t.Fatalf("%q: code %d\n%s%s", args, code, stdout, stderr)
		}
	}
	const manager, rules = "config/manager/manager.yaml", "config/rbac/role.yaml"
	before := textsIn(t, "config")
	replaceIn(t, "watches.yaml", "role: web", "role: web\n  executor: job")
	run("generate", "rbac", "--offline", "--allow-unknown", "--output", rules) // as make generate does
	if !strings.Contains(textsIn(t, "config")[rules], "manager-role-jobs") {
		t.Error("generate rbac writes no Role")
	}
	run("generate", "manifests")
	run("generate", "manifests", "--check")
	run("lint", "--strict", "--syntax-check=false")
	run("generate", "rbac", "--offline", "--allow-unknown", "--output", rules)

	after := textsIn(t, "config")
	if text := after["config/jobs/service.yaml"]; !strings.Contains(text, "app.kubernetes.io/name: shop\n") {
		t.Errorf("the Service is\n%s", text)
	}
	for path, want := range map[string]string{
		rules:                               before[rules], // the Role is in config/jobs
		manager:                             strings.Replace(before[manager], "            - --leader-elect\n", "            - --job-url=https://shop-runs:8444\n            - --leader-elect\n", 1),
		"config/default/kustomization.yaml": strings.Replace(before["config/default/kustomization.yaml"], "  - ../manager\n", "  - ../manager\n  - ../jobs\n", 1),
	} {
		if diff := cmp.Diff(want, after[path]); diff != "" {
			t.Errorf("%s: -want +has: %s", path, diff)
		}
	}

	// What people have written stays. A flag that they set elsewhere is not set twice.
	must.Do(t, os.WriteFile(manager, []byte(strings.Replace(before[manager], "cpu: 10m", "cpu: 20m", 1)), 0o600))
	must.Do(t, os.WriteFile("config/default/patch.yaml", []byte("- op: add\n  path: /spec/template/spec/containers/0/args/-\n  value: --job-url=https://other:8444\n"), 0o600))
	if code, _, _ := invoke("rolewright", "generate", "manifests"); code != 1 || strings.Contains(textsIn(t, "config")[manager], "--job-url") {
		t.Errorf("with a patch: code %d\n%s", code, textsIn(t, "config")[manager])
	}
	must.Do(t, os.Remove("config/default/patch.yaml"))
	invoke("rolewright", "generate", "manifests")
	if text := textsIn(t, "config")[manager]; !strings.Contains(text, "cpu: 20m") || !strings.Contains(text, "--job-url=https://shop-runs:8444\n") {
		t.Errorf("a file that was changed is\n%s", text)
	}
}

// luaValue converts a value of JSON to Lua.
func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case map[string]any:
		table := l.NewTable()
		for key, inner := range v {
			table.RawSetString(key, luaValue(l, inner))
		}
		return table
	case []any:
		table := l.NewTable()
		for _, inner := range v {
			table.Append(luaValue(l, inner))
		}
		return table
	case string:
		return lua.LString(v)
	case float64:
		return lua.LNumber(v)
	case bool:
		return lua.LBool(v)
	}
	return lua.LNil
}

// The script runs in Argo CD's interpreter, on statuses that the operator writes.
func TestGenerateHealthLua_JudgesWhatTheOperatorWrites(t *testing.T) {
	scaffolded(t)
	code, stdout, stderr := invoke("rolewright", "generate", "health-lua", "Web")
	var config struct{ Data map[string]string }
	if err := yaml.Unmarshal([]byte(stdout), &config); err != nil || code != 0 {
		t.Fatalf("code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	script := config.Data["resource.customizations.health.apps.example.com_Web"]
	if _, alone, _ := invoke("rolewright", "generate", "health-lua", "-o", "lua"); alone != script || script == "" {
		t.Errorf("the script alone is another one:\n%s", alone)
	}
	health := func(object map[string]any) string {
		data := must.Get(json.Marshal(object))(t)
		var plain any
		must.Do(t, json.Unmarshal(data, &plain))
		l := lua.NewState(lua.Options{SkipOpenLibs: true})
		defer l.Close()
		lua.OpenBase(l)
		l.SetTop(0)
		l.SetGlobal("obj", luaValue(l, plain))
		must.Do(t, l.DoString(script))
		table, ok := l.Get(1).(*lua.LTable)
		if !ok {
			t.Fatalf("it returns %v", l.Get(1))
		}
		if message := table.RawGetString("message"); message.Type() != lua.LTString || message.String() == "" {
			t.Errorf("no message for %s", data)
		}
		return table.RawGetString("status").String()
	}
	wanted := []string{
		"Progressing", "Healthy", "Healthy", "Progressing", "Degraded", "Degraded", "Degraded", "Degraded", "Progressing", "Progressing",
		"Healthy", "Progressing", "Healthy", "Healthy", // checks
		"Progressing", "Healthy", "Progressing", "Progressing", "Suspended", "Healthy",
	}
	must.Be(t, "number of statuses", len(wanted), len(situations()))
	for i, s := range situations() {
		meta := map[string]any{"generation": 3}
		if strings.Contains(s.title, "inalizer") {
			meta["deletionTimestamp"] = "2026-05-06T07:08:09Z"
		}
		if got := health(map[string]any{"metadata": meta, "status": s.status}); got != wanted[i] {
			t.Errorf("%s: %s, want %s", s.title, got, wanted[i])
		}
		meta["generation"] = 4 // the spec has changed since
		if got := health(map[string]any{"metadata": meta, "status": s.status}); got != "Progressing" {
			t.Errorf("%s, of the generation before: %s", s.title, got)
		}
	}
	if got := health(map[string]any{"metadata": map[string]any{"generation": 1}}); got != "Progressing" {
		t.Errorf("without a status: %s", got)
	}
}
