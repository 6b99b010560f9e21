package runstore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/test/must"
)

// someTime is when the first run of these tests has finished.
var someTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// shelve leaves a finished run of an object in runs, like conclude. Its size is one thousand bytes.
func shelve(t *testing.T, runs, object, id string, minute int, result status.Result) {
	t.Helper()
	dir := filepath.Join(runs, object, id)
	must.Do(t, os.MkdirAll(filepath.Join(dir, "artifacts", id), 0o700))
	when := someTime.Add(time.Duration(minute) * time.Minute)
	data := must.Get(json.Marshal(outcome{UID: object, Bytes: 1000, Run: status.Run{ID: id, Result: result, Finished: when}}))(t)
	must.Do(t, os.WriteFile(filepath.Join(dir, outcomeFile), data, 0o600))
	must.Do(t, os.Chtimes(filepath.Join(dir, "artifacts", id), when, when))
}

func storeIn(runs string, maxBytes int64) *Store {
	return &Store{
		root: filepath.Dir(runs), runs: runs, opts: Options{MaxBytes: maxBytes, Given: []string{"kubeconfig"}},
		log: logr.Discard(), now: func() time.Time { return someTime.Add(time.Hour) },
		wake: make(chan struct{}, 1), shelves: map[string]*shelf{},
	}
}

// left returns the runs on disk, as object/run.
func left(t *testing.T, runs string) []string {
	t.Helper()
	found := must.Get(filepath.Glob(filepath.Join(runs, "*", "*")))(t)
	var names []string
	for _, path := range found {
		name, _ := filepath.Rel(runs, path)
		names = append(names, name)
	}
	return names
}

// startOnce does what a store does when it starts.
func startOnce(t *testing.T, a *Store) {
	t.Helper()
	a.readAll(t.Context())
	a.enforce()
}

// Runs are kept by number and age, and failed runs in addition. 0 keeps none, a negative number all. The run in progress
// is never removed, and not counted.
func TestStore_KeepsWhatTheObjectsLimitsSay(t *testing.T) {
	t.Parallel()
	// Runs 1, 2 and 4 of the minutes 1 to 6 have failed.
	all := []string{"1", "2", "3", "4", "5", "6"}
	for name, tt := range map[string]struct {
		keep Retention
		want []string
	}{
		"all":                       {Retention{-1, 0, -1}, all},
		"as negative as can be":     {Retention{-5, -5, -1}, all},
		"none":                      {Retention{0, 0, -1}, nil},
		"one":                       {Retention{1, 0, -1}, []string{"6"}},
		"more than there are":       {Retention{20, 0, -1}, all},
		"one and a failed one":      {Retention{1, 1, -1}, []string{"4", "6"}},
		"failed ones only":          {Retention{0, 2, -1}, []string{"2", "4"}},
		"all failed ones":           {Retention{1, -1, -1}, []string{"1", "2", "4", "6"}},
		"those of 57 minutes":       {Retention{-1, 0, 57 * time.Minute}, []string{"4", "5", "6"}},
		"no age":                    {Retention{-1, -1, 0}, nil},
		"two, of 57 minutes":        {Retention{2, 5, 57 * time.Minute}, []string{"4", "5", "6"}},
		"any number, any age, zero": {Retention{0, 0, 0}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := t.TempDir()
			for i, id := range all {
				result := status.Succeeded
				if i == 0 || i == 1 || i == 3 {
					result = status.Failed
				}
				shelve(t, runs, "object", id, i+1, result)
			}
			a := storeIn(runs, -1)
			shelve(t, runs, "object", "live", 0, status.Succeeded)
			a.begin("object", "live")
			a.Finish("object", "6", tt.keep)
			var want []string
			for _, id := range append(tt.want, "live") {
				want = append(want, "object/"+id)
			}
			must.Be(t, "kept", want, left(t, runs))
			a.Finish("object", "live", Retention{0, 0, 0})
			if _, err := os.Lstat(filepath.Join(runs, "object")); !os.IsNotExist(err) {
				t.Errorf("the directory of an object without runs stays: %v", err)
			}
			if a.bytes != 0 || a.count != 0 {
				t.Errorf("%d bytes of %d runs are counted", a.bytes, a.count)
			}
		})
	}
}

