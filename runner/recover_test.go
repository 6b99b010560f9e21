package runner

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// What is found of a finished run is what its own operator was told.
func TestRecover_IsWhatRunReturned(t *testing.T) {
	t.Parallel()
	for _, playbook := range []string{"requeue.yml", "failed_task.yml"} {
		t.Run(playbook, func(t *testing.T) {
			t.Parallel()
			r, req := ansible(t), request(t, playbook)
			want, err := r.Run(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := r.Recover(t.Context(), req.Dir, req.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			got.Started, got.Finished = want.Started, want.Finished // measured by another process
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(jobevent.Summary{})); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(want.Verdict(), got.Verdict()); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
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
	if _, err := during(t.Context(), t, r, killed, []string{"sleep 600"}, func() {
		if err := r.Reap(killed.ID); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Recover(t.Context(), killed.Dir, killed.ID, nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("killed: error = %v, want ErrNoRecord", err)
	}
	finished := request(t, "requeue.yml")
	if _, err := r.Run(t.Context(), finished); err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(finished.Dir, endRecord)
	if _, err := r.Recover(t.Context(), stopped.Dir, stopped.ID, nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("stopped: error = %v, want ErrNoRecord", err)
	}
	const someBytes = 10
	if err := os.Truncate(record, someBytes); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Recover(t.Context(), finished.Dir, finished.ID, nil); !errors.Is(err, ErrNoRecord) {
		t.Errorf("cut short: error = %v, want ErrNoRecord", err)
	}
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Recover(t.Context(), finished.Dir, finished.ID, nil); !errors.Is(err, ErrNoRecord) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("not recorded: error = %v, want ErrNoRecord and ErrNotExist", err)
	}
}

func TestReap_EndsWhatAnEarlierProcessHasLeft(t *testing.T) {
	parts.Ansible(t)
	t.Parallel()
	req := request(t, "sleep.yml")
	cmd := exec.Command("/bin/sh", "-c", `trap "" TERM; setsid sleep 600 & sleep 600; sleep 600`)
	cmd.Env = append(os.Environ(), cookieName+"="+req.ID)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(time.Minute); len(marked(t, req.ID)) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the processes never started")
		}
	}
	if err := ansible(t).Reap(req.ID); err != nil {
		t.Fatal(err)
	}
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
