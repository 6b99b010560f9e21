package status

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rolewright/rolewright/test/must"
)

// record returns a status that this package has written, with one field of one part replaced by JSON.
func record(t *testing.T, part, field, value string) map[string]any {
	t.Helper()
	st := Conclude(nil, success(7), 0, at(2))
	if part == partActive {
		st = Begin(st, Active{ID: someID, Cause: "period", Generation: 7, Started: at(3)}, false, at(3))
	}
	data := must.Get(json.Marshal(st))(t)
	var read map[string]any
	must.Do(t, json.Unmarshal(data, &read))
	var v any
	must.Do(t, json.Unmarshal([]byte(value), &v))
	in := mapAt(read, "ansible")
	if field == "" {
		in[part] = v
	} else {
		mapAt(in, part)[field] = v
	}
	return read
}

func TestRead_RejectsWhatIsNotOfItsForm(t *testing.T) {
	odd := []string{`null`, `true`, `5`, `-1`, `1.5`, `1e300`, `""`, `" "`, `"x"`, `[]`, `{}`, `["a"]`, `{"a": {}}`}
	paths := []string{
		`".."`, `"."`, `"a/.."`, `"/etc"`, `"../../../precious"`, `"` + someID + `/.."`, `"` + someID + `\n"`, `" ` + someID + `"`,
		`"` + strings.ToUpper(someID) + `"`, `"{` + someID + `}"`, `"urn:uuid:` + someID + `"`, `"` + strings.Repeat("a", 1<<20) + `"`, `"\u0000"`,
	}
	times := []string{`"yesterday"`, `"2026-01-02"`, `"0001-01-01T00:00:00Z"`, `"9999-01-01T00:00:00Z"`, `"2026-01-02T03:04:05.` + strings.Repeat("1", 1<<16) + `Z"`}
	var waits []string
	for field, values := range map[string][]string{
		"apiVersion": {"5", `"a/b/v1"`, `"../v1"`, `""`}, "kind": {`"pod"`, `"Pod/x"`, `""`}, "namespace": {"null", `"A"`, `"a/b"`, `".."`},
		"name": {`"a/b"`, `".."`, `""`, `"` + strings.Repeat("a", 254) + `"`}, "for": {`""`, `"a\nb"`, `"` + strings.Repeat("a", 513) + `"`, "{}"},
		// The run has finished at 03:04:02, and waits from 03:04:01 to 03:04:09.
		"since": append(slices.Clone(times), `"2026-01-02T03:04:03.1Z"`, `"2026-01-02T03:04:09Z"`),
		"until": append(slices.Clone(times), `"2026-01-02T03:04:01Z"`, `"2026-01-02T03:04:00Z"`, `"2026-01-09T03:04:01.1Z"`),
	} {
		for _, value := range values {
			wait := map[string]json.RawMessage{}
			text, err := json.Marshal(someWait().encode())
			if err == nil {
				err = json.Unmarshal(text, &wait)
			}
			if err != nil {
				t.Fatal(err)
			}
			wait[field] = json.RawMessage(value)
			if text, err = json.Marshal(wait); err != nil {
				t.Fatal(err)
			}
			waits = append(waits, string(text))
		}
	}
	resources := []string{
		`["a"]`, `["a.b"]`, `["..."]`, `["a.v1.B"]`, `["a b.v1.x"]`, `["a/b.v1.x"]`, `["../x.v1.y"]`, `[5]`, `[null]`, `[["a.v1.b"]]`,
		`["deployments.v1.apps", "x"]`, `["` + strings.Repeat("a", 64) + `.v1.b"]`, `["a.v1.` + strings.Repeat("b", 1<<20) + `"]`,
		`["` + strings.Join(slices.Repeat([]string{"a.v1.b"}, maxDependents+1), `","`) + `"]`,
	}
	references := []string{
		`["v1 Secret a"]`, `["v1 Secret a/b/c"]`, `["Secret a/b"]`, `["v1  a/b"]`, `["v1 Secret a/b "]`, `["v1 Secret A/b"]`, `["v1 Secret a/é"]`, `[5]`, `[["v1 Secret a/b"]]`,
		`["v1 Secret a/` + strings.Repeat("b", 254) + `"]`, `["` + strings.Join(slices.Repeat([]string{"v1 Secret a/b"}, MaxReferences+1), `","`) + `"]`,
	}
	for part, fields := range map[string]map[string][]string{
		partLast: {
			"": odd, "id": slices.Concat(odd, paths), "cause": append(odd[:8:8], `"Created"`, `"a b"`, `"`+strings.Repeat("a", 33)+`"`),
			"generation":  slices.DeleteFunc(slices.Clone(odd), func(v string) bool { return v == "5" }),
			"trigger":     append(odd[:7:7], `"a\nb"`, `"`+strings.Repeat("a", 257)+`"`, `"\u202e"`),
			"inputs":      append(odd[:8:8], `"a-b"`, `"AA=="`, `"`+strings.Repeat("a", 1001)+`"`),
			"fingerprint": append(odd[:6:6], `"x"`, `"`+strings.Repeat("a", 33)+`"`, `"`+strings.ToUpper(someFingerprint)+`"`),
			"started":     slices.Concat(odd, times), "finished": slices.Concat(odd, times),
			"result": append(slices.Clone(odd), `"Great"`), "reason": append(odd[:8:8], `"a b"`, `"../x"`, `"`+strings.Repeat("a", 65)+`"`),
			"requeueAfter": append(slices.Clone(odd), `"-5s"`, `"`+strings.Repeat("1", 1<<16)+`s"`),
			"wait":         slices.Concat(odd, waits),
			"references":   slices.Concat(slices.DeleteFunc(slices.Clone(odd), func(v string) bool { return v == "[]" }), references),
			"attempts":     slices.DeleteFunc(slices.Clone(odd), func(v string) bool { return v == "5" }),
			"losses":       slices.DeleteFunc(slices.Clone(odd), func(v string) bool { return v == "5" }),
		},
		partActive: {
			"": odd, "id": slices.Concat(odd, paths), "cause": odd[:8], "trigger": odd[:7],
			"generation": slices.DeleteFunc(slices.Clone(odd), func(v string) bool { return v == "5" }), "started": slices.Concat(odd, times),
		},
		partHandled:    {"": append(slices.DeleteFunc(slices.Clone(odd), func(v string) bool { return v == `"x"` }), `"a b"`, `"a\n"`, `"é"`, `"`+strings.Repeat("a", 65)+`"`)},
		partDependents: {"": slices.Concat(slices.DeleteFunc(slices.Clone(odd), func(v string) bool { return v == "[]" }), resources)},
	} {
		for field, values := range fields {
			for _, value := range values {
				name := fmt.Sprintf("%s.%s = %.60s", part, field, value)
				st := record(t, part, field, value)
				got := Read(st)
				if !slices.Equal(got.Rejected, []string{part}) {
					t.Errorf("%s: rejected %v", name, got.Rejected)
				}
				if diff := cmp.Diff(got, Unpack(got.Pack())); diff != "" {
					t.Errorf("%s: what is packed reads differently:\n%s", name, diff)
				}
				if packed := got.Pack(); len(packed) > 2000 {
					t.Errorf("%s: %d bytes are packed", name, len(packed))
				}
				// It is removed with the next write.
				if next := Read(Begin(st, Active{ID: someID, Cause: "period", Generation: 7, Started: at(3)}, false, at(3))); len(next.Rejected) > 0 {
					t.Errorf("%s: %v is left by the next write", name, next.Rejected)
				}
			}
		}
	}
}

