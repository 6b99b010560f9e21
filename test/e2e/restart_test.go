package e2e

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/test/testenv"
)

// A role that the playbook uses is an input. What the new Pod's environment has of its own is none.
func TestRestart_ChangedContentRunsEveryObjectOnce(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	const tasks = "- rolewright.operator.trigger_info:\n  register: why\n- rolewright.operator.status: {fields: {why: '{{ why.trigger }}'}}\n"
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

	changes := []struct {
		name           string
		make           func()
		ran            int // how many objects run again
		cause, trigger string
	}{
		{"role", func() { s.role("one", tasks+"# changed\n") }, len(names), "content", "content: roles and playbooks"},
		{"place", func() {
			s.env = append(s.env, "HOSTNAME=another-pod", "TEA_SERVICE_HOST=10.0.0.7", "TEA_PORT=tcp://10.0.0.7:80")
		}, 0, "", ""},
	}
	for _, change := range changes {
		before := len(s.runs())
		change.make()
		o = s.start()
		if change.ran > 0 {
			testenv.Eventually(t, "the runs for the changed "+change.name, func(context.Context) error {
				if got := len(s.runs()) - before; got < change.ran {
					return fmt.Errorf("%d runs", got)
				}
				return nil
			})
			for _, name := range names {
				is := k.await(name, "run for the changed "+change.name, func(o object) bool { return o.ready() && o.lastRun().Cause == change.cause })
				why, _, _ := unstructured.NestedString(is.Object, "status", "why")
				if is.lastRun().Trigger != change.trigger || why != change.trigger {
					t.Errorf("%s: the status says %q and the role is told %q, want %q", change.name, is.lastRun().Trigger, why, change.trigger)
				}
			}
		}
		o.awaitDecided(k, len(names)-change.ran)
		o.stop()
		if got := len(s.runs()) - before; got != change.ran {
			t.Errorf("%s: %d runs, want %d", change.name, got, change.ran)
		}
	}
}
