package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// supervisor returns a Launcher whose supervisors are processes of this binary.
func supervisor(t testing.TB) *Launcher {
	t.Helper()
	s := NewLauncher()
	t.Cleanup(s.Close)
	return s
}

// recorded is command, with a file for the record and the ID of a run.
func recorded(t *testing.T, script string) Command {
	t.Helper()
	c := command(t, script)
	c.Record = filepath.Join(t.TempDir(), "record.json")
	c.Run = uuid.NewString()
	return c
}

// operate is the program of an operator that runs one command, which it reads from its standard input. The second argument
// is the way that it uses.
func operate() int {
	var c Command
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return 2
	}
	s := NewLauncher()
	if os.Args[2] == sweeping {
		s.groups = func() string { return "" }
	}
	defer s.Close()
	if _, err := s.Run(context.Background(), c); err != nil {
		return 1
	}
	return 0
}

// The ways to find the processes of a tree: search all of /proc, or ask the control group.
const (
	sweeping = "sweep"
	grouping = "cgroup"
)

// bothWays runs a test with control groups and without. If it can make no control groups, it skips that half.
func bothWays(t *testing.T, test func(t *testing.T, way string, s *Launcher)) {
	t.Helper()
	t.Run(sweeping, func(t *testing.T) {
		t.Parallel()
		s := supervisor(t)
		s.groups = func() string { return "" }
		test(t, sweeping, s)
	})
	t.Run(grouping, func(t *testing.T) {
		t.Parallel()
		if _, err := delegated(); err != nil {
			t.Skipf("NOT TESTED WITH CONTROL GROUPS: %v; it takes a writable cgroup2, as root has it", err)
		}
		test(t, grouping, supervisor(t))
	})
}

// operator starts an operator that runs c, and waits until the command has made its file "ready".
func operator(t *testing.T, way string, c Command) *os.Process {
	t.Helper()
	order := must.Get(json.Marshal(c))(t)
	cmd := exec.Command("/proc/self/exe", asOperator, way)
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(order)), os.Stderr
	must.Do(t, cmd.Start())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	waitFor(t, filepath.Join(dirOf(c), "ready"))
	return cmd.Process
}

// dirOf returns the directory of a command's script, $DIR.
func dirOf(c Command) string {
	_, dir, _ := strings.Cut(c.Env[len(c.Env)-1], "=")
	return dir
}

// awaitNobody waits until no process carries the cookie.
func awaitNobody(t *testing.T, cookie string) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		left := alive(t, cookie)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("survivors: %q", left)
		}
	}
}

// familyOfAll is a script that starts processes that are hard to find or to end: children that ignore signals, daemons, and
// processes that have cleared their environment and lost their parents. alive finds the last ones by their command line.
const familyOfAll = `trap "" HUP; setsid nohup sleep 600 & ` +
	`env -i setsid sh -c 'trap "" TERM; while :; do sleep 1; done' "$ROLEWRIGHT_TEST" & ` +
	`(env -i setsid sh -c 'trap "" TERM HUP INT; : > $1/detached; while :; do sleep 1; done' "$ROLEWRIGHT_TEST" $DIR &); ` +
	`sh -c 'trap "" TERM; sleep 600' & while ! [ -e $DIR/detached ]; do sleep 0.01; done; ` +
	`echo $$ > $DIR/pid; touch $DIR/ready; sleep 600; sleep 600`

func TestSupervisor_TellsHowTheCommandEnded(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		want   Exit
	}{
		"success":                      {`exit 0`, Exit{}},
		"exit code":                    {`exit 7`, Exit{Code: 7}},
		"signal":                       {`kill -KILL $$`, Exit{Code: -1, Signal: "SIGKILL"}},
		"a daemon":                     {`setsid nohup sleep 600 >/dev/null 2>&1 & sleep 0.1; exit 3`, Exit{Code: 3, Killed: 1}},
		"a daemon without environment": {`env -i setsid nohup sleep 600 >/dev/null 2>&1 & sleep 0.1`, Exit{Killed: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, _ string, s *Launcher) {
				t.Helper()
				c := recorded(t, tt.script)
				got := must.Get(s.Run(t.Context(), c))(t)
				read, err := ReadExit(c.Record)
				if err != nil || read != got || got.Started.IsZero() || got.Started.After(got.Finished) {
					t.Errorf("record = %+v, %v; want %+v", read, err, got)
				}
				got.Memory, got.CPU, got.Started, got.Finished = 0, 0, time.Time{}, time.Time{} // some live long enough to be measured
				must.Be(t, "exit", tt.want, got)
				if left := alive(t, c.Cookie); len(left) > 0 {
					t.Errorf("survivors: %q", left)
				}
			})
		})
	}
}

