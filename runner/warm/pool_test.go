package warm_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/runner/supervise"
	"github.com/rolewright/rolewright/runner/warm"
	"github.com/rolewright/rolewright/test/must"
)

func TestPool_ReplacesAServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(o *warm.Options)
		cause  func(t *testing.T, o warm.Options)
	}{
		"after its runs": {change: func(o *warm.Options) { o.MaxRuns = 1 }},
		"that has grown": {change: func(o *warm.Options) { o.MaxMemory = 1 }},
		"of which a file changed, from one that there was not": {cause: func(t *testing.T, o warm.Options) {
			t.Helper()
			write(t, filepath.Join(home(o), ".ansible.cfg"), "[defaults]\n")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.MaxRuns = math.MaxInt // each Acquire below counts as a run
			if tt.change != nil {
				tt.change(&o)
			}
			pool := warm.New(o)
			defer pool.Close()
			must.Do(t, pool.Wait(t.Context()))
			first := servers(t, o.Dir)
			lease, err := pool.Acquire(t.Context())
			if tt.cause != nil {
				if err != nil {
					t.Fatal(err)
				}
				tt.cause(t, o)
			}
			eventually(t, "the server is out of use", func() bool {
				second, err := pool.Acquire(t.Context())
				if err == nil {
					second.Release(supervise.Exit{}, nil)
				}
				return err != nil
			})
			must.Do(t, pool.Wait(t.Context()))
			for pid := range first {
				_, alive := processes(t, "rolewright-fork-server "+o.Dir)[pid]
				if lease != nil && !alive {
					t.Error("it ends while a run is in progress")
				}
			}
			if lease != nil {
				lease.Release(supervise.Exit{}, nil)
			}
			eventually(t, "the old server ends", func() bool {
				now := processes(t, "rolewright-fork-server "+o.Dir)
				for pid := range first {
					if _, alive := now[pid]; alive {
						return false
					}
				}
				return true
			})
		})
	}
}

// All files that decide what a server has in memory are checked for changes.
func TestPool_LooksAtAllOnWhichAServerDepends(t *testing.T) {
	t.Parallel()
	o := options(t)
	wrapInterpreter(t, &o)
	fragment := filepath.Join(home(o), ".ansible/plugins/doc_fragments/own.py")
	certificates, rejected := filepath.Join(home(o), "ca.pem"), filepath.Join(home(o), "plugin_filters.yml")
	library := filepath.Join(packages(o), "requests", "__init__.py") // the server imports it
	write(t, fragment, "")
	write(t, certificates, "")
	write(t, library, "from . import certs\n")
	write(t, filepath.Join(packages(o), "requests", "certs.py"), fmt.Sprintf("def where():\n    return %q\n", certificates))
	write(t, filepath.Join(home(o), ".ansible.cfg"), "[defaults]\nplugin_filters_cfg = "+rejected+"\n")
	write(t, rejected, "filter_version: '1.0'\nmodule_blacklist: [expect]\nmodule_rejectlist: [expect]\n")
	o.Environ = append(o.Environ, "PYTHONPATH="+packages(o)+":"+os.Getenv("PYTHONPATH"))
	pool := warm.New(o)
	defer pool.Close()
	must.Do(t, pool.Wait(t.Context()))
	for name, path := range map[string]string{
		"the program":                         o.Runner,
		"its interpreter":                     wrapped(o),
		"where a new package may come":        packages(o),
		"a package":                           library,
		"options of plugins":                  fragment,
		"certificates":                        certificates,
		"a collection":                        filepath.Join(home(o), ".ansible/collections/ansible_collections/operator_sdk/util/MANIFEST.json"),
		"the plugins that are not to be used": rejected,
	} {
		if !pool.LooksAt(path) {
			t.Errorf("%s is not looked at: %s", name, path)
		}
	}
}

// A server is not used if a file has changed after the server may have imported it.
func TestPool_StartsAnotherServerForWhatChangesMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		times int // how often the file changes
		want  string
	}{
		"once":       {times: 1},
		"every time": {times: 100, want: "requests.py: it has changed while the server started"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			count := filepath.Join(t.TempDir(), "count")
			write(t, count, "")
			library := filepath.Join(packages(o), "requests.py")
			write(t, library, fmt.Sprintf("import os\nopen(%[1]q, 'a').write('.')\nif os.path.getsize(%[1]q) <= %[2]d: os.utime(__file__)\n", count, tt.times))
			// Files that Python compiles at the first start would change a directory.
			o.Environ = append(o.Environ, "PYTHONDONTWRITEBYTECODE=1", "PYTHONPATH="+packages(o)+":"+os.Getenv("PYTHONPATH"))
			pool := warm.New(o)
			defer pool.Close()
			if err := pool.Wait(t.Context()); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v", err)
			}
			if n := len(servers(t, o.Dir)); (n > 0) != (tt.want == "") {
				t.Errorf("%d servers", n)
			}
			if started, err := os.ReadFile(count); err != nil || len(started) < 2 || tt.times == 1 && len(started) > 2 {
				t.Errorf("%d servers were started (%v)", len(started), err)
			}
		})
	}
}

// A cleaner of temporary files may remove the directory of the pool.
func TestPool_MakesItsDirectoryAgain(t *testing.T) {
	t.Parallel()
	o := options(t)
	pool := warm.New(o)
	defer pool.Close()
	must.Do(t, pool.Wait(t.Context()))
	lease := must.Get(pool.Acquire(t.Context()))(t)
	for _, name := range entries(t, o.Dir) {
		must.Do(t, os.RemoveAll(filepath.Join(o.Dir, name)))
	}
	lease.Release(supervise.Exit{Code: -1}, supervise.ErrServer) // it has no socket
	must.Do(t, pool.Wait(t.Context()))
}

