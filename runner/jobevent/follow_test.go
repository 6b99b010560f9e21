package jobevent

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/test/leaktest"
	"github.com/rolewright/rolewright/test/must"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

const never = 24 * time.Hour

// writeEvent puts an event file in place as ansible-runner does.
func writeEvent(t testing.TB, dir string, counter int, id string) {
	t.Helper()
	writeFile(t, dir, fmt.Sprintf("%d-%s.json", counter, id), fmt.Sprintf(`{"event":"verbose","uuid":%q,"counter":%d}`, id, counter))
}

func writeFile(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Do(t, os.WriteFile(path+".tmp", []byte(text), 0o600))
	must.Do(t, os.Rename(path+".tmp", path))
}

func closed() chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// follow is Follow, with settings of the follower that set changes.
func follow(dir string, done <-chan struct{}, set func(*follower)) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := newFollower(dir, nil)
		defer f.close()
		set(f)
		f.run(context.Background(), done, yield)
	}
}

// log returns a word for each event or error that a sequence yields.
func log(seq iter.Seq2[Event, error]) []string {
	var words []string
	for e, err := range seq {
		words = append(words, word(e, err))
	}
	return words
}

func word(e Event, err error) string {
	gap, isGap := errors.AsType[*GapError](err)
	bad, isBad := errors.AsType[*EventError](err)
	switch {
	case err == nil:
		return fmt.Sprintf("%d-%s", e.Counter, e.UUID)
	case isGap:
		return fmt.Sprintf("gap %d-%d", gap.First, gap.Last)
	case errors.Is(err, errDuplicate):
		return "second " + bad.Name
	case isBad && bad.Counter == e.Counter:
		return "bad " + bad.Name
	}
	return "error"
}

func TestFollow_Directories(t *testing.T) {
	tests := map[string]struct {
		files map[string]string // content by name
		want  []string
	}{
		"empty":                    {nil, nil},
		"by counter, not by name":  {good("2-b", "10-a", "1-c", "3-b", "4-b", "5-b", "6-b", "7-b", "8-b", "9-b"), []string{"1-c", "2-b", "3-b", "4-b", "5-b", "6-b", "7-b", "8-b", "9-b", "10-a"}},
		"a gap":                    {good("1-a", "4-a"), []string{"1-a", "gap 2-3", "4-a"}},
		"a gap at the beginning":   {good("3-a"), []string{"gap 1-2", "3-a"}},
		"a far gap":                {good("1-a", "99999999999999-a"), []string{"1-a", "gap 2-99999999999998", "99999999999999-a"}},
		"one counter twice":        {good("1-b", "1-a", "2-a"), []string{"1-a", "second 1-b.json", "2-a"}},
		"one counter three times":  {good("1-c", "1-b", "1-a"), []string{"1-a", "second 1-b.json"}},
		"the counter written else": {good("01-a", "2-a"), []string{"1-a", "2-a"}},
		"bad files": {
			map[string]string{"1-a.json": "{", "2-a.json": "", "3-a.json": "null", "4-a.json": `{"event":"verbose","uuid":"x"}`, "5-a.json": strings.Repeat("[", 99999)},
			[]string{"bad 1-a.json", "bad 2-a.json", "bad 3-a.json", "4-x", "bad 5-a.json"},
		},
		"a counter that lies": {map[string]string{"1-a.json": `{"event":"verbose","uuid":"x","counter":7}`}, []string{"1-x"}},
		"names of other things": {
			map[string]string{
				"1-a.json.tmp": `{}`, "a-partial.json": `{}`, "1-a-partial.json": `{}`, "a.json": `{}`, "-1-a.json": `{}`, "0-a.json": `{}`,
				"+1-a.json": `{}`, "1_a.json": `{}`, "1-a.txt": `{}`, "-a.json": `{}`, "99999999999999999999-a.json": `{}`, "1 -a.json": `{}`,
				"2-a.json": `{"event":"verbose","uuid":"a"}`,
			},
			[]string{"gap 1-1", "2-a"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				writeFile(t, dir, name, text)
			}
			got := log(Follow(t.Context(), dir, closed()))
			must.Be(t, "yielded", tt.want, got)
		})
	}
}

