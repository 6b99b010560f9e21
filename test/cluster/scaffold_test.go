//go:build e2e

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// TestScaffold deploys a project of `rolewright init` and `create api` with its own Makefile; `make e2e` has made the
// project, and its image with its own Dockerfile.
func TestScaffold(t *testing.T) {
	bin := must.Get(filepath.Abs(filepath.Join(repository, "bin")))(t)
	s := &shell{dir: filepath.Join(bin, "image/site-operator")}
	deploy := exec.Command("make", "deploy", "IMG=site-operator:v0.0.1")
	deploy.Dir = s.dir
	deploy.Env = append(os.Environ(), "PATH="+bin+":"+filepath.Join(bin, "tools")+":"+os.Getenv("PATH"))
	if out, err := deploy.CombinedOutput(); err != nil {
		t.Fatalf("make deploy: %v\n%s", err, out)
	}
	s.kubectl(t, "rollout", "status", "--namespace=site-operator-system", "--timeout=120s", "deployment/site-operator-controller-manager")
	s.kubectl(t, "apply", "--kustomize", "config/samples")
	s.kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "site/site-sample")
	text := []string{"get", "configmap/site-sample", "--ignore-not-found", "--output=jsonpath={.data.text}"}
	s.eventually(t, "the ConfigMap", s.equals("Hello", text...))
	s.kubectl(t, "delete", "--timeout=120s", "site/site-sample")
	s.eventually(t, "the ConfigMap to go", s.equals("", text...))
}