// The total is over all objects. Among objects that keep the same amount, the oldest runs are removed first, then the
// newest run of an object, then its newest failed run, and last what another process may not have read yet.
func TestStore_BoundsTheTotalOverAllObjects(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		most int64
		want []string
	}{
		"no limit":           {-1, []string{"a/a1", "a/a3", "b/b2", "b/b4", "c/c0", "c/live"}},
		"enough":             {5000, []string{"a/a1", "a/a3", "b/b2", "b/b4", "c/c0", "c/live"}},
		"the oldest":         {4000, []string{"a/a1", "b/b4", "c/c0", "c/live"}},
		"successes first":    {2500, []string{"a/a1", "c/c0", "c/live"}},
		"then failures":      {1999, []string{"c/c0", "c/live"}},
		"none, not the live": {0, []string{"c/live"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runs := t.TempDir()
			shelve(t, runs, "c", "c0", 0, status.Succeeded)
			shelve(t, runs, "a", "a1", 1, status.Failed)
			shelve(t, runs, "b", "b2", 2, status.Succeeded)
			shelve(t, runs, "a", "a3", 3, status.Succeeded)
			shelve(t, runs, "b", "b4", 4, status.Succeeded)
			shelve(t, runs, "c", "live", 5, status.Succeeded)
			a := storeIn(runs, tt.most)
			a.begin("c", "live")
			for _, object := range []string{"a", "b"} {
				a.Settled(object, Retention{-1, -1, -1})
			}
			startOnce(t, a)
			must.Be(t, "kept", tt.want, left(t, runs))
		})
	}
}

// The object that keeps the most loses runs first. What other objects keep does not depend on it.
func TestStore_TakesFromTheObjectThatKeepsTheMost(t *testing.T) {
	t.Parallel()
	// Runs have the given sizes, and finished one minute after the other. Those of the first object come last; F is a
	// failed run.
	type run struct {
		bytes  int64
		failed bool
	}
	times := func(n int, r run) []run { return slices.Repeat([]run{r}, n) }
	for name, tt := range map[string]struct {
		objects [][]run
		most    int64
		want    []string // what is left: object/run
	}{
		"many runs":             {[][]run{times(6, run{100, false}), {{100, false}}, {{100, true}, {100, false}}}, 500, []string{"0/4", "0/5", "1/0", "2/0", "2/1"}},
		"one large run":         {[][]run{{{5000, false}}, times(2, run{100, false}), {{100, true}}}, 1000, []string{"1/0", "1/1", "2/0"}},
		"failed, and large":     {[][]run{{{5000, true}, {10, false}}, {{100, false}}}, 1000, []string{"0/1", "1/0"}},
		"failed ones come last": {[][]run{{{100, true}, {100, true}, {100, false}}, {{100, false}}}, 200, []string{"0/1", "1/0"}},
		"all the same":          {[][]run{{{100, false}}, {{100, false}}, {{100, false}}}, 200, []string{"0/0", "1/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := storeIn(t.TempDir(), -1)
			minute := 0
			for object, runs := range slices.Backward(tt.objects) {
				for i, r := range runs {
					minute++
					a.add(a.shelf(fmt.Sprint(object)), kept{id: fmt.Sprint(i), bytes: r.bytes, failed: r.failed, finished: someTime.Add(time.Duration(minute) * time.Minute)})
				}
			}
			a.evict(func() bool { return a.bytes <= tt.most })
			var got []string
			for object, s := range a.shelves {
				for _, k := range s.runs {
					got = append(got, object+"/"+k.id)
				}
			}
			slices.Sort(got)
			must.Be(t, "kept", tt.want, got)
		})
	}
}

// The only run of an object, which has just failed and has much output, is what people look for. Earlier runs of other
// objects are removed first, although those objects keep less.
func TestStore_KeepsLastRunsWhileThereAreEarlierOnes(t *testing.T) {
	t.Parallel()
	a := storeIn(t.TempDir(), -1)
	a.add(a.shelf("failing"), kept{id: "only", bytes: 40, failed: true, finished: someTime})
	for object := range 20 {
		for i := range 3 {
			a.add(a.shelf(fmt.Sprint(object)), kept{id: fmt.Sprint(i), bytes: 10, finished: someTime.Add(time.Duration(i) * time.Minute)})
		}
	}
	a.evict(func() bool { return a.bytes <= 600 })
	if a.bytes != 600 || !a.shelf("failing").has("only") {
		t.Errorf("%d bytes are left, the last run of the failing object: %t", a.bytes, a.shelf("failing").has("only"))
	}
	a.evict(func() bool { return a.bytes <= 240 })
	for object, s := range a.shelves {
		if len(s.runs) != 1 || object != "failing" && !s.has("2") {
			t.Errorf("left of %s: %v", object, s.runs)
		}
	}
}

// On a full disk, old runs are removed in portions, until there is room or nothing more may be removed.
func TestStore_MakesRoomOnAFullDisk(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	for i := range 8 {
		shelve(t, runs, "object", fmt.Sprint(i), i, status.Succeeded)
	}
	a := storeIn(runs, -1)
	a.index("object")
	tries := 0
	err := a.withRoom(func() error {
		if tries++; tries < 3 {
			return fmt.Errorf("write: %w", unix.ENOSPC)
		}
		return nil
	})
	if got := left(t, runs); err != nil || len(got) != 4 || got[0] != "object/4" {
		t.Errorf("left after two attempts: %v, %v", got, err)
	}
	if err := a.withRoom(func() error { return unix.EDQUOT }); err == nil || len(left(t, runs)) > 0 {
		t.Errorf("left when there was never room: %v, %v", left(t, runs), err)
	}
	if err := a.withRoom(func() error { return fs.ErrPermission }); err == nil {
		t.Error("another error is lost")
	}
}