func good(names ...string) map[string]string {
	files := map[string]string{}
	for _, name := range names {
		_, id, _ := strings.Cut(name, "-")
		files[name+".json"] = fmt.Sprintf(`{"event":"verbose","uuid":%q}`, id)
	}
	return files
}

// TestFollow_DeliversWhileTheRunLasts writes each event only after the previous one was yielded, so that a final pass
// cannot be what finds them. At the end, one more event comes together with done.
func TestFollow_DeliversWhileTheRunLasts(t *testing.T) {
	tests := map[string]struct {
		below string // where the directory will be, relative to one that exists
		set   func(*follower)
	}{
		"by notification": {"", func(f *follower) { f.poll = never }},
		"by notification, with parents made late": {
			"a/b/job_events", func(f *follower) { f.poll = never },
		},
		"by polling": {"", func(f *follower) { f.unwatch(); f.poll = time.Millisecond }},
		"by polling, with parents made late": {
			"a/b/job_events", func(f *follower) { f.unwatch(); f.poll = time.Millisecond },
		},
		"by default": {"a/job_events", func(*follower) {}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), tt.below)
			const last = 20
			done := make(chan struct{})
			yielded := make(chan int)
			go func() {
				defer close(yielded)
				for e, err := range follow(dir, done, tt.set) {
					if err != nil {
						t.Errorf("after %d: %v", e.Counter, err)
					}
					yielded <- e.Counter
				}
			}()
			if tt.below != "" {
				time.Sleep(20 * time.Millisecond) // so that the follower looks first; it must work with any timing
				for i := range tt.below {
					if tt.below[i] == '/' {
						mkdir(t, filepath.Join(strings.TrimSuffix(dir, tt.below), tt.below[:i]))
						time.Sleep(time.Millisecond)
					}
				}
				mkdir(t, dir)
			}
			for i := 1; i < last; i++ {
				writeEvent(t, dir, i, "x")
				if got := <-yielded; got != i {
					t.Fatalf("event %d was yielded, want %d", got, i)
				}
			}
			writeEvent(t, dir, last, "x")
			close(done)
			var rest []int
			for n := range yielded {
				rest = append(rest, n)
			}
			must.Be(t, "after done", []int{last}, rest)
		})
	}
}

func mkdir(t testing.TB, dir string) {
	t.Helper()
	must.Do(t, os.Mkdir(dir, 0o700))
}

// script returns the same as log. As soon as an event or error is yielded, it takes the step for its word.
func script(t *testing.T, seq iter.Seq2[Event, error], steps map[string]func()) []string {
	t.Helper()
	var words []string
	for e, err := range seq {
		w := word(e, err)
		words = append(words, w)
		if step, ok := steps[w]; ok {
			step()
		}
	}
	return words
}

func TestFollow_WaitsForALateEvent(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{})
	writeEvent(t, dir, 1, "a")
	writeEvent(t, dir, 3, "a")
	seq := follow(dir, done, func(f *follower) { f.poll, f.patience = never, never })
	got := script(t, seq, map[string]func(){
		"1-a": func() { time.AfterFunc(20*time.Millisecond, func() { writeEvent(t, dir, 2, "a") }) },
		"3-a": func() { close(done) },
	})
	must.Be(t, "yielded", []string{"1-a", "2-a", "3-a"}, got)
}

func TestFollow_GivesUpAGapWhileTheRunLasts(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{})
	writeEvent(t, dir, 1, "a")
	writeEvent(t, dir, 3, "a")
	seq := follow(dir, done, func(f *follower) { f.poll, f.patience = time.Millisecond, 5*time.Millisecond })
	got := script(t, seq, map[string]func(){
		"3-a": func() {
			writeEvent(t, dir, 2, "late")
			writeEvent(t, dir, 4, "a")
		},
		"4-a": func() { close(done) },
	})
	must.Be(t, "yielded", []string{"1-a", "gap 2-2", "3-a", "4-a"}, got)
}

