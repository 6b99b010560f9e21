package warm_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
)

// However a run is cut short, nothing of it is left when Run returns.
func TestRun_LeavesNothing(t *testing.T) {
	t.Parallel()
	r, _ := start(t, options(t))
	for name, tt := range map[string]struct {
		end    func(t *testing.T, req runner.Request, cancel func())
		signal string
		cut    bool // a helper process of the run was killed, which is no failure of the run
	}{
		"cancelled": {end: func(_ *testing.T, _ runner.Request, cancel func()) { cancel() }},
		"its run head is killed": {
			end: func(t *testing.T, req runner.Request, _ func()) {
				t.Helper()
				send(t, syscall.SIGKILL, runheads(t, req.ID))
			},
			signal: "SIGKILL", cut: true,
		},
		"its run head is frozen, and it is cancelled": {
			end: func(t *testing.T, req runner.Request, cancel func()) {
				t.Helper()
				send(t, syscall.SIGSTOP, runheads(t, req.ID))
				cancel()
			},
			signal: "SIGKILL",
		},
		"ansible-runner is killed": {
			end: func(t *testing.T, req runner.Request, _ func()) { t.Helper(); killRunner(t, req) }, signal: "SIGKILL",
		},
		"its supervising process is killed": {
			end: func(t *testing.T, req runner.Request, _ func()) { t.Helper(); killSupervisor(t, req) }, signal: "SIGKILL", cut: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := mark(t)
			req := request(t, family(m))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go func() {
				awaitFamily(t, m)
				tt.end(t, req, cancel)
			}()
			res, err := r.Run(ctx, req)
			if errors.Is(err, runner.ErrServerCut) {
				t.Errorf("error %v: the server is well", err)
			}
			if errors.Is(err, runner.ErrCut) != tt.cut {
				t.Errorf("error %v; a helper process was killed: %t", err, tt.cut)
			}
			if left := processes(t, m); len(left) > 0 {
				t.Errorf("survivors: %v", left)
			}
			if v := res.Verdict(); v.Success || tt.signal != "" && (v.Reason != runner.RunnerDied || res.Signal != tt.signal) {
				t.Errorf("verdict %+v of %+v", v, res)
			}
		})
	}
	run(t, r, simple)
}

func killRunner(t *testing.T, req runner.Request) {
	t.Helper()
	killed := 0
	for pid, line := range processes(t, req.ID) {
		if strings.Contains(line, "/ansible-runner run ") && !strings.HasPrefix(line, "rolewright-run") && syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed != 1 {
		t.Errorf("%d processes killed of %v", killed, processes(t, req.ID))
	}
}

// killSupervisor kills the supervisor of a run: the process with the argument of supervisors that has the run's log open.
func killSupervisor(t *testing.T, req runner.Request) {
	t.Helper()
	log := filepath.Join(req.Dir, "runner.log")
	for pid := range processes(t, supervise.Argument) {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			if to, _ := os.Readlink(link); to == log {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				return
			}
		}
	}
	t.Error("no supervising process")
}

// gated is a request for a run that waits until it may go on.
type gated struct {
	runner.Request
	dir string
}

func newGated(t *testing.T) gated {
	t.Helper()
	dir := t.TempDir()
	return gated{request(t, fmt.Sprintf(`
- hosts: localhost
  gather_facts: false
  tasks:
  - shell: echo ready >> %[1]s/ready; while [ ! -e %[1]s/go ]; do sleep 0.05; done
  - ping:
`, dir)), dir}
}

// started returns how often the run has been started.
func (g gated) started() int {
	text, _ := os.ReadFile(g.dir + "/ready")
	return bytes.Count(text, []byte("\n"))
}

func (g gated) goOn(t *testing.T) {
	t.Helper()
	if err := os.WriteFile(g.dir+"/go", nil, 0o600); err != nil {
		t.Error(err)
	}
}

