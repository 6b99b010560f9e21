package warm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
)

// With the argument asLimited, the test binary is an operator that makes two runs at a time.
const asLimited = "limited"

// limitedOrder says what that operator runs.
type limitedOrder struct {
	Options  warm.Options
	Executor runner.Executor
	Modest   string // a playbook that waits for the file over in Dir
	Greedy   string // another playbook, which begins after the first task of Modest
	Dir      string
	Mark     string // begins the IDs of the runs, and of no other operator's runs
}

// limitedEnds says how the two runs have ended.
type limitedEnds struct {
	Memory, Processes, Modest bool
	Said                      string
}

// operateLimited makes the two runs.
func operateLimited() int {
	var o limitedOrder
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		return 2
	}
	pool := warm.New(o.Options)
	defer pool.Close()
	if err := pool.Wait(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	r := runnerOf(o.Options, pool, patient)
	defer r.Close()
	request := func(name, playbook string) runner.Request {
		return runner.Request{ID: o.Mark + name, Dir: filepath.Join(o.Dir, name), Executor: o.Executor, Content: runner.Content{Playbook: playbook}}
	}
	var ends limitedEnds
	begun := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		req := request("modest", o.Modest)
		begin := sync.OnceFunc(func() { close(begun) })
		defer begin()
		req.OnEvent = func(e jobevent.Event) {
			if e.Kind == jobevent.RunnerOK {
				begin()
			}
		}
		res, err := r.Run(context.Background(), req)
		ends.Modest = err == nil && res.Verdict().Success
	})
	<-begun
	res, err := r.Run(context.Background(), request("greedy", o.Greedy))
	ends.Memory, ends.Processes = errors.Is(err, runner.ErrMemory), errors.Is(err, runner.ErrProcesses)
	// The kernel may be faster. Then the task fails, and the message says why.
	ends.Memory = ends.Memory || !res.Verdict().Success && strings.Contains(res.Verdict().Message, "its memory was used up")
	ends.Said = fmt.Sprintf("%v, %+v", err, res.Verdict())
	if err := os.WriteFile(filepath.Join(o.Dir, "over"), nil, 0o600); err != nil {
		return 5
	}
	wg.Wait()
	if err := json.NewEncoder(os.Stdout).Encode(ends); err != nil {
		return 4
	}
	return 0
}

// group makes a control group with a limit, and returns its directory.
func group(t *testing.T, controller, file string, limit int64) string {
	t.Helper()
	self := must.Get(os.ReadFile("/proc/self/cgroup"))(t)
	name := "rolewright-test-" + mark(t)
	for line := range strings.Lines(string(self)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 || parts[1] != "" && parts[1] != controller {
			continue
		}
		dir := filepath.Join("/sys/fs/cgroup", parts[1], parts[2], name)
		if os.Mkdir(dir, 0o700) != nil {
			continue
		}
		t.Cleanup(func() { eventually(t, "the group is empty", func() bool { return os.Remove(dir) == nil }) })
		limits := map[string]string{"memory": "memory.max", "pids": "pids.max"}
		if parts[1] != "" {
			limits["memory"] = "memory.limit_in_bytes"
		}
		if os.WriteFile(filepath.Join(dir, limits[controller]), []byte(strconv.FormatInt(limit, 10)), 0) == nil {
			return dir
		}
	}
	t.Skipf("NOT TESTED: a control group with a limit of %s takes root, and the controller %s", file, controller)
	return ""
}

