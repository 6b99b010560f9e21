package reference

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func TestNames(t *testing.T) {
	object := map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{"example.com/secret": "annotated"}},
		"spec": map[string]any{
			"one": "a", "empty": "", "number": int64(3), "ref": map[string]any{"name": "b", "key": "k"}, "refs": []any{"c", map[string]any{"name": "d"}, int64(1), map[string]any{"name": ""}},
			"volumes": []any{map[string]any{"secret": "e"}, map[string]any{"secret": "f"}, map[string]any{"other": "g"}},
		},
	}
	for path, want := range map[string][]string{
		"spec.one": {"a"}, "spec.empty": nil, "spec.number": nil, "spec.ref": {"b"}, "spec.ref.name": {"b"}, "spec.refs": {"c", "d"}, "spec.volumes.secret": {"e", "f"},
		"spec.missing": nil, "spec.one.deeper": nil, "metadata.annotations.example.com/secret": {"annotated"},
	} {
		must.Be(t, path, want, Names(object, path))
	}
}

func TestRead(t *testing.T) {
	fields := Fields(watches.Watch{
		References: []watches.Reference{
			{GVK: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Tea"}, FromField: "spec.teas"},
			{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, FromField: "spec.secrets", NamespaceField: "spec.where"},
		},
		VarsFrom: []watches.VarsFrom{{Secret: true, NameField: "spec.vars"}, {Name: "defaults", Namespace: "shared"}},
	})
	home, kind := types.NamespacedName{Namespace: "ns", Name: "it"}, schema.GroupKind{Group: "example.com", Kind: "Tea"}
	var many, odd []any
	for i := range 200 {
		many, odd = append(many, fmt.Sprint("s-", i)), append(odd, fmt.Sprint("/", i))
	}
	for _, tc := range []struct {
		name     string
		spec     map[string]any
		want     string
		problems string
	}{
		{"nothing", map[string]any{}, "ConfigMap shared/defaults", ""},
		{"its own namespace, and each once", map[string]any{"secrets": []any{"b", "a"}, "vars": "b"}, "ConfigMap shared/defaults, Secret ns/a, Secret ns/b", ""},
		{"another namespace, but not for variables", map[string]any{"secrets": "a", "vars": "a", "where": "other"}, "ConfigMap shared/defaults, Secret ns/a, Secret other/a", ""},
		{"itself", map[string]any{"teas": []any{"it", "green"}}, "ConfigMap shared/defaults, Tea ns/green", ""},
		{"no names", map[string]any{"secrets": []any{"a/../b", "..", "a b", strings.Repeat("a", 254), "ä", "ok"}}, "ConfigMap shared/defaults, Secret ns/ok",
			`spec.secrets: "ns/a/../b" is not a name`},
		{"a namespace that is none", map[string]any{"secrets": "a", "where": "../kube-system"}, "ConfigMap shared/defaults", `spec.secrets: "../kube-system/a" is not a name`},
		{"too many that are none", map[string]any{"secrets": odd}, "ConfigMap shared/defaults", "190 more names are not valid either"},
		{"too many", map[string]any{"secrets": many}, "", "refers to 201 others; 100 of them are followed"},
	} {
		refs, problems := Read(map[string]any{"spec": tc.spec}, home, kind, fields)
		var got []string
		for _, r := range refs {
			got = append(got, r.GVK.Kind+" "+r.String())
		}
		if s := strings.Join(got, ", "); s != tc.want && tc.want != "" {
			t.Errorf("%s: %s, want %s", tc.name, s, tc.want)
		}
		if s := strings.Join(problems, "; "); !strings.Contains(s, tc.problems) || tc.problems == "" && s != "" || len(refs) > Most || len(problems) > mostProblems+2 {
			t.Errorf("%s: %d references, problems %q", tc.name, len(refs), s)
		}
	}
}