// The run of an earlier operator that goes on is no ended run: it is not removed on a full disk, and its end counts, not
// what was known of it before.
func TestStore_TakesOverARunInProgress(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(runs, "o", "x", "artifacts", "x"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(runs, "o", "x", "artifacts", "x", "stdout"), make([]byte, 50_000), 0o600))
	a := storeIn(runs, -1)
	a.readAll(t.Context())
	a.begin("o", "x")
	must.Be(t, "room is made", false, a.MakeRoom())
	must.Be(t, "kept", []string{"o/x"}, left(t, runs))

	a = storeIn(runs, -1)
	a.readAll(t.Context())
	shelve(t, runs, "o", "x", 0, status.Failed)
	a.Finish("o", "x", Retention{0, 5, -1})
	must.Be(t, "the failed run is kept", []string{"o/x"}, left(t, runs))
	must.Be(t, "bytes", int64(1000), a.bytes)
}

// What was incomplete when an operator died is removed by the next one, twenty times in a row, and never counts as a run.
func TestStore_StartsAnewAsOftenAsOneLikes(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	shelve(t, runs, "object", "whole", 1, status.Succeeded)
	shelve(t, runs, "object", "live", 2, status.Succeeded)
	shelve(t, runs, "object", "unread", 0, status.Failed)
	for _, dir := range []string{"object/.half.removing/artifacts/half", "object/.dead.building/env", "object/.live.building/env", ".gone.removing/x/artifacts", "empty"} {
		must.Do(t, os.MkdirAll(filepath.Join(runs, dir), 0o700))
	}
	for range 20 {
		a := storeIn(runs, 3000)
		a.begin("object", "live")
		startOnce(t, a)
		entries := must.Get(os.ReadDir(filepath.Join(runs, "object")))(t)
		var names []string
		for _, entry := range entries {
			names = append(names, entry.Name())
		}
		if diff := cmp.Diff([]string{".live.building", "live", "unread", "whole"}, names); diff != "" {
			t.Fatalf("left of the object (-want +got):\n%s", diff)
		}
		if entries, _ := os.ReadDir(runs); len(entries) != 1 {
			t.Fatalf("left: %v", entries)
		}
		if a.count != 2 || a.bytes != 2000 {
			t.Fatalf("%d runs with %d bytes are counted", a.count, a.bytes)
		}
	}
}

