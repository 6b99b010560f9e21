package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// Each example becomes a project as examples/README.md says, the files generated from its role are up to date, and its
// scenarios pass, all on one API server.
func TestGallery(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	binary(t)
	must.Do(t, charts())
	server := newStage(t)
	server.ownCluster()
	dir := "--dir=" + t.TempDir()
	t.Cleanup(func() { server.tool(0, "cluster", "down", dir) })
	up := server.tool(0, "cluster", "up", dir)
	kubeconfig := strings.Trim(strings.TrimPrefix(strings.TrimSpace(up), "export KUBECONFIG="), "'")

	examples := must.Get(filepath.Glob(absolute(t, "examples", "*", "PROJECT")))(t)
	if len(examples) == 0 {
		t.Fatal("there are no examples")
	}
	for _, path := range examples {
		example := filepath.Dir(path)
		t.Run(filepath.Base(example), func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			must.Do(t, os.CopyFS(s.dir, os.DirFS(example)))
			committed := s.texts()
			s.tool(0, "init")
			s.tool(0, "generate", "manifests")
			for path, text := range s.texts() {
				if was, ok := committed[path]; ok && was != text {
					t.Errorf("%s of the example is written over:\n%s", path, text)
				}
			}
			s.tool(0, "generate", "crd", "--check")
			s.tool(0, "generate", "rbac", "--offline", "--strict", "--output", "config/rbac/role.yaml")
			if s.texts()["config/rbac/role.yaml"] != committed["config/rbac/role.yaml"] {
				t.Error(`config/rbac/role.yaml is not up to date: run "rolewright generate rbac --offline --output config/rbac/role.yaml" there`)
			}
			s.tool(0, "lint", "--strict")
			if filepath.Base(example) == "microservice" {
				return // docs/microservice.md plays its scenarios, and test/docs the page
			}
			s.env = append(slices.Clip(s.env), "KUBECONFIG="+kubeconfig)
			t.Log(s.tool(0, "test", "--current-cluster", "--step-timeout=10m", "--runner-root="+s.root))
		})
	}
}