func TestSupervisor_CancelKillsTheWholeTree(t *testing.T) {
	bothWays(t, func(t *testing.T, _ string, s *Launcher) {
		t.Helper()
		c := recorded(t, familyOfAll)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			waitFor(t, filepath.Join(dirOf(c), "ready"))
			cancel()
		}()
		got := must.Get(s.Run(ctx, c))(t)
		if !got.Stopped || got.Killed < 4 || got.Reason != ReasonTold {
			t.Errorf("exit = %+v, want a stop, and the family killed", got)
		}
		if left := alive(t, c.Cookie); len(left) > 0 {
			t.Errorf("survivors: %q", left)
		}
	})
}

func TestSupervisor_NothingSurvivesTheOperator(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		signal unix.Signal
		reason Reason
	}{
		"killed": {unix.SIGKILL, ReasonOrphan},
		// The connection to a frozen operator does not end; only its silence shows that something is wrong.
		"frozen": {unix.SIGSTOP, ReasonSilent},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, way string, _ *Launcher) {
				t.Helper()
				c := recorded(t, familyOfAll)
				p := operator(t, way, c)
				if left := alive(t, c.Cookie); len(left) < 5 {
					t.Fatalf("the family is too small: %q", left)
				}
				since := time.Now()
				must.Do(t, p.Signal(tt.signal))
				awaitNobody(t, c.Cookie)
				t.Logf("gone after %v", time.Since(since))
				waitFor(t, c.Record)
				exit, err := ReadExit(c.Record)
				if err != nil || !exit.Stopped || exit.Reason != tt.reason {
					t.Errorf("exit = %+v, %v; want that of a stopped command, with the reason %s", exit, err, tt.reason)
				}
			})
		})
	}
}

// Signs of life also count if they came while the supervisor was stopped, for example by an overloaded machine.
func TestSupervisor_HearsWhatWasSaidWhileItWasStopped(t *testing.T) {
	parts.Time(t)
	t.Parallel()
	bothWays(t, func(t *testing.T, _ string, s *Launcher) {
		t.Helper()
		c := recorded(t, fmt.Sprintf(`kill -STOP $PPID; sleep %.0f; kill -CONT $PPID; sleep 1; exit 3`, (silence+2*heartbeat).Seconds()))
		got, err := s.Run(t.Context(), c)
		if err != nil || got.Stopped || got.Code != 3 {
			t.Errorf("exit = %+v, %v; want 3, and no stop", got, err)
		}
	})
}

// A service does nothing by itself, so it needs no signs of life: only the end of the operator ends it.
func TestSupervisor_AServiceOutlivesSilence(t *testing.T) {
	parts.Time(t)
	t.Parallel()
	bothWays(t, func(t *testing.T, way string, _ *Launcher) {
		t.Helper()
		c := recorded(t, familyOfAll)
		c.Service = true
		p := operator(t, way, c)
		family := alive(t, c.Cookie)
		must.Do(t, p.Signal(unix.SIGSTOP))
		time.Sleep(silence / 5)
		// The child of a shell has the cookie for a moment, until it becomes the sleep of the shell's loop.
		now := alive(t, c.Cookie)
		family = slices.DeleteFunc(family, func(process string) bool { return !slices.Contains(now, process) })
		if len(family) < 4 {
			t.Fatalf("too few to tell: %q", family)
		}
		time.Sleep(silence + defaultGrace)
		left := alive(t, c.Cookie)
		for _, process := range family {
			if !slices.Contains(left, process) {
				t.Errorf("%s has gone", process)
			}
		}
		must.Do(t, p.Kill())
		awaitNobody(t, c.Cookie)
		waitFor(t, c.Record)
	})
}