// The inputs of a run are removed even if the operator died before the run ended and nothing records the run.
func TestStore_StripsRunsOfAnOperatorThatDied(t *testing.T) {
	t.Parallel()
	runs := t.TempDir()
	shelve(t, runs, "object", "noted", 1, status.Succeeded)
	given := []string{"env/extravars", "kubeconfig", "artifacts/cut/fact_cache/localhost"}
	for _, name := range append([]string{"ticket.json", "artifacts/cut/stdout"}, given...) {
		path := filepath.Join(runs, "object", "cut", name)
		must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("{}"), 0o600)))
	}
	a := storeIn(runs, -1)
	startOnce(t, a)
	a.Settled("object", Retention{-1, -1, -1})
	for _, name := range []string{"ticket.json", "artifacts/cut/stdout", "env", "kubeconfig", "artifacts/cut/fact_cache"} {
		_, err := os.Lstat(filepath.Join(runs, "object", "cut", name))
		if stays := name == "ticket.json" || name == "artifacts/cut/stdout"; stays != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A thousand objects are created, run and are deleted. No file and no counter is left.
func TestStore_IsBackAtItsBaselineWhenObjectsAreGone(t *testing.T) {
	t.Parallel()
	const objects = 1000
	root := t.TempDir()
	store := must.Get(New(Options{Root: root, MaxBytes: -1}, logr.Discard()))(t)
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := worker; i < objects; i += 4 {
				uid := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
				path := []string{"example.com", "v1", "Widget", fmt.Sprintf("ns%d", i%7), fmt.Sprint(i)}
				for n := range 3 {
					id := fmt.Sprintf("%d-%d", i, n)
					dir, err := store.Create(uid, id)
					if err == nil {
						err = os.MkdirAll(filepath.Join(dir, "artifacts", id, "job_events"), 0o700)
					}
					if err == nil {
						err = store.Record(uid, false, status.Run{ID: id, Result: status.Failed, Finished: time.Now()})
					}
					if err != nil {
						t.Error(err)
					}
					store.Link(dir, path...)
					store.Finish(uid, id, Retention{2, 0, -1})
				}
				if err := store.Forget(uid, path...); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	var files []string
	_ = filepath.WalkDir(root, func(path string, _ fs.DirEntry, _ error) error {
		files = append(files, strings.TrimPrefix(path, root))
		return nil
	})
	must.Be(t, "left", []string{"", "/" + runsDir}, files)
	if a := store; a.count != 0 || a.bytes != 0 || len(a.shelves) != 0 {
		t.Errorf("%d runs, %d bytes, %d objects are counted", a.count, a.bytes, len(a.shelves))
	}
}

// A path that another user has prepared is not used.
func TestStore_RefusesAForeignRunnerRoot(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: files of other users. Run the test as root")
	}
	const nobody = 65534
	for name, tt := range map[string]struct {
		prepare func(shared string) (root string, err error)
		want    string // empty: the path is used
	}{
		"nothing is there": {func(shared string) (string, error) { return filepath.Join(shared, "a", "b"), nil }, ""},
		"a directory of another": {func(shared string) (string, error) {
			return filepath.Join(shared, "a", "b"), chowned(os.Mkdir(filepath.Join(shared, "a"), 0o777), filepath.Join(shared, "a"), nobody)
		}, "belongs to the user 65534"},
		"a link of another": {func(shared string) (string, error) {
			link := filepath.Join(shared, "a") // a link to a place where nothing can be created
			return link, chowned(os.Symlink("/proc/self", link), link, nobody)
		}, "belongs to the user 65534"},
		"runs of another": {func(shared string) (string, error) {
			runs := filepath.Join(shared, runsDir)
			return shared, chowned(os.Mkdir(runs, 0o777), runs, nobody)
		}, "belongs to the user 65534"},
		"a link for the runs": {func(shared string) (string, error) {
			return shared, os.Symlink(os.TempDir(), filepath.Join(shared, runsDir))
		}, "is not a directory"},
		"a file": {func(shared string) (string, error) {
			return filepath.Join(shared, "a"), os.WriteFile(filepath.Join(shared, "a"), nil, 0o600)
		}, "choose a writable directory with --runner-root"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			must.Do(t, os.Chmod(shared, 0o1777))
			root, err := tt.prepare(shared)
			if err != nil {
				t.Fatal(err)
			}
			_, err = New(Options{Root: root}, logr.Discard())
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}

func chowned(err error, path string, uid int) error {
	if err != nil {
		return err
	}
	return os.Lchown(path, uid, uid)
}

// If a run has replaced the operator's files with something else, that is not believed, waited for, or written to.
func TestOutcome_OfWhatWasPlanted(t *testing.T) {
	t.Parallel()
	const uid, id = "00000000-0000-0000-0000-000000000001", "run"
	for name, plant := range map[string]func(path, outside string) error{
		"a link":      func(path, outside string) error { return os.Symlink(outside, path) },
		"a hard link": func(path, outside string) error { return os.Link(outside, path) },
		"a pipe":      func(path, _ string) error { return unix.Mkfifo(path, 0o600) },
		"a socket":    func(path, _ string) error { return unix.Mknod(path, unix.S_IFSOCK|0o600, 0) },
		"a directory": func(path, _ string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
		"a huge file": func(path, _ string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, 1<<40)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := must.Get(New(Options{Root: t.TempDir(), MaxBytes: -1}, logr.Discard()))(t)
			dir := must.Get(store.Create(uid, id))(t)
			outside := filepath.Join(store.root, "outside")
			must.Do(t, os.WriteFile(outside, []byte("precious"), 0o600))
			must.Do(t, os.MkdirAll(filepath.Join(dir, "artifacts"), 0o700))
			for _, file := range []string{TicketFile, outcomeFile, "." + outcomeFile + ".new"} {
				must.Do(t, plant(filepath.Join(dir, file), outside))
			}
			if _, err := readTicket(dir); err == nil {
				t.Error("the ticket is believed")
			}
			lost := status.Active{ID: id, Generation: 3}
			if run, _ := store.Recorded(uid, false, lost); run != nil {
				t.Error("the outcome is believed")
			}
			run := status.Run{ID: id, Generation: 3, Result: status.Failed, Reason: "TimedOut", Finished: someTime}
			must.Do(t, store.Record(uid, false, run))
			if got, _ := store.Recorded(uid, false, lost); got == nil || !cmp.Equal(*got, run) {
				t.Errorf("recorded = %+v", got)
			}
			store.Finish(uid, id, Retention{0, 0, -1})
			if data, err := os.ReadFile(outside); err != nil || string(data) != "precious" {
				t.Errorf("outside = %q, %v", data, err)
			}
			if left := left(t, filepath.Join(store.root, runsDir)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}
