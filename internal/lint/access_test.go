package lint

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// requirements.yml may be a list, which then contains roles. A line of a task may have any length.
func TestCollections_OfAListAndOfLongLines(t *testing.T) {
	t.Parallel()
	playbook := write(t, "site.yml", "- hosts: all\n  tasks:\n    - debug: {msg: "+strings.Repeat("x", 100<<10)+"}\n    - community.general.ini_file: {path: x}\n")
	for text, want := range map[string]int{"- name: some.role\n": 1, "": 1, "collections: [community.general]\n": 0} {
		found := must.Get(Collections(playbook, write(t, "requirements.yml", text)))(t)
		if len(found) != want || want == 1 && found[0].Line != 4 {
			t.Errorf("%q: %+v", text, found)
		}
	}
	if _, err := Collections(filepath.Join(t.TempDir(), "gone"), write(t, "requirements.yml", "x\n")); err == nil {
		t.Error("a text is taken for requirements")
	}
}
