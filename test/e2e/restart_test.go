package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// lastRuns are the IDs of the recorded runs of objects, by their names.
func lastRuns(k kind, names []string) map[string]string {
	k.t.Helper()
	ids := map[string]string{}
	for _, name := range names {
		ids[name] = k.get(name).lastRun().ID
	}
	return ids
}

func TestRestart_ConvergedObjectsRunNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("one", "- name: Say it\n  ansible.builtin.debug:\n    msg: \"{{ size }}\"\n")
	s.watch(k, "role: one")

	const n = 12
	first := s.start()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("o%02d", i))
		k.create(names[i], map[string]any{"size": int64(1)})
	}
	for _, name := range names {
		k.awaitReady(name)
	}
	first.stop()
	want := lastRuns(k, names)
	if ran := len(s.runs()); ran != n {
		t.Fatalf("%d runs for %d new objects", ran, n)
	}

	s.env = append(s.env, "HOSTNAME=another-pod", "TEA_SERVICE_HOST=10.0.0.7", "TEA_PORT=tcp://10.0.0.7:80")
	second := s.start()
	second.awaitDecided(k, n)
	second.stop()
	if diff := cmp.Diff(want, lastRuns(k, names)); diff != "" {
		t.Errorf("recorded runs after a restart (-want +got):\n%s", diff)
	}
	if ran := len(s.runs()); ran != n {
		t.Errorf("%d runs after a restart in which nothing was changed, want %d", ran, n)
	}

	k.patch(names[7], `{"spec":{"size":2}}`)
	third := s.start()
	changed := k.awaitReady(names[7])
	third.awaitDecided(k, n-1)
	third.stop()
	if cause := changed.lastRun().Cause; cause != "changed" {
		t.Errorf("the changed object ran for %q", cause)
	}
	want[names[7]] = changed.lastRun().ID
	if diff := cmp.Diff(want, lastRuns(k, names)); diff != "" {
		t.Errorf("recorded runs after one object was changed (-want +got):\n%s", diff)
	}
	if ran := len(s.runs()); ran != n+1 {
		t.Errorf("%d runs after one object was changed while the operator was away, want %d", ran, n+1)
	}
}

func TestRestart_ChangedContentRunsEveryObjectOnce(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		watch string
		file  string // what is changed
		env   string // a variable that is set
	}{
		{"role", "role: one", "roles/one/tasks/main.yml", ""},
		{"role that the playbook uses", "playbook: play.yml", "roles/one/tasks/main.yml", ""},
		{"playbook", "playbook: play.yml", "play.yml", ""},
		{"environment", "role: one", "", "DEFAULT_TEA_VERSION=2"},
		{"inputs", "role: one\ninputs: {files: [DIR/mounted/*]}", "mounted/vars.yml", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(t)
			k := s.kind()
			files := map[string]string{
				"roles/one/tasks/main.yml": "- name: Say it\n  ansible.builtin.debug:\n    msg: done\n",
				"play.yml":                 "- hosts: localhost\n  gather_facts: false\n  roles:\n    - one\n",
			}
			for path, content := range files {
				s.write(path, content)
			}
			s.watch(k, strings.ReplaceAll(tt.watch, "DIR", s.dir))
			o := s.start()
			names := []string{"a", "b"}
			for _, name := range names {
				k.create(name, nil)
			}
			for _, name := range names {
				k.awaitReady(name)
			}
			o.stop()

			if tt.file != "" {
				s.write(tt.file, files[tt.file]+"# changed\n")
			} else {
				s.env = append(s.env, tt.env)
			}
			o = s.start()
			for _, name := range names {
				ran := k.await(name, "run for the new content", func(o object) bool { return o.ready() && o.lastRun().Cause == "content" })
				if got := len(s.runs(ran)); got != 2 {
					t.Errorf("%s has %d runs, want 2", name, got)
				}
			}
			o.stop()
		})
	}
}
