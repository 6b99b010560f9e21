package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
)

// until polls a condition. The time limit is there for tests that hang.
func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waiting in vain: %s", what)
			return
		}
	}
}

// zombies counts the dead children of a process.
func zombies(t *testing.T, parent int) int {
	t.Helper()
	all := must.Get(processes(0))(t)
	n := 0
	for _, p := range all {
		if p.zombie && p.ppid == parent {
			n++
		}
	}
	return n
}

func TestSupervisor_AForkBombEnds(t *testing.T) {
	t.Parallel()
	c := recorded(t, `breed() { i=0; while [ $i -lt 500 ]; do setsid sleep 600 & i=$((i+1)); done; }
breed & breed & breed & breed; wait %1 %2 %3; touch $DIR/ready; sleep 600`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		waitFor(t, filepath.Join(dirOf(c), "ready"))
		cancel()
	}()
	got, err := supervisor(t).Run(ctx, c)
	if err != nil || got.Killed < 2000 {
		t.Errorf("exit = %+v, %v; want 2000 killed", got, err)
	}
	if left := alive(t, c.Cookie); len(left) > 0 {
		t.Errorf("%d survivors", len(left))
	}
}

// A process that forks and ends at once has another pid each time one looks for it.
func TestSupervisor_CatchesWhatRunsAway(t *testing.T) {
	bothWays(t, func(t *testing.T, _ string, s *Launcher) {
		t.Helper()
		script := filepath.Join(t.TempDir(), "run-away")
		must.Do(t, os.WriteFile(script, []byte("#!/bin/sh\nsetsid \"$0\" &\n"), 0o700))
		c := recorded(t, `"$SCRIPT" & touch $DIR/ready; exec sleep 600`)
		c.Env = append([]string{"SCRIPT=" + script}, c.Env...)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			waitFor(t, filepath.Join(dirOf(c), "ready"))
			cancel()
		}()
		if got, err := s.Run(ctx, c); err != nil || !got.Stopped {
			t.Errorf("exit = %+v, %v", got, err)
		}
		if left := alive(t, c.Cookie); len(left) > 0 {
			t.Errorf("survivors: %q", left)
		}
	})
}

// The kernel kills a run before it kills the operator or the run's supervisor, and gives the run less CPU.
func TestSupervisor_RunsAreTheFirstToGoAndTheLastToCome(t *testing.T) {
	t.Parallel()
	niceness := must.Get(exec.Command("nice").Output())(t)
	nice := must.Get(strconv.Atoi(strings.TrimSpace(string(niceness))))(t)
	const show = `cat /proc/self/oom_score_adj; nice`
	// The command gets its priority a moment after it has started.
	c := recorded(t, fmt.Sprintf(`while [ $(nice) = %d ]; do sleep 0.01; done; `, nice)+
		show+`; env -i setsid sh -c '`+show+`'; cat /proc/$PPID/oom_score_adj`)
	must.Get(supervisor(t).Run(t.Context(), c))(t)
	out := must.Get(os.ReadFile(c.Output))(t)
	own, _ := readScore("/proc/self/oom_score_adj")
	score, low := strconv.Itoa(min(own+moreExpendable, maxScore)), strconv.Itoa(min(nice+lessUrgent(), 19))
	want := []string{score, low, score, low, strconv.Itoa(own)}
	if got := strings.Fields(string(out)); !slices.Equal(got, want) {
		t.Errorf("scores and niceness = %v, want %v", got, want)
	}
}

