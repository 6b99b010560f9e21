//go:build e2e

package cluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// deploy installs the operator of a project with the project's own Makefile. `make e2e` has created the project below
// bin/image, and built its image.
func deploy(t *testing.T, project, operator, image string) *shell {
	t.Helper()
	bin := must.Get(filepath.Abs(filepath.Join(repository, "bin")))(t)
	s := &shell{dir: filepath.Join(bin, "image", project)}
	deploy := exec.Command("make", "deploy", "IMG="+image)
	deploy.Dir = s.dir
	deploy.Env = append(os.Environ(), "PATH="+bin+":"+filepath.Join(bin, "tools")+":"+os.Getenv("PATH"))
	if out, err := deploy.CombinedOutput(); err != nil {
		t.Fatalf("make deploy: %v\n%s", err, out)
	}
	s.kubectl(t, "rollout", "status", "--namespace="+operator+"-system", "--timeout=600s", "deployment/"+operator+"-controller-manager")
	return s
}

// TestScaffold deploys a project of `rolewright init` and `create api`.
func TestScaffold(t *testing.T) {
	t.Parallel()
	s := deploy(t, "site-operator", "site-operator", "site-operator:v0.0.1")
	s.kubectl(t, "apply", "--kustomize", "config/samples")
	s.kubectl(t, "wait", "--for=condition=Ready", "--timeout=600s", "site/site-sample")
	text := []string{"get", "configmap/site-sample", "--ignore-not-found", "--output=jsonpath={.data.text}"}
	s.eventually(t, "the ConfigMap", s.equals("Hello", text...))
	s.kubectl(t, "delete", "--timeout=600s", "site/site-sample")
	s.eventually(t, "the ConfigMap to go", s.equals("", text...))
}
