package controller

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/reference"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// A reference that a command reports, or that a status records, counts only if the watch allows it.
func TestMayReport(t *testing.T) {
	t.Parallel()
	configMaps := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	cups := schema.GroupVersionKind{Group: "g.test", Version: "v1", Kind: "Cup"}
	r := &reconciler{gvk: cups, watch: watches.Watch{
		OwnNamespaceOnly: true, References: []watches.Reference{{GVK: configMaps, Reported: true}, {GVK: cups, Reported: true}},
	}}
	s := &scope{key: types.NamespacedName{Namespace: "home", Name: "it"}, named: []reference.Reference{{GVK: configMaps, NamespacedName: types.NamespacedName{Namespace: "home", Name: "named"}}}}
	for text, problem := range map[string]string{
		"v1 ConfigMap home/a": "", "v1 ConfigMap /a": "", "g.test/v1 Cup home/other": "",
		"v1 Secret home/a":                               "no references of /v1, Kind=Secret",
		"v2 ConfigMap home/a":                            "no references of /v2, Kind=ConfigMap",
		"v1 ConfigMap away/a":                            "another namespace",
		"g.test/v1 Cup home/it":                          "for itself",
		"v1 ConfigMap home/..":                           "not a name of an object",
		"v1 ConfigMap Home/a":                            "not a name of an object",
		"v1 ConfigMap home/" + strings.Repeat("a", 254):  "not a name of an object",
		"v1 ConfigMap " + strings.Repeat("a", 64) + "/a": "not a name of an object",
	} {
		parts := strings.SplitN(text, " ", 3)
		namespace, name, _ := strings.Cut(parts[2], "/")
		err := r.mayReport(s, reference.Reference{GVK: schema.FromAPIVersionAndKind(parts[0], parts[1]), NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
		if (err == nil) != (problem == "") || err != nil && !strings.Contains(err.Error(), problem) {
			t.Errorf("%.60s: %v, want %q", text, err, problem)
		}
	}
	s.mask = redact.New()
	s.mask.Add(t.Context(), strings.Repeat("Value", 60))
	if err := r.mayReport(s, reference.Reference{GVK: configMaps, NamespacedName: types.NamespacedName{Name: strings.Repeat("Value", 60)}}); err == nil || strings.Contains(err.Error(), "Value") {
		t.Errorf("the value of a Secret is quoted: %v", err)
	}
	var got []string
	for _, ref := range r.reportedBefore(s, []string{"v1 ConfigMap home/a", "v1 Secret home/a", "v1 ConfigMap home/a", "v1 ConfigMap home/named", "v1 ConfigMap away/a", "x", "v1 ConfigMap /b"}) {
		got = append(got, recorded(ref))
	}
	must.Be(t, "what is followed of a record", []string{"v1 ConfigMap home/a", "v1 ConfigMap /b"}, got)
}
