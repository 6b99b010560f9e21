package history

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/go-logr/logr/testr"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// runOf returns the n-th run. The runs end one second after each other.
func runOf(n int) Run {
	r := Run{Brief: Brief{
		ID: fmt.Sprintf("%08d-run", n), Object: Object{Kind: "A", Name: fmt.Sprint(n % 2)}, Result: "Succeeded",
		Started: epoch, Finished: epoch.Add(time.Duration(n) * time.Second),
	}, Message: "m"}
	r.Tasks = []Task{{TaskName: TaskName{Name: "t"}, Outcome: "ok", Started: epoch, Finished: epoch.Add(time.Second)}}
	return r
}

func open(t *testing.T, o Options) *Store {
	t.Helper()
	o.Log = testr.New(t)
	if o.MaxRuns == 0 {
		o.MaxRuns, o.MaxBytes = 1000, 1<<20
	}
	s := must.Get(Open(o))(t)
	s.now = func() time.Time { return epoch.Add(time.Hour) }
	return s
}

// The beginning of an ID names a run only if no other run has the same beginning: on disk, waiting to be written, or in
// progress.
func TestRecorder_RunByTheBeginningOfItsID(t *testing.T) {
	t.Parallel()
	store := open(t, Options{Path: filepath.Join(t.TempDir(), "runs.db")})
	r := NewRecorder(store, nil)
	named := func(id string) Run { return Run{Brief: Brief{ID: id, Finished: epoch}} }
	written(store, named("ab-kept"), named("cd-kept"))
	store.Add(named("ab-waits"))
	store.Add(named("ef-waits"))
	for _, id := range []string{"ab-runs", "ef-runs", "gh-runs"} {
		r.Begin(named(id))
	}
	for id, want := range map[string]string{
		"ab": "", "ef": "", "cd": "cd-kept", "gh": "gh-runs", "ab-k": "ab-kept", "ab-w": "ab-waits", "ab-runs": "ab-runs", "": "",
	} {
		is, err := r.Run(id)
		if is.ID != want || (err == nil) != (want != "") || len(id) == 2 && want == "" && !errors.Is(err, ErrSeveral) {
			t.Errorf("run %q: %q, %v", id, is.ID, err)
		}
	}
}

// written adds runs and waits until they are on disk.
func written(s *Store, runs ...Run) {
	for _, r := range runs {
		s.Add(r)
	}
	s.write()
}

func idsOf(runs []Brief) (all []string) {
	for _, r := range runs {
		all = append(all, r.ID[:8])
	}
	return all
}

func TestStore_KeepsRunsOverARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, Options{Path: path})
	for n := range 5 {
		written(s, runOf(n))
	}
	written(s, runOf(4)) // the end is recorded twice, as after a restart
	must.Do(t, s.db.Load().Close())
	must.Be(t, "mode", os.FileMode(0o600), must.Get(os.Stat(path))(t).Mode().Perm())

	s = open(t, Options{Path: path})
	for _, id := range []string{"", "1", "0000000"} {
		if _, err := s.Run(id); err == nil {
			t.Errorf("there is a run %q", id)
		}
	}
	s.Add(runOf(5)) // not written yet
	runs, next, err := s.Runs(Query{Limit: 3})
	must.Do(t, err)
	must.Be(t, "first page", []string{"00000005", "00000004", "00000003"}, idsOf(runs))
	runs, next, err = s.Runs(Query{Limit: 3, Before: next})
	must.Do(t, err)
	must.Be(t, "second page", []string{"00000002", "00000001", "00000000"}, idsOf(runs))
	must.Be(t, "third page", "", next)
	runs, _, err = s.Runs(Query{Limit: 3, Wants: func(b Brief) bool { return b.Name == "1" }})
	must.Do(t, err)
	must.Be(t, "of one object", []string{"00000005", "00000003", "00000001"}, idsOf(runs))
	odd := runOf(6)
	odd.Namespace, odd.Name, odd.Result = "<&>", "\"\\\u2028\x00é", "Failed"
	written(s, odd)
	for _, want := range []Run{runOf(3), odd} {
		q := Query{Limit: 10, Wants: func(b Brief) bool {
			return b.Namespace == want.Namespace && b.Name == want.Name && b.Result == want.Result
		}}
		wanted, _, err := s.Runs(q)
		must.Do(t, err)
		q.Namespace, q.Name, q.Result = want.Namespace, want.Name, want.Result
		found, _, err := s.Runs(q)
		must.Do(t, err)
		must.Be(t, "some are found", true, len(found) > 0)
		must.Be(t, "what passing over others leaves", idsOf(wanted), idsOf(found))
	}

	is := must.Get(s.Run("00000003"))(t)
	must.Be(t, "run by the beginning of its ID", runOf(3), is)
	must.Be(t, "run that waits", runOf(5), must.Get(s.Run("00000005"))(t))
}