// What is not of its form beside the record is nothing, and gone with the next write.
func TestRead_TakesOddValuesForNone(t *testing.T) {
	for _, value := range []any{nil, true, int64(7), -1.5, "text", []any{}, []any{"a", nil, int64(1)}, map[string]any{}, map[string]any{"a": map[string]any{}}} {
		for _, field := range []string{"ansible", "conditions", "observedGeneration"} {
			st := map[string]any{field: value}
			must.Be(t, fmt.Sprintf("%s = %v", field, value), Record{}, Read(st))
			next := Conclude(Begin(st, Active{ID: someID, Cause: "period", Generation: 7, Started: at(1)}, false, at(1)), success(7), 0, at(2))
			if r := Read(next); r.Last == nil || r.Last.Generation != 7 || r.Active != nil || len(r.Rejected) > 0 || next["observedGeneration"] != int64(7) {
				t.Errorf("%s = %v, after a run: %v", field, value, next)
			}
		}
	}
}

func someWait() Wait {
	return Wait{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "a", Name: "web", For: "condition=Available", Since: at(1), Until: at(9)}
}

// References are read back as they were written. No others are kept.
func TestRead_References(t *testing.T) {
	ended := success(7)
	ended.References = []string{Reference("v1", "Node", "", "a"), Reference("apps/v1", "Deployment", "shop", "web.1:2")}
	st := Conclude(map[string]any{}, ended, 0, at(9))
	must.Be(t, "references", ended.References, Unpack(Read(st).Pack()).Last.References)
	if text := Reference("v1", "Secret", "a", "../b"); text != "" {
		t.Errorf("%q is recorded", text)
	}
}