// A run that has begun outlives its server, whether that dies or freezes.
func TestRun_OutlivesTheServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		signal syscall.Signal
		head   bool // the run head is killed afterwards
	}{
		"killed":                             {signal: syscall.SIGKILL},
		"frozen":                             {signal: syscall.SIGSTOP},
		"frozen, and the run head is killed": {signal: syscall.SIGSTOP, head: true},
		"killed, and then its run head is":   {signal: syscall.SIGKILL, head: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			r, pool := start(t, o)
			g := newGated(t)
			go func() {
				eventually(t, "the run", func() bool { return g.started() > 0 })
				send(t, tt.signal, servers(t, o.Dir))
				if tt.head {
					send(t, syscall.SIGKILL, runheads(t, g.ID))
				} else {
					g.goOn(t)
				}
			}()
			res, err := r.Run(t.Context(), g.Request)
			if v := res.Verdict(); v.Success == tt.head || errors.Is(err, runner.ErrCut) != tt.head || err != nil && !tt.head {
				t.Errorf("error %v, verdict %+v", err, v)
			}
			if left := processes(t, g.dir); len(left) > 0 || g.started() != 1 {
				t.Errorf("started %d times, left: %v", g.started(), left)
			}
			// The next run is forked or plain, and then there is a server.
			next := runnerOf(o, pool, impatient)
			defer next.Close()
			run(t, next, simple)
			eventually(t, "another server", func() bool { return pool.Wait(t.Context()) == nil })
		})
	}
}

// If the keeper of a server or the keeper's supervisor is killed, the server's runs end. The error says that they were cut
// and are not to blame, and another server starts.
func TestRun_IsCutWithTheKeeper(t *testing.T) {
	t.Parallel()
	for name, kill := range map[string]func(t *testing.T, keeper map[int]string){
		"killed": func(t *testing.T, keeper map[int]string) { t.Helper(); send(t, syscall.SIGKILL, keeper) },
		"whose supervising process is killed": func(t *testing.T, keeper map[int]string) {
			t.Helper()
			supervising := map[int]string{}
			for pid, line := range keeper {
				supervising[procs.Parent(pid)] = line
			}
			send(t, syscall.SIGKILL, supervising)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			r, pool := start(t, o)
			var wg sync.WaitGroup
			gates := make([]gated, 3)
			for i := range gates {
				g := newGated(t)
				gates[i] = g
				wg.Go(func() {
					res, err := r.Run(t.Context(), g.Request)
					if !errors.Is(err, runner.ErrServerCut) || !errors.Is(err, runner.ErrCut) || res.Verdict().Success {
						t.Errorf("error %v, verdict %+v", err, res.Verdict())
					}
				})
			}
			for _, g := range gates {
				eventually(t, "the run", func() bool { return g.started() > 0 })
			}
			before := processes(t, o.Dir+"/")
			kill(t, processes(t, "/server.py "+o.Dir+"/"))
			wg.Wait()
			for _, g := range gates {
				if left := processes(t, g.dir); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
			}
			for pid, line := range processes(t, o.Dir+"/") {
				if before[pid] != "" {
					t.Errorf("left of the server: %s", line)
				}
			}
			run(t, r, simple) // forked or plain
			eventually(t, "another server", func() bool { return pool.Wait(t.Context()) == nil })
		})
	}
}

// If a server does not answer, its run becomes a plain run, which costs only time, and the server is replaced.
func TestRun_IsMadePlainlyWhereTheServerIsFrozen(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, pool := start(t, o)
	send(t, syscall.SIGSTOP, servers(t, o.Dir))
	frozen := servers(t, o.Dir)
	g := newGated(t)
	g.goOn(t)
	// The Lease is renewed meanwhile: Until is called again before the plain run, and allows it.
	const lease = 8 * time.Second
	g.Until = func() time.Time { return time.Now().Add(lease) }
	plain := runnerOf(o, pool, lease+impatient)
	defer plain.Close()
	res, err := plain.Run(t.Context(), g.Request)
	if err != nil || !res.Verdict().Success || res.Executor() != runner.ExecutorRunner || g.started() != 1 {
		t.Errorf("error %v, verdict %+v, executor %s, started %d times", err, res.Verdict(), res.Executor(), g.started())
	}
	must.Do(t, pool.Wait(t.Context()))
	eventually(t, "the frozen server is gone", func() bool {
		now := processes(t, "rolewright-fork-server "+o.Dir)
		for pid := range frozen {
			if _, alive := now[pid]; alive {
				return false
			}
		}
		return true
	})
	if res := run(t, r, simple); res.Executor() != runner.ExecutorWarm {
		t.Errorf("executor %s", res.Executor())
	}
}