func TestStore_RemovesTheOldest(t *testing.T) {
	t.Parallel()
	var all []Run
	for n := range 10 {
		all = append(all, runOf(n))
	}
	size := func() int64 {
		s := open(t, Options{Path: filepath.Join(t.TempDir(), "runs.db")})
		written(s, all[0])
		return s.bytes
	}()
	for name, o := range map[string]Options{
		"count": {MaxRuns: 3, MaxBytes: 1 << 20},
		"bytes": {MaxRuns: 100, MaxBytes: 3*size + size/2},
		"age":   {MaxRuns: 100, MaxBytes: 1 << 20, MaxAge: time.Hour - 7*time.Second},
	} {
		o.Path = filepath.Join(t.TempDir(), "runs.db")
		s := open(t, o)
		written(s, all...)
		runs, _, err := s.Runs(Query{Limit: 100})
		must.Do(t, err)
		must.Be(t, name, []string{"00000009", "00000008", "00000007"}, idsOf(runs))
		if _, err := s.Run(all[0].ID); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: the oldest run: %v", name, err)
		}
		must.Be(t, name+": what is counted", 3, s.count)
	}
}

// An operator starts whatever the file contains, and keeps a file that it cannot read.
func TestStore_BeginsAgainWhereItIsDamaged(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"garbage":   func(path string) error { return os.WriteFile(path, []byte("garbage"), 0o600) },
		"cut short": func(path string) error { return os.Truncate(path, 20<<10) },
		"zeros": func(path string) error {
			text, err := os.ReadFile(path)
			clear(text[len(text)/4:])
			return errors.Join(err, os.WriteFile(path, text, 0o600))
		},
	} {
		path := filepath.Join(t.TempDir(), "runs.db")
		s := open(t, Options{Path: path})
		for n := range 50 {
			written(s, runOf(n))
		}
		must.Do(t, s.db.Load().Close())
		must.Do(t, damage(path))
		s = open(t, Options{Path: path})
		written(s, runOf(1))
		runs, _, err := s.Runs(Query{Limit: 100})
		must.Do(t, err)
		must.Be(t, name, []string{"00000001"}, idsOf(runs))
		must.Get(os.Stat(path + ".damaged"))(t)
	}
}

// A file that is damaged while it is open is moved aside, and runs that wait are written to the next one.
func TestStore_BeginsAgainWhileItIsOpen(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(s *Store){
		"reader": func(s *Store) {
			if _, _, err := s.Runs(Query{Limit: 100}); err == nil {
				t.Error("a damaged file was read")
			}
		},
		"writer": (*Store).write,
	} {
		path := filepath.Join(t.TempDir(), "runs.db")
		s := open(t, Options{Path: path})
		for n := range 50 {
			s.Add(runOf(n))
		}
		s.write()
		must.Do(t, os.Truncate(path, 8<<10))
		s.Add(runOf(50))
		notice(s)
		s.Lead()
		written(s, runOf(51))
		runs, _, err := s.Runs(Query{Limit: 100})
		must.Do(t, err)
		must.Be(t, name, []string{"00000051", "00000050"}, idsOf(runs))
		must.Be(t, name+": runs that wait", 0, len(s.waiting()))
		must.Get(os.Stat(path + ".damaged"))(t)
		must.Do(t, s.db.Load().Close())
	}
}

// A link to itself stands for a full disk, too many open files, or a volume that is not there yet: the system cannot open
// the file, although nothing is wrong with its content.
func TestStore_OpensLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, Options{Path: path})
	written(s, runOf(1))
	must.Do(t, s.db.Load().Close())
	must.Do(t, os.Rename(path, path+".kept"))
	must.Do(t, os.Symlink(path, path))
	later := New(s.opts)
	later.Lead()
	if _, err := os.Lstat(path + ".damaged"); !errors.Is(err, fs.ErrNotExist) || later.db.Load() != nil {
		t.Errorf("the history was moved aside, or is open: %v", err)
	}
	must.Do(t, os.Rename(path+".kept", path))
	later.Lead()
	must.Get(later.Run(runOf(1).ID))(t)
	must.Do(t, later.db.Load().Close())
}

