package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	gvk "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// operator-sdk makes projects without a domain, and with names of 63 characters.
func TestRead_OfAProjectOfOperatorSDK(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("n", 63)
	write := func(text string) { must.Do(t, os.WriteFile(filepath.Join(dir, projectFile), []byte(text), 0o600)) }
	write("layout:\n  - ansible.sdk.operatorframework.io/v1\nprojectName: " + name + "\nversion: \"3\"\n")
	p := must.Get(Read(dir))(t)
	k := Kind{Project: p, Version: "v1", Kind: "Site", Role: "site"}
	if err := k.Validate(); err == nil || !strings.Contains(err.Error(), "--group is empty: the project has no domain") {
		t.Error(err)
	}
	k.Group = "web.example.com"
	must.Do(t, k.Validate())
	for _, f := range must.Get(p.Files())(t) {
		if strings.HasSuffix(f.Path, ".clusterserviceversion.yaml") && !strings.Contains(f.Text, " https://example.com\n") {
			t.Errorf("no site in\n%s", f.Text)
		}
	}
	p = k.addTo(p)
	if f := must.Get(p.file())(t); k.FullGroup() != "web.example.com" || strings.Contains(f.Text, "domain") {
		t.Errorf("%s in\n%s", k.FullGroup(), f.Text)
	}
	if of, known := p.kindOf(watches.Watch{GVK: gvk.GroupVersionKind{Group: "web.example.com", Version: "v1", Kind: "Site"}}); !known || of.Sample() != k.Sample() {
		t.Errorf("the kind is not known: %+v", of)
	}
	for wrong, want := range map[string]string{"projectName: a\ndomain: A_B\n": "--domain", "projectName: " + name + "n\n": "--name"} {
		write(wrong)
		if _, err := Read(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}

func TestPodLabels_AreThoseOfTheDeployment(t *testing.T) {
	dir := t.TempDir()
	if _, ok, err := PodLabels(dir); ok || err != nil {
		t.Error(ok, err)
	}
	must.Get(Write(dir, []File{{Path: manager, Text: "kind: Namespace\n---\nkind: Deployment\nspec: {template: {metadata: {labels: {control-plane: controller-manager}}}}\n"}}, false))(t)
	if labels, ok, err := PodLabels(dir); !ok || err != nil || labels["control-plane"] != "controller-manager" {
		t.Error(labels, ok, err)
	}
}