func TestSupervisor_CollectsNoZombies(t *testing.T) {
	bothWays(t, func(t *testing.T, _ string, s *Launcher) {
		t.Helper()
		c := recorded(t, `echo $$ > $DIR/pid; i=0; while [ $i -lt 100 ]; do (setsid sleep 0.1 &); i=$((i+1)); done
touch $DIR/ready; while ! [ -e $DIR/end ]; do sleep 0.01; done`)
		go func() {
			waitFor(t, filepath.Join(dirOf(c), "ready"))
			supervising := supervisingPID(t, c)
			until(t, "no zombies during the run", func() bool {
				asleep := slices.ContainsFunc(alive(t, c.Cookie), func(p string) bool { return strings.HasSuffix(p, "sleep 0.1 ") })
				return !asleep && zombies(t, supervising) == 0
			})
			if err := os.WriteFile(filepath.Join(dirOf(c), "end"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}()
		if got, err := s.Run(t.Context(), c); err != nil || got.Code != 0 || got.Killed != 0 {
			t.Errorf("exit = %+v, %v", got, err)
		}
		until(t, "no zombies after it", func() bool { return zombies(t, os.Getpid()) == 0 })
	})
}

func TestReapOrphans_WaitsForStrangersOnly(t *testing.T) {
	t.Parallel()
	// What a helper leaves behind becomes a child of this process, and has to be reaped.
	must.Do(t, exec.Command("/bin/sh", "-c", "for i in 1 2 3 4 5; do sleep 0.1 & done").Run())
	// A child for which a goroutine waits is left to that goroutine.
	var wg sync.WaitGroup
	for code := range 20 {
		wg.Go(func() {
			cmd := exec.Command("/bin/sh", "-c", "sleep 0.0$0; exit $0", strconv.Itoa(code))
			if err := cmd.Run(); cmd.ProcessState.ExitCode() != code {
				t.Errorf("exit code %d became %v", code, err)
			}
		})
	}
	wg.Wait()
	until(t, "no zombies", func() bool { return zombies(t, os.Getpid()) == 0 })
}

// When the tree of a dead supervisor is killed, another process may have the supervisor's pid.
func TestSupervisor_SparesWhoeverGotThePIDOfADeadProcess(t *testing.T) {
	c, s := recorded(t, `touch $DIR/ready; exec sleep 600`), supervisor(t)
	p := must.Get(s.start())(t)
	must.Do(t, p.order(c))
	waitFor(t, filepath.Join(dirOf(c), "ready"))
	p.kill()
	_ = p.stdin.Close()
	stranger := withPID(t, p.cmd.Process.Pid)
	got, err := s.abandoned(t.Context(), p, c)
	if err != nil || got.Signal != "SIGKILL" {
		t.Errorf("exit = %+v, %v", got, err)
	}
	if now, err := readProcess(stranger); err != nil || now.zombie {
		t.Errorf("the stranger is gone: %+v, %v", now, err)
	}
	if left := alive(t, c.Cookie); len(left) > 0 {
		t.Errorf("survivors: %q", left)
	}
}

// withPID starts a process that gets this pid. The test is skipped if it may not choose the next pid, or if other processes
// always get it first.
func withPID(t *testing.T, pid int) int {
	t.Helper()
	const tries = 200
	for range tries {
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(pid-1)), 0); err != nil {
			t.Skipf("NOT TESTED WITH A RECYCLED PID: %v; it takes root", err)
		}
		cmd := exec.Command("sleep", "600")
		must.Do(t, cmd.Start())
		end := func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
		if cmd.Process.Pid == pid {
			t.Cleanup(end)
			return pid
		}
		end()
	}
	t.Skipf("NOT TESTED WITH A RECYCLED PID: another process got it %d times", tries)
	return 0
}

// percentiles sorts durations, and returns the median, the 99th percentile and the maximum.
func percentiles(d []time.Duration) (p50, p99, most time.Duration) {
	slices.Sort(d)
	return d[len(d)/2], d[(len(d)*99+99)/100-1], d[len(d)-1]
}

func TestSupervisor_CancelIsQuick(t *testing.T) {
	s := supervisor(t)
	const runs, atOnce = 20, 4
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	next := make(chan struct{}, atOnce)
	for range runs {
		next <- struct{}{}
		wg.Go(func() {
			defer func() { <-next }()
			c := recorded(t, `setsid nohup sleep 600 & touch $DIR/ready; sleep 600`)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var since time.Time
			go func() {
				waitFor(t, filepath.Join(dirOf(c), "ready"))
				since = time.Now()
				cancel()
			}()
			got, err := s.Run(ctx, c)
			if err != nil || !got.Stopped {
				t.Errorf("exit = %+v, %v", got, err)
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(since))
		})
	}
	wg.Wait()
	p50, p99, most := percentiles(took)
	t.Logf("%d runs were gone after: median %v, p99 %v, at most %v", runs, p50, p99, most)
	if most > time.Minute {
		t.Errorf("at most %v: that is no busy machine, that hangs", most)
	}
}
