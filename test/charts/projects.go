package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is the one that has helm-operator.
const module = "github.com/operator-framework/operator-sdk@v1.42.3"

// theirs is helm-operator, built of its module, and the directory of its test projects.
func (b *bench) theirs(ctx context.Context) (binary, samples string, err error) {
	if binary = os.Getenv("HELM_OPERATOR"); binary == "" {
		cmd := exec.CommandContext(ctx, "go", "install", strings.Replace(module, "@", "/cmd/helm-operator@", 1))
		cmd.Env = append(os.Environ(), "GOBIN="+b.dir, "CGO_ENABLED=0", "GOFLAGS=-p=2")
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", "", fmt.Errorf("go install: %w: %s", err, last(out))
		}
		binary = filepath.Join(b.dir, "helm-operator")
	}
	out, err := exec.CommandContext(ctx, "go", "mod", "download", "-json", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("go mod download: %w", err)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		return "", "", err
	}
	return binary, filepath.Join(m.Dir, "testdata", "helm"), nil
}

func last(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// project is a chart project: a directory with watches.yaml and helm-charts, and the kind of its one watch.
type project struct {
	name, dir string
	kind      string
	spec      map[string]any
	// change is merged into the spec.
	change map[string]any
}

// group is that of the kinds of the projects, if they have none of their own.
const group = "compare.rolewright.test"

// projects are those of helm-operator's module, of Helm's starter chart, and of the charts of this repository.
func (b *bench) projects(ctx context.Context, samples string) ([]project, error) {
	var all []project
	add := func(chart, kind string, spec, change map[string]any) error {
		p := project{name: filepath.Base(chart), dir: filepath.Join(b.dir, "project-"+strings.ToLower(kind)), kind: kind, spec: spec, change: change}
		charts := filepath.Join(p.dir, "helm-charts", p.name)
		if err := os.CopyFS(charts, os.DirFS(chart)); err != nil {
			return err
		}
		all = append(all, p)
		watches := fmt.Sprintf("- group: %s\n  version: v1\n  kind: %s\n  chart: helm-charts/%s\n", group, kind, p.name)
		return os.WriteFile(filepath.Join(p.dir, "watches.yaml"), []byte(watches), 0o600)
	}
	none, more := map[string]any{}, map[string]any{"replicaCount": int64(2)}
	if samples != "" {
		if err := add(filepath.Join(samples, "memcached-operator/helm-charts/memcached"), "Memcached", none, more); err != nil {
			return nil, err
		}
	}
	helm, err := filepath.Abs(b.helm)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, helm, "create", "starter")
	cmd.Dir = b.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("helm create: %w: %s", err, last(out))
	}
	if err := add(filepath.Join(b.dir, "starter"), "Starter", none, more); err != nil {
		return nil, err
	}
	if b.own == "" {
		return all, nil
	}
	return all, add(b.own, "Own", map[string]any{"image": "example"}, map[string]any{"replicas": int64(3)}) // without an autoscaler, which changes objects when it likes
}