// If forks come late, there are fewer concurrent runs, and few runs start a new Python. The server gets no CPU until a fork
// has come late. It is not stopped again: whether it would then be given up depends on the speed of the machine.
func TestRun_IsForkedLaterOnAStarvedMachine(t *testing.T) {
	t.Parallel()
	const runs = 40
	o := options(t)
	_, pool := start(t, o)
	starved := servers(t, o.Dir)
	var limits []int
	r := runner.New(runner.Options{
		Environ: o.Environ, Warm: pool, ForkTimeout: 20 * time.Second, // which is enough for one fork on any machine
		OnLimit: func(limit int) {
			if limits = append(limits, limit); len(limits) == 1 {
				for pid := range starved {
					_ = syscall.Kill(pid, syscall.SIGCONT)
				}
			}
		},
	})
	t.Cleanup(r.Close)
	send(t, syscall.SIGSTOP, starved) // before the first run asks for its fork
	var cold atomic.Int32
	var wg sync.WaitGroup
	for range runs {
		req := request(t, simple)
		wg.Go(func() {
			res, err := r.Run(t.Context(), req)
			if err != nil || !res.Verdict().Success {
				t.Errorf("error %v, verdict %+v", err, res.Verdict())
			}
			if res.Executor() != runner.ExecutorWarm {
				cold.Add(1)
			}
		})
	}
	wg.Wait()
	if len(limits) == 0 || limits[0] > runs/2 {
		t.Errorf("the number of runs at a time: %v", limits)
	}
	if cold.Load() >= runs/4 {
		t.Errorf("%d of %d runs started a new Python", cold.Load(), runs)
	}
	t.Logf("%d of %d runs started a new Python; limits %v", cold.Load(), runs, limits)
}

// If a server answers too late, no client waits for it any more: the run is made once, as a plain run.
func TestRun_IsMadeOnceWhereTheServerIsLate(t *testing.T) {
	t.Parallel()
	o := options(t)
	_, pool := start(t, o)
	r := runnerOf(o, pool, impatient)
	defer r.Close()
	frozen := servers(t, o.Dir)
	send(t, syscall.SIGSTOP, servers(t, o.Dir))
	g := newGated(t)
	go func() {
		eventually(t, "the plain run", func() bool { return g.started() > 0 })
		for pid := range frozen { // not those of its successor, which may exist by now
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have ended already
		}
		eventually(t, "the server's end", func() bool {
			return !slices.ContainsFunc(slices.Collect(maps.Keys(processes(t, "rolewright-fork-server "+o.Dir))), func(pid int) bool { return frozen[pid] != "" })
		})
		g.goOn(t)
	}()
	res, err := r.Run(t.Context(), g.Request)
	if err != nil || !res.Verdict().Success || res.Executor() != runner.ExecutorRunner || g.started() != 1 {
		t.Errorf("error %v, verdict %+v, executor %s, started %d times", err, res.Verdict(), res.Executor(), g.started())
	}
	if trace := traced(t, o); trace != "" {
		t.Errorf("something was forked:\n%s", trace)
	}
}

// Whenever the server dies, a run is made once, forked or plain.
func TestRun_IsMadeOnceWheneverTheServerDies(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	g := newGated(t)
	g.goOn(t)
	var killer sync.WaitGroup
	killer.Go(func() {
		delay := time.Duration(rand.IntN(300)) * time.Millisecond
		t.Logf("the server is killed after %s", delay)
		time.Sleep(delay)
		send(t, syscall.SIGKILL, servers(t, o.Dir))
	})
	res, err := r.Run(t.Context(), g.Request)
	killer.Wait()
	if err != nil || !res.Verdict().Success || g.started() != 1 {
		t.Errorf("error %v, verdict %+v, started %d times", err, res.Verdict(), g.started())
	}
}

// The processes of a killed operator end by themselves; the next pool removes its directory.
func TestOperator_KilledLeavesNothing(t *testing.T) {
	t.Parallel()
	m := mark(t)
	o := options(t)
	req := request(t, family(m))
	text := must.Get(json.Marshal(order{o, req.ID, req.Dir, req.Content.Playbook}))(t)
	cmd := exec.Command("/proc/self/exe", asOperator)
	cmd.Stdin, cmd.Stderr = bytes.NewReader(text), os.Stderr
	must.Do(t, cmd.Start())
	awaitFamily(t, m)
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait()
	eventually(t, "nothing is left", func() bool { return len(processes(t, m))+len(processes(t, o.Dir)) == 0 })
	left := entries(t, o.Dir)
	pool := warm.New(o)
	defer pool.Close()
	must.Do(t, pool.Wait(t.Context()))
	if now := entries(t, o.Dir); len(left) != 1 || len(now) != 1 || now[0] == left[0] {
		t.Errorf("directories: %v, then %v", left, now)
	}
}
