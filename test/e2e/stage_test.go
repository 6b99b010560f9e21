package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// stage belongs to one test: a namespace, an operator project, and a runner root that outlives the operators that are
// started on it one after the other.
type stage struct {
	t         *testing.T
	cfg       *rest.Config
	namespace string
	dir       string // the project, and the operators' working directory
	root      string // the runner root
	env       []string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	cfg := testenv.Config(t)
	s := &stage{t: t, cfg: cfg, namespace: testenv.Namespace(t, cfg), dir: t.TempDir()}
	s.root = filepath.Join(t.TempDir(), "runner")
	s.env = append(cleanEnvironment(),
		"KUBECONFIG="+testenv.Kubeconfig(t, cfg), "WATCH_NAMESPACE="+s.namespace, "ANSIBLE_GATHERING=explicit")
	return s
}

// cleanEnvironment returns the environment of this process without what would configure an operator or Ansible: a test
// sets what it depends on.
func cleanEnvironment() []string {
	prefixes := []string{"ANSIBLE_", "ROLEWRIGHT_", "K8S_AUTH_", "KUBE", "WATCH_NAMESPACE=", "OPERATOR_NAME=", "MAX_CONCURRENT_", "WORKER_"}
	return slices.DeleteFunc(os.Environ(), func(entry string) bool {
		return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(entry, prefix) })
	})
}

// write creates a file of the project, with its directories.
func (s *stage) write(path, content string) {
	s.t.Helper()
	path = filepath.Join(s.dir, path)
	must.Do(s.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must.Do(s.t, os.WriteFile(path, []byte(content), 0o600))
}

// role creates a role with one task file.
func (s *stage) role(name, tasks string) {
	s.t.Helper()
	s.write("roles/"+name+"/tasks/main.yml", tasks)
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+by) + "\n"
}

// watch adds a watch of k to the project's watches.yaml; lines are its further fields.
func (s *stage) watch(k kind, lines ...string) {
	s.t.Helper()
	path := filepath.Join(s.dir, "watches.yaml")
	before, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	entry := fmt.Sprintf("- group: %s\n  version: %s\n  kind: %s\n%s",
		k.gvk.Group, k.gvk.Version, k.gvk.Kind, indent(strings.Join(lines, "\n"), "  "))
	s.write("watches.yaml", string(before)+entry)
}

// runs returns the runs that have left a directory, unordered: those of an object, or all.
func (s *stage) runs(of ...object) []string {
	s.t.Helper()
	uid := "*"
	if len(of) > 0 {
		uid = string(of[0].GetUID())
	}
	paths := must.Get(filepath.Glob(filepath.Join(s.root, ".runs", uid, "[0-9a-f]*")))(s.t)
	for i, path := range paths {
		paths[i] = filepath.Base(path)
	}
	return paths
}

// awaitNoRuns waits until there are none.
func (s *stage) awaitNoRuns(of ...object) {
	s.t.Helper()
	testenv.Eventually(s.t, "the directories of runs gone", func(context.Context) error {
		if left := s.runs(of...); len(left) > 0 {
			return fmt.Errorf("left: %v", left)
		}
		return nil
	})
}