// What is held back is read back as it was written. If others have written it, only that something is held back.
func TestRead_Held(t *testing.T) {
	for name, tc := range map[string]struct {
		st   map[string]any
		want *Held
	}{
		"pause":              {Hold(nil, 3, "changed", time.Time{}, nil, at(1)), &Held{Cause: "changed", Generation: 3}},
		"window":             {Hold(nil, 4, "schedule", at(9), nil, at(1)), &Held{Cause: "schedule", Generation: 4, Until: at(9).Unix()}},
		"no finalizer":       {Stuck(nil, 4, false, "it is refused", at(1)), &Held{}},
		"over":               {Conclude(Hold(nil, 3, "changed", time.Time{}, nil, at(1)), success(7), 0, at(2)), nil},
		"cause of any size":  {Hold(nil, 3, strings.Repeat("a", 1000), time.Time{}, nil, at(1)), &Held{}},
		"cause of any shape": {Hold(nil, 3, "a: b", time.Time{}, nil, at(1)), &Held{}},
	} {
		must.Be(t, name, tc.want, Unpack(Read(tc.st).Pack()).Held)
	}
}

// A wait is read back as it was written, and nothing else of it is kept.
func TestRead_Wait(t *testing.T) {
	parked, wait := success(7), someWait()
	parked.Wait = &wait
	st := Conclude(nil, parked, 0, at(2))
	mapAt(mapAt(mapAt(st, "ansible"), partLast), "wait")["more"] = strings.Repeat("a", 1<<20)
	packed := Read(st).Pack()
	if got := Unpack(packed); got.Last == nil || got.Last.Wait == nil || *got.Last.Wait != wait {
		t.Errorf("read %+v", got)
	}
	if len(packed) > 2000 {
		t.Errorf("%d bytes are packed", len(packed))
	}
	wait.Namespace = ""
	if got := Read(Conclude(nil, parked, 0, at(2))); got.Last == nil || *got.Last.Wait != wait {
		t.Errorf("of the cluster: %+v", got)
	}
}

// What conditions say about runs if the schema drops the record.
func TestRead_HowARunHasEndedWithoutARecord(t *testing.T) {
	failing := success(7)
	failing.Result, failing.Reason = Failed, "TaskFailed"
	cut := success(7)
	cut.Result = Interrupted
	incumbent := func(status, reason string) map[string]any {
		return map[string]any{"conditions": []any{5, map[string]any{"type": Running, "status": status, "reason": reason}}}
	}
	begun := func(st map[string]any) map[string]any {
		return Begin(st, Active{ID: someID, Cause: "created", Generation: 7, Started: at(1)}, false, at(1))
	}
	for name, tc := range map[string]struct {
		st   map[string]any
		want Result
		of   int64
	}{
		"new":                         {nil, "", 0},
		"held":                        {Hold(nil, 7, "created", time.Time{}, nil, at(1)), "", 0},
		"in its first run":            {begun(nil), "", 0},
		"succeeded":                   {Conclude(begun(nil), success(7), 0, at(2)), Succeeded, 7},
		"failed":                      {Conclude(begun(nil), failing, 0, at(2)), Failed, 7},
		"cut short":                   {Conclude(begun(nil), cut, 0, at(2)), "", 0},
		"in a later run":              {begun(Conclude(begun(nil), success(7), 0, at(2))), "", 0},
		"ansible-operator's success":  {incumbent("True", "Successful"), Succeeded, 0},
		"ansible-operator's failure":  {incumbent("False", "Running"), Failed, 0},
		"ansible-operator's run":      {incumbent("True", "Running"), "", 0},
		"another's condition":         {incumbent("True", "Whatever"), "", 0},
		"conditions that are no list": {map[string]any{"conditions": "x"}, "", 0},
	} {
		if ansible := mapAt(tc.st, "ansible"); ansible[partLast] != nil || ansible[partActive] != nil {
			delete(tc.st, "ansible")
		}
		read := Read(tc.st)
		for what, got := range map[string]Record{"": read, ", packed": Unpack(read.Pack())} {
			if got.Ended != tc.want || got.EndedGeneration != tc.of {
				t.Errorf("%s%s: %q of generation %d, want %q of %d", name, what, got.Ended, got.EndedGeneration, tc.want, tc.of)
			}
		}
	}
	if got := Read(Conclude(begun(nil), success(7), 0, at(2))); got.Ended != "" {
		t.Errorf("with a record: %q", got.Ended)
	}
}

