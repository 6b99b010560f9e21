package supervise

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// checkLedger checks that the command's ledger has its start and its end.
func checkLedger(t *testing.T, c Command, exit Exit, reason Reason) {
	t.Helper()
	entries, err := ReadLedger(c.Ledger)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 2 {
		t.Fatalf("ledger = %+v, want a start and an end", entries)
	}
	start, end := entries[0], entries[1]
	if start.PID == 0 || start.Boot <= 0 || start.Boot > end.Boot || start.Time.After(end.Time) {
		t.Errorf("ledger = %+v, want the process and its times", entries)
	}
	want := []Entry{
		{Event: EventStart, Run: c.Run, Subject: c.Subject},
		{Event: EventEnd, Run: c.Run, Subject: c.Subject, End: Record{Exit: exit}.end(reason)},
	}
	for i := range entries {
		want[i].Time, want[i].Boot, want[i].PID = entries[i].Time, entries[i].Boot, start.PID
	}
	if diff := cmp.Diff(want, entries); diff != "" {
		t.Errorf("ledger (-want +got):\n%s", diff)
	}
	if info, err := os.Stat(c.Ledger); err != nil || info.Mode() != 0o600 {
		t.Errorf("the ledger is %v, %v; want mode 0600", info.Mode(), err)
	}
}

// awaitEnd waits until the command's ledger has an end.
func awaitEnd(t *testing.T, c Command) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		entries, err := ReadLedger(c.Ledger)
		if n := len(entries); err == nil && n > 0 && entries[n-1].Event == EventEnd {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the ledger never had an end: %+v, %v", entries, err)
		}
	}
}

func TestLedger_LosesNothingWhenManyWriteAtItsLimit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	const writers, each = 8, 100
	c := Command{Ledger: path, Run: "old"}
	if err := c.note(EventStart, 1, nil); err != nil {
		t.Fatal(err)
	}
	line, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// Half of what is to be written fits in.
	old := ledgerLimit/len(line) - writers*each/2
	if err := os.WriteFile(path, []byte(strings.Repeat(string(line), old)), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := (Command{Ledger: path, Run: fmt.Sprintf("%d/%d", w, i)}).note(EventStart, 1, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	entries, err := ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, e := range entries {
		seen[e.Run]++
	}
	if seen["old"] != old || len(seen) != writers*each+1 || len(entries) != old+writers*each {
		t.Errorf("%d lines of %d runs, %d old ones; want %d, %d, %d", len(entries), len(seen), seen["old"], old+writers*each, writers*each+1, old)
	}
	for _, name := range []string{path, setAside(path)} {
		if info, err := os.Stat(name); err != nil || info.Size() == 0 || info.Size() > ledgerLimit {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// Processes of their own write, and set aside, the ledger of them all.
func TestLedger_IsSharedBySupervisingProcesses(t *testing.T) {
	t.Parallel()
	path, s := filepath.Join(t.TempDir(), "ledger.jsonl"), supervisor(t)
	if err := os.WriteFile(path, []byte(strings.Repeat(`{"event":"start"}`+strings.Repeat(" ", 1006)+"\n", ledgerLimit>>10)), 0o600); err != nil {
		t.Fatal(err)
	}
	const runs = 8
	var wg sync.WaitGroup
	for range runs {
		c := recorded(t, "exit 0")
		c.Ledger = path
		wg.Go(func() {
			if _, err := s.Run(t.Context(), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	entries, err := ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := len(entries) - ledgerLimit>>10; got != 2*runs {
		t.Errorf("%d lines were added, want %d", got, 2*runs)
	}
}

func TestLedger_OneThatCannotBeWrittenHoldsUpNobody(t *testing.T) {
	for name, obstruct := range map[string]func(t *testing.T, path string) error{
		"a pipe":      func(_ *testing.T, path string) error { return unix.Mkfifo(path, 0o600) },
		"a link":      func(t *testing.T, path string) error { t.Helper(); return os.Symlink(t.TempDir()+"/elsewhere", path) },
		"a directory": func(_ *testing.T, path string) error { return os.Mkdir(path, 0o700) },
		"no parent":   func(_ *testing.T, path string) error { return os.Remove(filepath.Dir(path)) },
		"locked for good": func(t *testing.T, path string) error {
			t.Helper()
			file, err := os.Create(path)
			if err == nil {
				t.Cleanup(func() { _ = file.Close() })
				err = unix.Flock(int(file.Fd()), unix.LOCK_EX)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := recorded(t, "exit 3")
			if err := obstruct(t, c.Ledger); err != nil {
				t.Fatal(err)
			}
			got, err := supervisor(t).Run(t.Context(), c)
			if err != nil || got.Code != 3 {
				t.Errorf("exit = %+v, %v", got, err)
			}
			if name != "locked for good" {
				return
			}
			if entries, err := ReadLedger(c.Ledger); err != nil || len(entries) != 2 {
				t.Errorf("ledger = %v, %v", entries, err)
			}
		})
	}
}

func TestLedger_HasNoHalfLines(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.jsonl")
	const line = "{\"event\":\"end\"}\n"
	if err := appendLine(path, []byte(line)); err != nil {
		t.Fatal(err)
	}
	// There is room for a part of the second line only.
	out, err := exec.Command("/proc/self/exe", asWriter, path, line, strconv.Itoa(len(line)*3/2)).CombinedOutput()
	if err == nil || !strings.Contains(string(out), unix.EFBIG.Error()) {
		t.Errorf("the second line: %v, %s", err, out)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != line {
		t.Errorf("ledger = %q, %v", got, err)
	}
}

// write adds a line to a ledger of limited size.
func write(path, line, limit string) int {
	size, err := strconv.ParseUint(limit, 10, 64)
	signal.Ignore(unix.SIGXFSZ)
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: size})
	}
	if err == nil {
		err = appendLine(path, []byte(line))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestSupervisor_ReapEndsWhatAnotherProcessHasLeft(t *testing.T) {
	bothWays(t, func(t *testing.T, _ string, s *Supervisor) {
		t.Helper()
		c := recorded(t, "")
		cmd := exec.Command("/bin/sh", "-c", `trap "" TERM; setsid sleep 600 & sleep 600; sleep 600`)
		cmd.Env = append(os.Environ(), c.Cookie)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = cmd.Wait() // it was killed
		}()
		for deadline := time.Now().Add(time.Minute); len(alive(t, c.Cookie)) < 3 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		if err := s.Reap(c); err != nil {
			t.Fatal(err)
		}
		<-ended
		if left := alive(t, c.Cookie); len(left) > 0 {
			t.Errorf("survivors: %q", left)
		}
		entries, err := ReadLedger(c.Ledger)
		if err != nil || len(entries) != 1 || entries[0].End == nil || entries[0].Reason != ReasonReaped || entries[0].Killed != 3 {
			t.Errorf("ledger = %+v, %v; want one that was reaped", entries, err)
		}
	})
}

func TestSupervisor_LedgerOfCommandsThatNeverRan(t *testing.T) {
	t.Parallel()
	c := recorded(t, "")
	c.Path = filepath.Join(t.TempDir(), "missing")
	if _, err := supervisor(t).Run(context.WithoutCancel(t.Context()), c); err == nil {
		t.Fatal("it was started")
	}
	entries, err := ReadLedger(c.Ledger)
	if err != nil || len(entries) != 2 || !strings.Contains(entries[1].NotStarted, "missing") || entries[1].Code != -1 {
		t.Errorf("ledger = %+v, %v", entries, err)
	}
}
