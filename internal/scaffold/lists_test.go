package scaffold

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A project that operator-sdk has made has lists without indentation.
func TestInsert_WritesListsAsTheFileDoes(t *testing.T) {
	const marker = "# +kubebuilder:scaffold:x"
	for file, want := range map[string]string{
		"resources:\n- a\n" + marker + "\n":   "resources:\n- a\n- b\n" + marker + "\n",
		"resources:\n  - a\n" + marker + "\n": "resources:\n  - a\n  - b\n" + marker + "\n",
		"resources:\n  - a":                   "resources:\n  - a\n  - b\n",
		"resources:\n  - a\nlabels: {}\n":     "resources:\n  - a\n  - b\nlabels: {}\n",
		"resources: []\n" + marker + "\n":     "resources:\n  - b\n" + marker + "\n",
		"resources: []\nlabels: {}\n":         "resources:\n  - b\nlabels: {}\n",
		"---\nresources:\nlabels: {}\n":       "---\nresources:\n  - b\nlabels: {}\n",

		"resources: [a, c] # x\n" + marker + "\n":      "resources: [b, a, c] # x\n" + marker + "\n",
		"# é\nresources: [\n  a, # x\n]\nlabels: {}\n": "# é\nresources: [b, \n  a, # x\n]\nlabels: {}\n",
		"labels: {} # x\n":                             "labels: {} # x\nresources:\n  - b\n",
		"resources:\n    -   a\n":                      "resources:\n    -   a\n    - b\n",

		"resources:\n  - a\npatches:\n- path: x\n":                 "resources:\n  - a\n  - b\npatches:\n- path: x\n",
		"resources:\n- a\n" + marker + "\npatches:\n  - path: x\n": "resources:\n- a\n- b\n" + marker + "\npatches:\n  - path: x\n",
	} {
		e := entry{"kustomization.yaml", marker, "", "  - b\n"}
		if got, err := e.addTo(file); err != nil || got != want {
			t.Errorf("%q: %v, %q, want %q", file, err, got, want)
		}
	}
}

// watches.yaml keeps its form and its content. If an entry cannot be added, the error says so.
func TestEntry_OfWatches(t *testing.T) {
	e := entry{"watches.yaml", "# +kubebuilder:scaffold:watch", "", "- kind: B\n  # Why.\n  role: b\n"}
	for file, want := range map[string]string{
		"---\n# Ours.\n  - kind: A # x\n    role: a\n# +kubebuilder:scaffold:watch\n": "---\n# Ours.\n  - kind: A # x\n    role: a\n" +
			"  - kind: B\n    # Why.\n    role: b\n# +kubebuilder:scaffold:watch\n",
		"  - kind: A":                       "  - kind: A\n  - kind: B\n    # Why.\n    role: b\n",
		"---\n[] # none\n":                  "---\n # none\n- kind: B\n  # Why.\n  role: b\n",
		"[{kind: A}]\n":                     "[{kind: B, role: b}, {kind: A}]\n",
		"# None.\n":                         "# None.\n- kind: B\n  # Why.\n  role: b\n",
		"- kind: A\n...\n":                  "watches.yaml: the entry cannot be added: ",
		"- kind: A\n---\n- kind: C\n":       "watches.yaml: the entry cannot be added: the layout of the file is not recognized; add it to the list by hand, and repeat the command:\n" + e.text,
		"kind: A\n":                         "watches.yaml: the entry cannot be added: ",
		"- &a {kind: A}\n- *a\n# the end\n": "- &a {kind: A}\n- *a\n# the end\n- kind: B\n  # Why.\n  role: b\n",
	} {
		got, err := e.addTo(file)
		if refused := strings.HasPrefix(want, "watches.yaml"); refused && (err == nil || !strings.HasPrefix(err.Error(), want)) || !refused && (err != nil || got != want) {
			t.Errorf("%q: %v, %q, want %q", file, err, got, want)
		}
	}
}

// A list contains a kind if it contains the whole name of the kind. The order of keys in watches.yaml does not matter.
func TestKind_ListsHaveItOnce(t *testing.T) {
	for _, e := range (Kind{Project: Project{Domain: "example.com"}, Group: "db", Version: "v1", Kind: "App"}).entries("db.example.com_apps.yaml", "db_v1_app.yaml") {
		others := "resources:\n  - bases/mydb.example.com_apps.yaml\n  - mydb_v1_app.yaml\n  - webapp_editor_role.yaml\n"
		all := must.Get(e.addTo(others))(t)
		for _, text := range []string{all, strings.ReplaceAll(all, "  - ", "  # - ./")} {
			if again := must.Get(e.addTo(text))(t); text == others || again != text {
				t.Errorf("%s:\n%s\nafter\n%s", e.path, again, text)
			}
		}
	}
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "watches.yaml"), []byte("- version: v1\n  group: db.example.com\n  kind: App\n  role: app\n"), 0o600))
	k := Kind{Project: Project{Domain: "example.com"}, Group: "db", Version: "v1", Kind: "App", Role: "app"}
	if has := must.Get(k.watched(dir))(t); !has {
		t.Error("a watch in another order is not known")
	}
	k.Version = "v2"
	if has := must.Get(k.watched(dir))(t); has {
		t.Error("another version is taken for the kind")
	}
}

// A kind may have several watches with selectors. One of them must run the content that is asked for.
func TestKind_IsWatchedByOneOfSeveral(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must.Write(t, dir, map[string]string{"watches.yaml": "- {group: g, version: v1, kind: Tea, role: small}\n- {group: g, version: v1, kind: Tea, role: large}\n"})
	for role, said := range map[string]string{"small": "", "large": "", "other": "watches.yaml:1: "} {
		has, err := Kind{Group: "g", Version: "v1", Kind: "Tea", Role: role}.watched(dir)
		if !has || (err == nil) != (said == "") || err != nil && !strings.HasPrefix(err.Error(), said) {
			t.Errorf("%s: %t, %v", role, has, err)
		}
	}
}