// After a way back to ansible-operator, the record is that of an earlier run. No ordinary end of our own runs looks like that.
func TestRead_ARecordBeforeARunOfAnsibleOperator(t *testing.T) {
	began := func(st map[string]any, mode string) map[string]any {
		return Begin(st, Active{ID: someID, Cause: "created", Mode: mode, Generation: 7, Started: at(1)}, false, at(1))
	}
	ours := func(edit func(r *Run)) map[string]any {
		r := success(7)
		edit(&r)
		return Conclude(began(nil, r.Mode), r, time.Minute, at(2))
	}
	theirs := func(kind, status, reason, completion string) map[string]any {
		st := ours(func(*Run) {})
		c := readConditions(st, 0, at(2))
		c.set(kind, status, reason, "", map[string]any{"completion": completion}, true)
		if kind == Failure {
			c.set(Running, "False", reasonRunning, "", nil, true)
		}
		c.write(st)
		return st
	}
	waits := ours(func(r *Run) { r.Reason = saysNotYet })
	check := success(7)
	check.Mode = ModeCheck
	for name, tc := range map[string]struct {
		st   map[string]any
		want Result // empty if the record holds
	}{
		"success":                        {theirs(Running, "True", reasonSuccessful, "2026-01-02T04:00:00.5+00:00"), Succeeded},
		"failure":                        {theirs(Failure, "True", reasonFailed, "2026-01-02T04:00:00.5+00:00"), Failed},
		"without a zone":                 {theirs(Failure, "True", reasonFailed, "2026-01-02T04:00:00.5"), Failed},
		"our own, seen by another clock": {theirs(Running, "True", reasonSuccessful, "2026-01-02T03:04:30+00:00"), ""},
		"no time":                        {theirs(Running, "True", reasonSuccessful, "x"), ""},
		"a Job's clock is ahead":         {ours(func(r *Run) { r.Completed = at(2).Add(time.Hour) }), ""},
		"our failure":                    {ours(func(r *Run) { *r = failure(7, 1) }), ""},
		"cut short":                      {ours(func(r *Run) { r.Result = Interrupted }), ""},
		"not yet":                        {waits, ""},
		"checked after that":             {Conclude(began(waits, ModeCheck), check, 0, at(3)), ""},
		"in a run":                       {began(ours(func(*Run) {}), ""), ""},
	} {
		if got := Read(tc.st); got.Last == nil != (tc.want != "") || got.Ended != tc.want {
			t.Errorf("%s: record %+v, ended %q; want %q", name, got.Last, got.Ended, tc.want)
		}
	}
	stopped := ours(func(*Run) {})
	c := readConditions(stopped, 0, at(2))
	c.set(Running, "True", reasonRunning, "", nil, true)
	c.write(stopped)
	if got := Read(stopped); got.Last != nil {
		t.Errorf("stopped in a run of ansible-operator: record %+v", got.Last)
	}
}

func TestRead_KeepsBounds(t *testing.T) {
	st := record(t, partLast, "requeueAfter", `"1000000h"`)
	last := mapAt(mapAt(st, "ansible"), partLast)
	last["attempts"], last["losses"] = float64(1<<52), int64(math.MaxInt64)
	got := Read(st)
	if got.Last == nil || got.Last.RequeueAfter != 10*365*24*time.Hour || got.Last.Attempts != 1_000_000 || got.Last.Losses != 1_000_000 {
		t.Errorf("read %+v", got)
	}
	many := success(7)
	for i := range 2 * maxDependents {
		many.Dependents = append(many.Dependents, fmt.Sprintf("things.v1.g%d", i))
	}
	if got := Read(Conclude(nil, many, 0, at(2))); len(got.Dependents) != maxDependents {
		t.Errorf("%d dependents, rejected %v", len(got.Dependents), got.Rejected)
	}
	core := success(7)
	core.Dependents = []string{"configmaps.v1."}
	if got := Read(Conclude(nil, core, 0, at(2))); len(got.Dependents) != 1 || got.Dependents[0].Resource != "configmaps" {
		t.Errorf("dependents of the core group: %+v", got)
	}
}

// A status counts as the operator's only if it has no condition of another client, no duplicate condition, and no other
// field.
func TestIsOwn(t *testing.T) {
	ours := func() map[string]any { return Conclude(nil, success(7), 0, at(2)) }
	with := func(edit func(st map[string]any)) map[string]any { st := ours(); edit(st); return st }
	for name, tc := range map[string]struct {
		st   map[string]any
		want bool
	}{
		"none": {nil, true},
		"ours": {ours(), true},
		"another condition": {with(func(st map[string]any) {
			st["conditions"] = append(st["conditions"].([]any), map[string]any{"type": "Synced", "status": "True"})
		}), false},
		"Running twice": {with(func(st map[string]any) {
			st["conditions"] = append(st["conditions"].([]any), map[string]any{"type": Running, "status": "True"})
		}), false},
		"conditions in another form": {with(func(st map[string]any) { st["conditions"] = map[string]any{"Synced": "True"} }), false},
		"another field":              {with(func(st map[string]any) { st["nodes"] = []any{"a"} }), false},
	} {
		if got := IsOwn(tc.st); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