// If the container has a limit, a run that uses up the memory or forks without end is stopped, and its error says why. The
// operator and the other run go on.
func TestRun_ThatTakesAllIsEnded(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		controller string
		limit      int64
		program    string
		want       limitedEnds
	}{
		"memory":         {"memory", 1200 << 20, "import time\nkept = []\nwhile True:\n    kept.append(bytearray(3 << 20))\n    time.sleep(0.05)\n", limitedEnds{Memory: true, Modest: true}},
		"memory at once": {"memory", 1200 << 20, "b'x' * (4 << 30)\n", limitedEnds{Memory: true, Modest: true}},
		"processes": {"pids", 300, "import os, time\nwhile True:\n    try:\n        os.fork()\n        time.sleep(0.01)\n    except OSError:\n        time.sleep(0.1)\n",
			limitedEnds{Processes: true, Modest: true}},
	} {
		for _, executor := range []runner.Executor{runner.ExecutorWarm, runner.ExecutorRunner} {
			if executor == runner.ExecutorRunner && name != "memory" {
				continue // in the other cases, the executor makes no difference
			}
			t.Run(name+" "+string(executor), func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				write(t, filepath.Join(dir, "program.py"), tt.program)
				write(t, filepath.Join(dir, "greedy.yml"), "- hosts: localhost\n  gather_facts: false\n  tasks: [{command: 'python3 "+filepath.Join(dir, "program.py")+"'}]\n")
				write(t, filepath.Join(dir, "modest.yml"), "- hosts: localhost\n  gather_facts: false\n  tasks: [{ping: }, {wait_for: {path: "+filepath.Join(dir, "over")+", timeout: 600}}, {command: 'true'}]\n")
				o := limitedOrder{Options: options(t), Executor: executor, Dir: dir, Mark: mark(t), Greedy: filepath.Join(dir, "greedy.yml"), Modest: filepath.Join(dir, "modest.yml")}
				order := must.Get(json.Marshal(o))(t)
				in := group(t, tt.controller, name, tt.limit)
				cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$1/cgroup.procs" && exec "$2" `+asLimited, "sh", in, os.Args[0])
				cmd.Stdin, cmd.Stderr = strings.NewReader(string(order)), os.Stderr
				out, err := cmd.Output()
				if err != nil {
					t.Fatalf("the operator has ended: %v", err)
				}
				var got limitedEnds
				must.Do(t, json.Unmarshal(out, &got))
				t.Log(got.Said)
				got.Said = ""
				if got != tt.want {
					t.Errorf("%+v, want %+v", got, tt.want)
				}
			})
		}
	}
}

// A forked run that writes without end is stopped, and another run goes on.
func TestRun_ThatWritesWithoutEndIsStopped(t *testing.T) {
	t.Parallel()
	o := options(t)
	r, _ := start(t, o)
	other := newGated(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		if res, err := r.Run(t.Context(), other.Request); err != nil || !res.Verdict().Success {
			t.Errorf("the other run: error %v, verdict %+v", err, res.Verdict())
		}
	})
	eventually(t, "the other run", func() bool { return other.started() > 0 })
	req := request(t, "")
	req.Content.Playbook = must.Get(filepath.Abs("../testdata/playbooks/pour.yml"))(t)
	req.MaxBytes = 4 << 20
	res, err := r.Run(t.Context(), req)
	if !errors.Is(err, runner.ErrTooLarge) || res.Executor() != runner.ExecutorWarm {
		t.Errorf("by %s it ends with %v, want %v", res.Executor(), err, runner.ErrTooLarge)
	}
	if left := processes(t, req.ID); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	other.goOn(t)
	wg.Wait()
}

// If the server or the run head cannot fork because there are too many processes, the run waits until it can. The server
// and the other run go on.
func TestRun_IsForkedWhenProcessesAreLackingNoMore(t *testing.T) {
	t.Parallel()
	for name, processes := range map[string]int64{"the server": 1, "the run head": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := group(t, "pids", "processes", processes)
			limit := filepath.Join(in, "pids.max")
			o := options(t)
			r, _ := start(t, o)
			other := newGated(t)
			var wg sync.WaitGroup
			wg.Go(func() {
				if res, err := r.Run(t.Context(), other.Request); err != nil || !res.Verdict().Success {
					t.Errorf("the other run: error %v, verdict %+v", err, res.Verdict())
				}
			})
			eventually(t, "the other run", func() bool { return other.started() > 0 })
			before := servers(t, o.Dir)
			for pid := range before { // only what it forks from now on is limited
				write(t, filepath.Join(in, "cgroup.procs"), strconv.Itoa(pid))
			}
			wg.Go(func() {
				eventually(t, "a fork fails", func() bool {
					text, err := os.ReadFile(filepath.Join(in, "pids.events"))
					return err == nil && !strings.Contains(string(text), "max 0\n")
				})
				write(t, limit, "max")
			})
			if res := run(t, r, simple); res.Executor() != runner.ExecutorWarm {
				t.Errorf("executor %s", res.Executor())
			}
			other.goOn(t)
			wg.Wait()
			if now := servers(t, o.Dir); !maps.Equal(before, now) {
				t.Errorf("servers %v, before %v", now, before)
			}
		})
	}
}
