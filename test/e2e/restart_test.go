package e2e

import (
	"testing"
)

// Of all that a fingerprint covers, a role that the playbook uses is the furthest from the watch.
func TestRestart_ChangedContentRunsEveryObjectOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	const tasks = "- name: Say it\n  ansible.builtin.debug:\n    msg: done\n"
	s.role("one", tasks)
	s.write("play.yml", "- hosts: localhost\n  gather_facts: false\n  roles:\n    - one\n")
	s.watch(k, "playbook: play.yml")
	o := s.start()
	names := []string{"a", "b"}
	for _, name := range names {
		k.create(name, nil)
	}
	for _, name := range names {
		k.awaitReady(name)
	}
	o.stop()

	s.role("one", tasks+"# changed\n")
	o = s.start()
	for _, name := range names {
		ran := k.await(name, "run for the new content", func(o object) bool { return o.ready() && o.lastRun().Cause == "content" })
		if got := len(s.runs(ran)); got != 2 {
			t.Errorf("%s has %d runs, want 2", name, got)
		}
	}
	o.stop()
}
