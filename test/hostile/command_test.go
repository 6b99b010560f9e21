package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/test/must"
)

// TestCorpus_ObjectsAreDataForCommands runs commands for all cases of the corpus. The object arrives unchanged and only
// in files, and whatever a command repeats of it stays text.
func TestCorpus_ObjectsAreDataForCommands(t *testing.T) {
	if forked() {
		return // commands are not forked
	}
	for i, b := range batches(t, corpus(t), true, everyCase()) {
		for _, fail := range []bool{true, false} {
			if !fail && i > 0 { // a success is the same but for the last report
				break
			}
			t.Run(fmt.Sprintf("%s, fails: %t", b.name, fail), func(t *testing.T) {
				t.Parallel()
				probeCommand(t, newSandbox(t), b, fail)
			})
		}
	}
}

// handler is a command that runs for objects of the corpus.
func handler(t *testing.T, fail bool) *watches.Command {
	t.Helper()
	c := &watches.Command{Path: absolute(t, "testdata/handler.py"), Dir: absolute(t, "testdata")}
	if fail {
		c.Args = []string{"fail"}
	}
	return c
}

func probeCommand(t *testing.T, s *sandbox, b *batch, fail bool) {
	t.Helper()
	parts := map[string]any{}
	for name, part := range b.parts {
		parts[name] = baited(part, s.bait())
	}
	laid := *b
	laid.parts = parts
	object := laid.object()
	c := handler(t, fail)
	given := previewed(t, c, object)
	harmless := previewed(t, c, map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": identity(object)})
	must.Be(t, "command line", append([]string{c.Path}, c.Args...), given.Command)
	must.Be(t, "environment", harmless.Environment, given.Environment)

	s.untraced = true
	s.req.Content = runner.Content{Command: &runner.Command{Path: c.Path, Args: c.Args, Dir: c.Dir}}
	s.req.Files = map[string][]byte{runner.InputFile: []byte(given.Input), runner.ObjectFile: must.Get(json.Marshal(object))(t)}
	s.req.Call = func(context.Context, string, []byte) error { return nil }
	s.req.OnEvent = func(e jobevent.Event) {
		if len(e.Data.Task) > 1<<10 || !utf8.ValidString(e.Data.Task) || strings.ContainsFunc(e.Data.Task, unicode.IsControl) {
			t.Errorf("a step is named %q", e.Data.Task)
		}
	}
	result := s.run()
	if v := result.Verdict(); v.Success == fail || fail && v.Reason != runner.CommandFailed {
		t.Fatalf("verdict = %+v\n%s", v, result.Tail)
	}
	for _, warning := range result.Command.Warnings {
		if len(warning) > 1<<10 || strings.ContainsFunc(warning, unicode.IsControl) {
			t.Errorf("a warning is %q", warning)
		}
	}
	arrived := s.arrived()
	for _, way := range []string{"object", "file"} {
		if want, got := text(t, object), text(t, arrived[way]); want != got {
			at := 0 // where the two differ
			for at < min(len(want), len(got)) && want[at] == got[at] {
				at++
			}
			from := max(0, at-60)
			t.Errorf("%s: arrived changed, at %d:\nwant %.200s\ngot  %.200s", way, at, want[from:], got[from:])
		}
	}
}

// identity returns what the environment may contain of an object.
func identity(object map[string]any) map[string]any {
	is := map[string]any{}
	for _, key := range []string{"name", "namespace", "uid", "generation"} {
		is[key] = asMap(object["metadata"])[key]
	}
	return is
}

// previewed returns what a run of the command gets, without what depends on the time.
func previewed(t *testing.T, c *watches.Command, object map[string]any) controller.Preview {
	t.Helper()
	w := watches.Watch{GVK: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Content: watches.Content{Command: c}}
	p := must.Get(controller.NewPreview(t.Context(), w, controller.Options{}, &unstructured.Unstructured{Object: object}, false))(t)
	p.Environment = slices.DeleteFunc(p.Environment, func(entry string) bool { return strings.HasPrefix(entry, "ROLEWRIGHT_DEADLINE=") })
	return p
}
