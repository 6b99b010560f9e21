package e2e

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

// refusedStart is an operator that must not start, and what it must print.
type refusedStart struct {
	name    string
	watches string          // the content of the watches file; empty: a correct one
	prepare func(s *stage)  // nil for nothing
	adjust  func(*operator) // called before the process starts; nil for nothing
	args    []string
	want    []string // parts of the output
}

const goodWatch = "- group: example.com\n  version: v1\n  kind: Widget\n  role: one\n"

func refusedStarts() []refusedStart {
	return []refusedStart{
		{
			name: "watches file is another user's", adjust: asNobody,
			prepare: func(s *stage) { s.chmod("watches.yaml", 0) },
			want:    []string{"Error: load watches: open ", "watches.yaml: permission denied; make it readable for the user who runs the operator"},
		},
		{
			name: "everything wrong in watches", watches: "- version: v1\n  kind: A\n  role: nowhere\n" +
				"- version: v1\n  kind: B\n  playbook: gone.yml\n  reconcilePeriod: 30\n" +
				"- version: v1\n  kind: C\n  role: one\n  reconcilePeriod: 5 minutes\n  finalizer: {name: example.com/x, role: gone}\n" +
				"- version: v1\n  kind: C\n  role: one\n",
			want: []string{
				"watches.yaml:3:9: error: [0].role: role: nowhere was not found; looked for ",
				"watches.yaml:6:13: error: [1].playbook: playbook: ", "gone.yml was not found",
				`watches.yaml:7:20: error: [1].reconcilePeriod: 30 has no unit`, `write "30s" for seconds`,
				`watches.yaml:11:20: error: [2].reconcilePeriod: `, "5 minutes",
				"watches.yaml:12:42: error: [2].finalizer.role: role: gone was not found",
				"watches.yaml:13:3: error: [3]: duplicate GVK: /v1, Kind=C; first watched at line 8",
			},
		},
		{
			name: "unknown key under --strict", watches: goodWatch + "  reconcilPeriod: 1m\n", args: []string{"--strict"},
			want: []string{`watches.yaml:5:3: error: [0].reconcilPeriod: unknown key "reconcilPeriod" has no effect; did you mean "reconcilePeriod"?`},
		},
	}
}

func TestBadInput_StopsTheStartAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	for _, tt := range refusedStarts() {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t)
			s.role("one", "- ansible.builtin.debug:\n    msg: done\n")
			if tt.watches == "" {
				tt.watches = goodWatch
			}
			s.write("watches.yaml", tt.watches)
			if tt.prepare != nil {
				tt.prepare(s)
			}
			before := s.files()

			o := s.launchWith(tt.adjust, tt.args...)
			if code := o.exit(); code != 1 {
				t.Errorf("exit code = %d, want 1", code)
			}
			for _, part := range tt.want {
				if !strings.Contains(o.output(), part) {
					t.Errorf("the output lacks %q", part)
				}
			}
			if strings.Contains(o.output(), "goroutine ") {
				t.Error("the output has a stack trace")
			}
			if diff := cmp.Diff(before, s.files()); diff != "" {
				t.Errorf("files of the project, before and after:\n%s", diff)
			}
			if _, err := os.Lstat(s.root); !os.IsNotExist(err) {
				t.Errorf("the runner root was made: %v", err)
			}
		})
	}
}

// An empty list watches nothing. That is not a mistake: a new operator project has one.
func TestBadInput_EmptyWatchesFileIsAnOperatorThatWatchesNothing(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.write("watches.yaml", "---\n# nothing yet\n")
	s.start().stop()
}

// etcd accepts 1.5 MiB. Extra vars contain such an object three times, and Ansible reads all of it.
func TestBadInput_ObjectAtTheSizeLimitRuns(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	const size = 1_400_000
	s.role("one", fmt.Sprintf("- name: Measure\n  ansible.builtin.assert:\n    that: blob | length == %d\n    quiet: true\n", size))
	s.watch(k, "role: one")
	s.start()
	k.create("it", map[string]any{"blob": strings.Repeat("{{ x", size/4)})
	k.awaitReady("it")
}

func (s *stage) chmod(path string, mode fs.FileMode) {
	s.t.Helper()
	must.Do(s.t, os.Chmod(filepath.Join(s.dir, path), mode))
}

// files returns the paths below the project.
func (s *stage) files() []string {
	s.t.Helper()
	var paths []string
	must.Do(s.t, filepath.WalkDir(s.dir, func(path string, _ fs.DirEntry, err error) error {
		paths = append(paths, path)
		return err
	}))
	slices.Sort(paths)
	return paths
}

// asNobody takes away the permission to use other users' files from a process that has it.
func asNobody(o *operator) {
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	o.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	for _, dir := range []string{o.stage.dir, filepath.Dir(o.stage.dir)} {
		must.Do(o.t, os.Chmod(dir, 0o755))
	}
}