// Runs that cannot be written wait. Until then, they can be read page by page.
func TestStore_RunsThatWait(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, Options{Path: path})
	open := s.db.Load()
	must.Do(t, open.Close()) // like a disk that is full for a while
	for n := range 3 {
		s.Add(runOf(n + 1))
	}
	s.write()
	must.Do(t, s.begin())
	first, next, err := s.Runs(Query{Limit: 2})
	must.Do(t, err)
	must.Be(t, "first page", []string{"00000003", "00000002"}, idsOf(first))
	rest, _, err := s.Runs(Query{Limit: 2, Before: next})
	must.Do(t, err)
	must.Be(t, "second page", []string{"00000001"}, idsOf(rest))
	s.write()
	written, _, err := s.Runs(Query{Limit: 2, Before: next})
	must.Do(t, err)
	must.Be(t, "second page once it is written", []string{"00000001"}, idsOf(written))
	must.Do(t, s.db.Load().Close())
}

// While the disk is full, the runs that wait are not packed again for each run that ends. The last attempt is at the end.
func TestStore_WritesAgainLater(t *testing.T) {
	t.Parallel()
	s := open(t, Options{Path: filepath.Join(t.TempDir(), "runs.db")})
	logged := 0
	s.opts.Log = funcr.New(func(_, _ string) { logged++ }, funcr.Options{})
	must.Do(t, s.db.Load().Close()) // like a disk that is full
	for n := range 2 {
		written(s, runOf(n))
	}
	must.Be(t, "attempts", 1, logged)
	later := s.now().Add(ageInterval)
	s.now = func() time.Time { return later }
	s.write()
	must.Be(t, "attempts after a minute", 2, logged)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	must.Do(t, s.Serve(ctx))
	must.Be(t, "attempts at the end", 3, logged)
}

func TestStore_IsWrittenByOneProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "runs.db")
	s := open(t, Options{Path: path})
	later := New(s.opts) // belongs to a replica that waits to lead
	ctx, stop := context.WithCancel(t.Context())
	served, servedLater := make(chan error), make(chan error)
	go func() { servedLater <- later.Serve(t.Context()) }()
	later.Lead()
	later.Add(runOf(2))
	if err := New(s.opts).begin(); !errors.Is(err, errInUse) {
		t.Errorf("the second one: %v", err)
	}
	must.Get(later.Run(runOf(2).ID))(t)
	if _, err := later.Run(runOf(1).ID); !errors.Is(err, ErrNotFound) {
		t.Errorf("a run in a file that is not open: %v", err)
	}
	go func() { served <- s.Serve(ctx) }()
	s.Add(runOf(1))
	stop()
	must.Do(t, <-served)
	testenv.Eventually(t, "the second one has the runs of the first", func(context.Context) error {
		_, err := later.Run(runOf(1).ID)
		return err
	})
	runs, _, err := later.Runs(Query{Limit: 10})
	must.Do(t, err)
	must.Be(t, "runs", []string{"00000002", "00000001"}, idsOf(runs))
}

func TestRecorder(t *testing.T) {
	t.Parallel()
	r := NewRecorder(open(t, Options{Path: filepath.Join(t.TempDir(), "runs.db")}), nil)
	from := r.Cursor()
	begun := runOf(1)
	begun.Tasks, begun.Finished, begun.Result = nil, time.Time{}, ""
	x := r.Begin(begun)
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	x.Task(Task{Outcome: "ok", Started: at(0), Finished: at(2)})
	x.Write(Write{Verb: "create", At: at(3)})
	x.Task(Task{Outcome: "changed", Started: at(2), Finished: at(4)})
	x.Write(Write{Verb: "patch", At: at(9)})
	must.Be(t, "runs in progress", 1, len(r.Running()))
	must.Be(t, "tasks of the run in progress", 2, len(must.Get(r.Run(begun.ID))(t).Tasks))
	finish := func(run *Run) { run.Finished, run.Result = at(10), "Succeeded" }
	x.End(finish)
	x.End(finish) // no effect
	is := must.Get(r.Run(begun.ID))(t)
	must.Be(t, "tasks of the writes", []int{1, -1}, []int{is.Writes[0].Task, is.Writes[1].Task})
	must.Be(t, "runs in progress", 0, len(r.Running()))

	events, more, ok := r.Events(from)
	var kinds []EventKind
	for _, e := range events {
		kinds = append(kinds, e.Kind)
	}
	must.Be(t, "events", []EventKind{RunStarted, TaskEnded, Wrote, TaskEnded, Wrote, RunEnded}, kinds)
	must.Be(t, "all of them", true, ok)
	r.Begin(Run{Brief: Brief{ID: "goes on"}}).Drop(true)
	rest, _, _ := r.Events(r.Cursor() - 1)
	must.Be(t, "what tells of a run that goes on", RunLeft, rest[0].Kind)
	rest, _, _ = r.Events(from + 5)
	must.Be(t, "events after a cursor", RunEnded, rest[0].Kind)
	y := r.Begin(runOf(2))
	<-more
	for range maxEvents {
		y.Now(TaskName{}, Counts{})
		y.Task(Task{})
		y.Write(Write{})
	}
	if is := must.Get(r.Run(runOf(2).ID))(t); len(is.Tasks) != MaxTasks || is.TasksLeftOut != maxEvents-MaxTasks+1 || len(is.Writes) != MaxWrites {
		t.Errorf("%d tasks, %d left out, %d writes", len(is.Tasks), is.TasksLeftOut, len(is.Writes))
	}
	oldest := r.Cursor() - uint64(len(r.events))
	events, more, ok = r.Events(oldest)
	<-more // more are already there
	must.Be(t, "events at a time", maxBatch, len(events))
	must.Be(t, "they are known", true, ok)
	for _, cursor := range []uint64{0, r.Cursor() + 1} {
		if _, _, ok := r.Events(cursor); ok {
			t.Errorf("cursor %d is known", cursor)
		}
	}
	if !slices.IsSorted([]uint64{from, r.Cursor()}) {
		t.Error("the cursor went back")
	}
}

