package report

import (
	"fmt"
	"strings"
	"testing"
)

// Reports are read line by line, however they are cut into pieces. The first wrong line ends the reading, and the error has
// its number.
func TestReader(t *testing.T) {
	t.Parallel()
	const good = `{"type":"progress","step":"apply","message":"m","done":1,"total":3}` + "\n"
	long := strings.Repeat("x", MaxLine)
	for name, tt := range map[string]struct {
		text, reports, problem string
	}{
		"nothing":         {"", "", ""},
		"progress":        {good, `progress:apply:m:1/3`, ""},
		"carriage return": {strings.TrimSpace(good) + "\r\n", `progress:apply:m:1/3`, ""},
		"result":          {`{"type":"result","verdict":"failed","message":"why","task":"t","changed":true}` + "\n", `result:failed:why:t:true`, ""},
		"condition": {
			`{"type":"condition","conditionType":"DatabaseReady","status":"True","reason":"Up","message":"é"}` + "\n",
			`condition:{"conditions":[{"message":"é","reason":"Up","status":"True","type":"DatabaseReady"}]}`, "",
		},
		"condition that goes": {
			`{"type":"condition","conditionType":"Failed","remove":true}` + "\n", `condition:{"conditions":[{"remove":true,"type":"Failed"}]}`, "",
		},
		"status keeps the digits": {
			`{"type":"status","patch":{"n":12345678901234567890,"m":null}}` + "\n",
			`status:{"fields":{"m":null,"n":12345678901234567890}}`, "",
		},
		"event": {
			`{"type":"event","reason":"R","message":"m"}` + "\n",
			`event:{"message":"m","reason":"R","type":"Normal"}`, "",
		},
		"metric":                {`{"type":"metric","name":"n","gauge":{"set":1.50}}` + "\n", `metric:{"gauge":{"set":1.50},"name":"n"}`, ""},
		"requeue":               {`{"type":"requeue","after":"30s"}` + "\n", `requeue:30s`, ""},
		"redact":                {`{"type":"redact","value":"s3cret"}` + "\n", `redact:s3cret`, ""},
		"reference":             {`{"type":"reference","apiVersion":"v1","kind":"Secret","name":"db"}` + "\n", `reference:{"apiVersion":"v1","kind":"Secret","name":"db"}`, ""},
		"reference half":        {good + `{"type":"reference","apiVersion":"v1","name":"db"}` + "\n", `progress:apply:m:1/3`, `line 2 of the reports: it lacks "apiVersion", "kind" or "name"`},
		"reference of lists":    {`{"type":"reference","apiVersion":"v1","kind":"Secret","name":["db"]}` + "\n", "", `its field "name" is of a wrong type: array`},
		"unknown field":         {`{"type":"redact","value":"v","colour":1,"age":2}` + "\n", `redact:v?age,colour`, ""},
		"unknown type":          {`{"type":"picture","data":[1]}` + "\n" + good, `picture? progress:apply:m:1/3`, ""},
		"type in another case":  {`{"Type":"progress","step":"s"}` + "\n", "", "line 1 of the reports: it has no \"type\""},
		"empty line":            {good + "\n", `progress:apply:m:1/3`, "line 2 of the reports: it is not a JSON object"},
		"text":                  {"done\n", "", "line 1 of the reports: it is not a JSON object"},
		"null":                  {"null\n", "", "not a JSON object"},
		"list":                  {"[1]\n", "", "not a JSON object"},
		"two objects":           {`{"type":"redact","value":"a"}{"type":"redact","value":"b"}` + "\n", "", "not a JSON object"},
		"no type":               {`{"step":"s"}` + "\n", "", `it has no "type"`},
		"type is a number":      {`{"type":1}` + "\n", "", `it has no "type"`},
		"number for a text":     {`{"type":"progress","step":1}` + "\n", "", `its field "step" is of a wrong type: number`},
		"text for a number":     {`{"type":"progress","step":"s","done":"1"}` + "\n", "", `its field "done" is of a wrong type: string`},
		"list for a patch":      {`{"type":"status","patch":[1]}` + "\n", "", `its field "patch" is of a wrong type: array`},
		"empty progress":        {`{"type":"progress"}` + "\n", "", `neither "step" nor "message"`},
		"no verdict":            {`{"type":"result"}` + "\n", "", "write ok, failed or waiting"},
		"another verdict":       {`{"type":"result","verdict":"OK"}` + "\n", "", "write ok, failed or waiting"},
		"not UTF-8":             {good + "{\"type\":\"redact\",\"value\":\"\xff\"}\n", `progress:apply:m:1/3`, "line 2 of the reports: it is not UTF-8"},
		"NUL":                   {"{\"type\":\"redact\",\"value\":\"\x00\"}\n", "", "NUL"},
		"no end of line":        {good + `{"type":"result","verdict":"ok"}`, `progress:apply:m:1/3`, "line 2 of the reports: it has no end of line"},
		"line too long":         {`{"type":"redact","value":"` + long + `"}` + "\n", "", "line 1 of the reports: it is longer than 65536 bytes"},
		"endless line":          {strings.Repeat(long, 3), "", "longer than 65536 bytes"},
		"too many lines":        {strings.Repeat(`{"type":"x"}`+"\n", MaxLines+1), strings.TrimSpace(strings.Repeat("x? ", MaxLines)), "line 10001 of the reports: there are more than 10000 lines"},
		"too much":              {strings.Repeat(`{"type":"x","y":"`+long[:65000]+`"}`+"\n", 70), strings.TrimSpace(strings.Repeat("x? ", 64)), "line 65 of the reports: the reports have more than 4 MiB"},
		"deep":                  {`{"type":"status","patch":` + strings.Repeat(`{"a":`, 20_000) + "\n", "", "longer than"},
		"deep within the bound": {`{"type":"status","patch":` + strings.Repeat(`[`, 12_000) + strings.Repeat(`]`, 12_000) + "}\n", "", "not a JSON object"},
	} {
		for _, size := range []int{1 << 30, 4096, 7} {
			if size == 7 && len(tt.text) > 1<<16 {
				continue
			}
			var r Reader
			var got []string
			var err error
			for rest := tt.text; rest != "" && err == nil; {
				n := min(size, len(rest))
				err = r.Read([]byte(rest[:n]), func(is Report) { got = append(got, show(is)) })
				rest = rest[n:]
			}
			if err == nil {
				err = r.Close()
			}
			if have := strings.Join(got, " "); have != tt.reports {
				t.Errorf("%s, in pieces of %d: %.300s; want %.300s", name, size, have, tt.reports)
			}
			if (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("%s, in pieces of %d: %v; want %q", name, size, err, tt.problem)
			}
		}
	}
}

func show(r Report) string {
	var s string
	switch r.Type {
	case Progress:
		s = fmt.Sprintf(":%s:%s:%d/%d", r.Step, r.Message, r.Done, r.Total)
	case Result:
		s = fmt.Sprintf(":%s:%s:%s:%v", r.Verdict, r.Message, r.Task, r.Changed)
	case Requeue:
		s = ":" + r.After
	case Redact:
		s = ":" + r.Value
	default:
		if r.Body != nil {
			s = ":" + string(r.Body)
		}
	}
	if len(r.Unknown) > 0 || !r.Known() {
		s += "?" + strings.Join(r.Unknown, ",")
	}
	return string(r.Type) + s
}
