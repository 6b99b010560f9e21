package controller

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

func TestValuesAt(t *testing.T) {
	tree := map[string]any{
		"database": map[string]any{"password": "one", "port": int64(5432), "on": true, "empty": nil},
		"users":    []any{map[string]any{"name": "a", "token": "two"}, map[string]any{"token": 1234567.5}, "three"},
		"a.b":      "four",
		"x":        map[string]any{"tls.key": "five", "tls": map[string]any{"key": "six"}},
	}
	for path, want := range map[string][]string{
		"database.password": {"one"}, "database": {"one", "5432"}, "users.token": {"two", "1234567.5", "1.2345675e+06"}, "users": {"a", "two", "1234567.5", "1.2345675e+06", "three"},
		"a.b": {"four"}, "x.tls.key": {"six", "five"},
		"missing": nil, "database.password.deeper": nil, "database.missing": nil,
	} {
		must.Be(t, path, want, valuesAt(nil, tree, strings.Split(path, ".")))
	}
}

// TestNewMasker_KnowsWhatComesWithTheObject: the masker knows the values of a watched Secret, and what secretVars names
// in the object, in its spec and in the variables of the watch.
func TestNewMasker_KnowsWhatComesWithTheObject(t *testing.T) {
	object := map[string]any{
		"data": map[string]any{"password": base64.StdEncoding.EncodeToString([]byte("in data"))}, "stringData": map[string]any{"password": "in string data"},
		"metadata": map[string]any{"annotations": map[string]any{"example.com/token": "in an annotation", "example.com/other": "is not secret"}},
		"spec":     map[string]any{"database": map[string]any{"password": "in the spec"}},
		"status":   map[string]any{"token": "in the status"},
	}
	watch := watches.Watch{
		Vars:       map[string]any{"database": map[string]any{"password": "in the variables"}},
		SecretVars: []string{"database.password", "metadata.annotations.example.com/token", "status.token"},
	}
	declared := []string{"in an annotation", "in the spec", "in the status", "in the variables"}
	for kind, want := range map[schema.GroupVersionKind][]string{
		{Version: "v1", Kind: "Secret"}:                       append([]string{"in data", "in string data"}, declared...),
		{Group: "example.com", Version: "v1", Kind: "Secret"}: declared,
	} {
		r := &reconciler{gvk: kind, watch: watch}
		m := r.newMasker(t.Context(), &scope{content: &contentVersion{secrets: &secrets{}}, log: logr.Discard(), object: &unstructured.Unstructured{Object: object}})
		var masked []string
		for _, text := range []string{"in data", "in string data", "in an annotation", "in the spec", "in the status", "in the variables", "is not secret"} {
			if m.Mask(text) == redact.Replacement {
				masked = append(masked, text)
			}
		}
		must.Be(t, kind.String(), want, masked)
	}
}

// TestLiterals_AreNamesWithoutTemplatesInTheContent: the file of a task decides, whatever its event says.
func TestLiterals_AreNamesWithoutTemplatesInTheContent(t *testing.T) {
	dir := t.TempDir()
	tasks, outside := filepath.Join(dir, "roles", "a", "tasks", "main.yml"), filepath.Join(dir, "elsewhere.yml")
	playbook := filepath.Join(dir, "playbooks", "play.yml")
	must.Write(t, "", map[string]string{
		tasks: `- name: Wait for the managed DB
  debug: {msg: managed}
- name: Create {{ user }}
- name: !unsafe managed
- {name: First, debug: {name: managed}}
- debug: {name: managed}
- block:
    - name: >-
        Wait for
        the DB
      debug:
        name: managed
`,
		outside:  "- name: Wait for the managed DB\n",
		playbook: "- name: Serve the managed DB\n  hosts: all\n  tasks:\n    - name: Wait\n- name: Serve {{ it }}\n",
		filepath.Join(dir, "roles", "a", "tasks", "broken.yml"): "- name: {{ x }}\n",
	})
	must.Do(t, os.Symlink(outside, filepath.Join(dir, "roles", "a", "tasks", "link.yml")))
	l := newLiterals(fingerprint.Roots{Trees: []string{filepath.Join(dir, "roles", "a")}, Playbooks: []string{playbook}})
	for _, tc := range []struct {
		name, place string
		want        bool
	}{
		{"Wait for the managed DB", tasks + ":1", true},
		{"Wait for the managed DB", tasks + ":3", false},
		{"Wait for the managed", tasks + ":1", false},
		{"Create {{ user }}", tasks + ":3", false},
		{"managed", tasks + ":4", false},
		{"First", tasks + ":5", true},
		{"managed", tasks + ":5", false},
		{"managed", tasks + ":6", false},
		{"Wait for the DB", tasks + ":8", true},
		{"Wait for the managed DB", outside + ":1", false},
		{"Wait for the managed DB", filepath.Dir(tasks) + "/../../../elsewhere.yml:1", false},
		{"Wait for the managed DB", filepath.Join(dir, "roles", "a", "tasks", "missing.yml") + ":1", false},
		{"{{ x }}", filepath.Join(dir, "roles", "a", "tasks", "broken.yml") + ":1", false},
		{"Wait for the managed DB", "no place", false},
		{"Serve the managed DB", "", true},
		{"Serve {{ it }}", "", false},
		{"Wait", "", false},
		{"", "", false},
	} {
		if got := l.has(tc.name, tc.place); got != tc.want {
			t.Errorf("%q at %s: %t, want %t", tc.name, tc.place, got, tc.want)
		}
	}
}

func TestCredentials_AreReadWhenTheyAreNeeded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	config := &rest.Config{BearerTokenFile: file, BearerToken: "first", Password: "pass", TLSClientConfig: rest.TLSClientConfig{KeyData: []byte("key")}}
	for _, token := range []string{"second", "third"} {
		must.Do(t, os.WriteFile(file, []byte(token), 0o600))
		must.Be(t, "credentials", []string{"first", "pass", "key", token}, credentials(config))
	}
}

// What a chart's run reads from Helm's releases hides nothing else, however large it is. A value beside it is hidden.
func TestBesideRecords(t *testing.T) {
	t.Parallel()
	m := besideRecords{&redact.Masker{}}
	for n := range 20 {
		m.Add(t.Context(), "H4sI"+strings.Repeat(string(rune('a'+n))+"bcdefg7", 1<<17), "correct-horse-"+string(rune('a'+n)))
	}
	if got := m.Mask("it says correct-horse-b"); got != "it says [masked]" {
		t.Errorf("masked to %q: %s", got, m.Withheld())
	}
	m.Add(t.Context(), "H4sIpassword")
	if got := m.Mask("it says H4sIpassword"); got != "it says [masked]" {
		t.Errorf("a short value: %q", got)
	}
}
