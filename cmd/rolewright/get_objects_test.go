package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
)

const objectsWide = `NAMESPACE   NAME    READY     REASON              CAUSE     LAST RUN   NEXT         GENERATION   RUN        DURATION   FAILURES   TRIGGER     MESSAGE
one         new     <none>    <none>              <none>    <none>     <none>       1            <none>     <none>     0          <none>
one         bad     False     TaskFailed          changed   30s        retry 4m     2            11111111   1.5s       3          spec.size   no space left
two         rerun   Unknown   GenerationChanged   retry     30s        running 5s   3            22222222   <none>     0          <none>
`

// The test prints tables with texts that would control the terminal, and with rows that come later.
func TestObjectTable(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 6, 18, 0, 0, 0, time.UTC)
	ended, next := now.Add(-30*time.Second), now.Add(4*time.Minute)
	last := &controller.ExplainedRun{
		ID: "11111111-1111-1111-1111-111111111111", Cause: "changed", Trigger: "spec.size", Started: ended.Add(-1500 * time.Millisecond), Finished: &ended, Attempts: 3,
	}
	var out bytes.Buffer
	tab, v := table{out: &out}, objectTable{wide: true, namespaces: true}
	must.Do(t, tab.print(append([][]string{v.header()}, v.rows([]controller.Summary{
		{Namespace: "one", Name: "new", Generation: 1},
		{Namespace: "one", Name: "bad", Generation: 2, Ready: "False", Reason: "TaskFailed", Message: "no\x1b[2J\nspace\u202e left", Last: last, Next: "retry", At: &next},
		{
			Namespace: "two", Name: "rerun", Generation: 3, Ready: "Unknown", Reason: "GenerationChanged", Last: last, Next: "running",
			Active: &controller.ExplainedRun{ID: "22222222-2222-2222-2222-222222222222", Cause: "retry", Started: now.Add(-5 * time.Second)},
		},
	}, now)...)...))
	must.Be(t, "objects", objectsWide, out.String())

	out.Reset()
	tab = table{out: &out}
	kinds := &kindNames{}
	run := history.Brief{ID: "11111111-1111", Object: history.Object{Group: "g", Kind: "A", Namespace: "one", Name: "a"}, Cause: "changed", Started: ended}
	must.Do(t, tab.print(runRows([]history.Brief{run}, kinds, now, true)...))
	run.Finished, run.Reason, run.Counts = now, "Succeeded", history.Counts{OK: 3, Changed: 1}
	must.Do(t, tab.print(runRows([]history.Brief{run}, kinds, now, false)...))
	run.Group = "h" // from here on, the kind's name belongs to two groups
	must.Do(t, tab.print(runRows([]history.Brief{run}, kinds, now, false)...))
	must.Be(t, "runs", `NAMESPACE   KIND   NAME   RUN        RESULT    CAUSE     AGE   DURATION   CHANGED
one         A      a      11111111   Running   changed   30s   30s        0/0
one         A      a      11111111   Succeeded   changed   30s   30s        1/3
one         A.h    a      11111111   Succeeded   changed   30s   30s        1/3
`, out.String())
}

// If several groups have a kind of that name, the table shows the groups. With -o wide it always does.
func TestKindNames(t *testing.T) {
	t.Parallel()
	a, b, pod := history.Object{Group: "a.example.com", Kind: "Tea"}, history.Object{Group: "b.example.com", Kind: "Tea"}, history.Object{Kind: "Pod"}
	for want, kinds := range map[string]*kindNames{"Tea.a.example.com Tea.b.example.com Pod": {}, "Tea.a.example.com Pod": {wide: true}, "Tea Pod": {}} {
		objects := []history.Object{a, pod}
		if strings.Contains(want, ".b.") {
			objects = []history.Object{a, b, pod}
		}
		var waiting []api.Waiting
		var sums []taken
		for _, o := range objects {
			waiting, sums = append(waiting, api.Waiting{Object: o}), append(sums, taken{Object: o, Runs: 1})
		}
		var inQueue, inTop []string
		for _, row := range queueRows(waiting, kinds, time.Now()) {
			inQueue = append(inQueue, row[2])
		}
		for _, row := range topRows(sums, byObject, kinds)[1:] {
			inTop = append(inTop, row[1])
		}
		must.Be(t, "kinds", []string{want, want}, []string{strings.Join(inQueue, " "), strings.Join(inTop, " ")})
	}
}

func TestListOutput(t *testing.T) {
	t.Parallel()
	list := map[string]any{"items": []any{map[string]any{"name": "a", "text": "x\x1b[2Jy"}, map[string]any{"name": "b"}}}
	for value, want := range map[string]string{
		"jsonpath={.items[*].name}": "a b\n", "jsonpath=items[0].text": "xy\n", "jsonpath={range .items[*]}{.name}{\"\\n\"}{end}": "a\nb\n",
		"jsonpath={.nothing}": "\n", "name": "k/a\n", "yaml": "items:\n- name: a\n  text: \"x\\e[2Jy\"\n- name: b\n",
	} {
		var o listOutput
		var out bytes.Buffer
		must.Do(t, o.Set(value))
		must.Do(t, o.print(&out, list, []string{"k/a"}))
		must.Be(t, value, want, out.String())
	}
	for _, value := range []string{"text", "jsonpath", "json=x", "jsonpath={.a", ""} {
		if err := new(listOutput).Set(value); err == nil {
			t.Errorf("%q is taken", value)
		}
	}
}

func TestParseObjects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args  []string
		kind  string
		names []string
	}{
		{[]string{"m"}, "m", []string{}},
		{[]string{"m", "a", "b"}, "m", []string{"a", "b"}},
		{[]string{"m/a", "m/b"}, "m", []string{"a", "b"}},
		{[]string{"m/a", "n/b"}, "", nil},
		{[]string{"m/a", "b"}, "", nil},
		{[]string{"m", "n/b"}, "", nil},
		{[]string{"m/"}, "", nil},
		{nil, "", nil},
	} {
		kind, names, err := parseObjects(tc.args)
		if (err == nil) != (tc.kind != "") {
			t.Errorf("%q: %v", tc.args, err)
		}
		must.Be(t, "kind", tc.kind, kind)
		must.Be(t, "names", tc.names, names)
	}
}
