package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// For a finished run, Recover returns what Run returned to the run's own operator.
func TestRecover_IsWhatRunReturned(t *testing.T) {
	t.Parallel()
	for _, playbook := range []string{"requeue.yml", "failed_task.yml"} {
		t.Run(playbook, func(t *testing.T) {
			t.Parallel()
			r, req := ansible(t), request(t, playbook)
			want := must.Get(r.Run(t.Context(), req))(t)
			ending, end := context.WithCancel(t.Context())
			end() // the operator may be asked to end meanwhile
			got := must.Get(r.Recover(ending, req.Dir, req.ID, false, nil))(t)
			got.Started, got.Finished = want.Started, want.Finished // measured by another process
			must.Be(t, "result", want, got, cmpopts.IgnoreUnexported(jobevent.Summary{}, Result{}))
			must.Be(t, "verdict", want.Verdict(), got.Verdict())
		})
	}
}

func TestRecover_ARunWithoutAnEndIsNotBelieved(t *testing.T) {
	t.Parallel()
	r := ansible(t)
	stopped := request(t, "sleep.yml")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := during(ctx, t, r, stopped, []string{"sleep 600"}, cancel); !errors.Is(err, context.Canceled) {
		t.Fatalf("error = %v", err)
	}
	killed := request(t, "sleep.yml")
	must.Get(during(t.Context(), t, r, killed, []string{"sleep 600"}, func() {
		if err := r.Reap(killed.ID); err != nil {
			t.Error(err)
		}
	}))(t)
	if _, err := r.Recover(t.Context(), killed.Dir, killed.ID, false, nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("killed: error = %v, want ErrNoRecord", err)
	}
	finished := request(t, "requeue.yml")
	must.Get(r.Run(t.Context(), finished))(t)
	record := filepath.Join(finished.Dir, endRecord)
	if _, err := r.Recover(t.Context(), stopped.Dir, stopped.ID, false, nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("stopped: error = %v, want ErrNoRecord", err)
	}
	const someBytes = 10
	must.Do(t, os.Truncate(record, someBytes))
	if _, err := r.Recover(t.Context(), finished.Dir, finished.ID, false, nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("cut short: error = %v, want ErrNoRecord", err)
	}
	must.Do(t, os.Remove(record))
	if _, err := r.Recover(t.Context(), finished.Dir, finished.ID, false, nil); !errors.Is(err, ErrNoRecord) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not recorded: error = %v, want ErrNoRecord and ErrNotExist", err)
	}
}

func TestReap_EndsWhatAnEarlierProcessHasLeft(t *testing.T) {
	parts.Ansible(t)
	t.Parallel()
	req := request(t, "sleep.yml")
	cmd := exec.Command("/bin/sh", "-c", `trap "" TERM; setsid sleep 600 & sleep 600; sleep 600`)
	cmd.Env = append(os.Environ(), cookieName+"="+req.ID)
	must.Do(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(time.Minute); len(marked(t, req.ID)) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the processes never started")
		}
	}
	must.Do(t, ansible(t).Reap(req.ID))
	_ = <-ended // it was killed
	if left := marked(t, req.ID); len(left) > 0 {
		t.Errorf("survivors: %v", left)
	}
	for _, id := range []string{"", "../x", "a=b\x00"} {
		if err := ansible(t).Reap(id); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}