// If a stray file has an absurd counter, the genuine events must not count as late.
func TestFollow_AFarCounterIsNoGapWhileTheRunLasts(t *testing.T) {
	dir := t.TempDir()
	done := make(chan struct{})
	writeEvent(t, dir, 1, "a")
	writeEvent(t, dir, 5_000_000, "stray")
	seq := follow(dir, done, func(f *follower) { f.poll, f.patience = time.Millisecond, 0 })
	got := script(t, seq, map[string]func(){
		"1-a": func() { time.AfterFunc(50*time.Millisecond, func() { writeEvent(t, dir, 2, "a") }) },
		"2-a": func() { close(done) },
	})
	must.Be(t, "yielded", []string{"1-a", "2-a", "gap 3-4999999", "5000000-stray"}, got)
}

func TestFollow_ASecondFileThatComesLaterIsBad(t *testing.T) {
	for name, set := range map[string]func(*follower){
		"told by a notification": func(f *follower) { f.poll = never },
		"told by listings":       func(f *follower) { f.unwatch(); f.poll = time.Millisecond },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			done := make(chan struct{})
			writeEvent(t, dir, 1, "b")
			writeEvent(t, dir, 2, "b")
			got := script(t, follow(dir, done, set), map[string]func(){
				"2-b":             func() { writeEvent(t, dir, 1, "a") },
				"second 1-a.json": func() { writeEvent(t, dir, 3, "b") },
				"3-b":             func() { close(done) },
			})
			must.Be(t, "yielded", []string{"1-b", "2-b", "second 1-a.json", "3-b"}, got)
		})
	}
}

// If the follower is told the name of each file, it does not list the directory for them, and uses no notifications of the
// kernel.
func TestFollowTold(t *testing.T) {
	dir := t.TempDir()
	done, told, yielded := make(chan struct{}), make(chan string, 4), make(chan string)
	listings := map[time.Time]bool{}
	go func() {
		f := newFollower(dir, told)
		defer f.close()
		f.poll, f.patience = never, time.Millisecond
		f.run(t.Context(), done, func(e Event, err error) bool {
			listings[f.scanned] = true
			yielded <- word(e, err)
			return true
		})
		close(yielded)
	}()
	write := func(from, to int) {
		for n := from; n <= to; n++ {
			writeEvent(t, dir, n, "a")
			select {
			case told <- fmt.Sprintf("%d-a.json", n):
			default:
			}
		}
	}
	write(1, 1)
	must.Be(t, "yielded", "1-a", <-yielded)
	write(2, 3)
	must.Be(t, "yielded", []string{"2-a", "3-a"}, []string{<-yielded, <-yielded})
	must.Be(t, "listings", 1, len(listings))
	write(5, 5)
	must.Be(t, "yielded", []string{"gap 4-4", "5-a"}, []string{<-yielded, <-yielded})
	write(6, 20) // these are more than told holds
	for n := 6; n <= 20; n++ {
		must.Be(t, "yielded", fmt.Sprintf("%d-a", n), <-yielded)
	}
	close(done)
	for w := range yielded {
		t.Errorf("yielded %s after all", w)
	}
}

// Without a file descriptor, an event and the directory are late, not lost.
func TestFollow_WaitsForAFileDescriptor(t *testing.T) {
	dir := t.TempDir()
	writeEvent(t, dir, 1, "a")
	writeEvent(t, dir, 2, "a")
	var enough unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &enough))
	restore := func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &enough) }
	defer restore()
	refuse := func() {
		must.Do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: enough.Max}))
		time.AfterFunc(20*time.Millisecond, restore)
	}
	must.Be(t, "refused an event", []string{"1-a", "2-a"}, script(t, Follow(t.Context(), dir, closed()), map[string]func(){"1-a": refuse}))
	must.Be(t, "refused the directory", []string{"1-a", "2-a"}, log(follow(dir, closed(), func(*follower) { refuse() })))
}

func TestFollow_EndsWithItsContext(t *testing.T) {
	for name, dir := range map[string]string{"waiting for events": t.TempDir(), "waiting for the directory": filepath.Join(t.TempDir(), "a/b")} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			if got := log(Follow(ctx, dir, nil)); got != nil {
				t.Errorf("yielded %v", got)
			}
		})
	}
}

func TestFollow_CanBeLeftAndIteratedAgain(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		writeEvent(t, dir, i+1, "a")
	}
	seq := Follow(t.Context(), dir, closed())
	for e, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		if e.Counter == 2 {
			break
		}
	}
	if got := log(seq); len(got) != 5 {
		t.Errorf("the second time %v was yielded", got)
	}
}
