package jobevent

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rolewright/rolewright/test/must"
)

func TestDescribe(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	tests := map[string]struct {
		res  string
		want Failure
	}{
		"text":                 {`{"msg":"m"}`, Failure{Message: "m"}},
		"a list":               {`{"msg":["a",1,{"b": [ 2 ]},null]}`, Failure{Message: `a; 1; {"b":[2]}; null`}},
		"a map":                {`{"msg":{"a": 1}}`, Failure{Message: `{"a":1}`}},
		"a number":             {`{"msg":1.50}`, Failure{Message: "1.50"}},
		"null":                 {`{"msg":null,"stderr":"e"}`, Failure{Message: "e"}},
		"msg and stderr":       {`{"msg":"non-zero return code","stderr":"x\ny\n\n","stdout":"z"}`, Failure{Message: "non-zero return code", Detail: "y"}},
		"empty stderr":         {`{"msg":"m","stderr":" ","stdout":"z"}`, Failure{Message: "m", Detail: "z"}},
		"a module's traceback": {`{"msg":"MODULE FAILURE","module_stderr":"Traceback:\n  in x\nValueError: y\n"}`, Failure{Message: "MODULE FAILURE", Detail: "ValueError: y"}},
		"an exception only":    {`{"exception":"Traceback:\nValueError: y"}`, Failure{Message: "ValueError: y"}},
		"a reason only":        {`{"reason":"r"}`, Failure{Message: "r"}},
		"nothing to say":       {`{"changed":false}`, Failure{Message: unknownFailure}},
		"failed_when":          {`{"msg":"m","failed_when_result":true}`, Failure{Message: "m", FailedWhen: true}},
		"failed_when false":    {`{"msg":"m","failed_when_result":false}`, Failure{Message: "m"}},
		"censored":             {`{"censored":"c","msg":"secret","stderr":"secret"}`, Failure{Message: unknownFailure, Detail: hiddenDetail}},
		"dropped":              {`{}`, Failure{Message: unknownFailure, Detail: droppedDetail}},
		"absent":               {``, Failure{Message: unknownFailure, Detail: droppedDetail}},
		"a list for a result":  {`["a"]`, Failure{Message: unknownFailure, Detail: droppedDetail}},
		"keys in other cases":  {`{"MSG":"no","Msg":"no","msg":"m"}`, Failure{Message: "m"}},
		"items in the result only": {
			`{"msg":"m","results":[{"item":"a","failed":true,"msg":"x"},{"item":"b"},{"item":{"c": 1},"unreachable":true}]}`,
			Failure{Message: "m", ItemsFailed: 2, Items: []string{"a: x", `{"c":1}`}},
		},
		"colours and control characters": {
			`{"msg":"\u001b[0;31mred\u001b[0m \u001b]0;title\u0007a\u0000b\r\nc\u009b\u202ed\ud800 \u001b(Be\u001b"}`,
			Failure{Message: "red ab\ncd\uFFFD Be"},
		},
		"a long message": {`{"msg":"` + long + `"}`, Failure{Message: strings.Repeat("é", (maxMessage-3)/2) + "…"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := describe(json.RawMessage(tt.res), failedItems{})
			must.Be(t, "failure", tt.want, got, cmpopts.EquateEmpty())
		})
	}
}

func TestRequeueAfter(t *testing.T) {
	tests := map[string]struct {
		action, resolved string
		res              string
		want             *RequeueAfter
	}{
		"ansible-operator's":    {"operator_sdk.util.requeue_after", "", `{"period":"1m"}`, &RequeueAfter{Period: "1m"}},
		"ours":                  {"rolewright.operator.requeue_after", "", `{"period":"1m"}`, &RequeueAfter{Period: "1m"}},
		"by resolved name":      {"requeue", "operator_sdk.util.requeue_after", `{"period":"1m"}`, &RequeueAfter{Period: "1m"}},
		"another module":        {"other.util.requeue_after", "other.util.requeue_after", `{"period":"1m"}`, nil},
		"a number":              {"requeue_after", "", `{"period":-5}`, &RequeueAfter{Period: "-5"}},
		"a huge number":         {"requeue_after", "", `{"period":1e999}`, &RequeueAfter{Period: "1e999"}},
		"a map":                 {"requeue_after", "", `{"period":{"a": 1}}`, &RequeueAfter{Period: `{"a":1}`}},
		"empty":                 {"requeue_after", "", `{"period":""}`, &RequeueAfter{}},
		"null":                  {"requeue_after", "", `{"period":null}`, &RequeueAfter{}},
		"none":                  {"requeue_after", "", `{}`, nil},
		"no_log":                {"requeue_after", "", `{"censored":"the output has been hidden","changed":false}`, &RequeueAfter{Hidden: true}},
		"a result of text":      {"requeue_after", "", `"5s"`, nil},
		"control characters":    {"requeue_after", "", `{"period":"\u001b[0m5\u0000s\n"}`, &RequeueAfter{Period: "5s"}},
		"a key in another case": {"requeue_after", "", `{"PERIOD":"5s"}`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var s Summary
			s.Observe(Event{Kind: PlaybookStart, Data: Data{PlaybookUUID: "a"}})
			s.Observe(Event{Kind: RunnerOK, Data: Data{
				PlaybookUUID: "a", TaskAction: tt.action, ResolvedAction: tt.resolved, Res: json.RawMessage(tt.res),
			}})
			must.Be(t, "RequeueAfter", tt.want, s.RequeueAfter, cmpopts.IgnoreFields(RequeueAfter{}, "Task"))
		})
	}
}

func checkPlain(t *testing.T, f Failure) {
	t.Helper()
	type text struct {
		s     string
		limit int
	}
	texts := []text{
		{f.Message, maxMessage}, {f.Detail, maxDetail}, {f.Host, maxName},
		{f.Task.Name, maxName}, {f.Task.Action, maxName}, {f.Task.Role, maxName}, {f.Task.Path, maxName},
	}
	for _, item := range f.Items {
		texts = append(texts, text{item, maxItem})
	}
	for i, text := range texts {
		bad := func(r rune) bool {
			return unicode.IsControl(r) && (r != '\n' || i != 0) || strings.ContainsRune("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069", r)
		}
		if len(text.s) > text.limit || !utf8.ValidString(text.s) || strings.ContainsFunc(text.s, bad) {
			t.Errorf("not plain, or more than %d bytes: %q", text.limit, text.s)
		}
	}
}
