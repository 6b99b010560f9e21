package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/testenv"
)

const finalizerName = "example.com/finalizer"

// noteTask writes what the run was given into $NOTES/<object>: "main" by default.
const noteTask = `- name: Take a note
  ansible.builtin.copy:
    content: "{{ note | default('main') }}"
    dest: "{{ lookup('env', 'NOTES') }}/{{ ansible_operator_meta.name }}"
    mode: "0600"
`

// notes gives the roles of a stage a directory to write into, and returns a function that reads the note of an object.
func (s *stage) notes() func(name string) string {
	s.t.Helper()
	dir := s.t.TempDir()
	s.env = append(s.env, "NOTES="+dir)
	return func(name string) string {
		s.t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !os.IsNotExist(err) {
			s.t.Fatal(err)
		}
		return string(data)
	}
}

func TestFinalizer_RunsBeforeTheObjectGoes(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	note := s.notes()
	s.role("main", noteTask)
	s.role("farewell", strings.Replace(noteTask, "'main'", "'farewell role'", 1))
	s.playbook("farewell", strings.Replace(noteTask, "'main'", "'farewell playbook'", 1))
	tests := []struct {
		name      string // also of the object
		finalizer string // its fields but the name
		want      string // the note that the finalizer run has taken
	}{
		{"role", "role: farewell", "farewell role"},
		{"playbook", "playbook: playbooks/farewell.yml", "farewell playbook"},
		{"vars", "vars: {note: vars alone run the main role}", "vars alone run the main role"},
		{"role-with-vars", "role: farewell, vars: {note: the role with vars}", "the role with vars"},
	}
	group := testenv.Random("finalizer") + ".rolewright.test"
	kinds := map[string]kind{}
	for i, tt := range tests {
		k := s.kind(testenv.WithGroup(group), testenv.WithKind("Kind"+string(rune('A'+i))))
		s.watch(k, "role: main", "finalizer: {name: "+finalizerName+", "+tt.finalizer+"}")
		kinds[tt.name] = k
	}
	o := s.start()
	for _, tt := range tests {
		kinds[tt.name].create(tt.name, nil)
	}
	for _, tt := range tests {
		made := kinds[tt.name].awaitReady(tt.name)
		if !slices.Contains(made.GetFinalizers(), finalizerName) {
			t.Errorf("%s: finalizers of a living object are %v", tt.name, made.GetFinalizers())
		}
		if got := note(tt.name); got != "main" {
			t.Errorf("%s: note of the run for the living object = %q", tt.name, got)
		}
		kinds[tt.name].delete(tt.name)
	}
	for _, tt := range tests {
		kinds[tt.name].awaitGone(tt.name)
		if got := note(tt.name); got != tt.want {
			t.Errorf("%s: note of the finalizer run = %q, want %q", tt.name, got, tt.want)
		}
	}
	o.stop()
}