// wrapped returns the path of the interpreter that wrapInterpreter makes.
func wrapped(o warm.Options) string { return filepath.Join(home(o), "bin", "python3") }

// wrapInterpreter replaces the scripts by copies with another interpreter, which starts the original one.
func wrapInterpreter(t *testing.T, o *warm.Options) {
	t.Helper()
	for _, script := range []*string{&o.Runner, &o.Playbook} {
		text := must.Get(os.ReadFile(*script))(t)
		python, rest, _ := strings.Cut(strings.TrimPrefix(string(text), "#!"), "\n")
		write(t, wrapped(*o), "#!/bin/sh\nexec "+python+" \"$@\"\n")
		path := filepath.Join(home(*o), "bin", filepath.Base(*script))
		write(t, path, "#!"+wrapped(*o)+"\n"+rest)
		must.Do(t, errors.Join(os.Chmod(path, 0o700), os.Chmod(wrapped(*o), 0o700)))
		*script = path
	}
}

// home returns the home directory of a pool's runs, and packages a directory in it.
func home(o warm.Options) string {
	entry := o.Environ[slices.IndexFunc(o.Environ, func(entry string) bool { return strings.HasPrefix(entry, "HOME=") })]
	return strings.TrimPrefix(entry, "HOME=")
}

func packages(o warm.Options) string { return filepath.Join(home(o), "packages") }

func write(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.MkdirAll(filepath.Dir(name), 0o700))
	must.Do(t, os.WriteFile(name, []byte(text), 0o600))
}

// entries returns the names in a directory.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	found := must.Get(os.ReadDir(dir))(t)
	names := make([]string, len(found))
	for i, entry := range found {
		names[i] = entry.Name()
	}
	return names
}

func TestPool_SaysWhyThereIsNoServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(t *testing.T, o *warm.Options)
		want   string
	}{
		"a shell script": {func(t *testing.T, o *warm.Options) {
			t.Helper()
			o.Playbook = filepath.Join(t.TempDir(), "ansible-playbook")
			must.Do(t, os.WriteFile(o.Playbook, []byte("#!/bin/sh\nexec true\n"), 0o700))
		}, "not a Python script"},
		"no program": {func(_ *testing.T, o *warm.Options) { o.Runner = "/nowhere/ansible-runner" }, "/nowhere/ansible-runner: no such file"},
		"a lock that all runs would share": {func(t *testing.T, o *warm.Options) {
			t.Helper()
			write(t, filepath.Join(packages(*o), "sitecustomize.py"), "import multiprocessing\nkept = multiprocessing.get_context('fork').Condition()\n")
			o.Environ = append(o.Environ, "PYTHONPATH="+packages(*o)+":"+os.Getenv("PYTHONPATH"))
		}, "all runs would share <RLock"},
		"an unknown means that is turned off": {
			func(_ *testing.T, o *warm.Options) { o.Without = "turbo,no_such" },
			"ROLEWRIGHT_WARM_WITHOUT has unknown names: no_such; there are: ",
		},
		"a long path": {func(t *testing.T, o *warm.Options) {
			t.Helper()
			o.Dir = filepath.Join(o.Dir, strings.Repeat("long", 20))
			must.Do(t, os.Mkdir(o.Dir, 0o700))
		}, "too long for the path of a socket"},
		"a check that fails": {func(t *testing.T, o *warm.Options) {
			t.Helper()
			o.Check = func(_ context.Context, dir, socket string, _ bool) error {
				if _, err := os.Stat(socket); err != nil || filepath.Dir(socket) != dir {
					t.Errorf("%s, %s: %v", dir, socket, err)
				}
				return errors.New("the answer is 7")
			}
		}, "self-check: the answer is 7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			tt.change(t, &o)
			pool := warm.New(o)
			err := pool.Wait(t.Context())
			if !errors.Is(err, warm.ErrNotReady) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v", err)
			}
			if _, err := pool.Acquire(t.Context()); !errors.Is(err, warm.ErrNotReady) {
				t.Errorf("Acquire: %v", err)
			}
			pool.Close()
			if left := entries(t, o.Dir); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A pool removes only directories of this user's pools whose process is gone.
func TestPool_SweepsWhatNobodyUses(t *testing.T) {
	t.Parallel()
	o := options(t)
	other := warm.New(o)
	defer other.Close()
	must.Do(t, other.Wait(t.Context()))
	kept := entries(t, o.Dir)
	for name, mode := range map[string]os.FileMode{"rolewright-warm-1": 0o700, "rolewright-warm-2": 0o755, "rolewright-warmth": 0o700} {
		path := filepath.Join(o.Dir, name)
		must.Do(t, errors.Join(os.Mkdir(path, mode), os.Chmod(path, mode)))
	}
	elsewhere := t.TempDir()
	must.Do(t, errors.Join(os.Chmod(elsewhere, 0o700), os.Symlink(elsewhere, filepath.Join(o.Dir, "rolewright-warm-3"))))
	kept = append(kept, "rolewright-warm-2", "rolewright-warm-3", "rolewright-warmth")
	if os.Geteuid() == 0 {
		path := filepath.Join(o.Dir, "rolewright-warm-4")
		must.Do(t, errors.Join(os.Mkdir(path, 0o700), os.Chown(path, 1, 1)))
		kept = append(kept, "rolewright-warm-4")
	}
	pool := warm.New(o)
	must.Do(t, pool.Wait(t.Context()))
	pool.Close()
	slices.Sort(kept)
	if left := entries(t, o.Dir); !slices.Equal(left, kept) {
		t.Errorf("left %v, want %v", left, kept)
	}
	if _, err := os.Stat(elsewhere); err != nil {
		t.Error(err)
	}
}
