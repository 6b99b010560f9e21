package generate

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// If a watch of a project makes Jobs, the project's chart has what they need by default, and only once. This is also so
// before "generate manifests" has written it to config.
func TestScaffold_ChartWithJobs(t *testing.T) {
	dir := t.TempDir()
	output(t, dir, nil, "rolewright", "init", "--domain", "example.com", "--name", "web-operator")
	output(t, dir, nil, "rolewright", "create", "api", "--group", "web", "--version", "v1", "--kind", "Site")
	text, err := os.ReadFile(dir + "/watches.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/watches.yaml", bytes.Replace(text, []byte("  role: site\n"), []byte("  role: site\n  executor: job\n"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, dir, nil, "rolewright", "generate", "rbac", "--offline", "--allow-unknown", "--output", "config/rbac/role.yaml")
	for _, when := range []string{"before", "after"} {
		if when == "after" {
			output(t, dir, nil, "rolewright", "generate", "manifests")
		}
		generate(t, dir)
		chart := string(output(t, dir, nil, "tools/helm", "template", "release", "dist/chart", "--kube-version=1.36.0", "--namespace=shop"))
		for _, once := range []string{"  - jobs\n", "  name: release-jobs-rolebinding\n", "- --job-url=https://release-runs.shop.svc:8444\n"} {
			if got := strings.Count(chart, once); got != 1 {
				t.Errorf("%s generate manifests, the chart has %q %d times:\n%s", when, once, got, chart)
			}
		}
	}
	bundle, err := os.ReadFile(dir + "/bundle/manifests/web-operator.clusterserviceversion.yaml")
	if err != nil || !bytes.Contains(bundle, []byte("- --job-url=https://web-operator-runs:8444\n")) {
		t.Errorf("the bundle has no --job-url, %v:\n%s", err, bundle)
	}
}