// A command whose operator is gone gets no long grace.
func TestSupervisor_ALongGraceEndsWithTheOperator(t *testing.T) {
	bothWays(t, func(t *testing.T, way string, _ *Launcher) {
		t.Helper()
		c := recorded(t, `trap "" TERM INT; touch $DIR/ready; while :; do sleep 1; done`)
		c.Grace = time.Hour
		p := operator(t, way, c)
		must.Do(t, p.Signal(unix.SIGKILL))
		awaitNobody(t, c.Cookie)
	})
}

// supervisingPID returns the pid of a command's supervisor: the parent of the command's shell.
func supervisingPID(t *testing.T, c Command) int {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join(dirOf(c), "pid")))(t)
	var pid int
	must.Do(t, json.Unmarshal(data, &pid))
	p := must.Get(readProcess(pid))(t)
	return p.ppid
}

func TestSupervisor_NothingSurvivesTheSupervisingProcess(t *testing.T) {
	bothWays(t, func(t *testing.T, way string, s *Launcher) {
		t.Helper()
		c := recorded(t, familyOfAll)
		go func() {
			waitFor(t, filepath.Join(dirOf(c), "ready"))
			if err := unix.Kill(supervisingPID(t, c), unix.SIGKILL); err != nil {
				t.Error(err)
			}
		}()
		got := must.Get(s.Run(t.Context(), c))(t)
		if got.Code != -1 || got.Signal != "SIGKILL" || got.Stopped || !got.Cut {
			t.Errorf("exit = %+v, want one that says SIGKILL", got)
		}
		if left := alive(t, c.Cookie); len(left) > 0 {
			t.Errorf("survivors: %q", left)
		}
		if _, err := ReadExit(c.Record); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a killed process has left a record: %v", err)
		}
		if group, err := cgroupOf(s.groups(), c.Run); way == grouping && (err != nil || len(group.all()) > 0) {
			t.Errorf("left: %v, %v", group.all(), err)
		}
	})
}

// If a command forges its record and then kills its supervisor, the record is not believed, whether or not processes of the
// command are left.
func TestSupervisor_BelievesNoForgedRecord(t *testing.T) {
	const success, daemon = `{"Exit":{"Code":0}}`, `setsid sleep 600 & `
	for name, tt := range map[string]struct{ begin, forged, end string }{
		"success":                   {daemon, success, "kill -9 $PPID; sleep 600"},
		"not started":               {daemon, `{"NotStarted":"late","Server":true,"Late":true}`, "kill -9 $PPID; sleep 600"},
		"success, and nothing left": {"", success, "kill -9 $PPID $$"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := recorded(t, tt.begin+`printf '%s' "$FORGED" >"$RECORD"; `+tt.end)
			c.Env = append(c.Env, "FORGED="+tt.forged, "RECORD="+c.Record)
			got, err := supervisor(t).Run(t.Context(), c)
			if err != nil || got.Code != -1 || !got.Cut {
				t.Errorf("exit %+v, error %v, want one that was cut", got, err)
			}
			if left := alive(t, c.Cookie); len(left) > 0 {
				t.Errorf("survivors: %q", left)
			}
			if _, err := ReadExit(c.Record); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the forged record is left: %v", err)
			}
		})
	}
}

// A supervising process that stands still does not hold up the operator, which has to kill it.
func TestSupervisor_IsToldWithoutWaiting(t *testing.T) {
	t.Parallel()
	pair := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	theirs, p := os.NewFile(uintptr(pair[0]), "orders"), &supervisorProcess{stdin: os.NewFile(uintptr(pair[1]), "orders")}
	defer theirs.Close()
	defer p.stdin.Close()
	for err := error(nil); err == nil; {
		err = unix.Send(pair[1], make([]byte, 1<<10), unix.MSG_DONTWAIT)
	}
	for err := error(nil); err == nil; {
		err = unix.Send(pair[1], []byte{sayAlive}, unix.MSG_DONTWAIT)
	}
	p.say(sayStop)
}

