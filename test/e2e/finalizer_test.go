package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const finalizerName = "example.com/finalizer"

// noteTask writes the input of the run into $NOTES/<object>: "main" by default.
const noteTask = `- name: Take a note
  ansible.builtin.copy:
    content: "{{ note | default('main') }}"
    dest: "{{ lookup('env', 'NOTES') }}/{{ ansible_operator_meta.name }}"
    mode: "0600"
`

// notes gives the roles of a stage a directory to write to, and returns a function that reads the note of an object.
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
	k := s.kind()
	s.role("main", noteTask)
	s.role("farewell", strings.Replace(noteTask, "'main'", "'farewell role' ~ more", 1))
	s.watch(k, "role: main", "finalizer: {name: "+finalizerName+", role: farewell, vars: {more: ' with vars'}}")
	o := s.start()
	k.create("it", nil)
	made := k.awaitReady("it")
	if !slices.Contains(made.GetFinalizers(), finalizerName) {
		t.Errorf("finalizers of a living object are %v", made.GetFinalizers())
	}
	if got := note("it"); got != "main" {
		t.Errorf("note of the run for the living object = %q", got)
	}
	k.delete("it")
	k.awaitGone("it")
	if got := note("it"); got != "farewell role with vars" {
		t.Errorf("note of the finalizer run = %q", got)
	}
	o.stop()
}
