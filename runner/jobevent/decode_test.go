package jobevent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/rolewright/rolewright/test/must"
)

func TestDecode_RealEvent(t *testing.T) {
	e := decode(t, captured(t, "role")[4])
	want := Event{
		UUID:    e.UUID,
		Counter: 5,
		Kind:    RunnerFailed,
		Created: e.Created,
		Stdout:  e.Stdout,
		Data: Data{
			PlaybookUUID: e.Data.PlaybookUUID, Play: "localhost", Task: "in a role", TaskUUID: e.Data.TaskUUID,
			TaskAction: "ansible.builtin.fail", ResolvedAction: "ansible.builtin.fail",
			TaskPath: "/runner/project/roles/thing/tasks/main.yml:1", Role: "thing", Host: "localhost",
			Res: json.RawMessage(`{"msg": "\u001b[31mr\u00f4le\u001b[0m br\u00f8ken\nsecond line", "_ansible_no_log": false, "changed": false}`),
		},
	}
	must.Be(t, "event", want, e)
	for name, text := range map[string]string{
		"uuid": e.UUID, "playbook_uuid": e.Data.PlaybookUUID, "task_uuid": e.Data.TaskUUID, "stdout": e.Stdout,
	} {
		if text == "" {
			t.Errorf("%s is empty", name)
		}
	}
	if e.Created.IsZero() || e.Created.Location() != time.UTC {
		t.Errorf("Created = %v", e.Created)
	}
}