// A role cannot give an order in the operator's place.
func TestSupervisor_TakesOrdersOfTheOperatorOnly(t *testing.T) {
	t.Parallel()
	s := supervisor(t)
	p := must.Get(s.start())(t)
	defer func() { p.kill(); _ = p.stdin.Close() }()
	if file, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/0", p.cmd.Process.Pid), os.O_WRONLY, 0); !errors.Is(err, unix.ENXIO) {
		t.Errorf("the standard input of a supervising process can be opened: %v, %v", file, err)
	}
}

func TestSupervisor_NotStarted(t *testing.T) {
	t.Parallel()
	c := recorded(t, "")
	c.Path = filepath.Join(t.TempDir(), "missing")
	if _, err := supervisor(t).Run(t.Context(), c); !errors.Is(err, ErrNotStarted) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("error = %v, want ErrNotStarted and the file", err)
	}
	missing := supervisor(t)
	missing.argv = []string{c.Path}
	if _, err := missing.Run(t.Context(), recorded(t, "")); !errors.Is(err, ErrNotStarted) {
		t.Errorf("without a supervising program: %v", err)
	}
}

// With the race detector the process waits for a second before it ends, unless GORACE tells it otherwise.
func TestSupervisor_GivesItsProcessNothingButTheRaceDetectorsOptions(t *testing.T) {
	t.Setenv("GORACE", "atexit_sleep_ms=0")
	p := must.Get(supervisor(t).start())(t)
	var environ []byte
	for len(environ) == 0 { // until the kernel has laid out the new program's memory
		environ = must.Get(os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/environ"))(t)
	}
	must.Do(t, p.stdin.Close())
	<-p.ended
	if got, want := string(environ), "GORACE=atexit_sleep_ms=0\x00"; got != want {
		t.Errorf("environment %q, want %q", got, want)
	}
}

// A supervisor starts nothing if its parent has gone or if the order is not valid.
func TestMain_StartsNothingForStrangers(t *testing.T) {
	t.Parallel()
	c := recorded(t, "touch $DIR/ready")
	alien := must.Get(json.Marshal(order{Command: c, Parent: os.Getpid() + 1}))(t)
	for name, input := range map[string]string{"an orphan": string(alien) + "\n", "half an order": string(alien), "no order": "{]\n", "endless": strings.Repeat("x", 2*maxOrder)} {
		cmd := exec.Command("/proc/self/exe", Argument)
		cmd.Env, cmd.Stdin = c.Env, strings.NewReader(input)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.HasPrefix(string(out), "supervise: ") {
			t.Errorf("%s: %v, %q", name, err, out)
		}
		if _, err := os.Stat(filepath.Join(dirOf(c), "ready")); err == nil {
			t.Fatalf("%s: the command was run", name)
		}
	}
}

// BenchmarkSupervisor measures what the supervisor costs in addition to BenchmarkRun.
func BenchmarkSupervisor(b *testing.B) {
	dir, s := b.TempDir(), supervisor(b)
	for i := 0; b.Loop(); i++ {
		name := filepath.Join(dir, strconv.Itoa(i))
		must.Get(s.Run(b.Context(), Command{
			Path: "/bin/true", Env: os.Environ(), Cookie: "ROLEWRIGHT_TEST=" + strconv.Itoa(i), Output: name, Record: name + ".json",
		}))(b)
	}
}

// A supervisor may read its order too late, because a process was frozen. Then the command is not started, and nothing
// looks as if it was.
func TestSupervisor_StartsNothingTooLate(t *testing.T) {
	s := supervisor(t)
	for name, tt := range map[string]struct {
		left time.Duration
		runs bool
	}{
		"in time": {time.Minute, true}, "over": {-time.Nanosecond, false}, "long over": {-time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := recorded(t, `touch "$DIR/ran"`)
			c.Until = max(1, SinceBoot()+tt.left)
			_, err := s.Run(t.Context(), c)
			if tt.runs != (err == nil) || !tt.runs && !errors.Is(err, ErrNotStarted) {
				t.Errorf("error = %v", err)
			}
			dir := strings.TrimPrefix(c.Env[len(c.Env)-1], "DIR=")
			if _, err := os.Stat(filepath.Join(dir, "ran")); (err == nil) != tt.runs {
				t.Errorf("it has run: %v", err)
			}
		})
	}
}
