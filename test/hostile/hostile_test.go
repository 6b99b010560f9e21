package hostile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/test/must"
)

// everyCase reports whether each case gets its own run, as for `make hostile`; otherwise many cases share one.
func everyCase() bool { return os.Getenv("ROLEWRIGHT_TEST_EVERY_CASE") != "" }

// corpus returns all cases for which runs are made.
func corpus(t *testing.T) []hostile {
	t.Helper()
	all := slices.Concat(reservedNames(), templates(), markers(t), texts(), numbers(), places())
	slices.SortFunc(all, func(a, b hostile) int { return strings.Compare(a.title(), b.title()) })
	return all
}

// TestCorpus_ObjectsAreData makes runs with all cases of the corpus. Those that share
// a run are H.10, too: it fails, and all strings of the object are the message.
func TestCorpus_ObjectsAreData(t *testing.T) {
	all := batches(t, corpus(t), true, false)
	if everyCase() {
		all = append(all, batches(t, corpus(t), true, true)...)
	}
	for _, b := range all {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			probe(t, newSandbox(t), b, len(b.cases) > 1)
		})
	}
}

// TestReserved_AreNoVariables checks what the runs cannot: that none of these names becomes a variable, each in its own
// object, and that the user is told.
func TestReserved_AreNoVariables(t *testing.T) {
	own := []string{extravars.OperatorMeta, objectVariable, objectVariable + "_spec"}
	converted := newBatch("", true).variable
	for _, snake := range []bool{true, false} {
		// Ansible knows no name that is converted. With keys as they are, the others are reserved, too.
		reserved := func(name string) bool { return snake || converted(name) == name }
		for _, c := range reservedNames() {
			b := newBatch(c.name, snake)
			b.takes(c.decode(t))
			vars, notices := extravars.Vars(b.object(), b.options())
			for name := range vars {
				if reserved(name) && !slices.Contains(own, name) {
					t.Errorf("%s is the variable %q; keys are converted: %t", c.name, name, snake)
				}
			}
			for key := range asMap(c.decode(t)["spec"]) {
				if reserved(key) && !slices.ContainsFunc(notices, func(n extravars.Notice) bool {
					told := strconv.Quote(strings.ReplaceAll(cleanText(key), "\t", "�")) + " of the spec is not a variable"
					return strings.HasPrefix(n.Detail, told) && n.Kind == extravars.ReservedVariable
				}) {
					t.Errorf("there is no notice of %q: %+v; keys are converted: %t", key, notices, snake)
				}
				if asMap(vars[objectVariable+"_spec"])[cleanText(key)] == nil {
					t.Errorf("%q cannot be read in the spec; keys are converted: %t", key, snake)
				}
			}
		}
	}
}

// TestRefused_BeforeAnythingRuns is H.5: the API server's decoder or the operator refuses what cannot arrive unchanged.
func TestRefused_BeforeAnythingRuns(t *testing.T) {
	for _, text := range []string{`1e400`, `-1e400`, `NaN`, `Infinity`, `01`, `0x1F`, `.5`, `"\x00"`, `'x'`, strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000)} {
		var u unstructured.Unstructured
		if err := u.UnmarshalJSON([]byte(`{"apiVersion": "v1", "kind": "K", "spec": {"value": ` + text + `}}`)); err == nil {
			t.Errorf("%.40s is decoded: %.80v", text, u.Object["spec"])
		}
	}
	for _, depth := range []int{201, 1000, 9000} {
		for _, pair := range [][2]string{{`[`, `]`}, {`{"a": `, `}`}, {`{"__ansible_unsafe": `, `}`}} {
			b := newBatch("deep", true)
			b.takes(hostile{object: `{"spec": {"deep": ` + strings.Repeat(pair[0], depth) + `1` + strings.Repeat(pair[1], depth) + `}}`}.decode(t))
			if _, _, err := extravars.Build(b.object(), b.options()); !errors.Is(err, extravars.ErrTooDeep) {
				t.Errorf("%d times %s: %v", depth, pair[0], err)
			}
		}
	}
}

// probe makes the run of a batch and checks the result.
func probe(t *testing.T, s *sandbox, b *batch, fail bool) {
	t.Helper()
	t.Log(strings.Join(b.cases, "\n"))
	b.lay(s)
	object := b.object()
	names := b.variables(object)
	opts := b.options()
	opts.Vars = map[string]any{
		"probe_names": marked(names), "probe_out": filepath.Join(s.req.Dir, "arrived"), "probe_use": !b.huge(), "probe_fail": fail,
	}
	content, _, err := extravars.Build(object, opts)
	if err != nil {
		t.Fatal(err)
	}
	if b.yaml == json.Valid(content) {
		t.Errorf("written as YAML: %v", !b.yaml)
	}
	s.req.ExtraVars = content
	result := s.run()
	if v := result.Verdict(); v.Success == fail {
		t.Fatalf("verdict = %+v\n%s", v, result.Tail)
	}
	if sum := result.Summary; !sum.Complete || sum.Foreign+sum.Bad+sum.Gaps > 0 || sum.RequeueAfter != nil {
		t.Errorf("summary = %+v", sum)
	}
	b.checkArrived(t, s, object, names)
}

// marked returns the names for query('vars'). Names are data, too.
func marked(names []string) []any {
	out := make([]any, len(names))
	for i, name := range names {
		out[i] = map[string]any{"__ansible_unsafe": name}
	}
	return out
}

// checkArrived compares what the role got with what the object contains.
func (b *batch) checkArrived(t *testing.T, s *sandbox, object map[string]any, names []string) {
	t.Helper()
	arrived := s.arrived()
	compare := func(what string, want, got any) {
		t.Helper()
		w, g := text(t, want), text(t, got)
		if w == g {
			return
		}
		// Print where they differ: a diff of something deep takes very long.
		at := 0
		for at < min(len(w), len(g)) && w[at] == g[at] {
			at++
		}
		from := max(0, at-60)
		t.Errorf("%s arrived changed, at %d:\nwant %.200s\ngot  %.200s", what, at, w[from:], g[from:])
	}
	spec := clean(object["spec"])
	compare("the object", clean(object), arrived["object"])
	compare("the spec", spec, arrived["spec"])
	metadata := asMap(clean(object["metadata"]))
	compare("the name", map[string]any{"name": metadata["name"], "namespace": metadata["namespace"]}, arrived["meta"])
	vars := arrived["vars"].([]any)
	for i, name := range names {
		compare("variable "+name, asMap(b.renamed(spec))[name], vars[i])
	}
}

// text returns a value as JSON; equal values give equal text.
func text(t *testing.T, value any) string {
	t.Helper()
	out := must.Get(json.Marshal(exact(value)))(t)
	return string(out)
}