// A run that claims the ID of a run in progress does not replace it.
func TestRecorder_KeepsTheRunInProgress(t *testing.T) {
	t.Parallel()
	r := NewRecorder(open(t, Options{Path: filepath.Join(t.TempDir(), "runs.db")}), nil)
	named := func(uid string) Run { return Run{Brief: Brief{ID: "same"}, UID: uid} }
	first := r.Begin(named("1"))
	first.Task(Task{Outcome: "ok"})
	second := r.Begin(named("2"))
	second.End(func(*Run) {})
	must.Be(t, "runs in progress", 1, len(r.Running()))
	first.End(func(run *Run) { run.Finished = epoch })
	is := must.Get(r.Run("same"))(t)
	must.Be(t, "object and tasks", []string{"1", "1"}, []string{is.UID, fmt.Sprint(len(is.Tasks))})
}

// What the tasks of a run say is bounded, so that a run that says much does not displace the others.
func TestRecorder_BoundsWhatTasksSay(t *testing.T) {
	t.Parallel()
	r := NewRecorder(open(t, Options{Path: filepath.Join(t.TempDir(), "runs.db")}), nil)
	x := r.Begin(runOf(1))
	for range MaxTasks {
		x.Task(Task{Outcome: "ignored", Message: strings.Repeat("m", 4<<10)})
	}
	said := 0
	for _, task := range must.Get(r.Run(runOf(1).ID))(t).Tasks {
		said += len(task.Message)
	}
	if said < MaxText/2 || said > MaxText {
		t.Errorf("%d bytes of messages", said)
	}
}

// The duration of a task only differs if one is much longer than the other, whatever the durations are.
func TestCompare_SlowTasks(t *testing.T) {
	t.Parallel()
	with := func(took ...time.Duration) (r Run) {
		for i, d := range took {
			r.Tasks = append(r.Tasks, Task{TaskName: TaskName{Name: fmt.Sprint(i)}, Outcome: "ok", Started: epoch, Finished: epoch.Add(d)})
		}
		return r
	}
	a := with(1900*time.Millisecond, 300*time.Millisecond, 8*time.Second, time.Second)
	b := with(2100*time.Millisecond, 900*time.Millisecond, 3*time.Second, 2*time.Second)
	must.Be(t, "differences", []Difference{{"2", "ok in 8.0 s", "ok in 3.0 s"}, {"3", "ok in 1.0 s", "ok in 2.0 s"}}, Compare(a, b).Tasks)
}

// What waits to be written has a limit, even while the file cannot be opened.
func TestStore_AddKeepsWhatMayWait(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		bytes int64
		runs  int
		want  int
	}{
		"count":    {1 << 30, maxPending + 5, maxPending},
		"bytes":    {3*size(runOf(0)) + 1, 5, 3},
		"one only": {1, 5, 1},
	} {
		s := New(Options{MaxBytes: tt.bytes, Log: testr.New(t)})
		for n := range tt.runs {
			s.Add(runOf(n))
		}
		waits := s.waiting()
		must.Be(t, name, tt.want, len(waits))
		must.Be(t, name+": the newest", runOf(tt.runs-1).ID, waits[0].ID)
		must.Be(t, name+": bytes", int64(tt.want)*size(runOf(0)), s.waits)
	}
}

// Names of tasks, objects and fields take memory too.
func TestSize_CountsAllTexts(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 253)
	r := Run{Writes: slices.Repeat([]Write{{Name: text, Fields: slices.Repeat([]string{text}, 20)}}, MaxWrites)}
	r.Tasks = slices.Repeat([]Task{{TaskName: TaskName{Name: text, Path: text}, Action: text}}, MaxTasks)
	if is, least := size(r), int64(MaxWrites*21+MaxTasks*3)*253; is < least || is > 2*least {
		t.Errorf("%d bytes, of which at least %d are texts", is, least)
	}
}
