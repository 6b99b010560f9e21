package rbac

import (
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	godiff "github.com/google/go-cmp/cmp"
	"k8s.io/client-go/discovery"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

var update = flag.Bool("update", false, "write the golden files again")

func TestMain(m *testing.M) { testenv.Main(m) }

// served returns the resources of Kubernetes' own groups, from the discovery of the tests' control plane.
func served(t *testing.T) Catalog {
	t.Helper()
	client := must.Get(discovery.NewDiscoveryClientForConfig(testenv.Config(t)))(t)
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}
	c := slices.DeleteFunc(FromDiscovery(lists), func(r Resource) bool {
		return strings.Contains(r.Group, ".") && !strings.HasSuffix(r.Group, ".k8s.io") || r.Group == "kwok.x-k8s.io"
	})
	slices.SortFunc(c, func(a, b Resource) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Name, b.Name)) })
	return c
}

func TestBuiltin_IsWhatAnAPIServerTells(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("[")
	for i, r := range served(t) {
		line := must.Get(json.Marshal(r))(t)
		if i > 0 {
			text.WriteString(",")
		}
		text.WriteString("\n" + string(line))
	}
	text.WriteString("\n]\n")
	must.Golden(t, *update, "kinds.json", text.String())
}

func TestCatalog_FindsAKindByItsNames(t *testing.T) {
	t.Parallel()
	c := must.Get(Builtin())(t)
	for _, tt := range []struct {
		apiVersion, kind string
		want             string // GROUP/NAME; empty if there is none
		namespaced       bool
	}{
		{"apps/v1", "Deployment", "apps/deployments", true},
		{"apps/v1", "deploy", "apps/deployments", true},
		{"apps/v1", "deployments", "apps/deployments", true},
		{"apps/v1beta2", "Deployment", "apps/deployments", true}, // an older version of the same resource
		{"v1", "Endpoints", "/endpoints", true},
		{"v1", "Namespace", "/namespaces", false},
		{"v1", "Deployment", "apps/deployments", true}, // the modules accept it like this
		{"other.io/v1", "Deployment", "", false},
		{"networking.k8s.io/v1", "NetworkPolicy", "networking.k8s.io/networkpolicies", true},
		{"rbac.authorization.k8s.io/v1", "ClusterRole", "rbac.authorization.k8s.io/clusterroles", false},
		{"a/b/c", "Deployment", "", false},
	} {
		r, ok := c.Find(tt.apiVersion, tt.kind)
		got := ""
		if ok {
			got = r.Group + "/" + r.Name
		}
		if got != tt.want || r.Namespaced != tt.namespaced {
			t.Errorf("%s %s is %q, namespaced %v; want %q, %v", tt.apiVersion, tt.kind, got, r.Namespaced, tt.want, tt.namespaced)
		}
	}
}

func TestReadDefinitions_ReadsTheShippedOnes(t *testing.T) {
	t.Parallel()
	c := must.Get(ReadDefinitions(filepath.Join("..", "..", "config", "crd")))(t)
	want := Catalog{{
		Group: "cache.example.com", Name: "memcacheds", Kind: "Memcached",
		Singular: "memcached", ShortNames: []string{"mc"}, Namespaced: true,
	}}
	if diff := godiff.Diff(want, c); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if c, err := ReadDefinitions("nowhere"); c != nil || err != nil {
		t.Errorf("of a directory that is not there: %v, %v", c, err)
	}
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "patch.yaml"), []byte("- {op: remove, path: /spec/conversion}\n"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "merge.yaml"), []byte("kind: CustomResourceDefinition\nmetadata: {name: a.b}\n"), 0o600))
	if c, err := ReadDefinitions(dir); len(c) > 0 || err != nil {
		t.Errorf("of patches of definitions: %v, %v", c, err)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "broken.yaml"), []byte("a: [\n"), 0o600))
	if _, err := ReadDefinitions(dir); err == nil || !strings.Contains(err.Error(), "broken.yaml: ") {
		t.Errorf("of a broken file: %v", err)
	}
}
