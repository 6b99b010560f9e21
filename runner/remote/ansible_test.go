package remote

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// A playbook ends the same way in a container as beside the operator, with the same events in the same order.
func TestInside_APlaybookEndsAsBesideTheOperator(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		playbook string
		want     runner.Reason
		stopped  bool // the run is stopped once it hangs
	}{
		"success with changes": {`
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: "{{ item }}"}
      loop: [1, 2]
      changed_when: true
      notify: Told
    - ansible.builtin.fail: {msg: ignored}
      ignore_errors: true
    - block: [{ansible.builtin.fail: {msg: rescued}}]
      rescue: [{ansible.builtin.set_fact: {a: 1}}]
    - ansible.builtin.debug: {msg: left out}
      when: false
  handlers:
    - name: Told
      ansible.builtin.debug: {msg: told}
`, runner.Succeeded, false},
		"a host is unreachable": {`
- hosts: localhost
  gather_facts: false
  vars: {ansible_connection: ssh, ansible_ssh_executable: "{{ playbook_dir }}/ssh"}
  tasks:
    - ansible.builtin.ping:
`, runner.Unreachable, false},
		"it is stopped": {`
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: first}
    - name: Hang
      ansible.builtin.raw: "touch {{ playbook_dir }}/hangs; exec sleep 600"
`, "", true},
		"no playbook": {"- hosts: localhost\n  tasks: [\n", runner.PlaybookInvalid, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := newRequest(t, tt.playbook)
			dir := filepath.Dir(req.Content.Playbook)
			must.Do(t, os.WriteFile(filepath.Join(dir, "ssh"), []byte("#!/bin/sh\nexit 255\n"), 0o700))
			stopped := errors.New("it has taken 1h, its timeout")
			until := func(cause error) context.Context { // the context ends with cause once the run hangs
				ctx, stop := context.WithCancelCause(t.Context())
				t.Cleanup(func() { stop(nil) })
				if tt.stopped {
					go func() {
						defer stop(cause)
						for hangs := filepath.Join(dir, "hangs"); t.Context().Err() == nil && os.Remove(hangs) != nil; {
							time.Sleep(10 * time.Millisecond)
						}
					}()
				}
				return ctx
			}
			observed := func(req runner.Request, to *[]jobevent.Event) runner.Request {
				req.OnEvent = func(e jobevent.Event) { *to = append(*to, e) }
				return req
			}
			var local, far []jobevent.Event
			here := req // in the same directory, because its path is in the events
			here.Executor, here.JobRun = runner.ExecutorRunner, nil
			r := runner.New(runner.Options{})
			t.Cleanup(r.Close)
			want, wantErr := r.Run(until(stopped), observed(here, &local))
			must.Do(t, os.RemoveAll(req.Dir))
			o := newOperator(t)
			o.start()
			s, mirrored := o.admit(t, req, "")
			ended := o.insideUntil(until(nil), t, req) // stopped by a signal
			got, err := runner.Mirrored(t.Context(), observed(mirrored, &far), s.Told, s.Done)
			o.Recorded(req.ID, "")
			if inside := <-ended; inside != nil {
				t.Errorf("the container ends with %v", inside)
			}
			// The operator knows why the run was stopped; the container does not.
			if errors.Is(wantErr, stopped) != tt.stopped || errors.Is(err, runner.ErrCluster) != tt.stopped || !tt.stopped && (wantErr != nil || err != nil) {
				t.Fatalf("the run ends with %v, and in the container with %v", wantErr, err)
			}
			if v := want.Verdict(); tt.want != "" && v.Reason != tt.want {
				t.Fatalf("verdict = %+v, want %s\n%s", v, tt.want, want.Tail)
			}
			of := func(r runner.Result) []any { return []any{r.Verdict(), r.ExitCode, r.Signal, r.Status, r.Tail} }
			if diff := cmp.Diff(of(want), of(got)); diff != "" {
				t.Errorf("outcome (-beside the operator +in the container):\n%s", diff)
			}
			if diff := cmp.Diff(comparable(local), comparable(far)); diff != "" || len(local) == 0 && tt.want != runner.PlaybookInvalid {
				t.Errorf("%d events (-beside the operator +in the container):\n%s", len(local), diff)
			}
		})
	}
}

// comparable returns events without what differs from run to run.
func comparable(events []jobevent.Event) []jobevent.Event {
	for i := range events {
		e := &events[i]
		e.UUID, e.Data.PlaybookUUID, e.Data.TaskUUID, e.Created = "", "", "", time.Time{}
	}
	return events
}