func TestDecode_Created(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tests := map[string]struct {
		text string
		want time.Time
	}{
		"without offset":                  {`"2026-01-02T03:04:05.123456"`, at.Add(123456 * time.Microsecond)},
		"a whole second":                  {`"2026-01-02T03:04:05"`, at},
		"with offset":                     {`"2026-01-02T03:04:05.123456+00:00"`, at.Add(123456 * time.Microsecond)},
		"with an odd one":                 {`"2026-01-02T05:04:05+02:00"`, at},
		"with Z":                          {`"2026-01-02T03:04:05Z"`, at},
		"a number":                        {`1767323045`, time.Time{}},
		"no time":                         {`"soon"`, time.Time{}},
		"the last second in another year": {`"9999-12-31T23:59:59-12:00"`, time.Time{}},
		"an impossible day":               {`"2026-02-30T03:04:05"`, time.Time{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := decode(t, `{"event":"verbose","created":`+tt.text+`}`).Created
			if !got.Equal(tt.want) || got.Location() != time.UTC {
				t.Errorf("Created = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestDecode_BadInput(t *testing.T) {
	deep := strings.Repeat("[", 200_000)
	tests := map[string]string{
		"empty":                 ``,
		"blank":                 " \n",
		"truncated":             `{"event":"verbose","stdout":"abc`,
		"truncated, cut":        `{"event":"verbose","stdout":"` + strings.Repeat("a", maxString+9),
		"truncated, dropped":    `{"event":"verbose","other":[` + strings.Repeat("1,", maxValue),
		"only NUL":              strings.Repeat("\x00", 5000),
		"NUL in a string":       "{\"event\":\"verbose\x00\"}",
		"not UTF-8":             "{\"event\":\"verbose\",\"stdout\":\"\xff\"}",
		"not UTF-8 key":         "{\"event\":\"verbose\",\"\xc3\":1}",
		"deep":                  deep,
		"deep value":            `{"event":"verbose","event_data":` + deep + strings.Repeat("]", 200_000) + `}`,
		"deep objects":          `{"event":"verbose","event_data":` + strings.Repeat(`{"a":`, 100_000),
		"an array":              `[{"event":"verbose"}]`,
		"null":                  `null`,
		"a string":              `"verbose"`,
		"two":                   `{"event":"verbose"}{"event":"verbose"}`,
		"no kind":               `{"uuid":"x"}`,
		"a kind of wrong type":  `{"event":7}`,
		"closing only":          `}]}]}]`,
		"many members":          `{"event":"verbose","event_data":{` + strings.Repeat(`"a":1,`, 1<<20) + `"b":1}}`,
		"a number without end":  `{"event":"verbose","counter":` + strings.Repeat("9", 100),
		"surrogates, no string": `\ud800`,
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			if e, err := Decode(strings.NewReader(text)); err == nil {
				t.Errorf("no error, but %+v", e)
			}
		})
	}
}

func TestDecode_ReportsReadErrors(t *testing.T) {
	broken := errors.New("broken")
	_, err := Decode(io.MultiReader(strings.NewReader(`{"event":`), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("error = %v", err)
	}
}

// TestDecode_IsTolerant: an error in one field does not affect the others.
func TestDecode_IsTolerant(t *testing.T) {
	whole := Event{Kind: RunnerOK, Counter: 3, Data: Data{Host: "h"}}
	tests := map[string]struct {
		text string
		want Event
	}{
		"wrong types": {
			`{"uuid":1,"counter":3,"stdout":{},"start_line":"1","end_line":1.5,"created":[],"event":"runner_on_ok",
			  "event_data":{"host":"h","task":null,"role":[],"ignore_errors":"yes","res":null}}`, whole,
		},
		"no map of data":      {`{"event":"runner_on_ok","counter":3,"event_data":[1]}`, Event{Kind: RunnerOK, Counter: 3}},
		"a huge number":       {`{"event":"runner_on_ok","counter":1e999,"event_data":{"host":"h"}}`, Event{Kind: RunnerOK, Data: Data{Host: "h"}}},
		"a long number":       {`{"event":"runner_on_ok","counter":` + strings.Repeat("9", 5000) + `}`, Event{Kind: RunnerOK}},
		"a negative number":   {`{"event":"runner_on_ok","counter":-3}`, Event{Kind: RunnerOK}},
		"keys twice":          {`{"event":"x","event":"runner_on_ok","counter":1,"counter":3,"event_data":{"host":"g"},"event_data":{"host":"h"}}`, whole},
		"data not merged":     {`{"event":"runner_on_ok","counter":3,"event_data":{"role":"r"},"event_data":{"host":"h"}}`, whole},
		"the last is wrong":   {`{"event":"runner_on_ok","counter":1,"counter":"3"}`, Event{Kind: RunnerOK}},
		"keys in other cases": {`{"EVENT":"x","event":"runner_on_ok","Event":"x","counter":3,"event_data":{"host":"h","HOST":"g"}}`, whole},
		"spaces":              {" \n{ \"event\" : \"runner_on_ok\" , \"counter\" :\t3 , \"event_data\" : { \"host\" : \"h\" } }\n ", whole},
		"a lone surrogate":    {`{"event":"runner_on_ok","stdout":"a\ud83d"}`, Event{Kind: RunnerOK, Stdout: "a\uFFFD"}},
		"res of another type": {`{"event":"runner_on_ok","event_data":{"res":[ 1 ]}}`, Event{Kind: RunnerOK, Data: Data{Res: json.RawMessage(`[ 1 ]`)}}},
		"Python's numbers": {
			`{"event":"runner_on_ok","event_data":{"res":{"a":NaN,"b":-Infinity,"c":[Infinity],"d":"NaN"}}}`,
			Event{Kind: RunnerOK, Data: Data{Res: json.RawMessage(`{"a":null,"b":null,"c":[null],"d":"NaN"}`)}},
		},
		"a handler":               {`{"event":"playbook_on_task_start","event_data":{"is_conditional":true}}`, Event{Kind: TaskStart, Data: Data{Handler: true}}},
		"stats in another kind":   {`{"event":"runner_on_ok","event_data":` + statsText(`1`) + `}`, Event{Kind: RunnerOK}},
		"stats with a count < 0":  {`{"event":"playbook_on_stats","event_data":` + statsText(`-1`) + `}`, Event{Kind: PlaybookStats}},
		"stats with a text":       {`{"event":"playbook_on_stats","event_data":` + statsText(`"1"`) + `}`, Event{Kind: PlaybookStats}},
		"stats with null":         {`{"event":"playbook_on_stats","event_data":` + statsText(`null`) + `}`, Event{Kind: PlaybookStats}},
		"stats with a fraction":   {`{"event":"playbook_on_stats","event_data":` + statsText(`1.5`) + `}`, Event{Kind: PlaybookStats}},
		"stats with a huge count": {`{"event":"playbook_on_stats","event_data":` + statsText(`99999999999`) + `}`, Event{Kind: PlaybookStats}},
		"incomplete stats":        {`{"event":"playbook_on_stats","event_data":{"ok":{},"failures":{}}}`, Event{Kind: PlaybookStats}},
		"stats before the kind": {
			`{"event_data":` + statsText(`1`) + `,"event":"playbook_on_stats"}`,
			Event{Kind: PlaybookStats, Data: Data{Stats: &Stats{
				OK: map[string]int{}, Changed: map[string]int{}, Failures: map[string]int{"h": 1}, Dark: map[string]int{},
				Skipped: map[string]int{}, Rescued: map[string]int{}, Ignored: map[string]int{}, Processed: map[string]int{},
			}}},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			must.Be(t, "event", tt.want, decode(t, tt.text))
		})
	}
}

func statsText(failures string) string {
	return `{"ok":{},"changed":{},"failures":{"h":` + failures + `},"dark":{},"skipped":{},"rescued":{},"ignored":{},"processed":{}}`
}

func TestDecode_StatsOfTooManyHostsAreNone(t *testing.T) {
	for _, tt := range []struct {
		hosts int
		want  bool
	}{{maxHosts, true}, {maxHosts + 1, false}} {
		var counts []string
		for i := range tt.hosts {
			counts = append(counts, fmt.Sprintf(`"%d":1`, i))
		}
		text := strings.Replace(statsText("1"), `"ok":{}`, `"ok":{`+strings.Join(counts, ",")+`}`, 1)
		e := decode(t, `{"event":"playbook_on_stats","event_data":`+text+`}`)
		if got := e.Data.Stats != nil; got != tt.want {
			t.Errorf("%d hosts: stats = %t, want %t", tt.hosts, got, tt.want)
		}
	}
}

// TestDecode_CutsStringsBetweenCharacters moves each kind of character across the limit.
func TestDecode_CutsStringsBetweenCharacters(t *testing.T) {
	for name, unit := range map[string]string{
		"ASCII": "a", "two bytes": "é", "three bytes": "€", "four bytes": "🙂",
		"an escape": `\n`, "a quote": `\"`, "a backslash": `\\`, "a \\u escape": `\u00e9`, "a surrogate pair": `\ud83d\ude42`,
	} {
		t.Run(name, func(t *testing.T) {
			var char string
			must.Do(t, json.Unmarshal([]byte(`"`+unit+`"`), &char))
			for shift := range len(unit) + 1 {
				pad := strings.Repeat("x", shift)
				n := maxString/len(unit) + 20
				e := decode(t, `{"stdout":"`+pad+strings.Repeat(unit, n)+`","event":"verbose"}`)
				kept := (maxString - shift) / len(unit)
				if want := pad + strings.Repeat(char, kept) + "…"; e.Stdout != want {
					t.Errorf("shift %d: %d bytes end in %q, want %d bytes", shift, len(e.Stdout), e.Stdout[len(e.Stdout)-12:], len(want))
				}
				if e.Kind != Verbose {
					t.Errorf("shift %d: what follows is lost", shift)
				}
			}
		})
	}
}

func TestDecode_KeepsAStringOfJustTheLimit(t *testing.T) {
	want := strings.Repeat("a", maxString)
	if got := decode(t, `{"event":"verbose","stdout":"`+want+`"}`).Stdout; got != want {
		t.Errorf("%d bytes end in %q", len(got), got[len(got)-5:])
	}
}

// TestDecode_DropsLargeMembers: if a member of an event is too large, such as the result, only that member is lost.
func TestDecode_DropsLargeMembers(t *testing.T) {
	large := `[` + strings.Repeat(`{"a":["b",{"c":"}],\"{"}]},`, maxValue/20) + `1]`
	for name, text := range map[string]string{
		"a result":   `{"event":"runner_on_ok","event_data":{"host":"h","res":` + large + `,"role":"r"},"counter":7}`,
		"the last":   `{"counter":7,"event":"runner_on_ok","event_data":{"host":"h","role":"r","res":` + large + `}}`,
		"many":       `{"event":"runner_on_ok","a":` + large + `,"b":` + large + `,"event_data":{"x":` + large + `,"host":"h","y":` + large + `,"role":"r"},"c":` + large + `,"counter":7}`,
		"in a list":  `{"a":[` + large + `,{"b":` + large + `}],"counter":7,"event":"runner_on_ok","event_data":{"host":"h","role":"r"}}`,
		"a number":   `{"event":"runner_on_ok","a":` + strings.Repeat("1", maxValue+1) + `,"counter":7,"event_data":{"host":"h","role":"r"}}`,
		"with nulls": `{"event":"runner_on_ok","a":[` + strings.Repeat("-Infinity,", maxValue) + `1],"counter":7,"event_data":{"host":"h","role":"r"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			want := Event{Kind: RunnerOK, Counter: 7, Data: Data{Host: "h", Role: "r"}}
			must.Be(t, "event", want, decode(t, text))
		})
	}
}

func TestDecode_TooLarge(t *testing.T) {
	text := `{"event":"verbose",` + strings.Repeat(`"a":"`+strings.Repeat("b", 60<<10)+`",`, 40) + `"c":1}`
	if _, err := Decode(strings.NewReader(text)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error = %v, want %v", err, ErrTooLarge)
	}
}

// repeated is a reader of a text that is repeated n times.
type repeated struct {
	text string
	n    int
	rest string
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.rest == "" {
		if r.n == 0 {
			return 0, io.EOF
		}
		r.n--
		r.rest = r.text
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// TestDecode_LongEventsInBoundedMemory counts all allocated bytes, so that a garbage collection hides none.
func TestDecode_LongEventsInBoundedMemory(t *testing.T) {
	const size = 24 << 20
	chunk := strings.Repeat("0123456789é", 1000) + `\n\ud83d\ude42`
	long := func() io.Reader { return &repeated{text: chunk, n: size / len(chunk)} }
	list := `{"msg":"` + strings.Repeat("m", 500) + `"},`
	tests := map[string]struct {
		event io.Reader
		want  func(Event) bool
	}{
		"stdout": {
			io.MultiReader(strings.NewReader(`{"event":"runner_on_ok","stdout":"`), long(), strings.NewReader(`","counter":9}`)),
			func(e Event) bool {
				return e.Counter == 9 && len(e.Stdout) <= maxString+len("…") && strings.HasSuffix(e.Stdout, "…") && utf8.ValidString(e.Stdout)
			},
		},
		"a string in the result": {
			io.MultiReader(strings.NewReader(`{"event":"runner_on_failed","event_data":{"res":{"msg":"`), long(), strings.NewReader(`","rc":1},"host":"h"},"counter":9}`)),
			func(e Event) bool {
				return e.Counter == 9 && e.Data.Host == "h" && json.Valid(e.Data.Res) && len(e.Data.Res) < maxString+100 && bytes.HasSuffix(e.Data.Res, []byte(`…","rc":1}`))
			},
		},
		"the list in the result": {
			io.MultiReader(strings.NewReader(`{"event":"runner_on_failed","event_data":{"res":{"results":[`),
				&repeated{text: list, n: size / len(list)}, strings.NewReader(`{}]},"host":"h"},"counter":9}`)),
			func(e Event) bool { return e.Counter == 9 && e.Data.Host == "h" && e.Data.Res == nil },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			e, err := Decode(tt.event)
			runtime.ReadMemStats(&after)
			if err != nil || !tt.want(e) {
				t.Errorf("error %v, event %+.300v", err, e)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 {
				t.Errorf("%d KiB allocated", used>>10)
			}
		})
	}
}
