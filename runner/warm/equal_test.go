//go:build warm

package warm_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
)

// observed is what there is to see of a run, without times and identifiers.
type observed struct {
	Err      string
	ExitCode int
	Status   string
	Verdict  runner.Verdict
	Events   []any
	Stdout   []string
	// Files are those that the run left in its output directory: mode and content.
	Files map[string]string
}

// playbookOptions are in the comment "# options:" in a playbook's first line.
type playbookOptions struct {
	Verbosity int
	Cmdline   string
	Env       map[string]string
}

// corpus are the playbooks that are run both ways.
func corpus(t *testing.T) []string {
	t.Helper()
	// Those which wait or write for ever, need variables, or whose subject is what is killed.
	unfit := []string{"sleep.yml", "stubborn.yml", "daemons.yml", "pour.yml", "fill.yml", "chatty.yml", "script.yml"}
	var found []string
	for _, pattern := range []string{"testdata/corpus/*.yml", "testdata/corpus/*/*.yml", "../testdata/playbooks/*.yml"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if base := filepath.Base(name); base == "vars.yml" || slices.Contains(unfit, base) {
				continue
			}
			path, err := filepath.Abs(name)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, path)
		}
	}
	return found
}

// A run that is forked is the run that is executed: the same events in the same
// order with the same results, output, end and files.
func TestRun_IsTheSameForkedAndExecuted(t *testing.T) {
	o := options(t)
	forked, _ := start(t, o)
	executed := runner.New(runner.Options{Environ: o.Environ, Supervisor: o.Supervisor})
	t.Cleanup(executed.Close)
	for _, playbook := range corpus(t) {
		t.Run(strings.TrimSuffix(filepath.Base(playbook), ".yml"), func(t *testing.T) {
			want := observe(t, executed, playbook)
			got := observe(t, forked, playbook)
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("executed (-), forked (+):\n%s", diff)
			}
		})
	}
	trace := traced(t, o)
	if forked, all := strings.Count(trace, "playbook forked"), len(corpus(t)); 2*forked < all {
		t.Errorf("%d of %d playbooks were forked: most are to be", forked, all)
	}
	t.Logf("playbooks forked %d, executed %d; modules forked %d; commands %d",
		strings.Count(trace, "playbook forked"), strings.Count(trace, "playbook executed"),
		strings.Count(trace, "module forked"), strings.Count(trace, "\ncommand"))
}

// observe makes a run.
func observe(t *testing.T, r *runner.Runner, playbook string) observed {
	t.Helper()
	root, out := t.TempDir(), t.TempDir()
	id := uuid.NewString()
	req := runner.Request{ID: id, Dir: filepath.Join(root, id), Content: runner.Content{Playbook: playbook}}
	req.ExtraVars = []byte(fmt.Sprintf(`{"out": %q}`, out))
	text, err := os.ReadFile(playbook)
	if err != nil {
		t.Fatal(err)
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if given, ok := strings.CutPrefix(line, "# options:"); ok {
		var opts playbookOptions
		if err := json.Unmarshal([]byte(given), &opts); err != nil {
			t.Fatal(err)
		}
		req.Verbosity, req.Cmdline, req.Env = opts.Verbosity, opts.Cmdline, opts.Env
	}
	var seen observed
	res, err := r.Run(t.Context(), req)
	if err != nil {
		seen.Err = err.Error()
	}
	n := normaliser{strings.NewReplacer(req.Dir, "DIR", out, "OUT", id, "ID")}
	seen.ExitCode, seen.Status, seen.Verdict = res.ExitCode, res.Status, res.Verdict()
	seen.Verdict.Message = n.text(seen.Verdict.Message)
	artifacts := filepath.Join(req.Dir, "artifacts", id)
	seen.Events = n.events(t, filepath.Join(artifacts, "job_events"))
	stdout, err := os.ReadFile(filepath.Join(artifacts, "stdout"))
	if err != nil {
		t.Error(err)
	}
	seen.Stdout = strings.Split(n.text(string(stdout)), "\n")
	seen.Files = n.files(t, out)
	return seen
}

// normaliser takes from values what differs between any two runs.
type normaliser struct{ names *strings.Replacer }

// volatile are the keys of times and identifiers.
var volatile = map[string]bool{
	"uuid": true, "parent_uuid": true, "play_uuid": true, "task_uuid": true, "playbook_uuid": true, "runner_ident": true,
	"created": true, "start": true, "end": true, "delta": true, "duration": true, "elapsed": true, "pid": true,
	"atime": true, "mtime": true, "ctime": true, "inode": true, "jid": true, "ansible_job_id": true, "results_file": true,
	"ansible_facts": true, "version": true, "blocks": true,
}

// patterns are times and identifiers within texts.
var patterns = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`ansible-tmp-[\d.]+-\d+-\d+`), "ansible-tmp-N"},
	{regexp.MustCompile(`ansible-local-\w+(?:/tmp\w+)?`), "ansible-local-N"},
	{regexp.MustCompile(`(ansible_[\w.]+_payload_)\w{8}`), "${1}N"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?`), "TIME"},
	{regexp.MustCompile(`\d:\d\d:\d\d\.\d{6}`), "TIME"},
	{regexp.MustCompile(`\bj?\d{9,}\.\d+\b`), "NUMBER"},
	{regexp.MustCompile(`0x[0-9a-f]{8,}`), "ADDRESS"},
	{regexp.MustCompile(`\btmp\w{8}\b`), "tmpN"},
	{regexp.MustCompile(`(?m)^.*(?:META: ran|redirecting|Loading callback).*$`), ""},
	{regexp.MustCompile(`\b(?:pid|PID|process)[ =:]*\d+`), "pid N"},
}

func (n normaliser) text(text string) string {
	text = n.names.Replace(text)
	for _, p := range patterns {
		text = p.pattern.ReplaceAllString(text, p.with)
	}
	return text
}

func (n normaliser) value(value any) any {
	switch v := value.(type) {
	case string:
		return n.text(v)
	case []any:
		for i := range v {
			v[i] = n.value(v[i])
		}
	case map[string]any:
		for key := range v {
			if volatile[key] {
				v[key] = "volatile"
				continue
			}
			v[key] = n.value(v[key])
		}
	}
	return value
}

// events returns the events in order.
func (n normaliser) events(t *testing.T, dir string) []any {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var events []map[string]any
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var event map[string]any
		if err := json.Unmarshal(text, &event); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		events = append(events, event)
	}
	slices.SortFunc(events, func(a, b map[string]any) int {
		return cmp.Compare(a["counter"].(float64), b["counter"].(float64)) //nolint:forcetypeassert // ansible-runner's
	})
	result := make([]any, 0, len(events))
	for _, event := range events {
		// How ansible-runner cuts the output that is no event's into events
		// depends on when it reads which part; the whole is compared as Stdout.
		if event["event"] == "verbose" {
			continue
		}
		for _, key := range []string{"counter", "start_line", "end_line", "stdout"} {
			delete(event, key)
		}
		result = append(result, n.value(event))
	}
	return result
}

// files returns what is in a directory.
func (n normaliser) files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		found[name] = info.Mode().String()
		if info.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found[name] += " " + n.text(string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	delete(found, ".")
	return maps.Clone(found)
}
