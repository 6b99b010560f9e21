package jobevent

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestSummary_Changes(t *testing.T) {
	const hunk = "@@ -1,2 +1,2 @@\n a\n-b\n+c"
	long := strings.Repeat("x\\n", 600)
	for name, c := range map[string]struct {
		res, args string
		want      Change
	}{
		"no diff": {res: `{"changed":true,"msg":"Command would have run if not in check mode"}`},
		"a file": {
			res:  `{"changed":true,"diff":[{"before":"a\nb\n","after_header":"/tmp/x1","after":"a\nc\n"}]}`,
			want: Change{Diff: hunk},
		},
		"an object, as kubernetes.core has it": {
			res:  `{"changed":true,"result":{"kind":"ConfigMap"},"diff":{"before":{"data":{"n":9007199254740993}},"after":{"data":{"n":"<1>"}}}}`,
			want: Change{Diff: "@@ -1,5 +1,5 @@\n {\n   \"data\": {\n-    \"n\": 9007199254740993\n+    \"n\": \"<1>\"\n   }\n }"},
		},
		"prepared": {res: `{"changed":true,"diff":{"prepared":"as it is\u001b[31m\n"}}`, want: Change{Diff: "as it is"}},
		"items": {
			res: `{"changed":true,"results":[{"changed":false,"diff":{"before":"x","after":"y"}},
				{"changed":true,"diff":{"before":"a\nb\n","after":"a\nc\n"}},{"changed":true,"diff":{"prepared":"two"}}]}`,
			want: Change{Diff: hunk + "\n\ntwo"},
		},
		"too large":     {res: `{"changed":true,"diff":{"before":"","after":"` + long + `"}}`, want: Change{Diff: "(too large to be shown)"}},
		"bounded":       {res: `{"changed":true,"diff":{"prepared":"` + strings.Repeat("x", 5000) + `"}}`, want: Change{Diff: strings.Repeat("x", maxDiff-3) + "…"}},
		"no_log":        {res: `{"changed":true,"censored":"the output has been hidden"}`, want: Change{Withheld: true}},
		"no_log, item":  {res: `{"changed":true,"results":[{"changed":true,"censored":"hidden"}]}`, want: Change{Withheld: true}},
		"a Secret":      {res: `{"changed":true,"result":{"kind":"Secret"},"diff":{"before":{},"after":{"data":{"p":"c2VjcmV0"}}}}`, want: Change{Withheld: true}},
		"its manifest":  {res: `{"changed":true,"diff":[{"before":"","after":"kind: Secret\nstringData: {p: q}\n"}]}`, want: Change{Withheld: true}},
		"its arguments": {res: `{"changed":true,"diff":[{"before":"","after":"q\n"}]}`, args: "kind=Secret", want: Change{Withheld: true}},
		"no object":     {res: `{"changed":true,"diff":[7,null,{"before":[],"after":7}]}`, want: Change{Diff: "@@ -1 +1 @@\n-[]\n+7"}},
	} {
		var s Summary
		s.observeOK(Data{Task: "t", TaskPath: "/r/main.yml:3", Host: "h", TaskArgs: c.args, Res: json.RawMessage(c.res)})
		c.want.Task = Task{Name: "t", Path: "/r/main.yml:3"}
		must.Be(t, name, []Change{c.want}, s.Changes)
	}
}

func TestSummary_ChangesAreBoundedTogether(t *testing.T) {
	var s Summary
	for range 50 {
		s.observeOK(Data{Task: "t", Res: json.RawMessage(`{"changed":true,"diff":{"prepared":"` + strings.Repeat("x", 900) + `"}}`)})
	}
	total := 0
	for _, c := range s.Changes {
		total += len(c.Diff)
	}
	if s.Changed != 50 || len(s.Changes) != maxChanges || total > maxDiff || total < maxDiff-100 {
		t.Errorf("%d changes, %d described with %d bytes", s.Changed, len(s.Changes), total)
	}
}

// TestSummary_ChangesAreBoundedBeforeTheyAreMade: a deeply nested diff of some KB takes hundreds of MB when it is indented,
// and nested results would be copied once for each level.
func TestSummary_ChangesAreBoundedBeforeTheyAreMade(t *testing.T) {
	nested := func(open, inner, end string, depth int) string {
		return strings.Repeat(open, depth) + inner + strings.Repeat(end, depth)
	}
	for name, c := range map[string]struct{ res, want string }{
		"deep": {
			`{"changed":true,"diff":{"before":` + nested("[", strings.Repeat("0,", 2000)+"0", "]", 9000) + `,"after":""}}`, "(too large to be shown)",
		},
		"many": {
			`{"changed":true,"diff":[` + strings.Repeat(`{"before":`+nested("[", strings.Repeat("0,", 200)+"0", "]", 100)+`,"after":""},`, 500) + `0]}`, "@@ -1",
		},
		"items of items": {
			`{"changed":true,"diff":{"prepared":"x"},"results":[` + nested(`{"changed":true,"results":[`, `"`+strings.Repeat("x", 60_000)+`"`, "]}", 1000) + `]}`, "x",
		},
	} {
		var before, after runtime.MemStats
		var s Summary
		runtime.ReadMemStats(&before)
		s.observeOK(Data{Res: json.RawMessage(c.res)})
		runtime.ReadMemStats(&after)
		if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 20 {
			t.Errorf("%s: %d KiB of event take %d MiB", name, len(c.res)>>10, mib)
		}
		if len(s.Changes) != 1 || !strings.HasPrefix(s.Changes[0].Diff, c.want) {
			t.Errorf("%s: %.300v", name, s.Changes)
		}
	}
}
