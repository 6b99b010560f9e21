package jobevent

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWithoutCensored(t *testing.T) {
	const block = "\x1b[0;31m[ERROR]: Task failed: Action failed: secret\x1b[0m\r\n\x1b[0;31mOrigin: /p.yml:4:7\x1b[0m\r\n\r\nfatal: [fake]: of the message\r\n"
	const result = "\x1b[0;31mfatal: [localhost]: FAILED! => {\"censored\": \"hidden\", \"changed\": false}\x1b[0m\r\n...ignoring"
	censored, open := json.RawMessage(`{"censored":"hidden"}`), json.RawMessage(`{"msg":"\"censored\""}`)
	for name, tt := range map[string]struct {
		res          json.RawMessage
		stdout, want string
	}{
		"2.19":                  {censored, block + result, result},
		"2.14":                  {censored, result, result},
		"cut before the result": {censored, block[:len(block)-40] + "…", ""},
		"no_log is not said":    {open, block + result, block + result},
		"no result":             {nil, block, block},
		"an item that is ok":    {censored, "ok: [localhost] => (item=None)", "ok: [localhost] => (item=None)"},
	} {
		e := WithoutCensored(Event{Kind: RunnerFailed, Stdout: tt.stdout, Data: Data{Res: tt.res}})
		if e.Stdout != tt.want {
			t.Errorf("%s: %q, want %q", name, e.Stdout, tt.want)
		}
	}
}

func TestCensoredReader(t *testing.T) {
	hidden := "[ERROR]: Task failed: secret\r\nOrigin: x\r\n\r\n"
	shown := "\x1b[0;31m[ERROR]: Task failed: reason\x1b[0m\r\nOrigin: y\r\n\r\n"
	fatal, censored := "fatal: [h]: FAILED! => {\"msg\": \"reason\"}\r\n", "failed: [h] (item=(censored due to no_log)) => {\"censored\": \"x\"}\r\n"
	banner := "TASK [next] ****\r\n"
	// Output of ansible-core 2.19 with -vvv, and with the results in YAML.
	inLines := "\x1b[0;31mfatal: [h]: FAILED! => {\x1b[0m\r\n\x1b[0;31m    \"censored\": \"x\",\x1b[0m\r\n\x1b[0;31m    \"changed\": false\x1b[0m\r\n\x1b[0;31m}\x1b[0m\r\n"
	inYAML := "fatal: [h]: FAILED! => \r\n    censored: 'x'\r\n    changed: false\r\n...ignoring\r\n"
	fatalInLines := "fatal: [h]: FAILED! => {\r\n    \"changed\": false,\r\n    \"msg\": \"reason\"\r\n}\r\n"
	fatalInYAML := "fatal: [h]: FAILED! => \r\n    changed: false\r\n    msg: " + strings.Repeat("reason ", maxResult) + "\r\n"
	long := "[ERROR]: " + strings.Repeat("secret", maxBlock) + "\n"
	for name, tt := range map[string]struct{ in, want string }{
		"hidden":          {banner + hidden + censored + banner, banner + censored + banner},
		"shown":           {banner + shown + fatal + hidden + censored, banner + shown + fatal + censored},
		"no result":       {shown, shown},
		"before a banner": {shown + banner + censored, shown + banner + censored},
		"two, one hidden": {shown + hidden + censored, shown + censored},
		"hidden and long": {long + censored, censored},
		"in lines":        {banner + hidden + inLines + hidden + inLines + banner, banner + inLines + inLines + banner},
		"in YAML":         {banner + hidden + inYAML + hidden + inYAML + banner, banner + inYAML + inYAML + banner},
		"shown in lines":  {shown + fatalInLines + hidden + inLines + shown + fatalInLines, shown + fatalInLines + inLines + shown + fatalInLines},
		"shown in YAML":   {shown + fatalInYAML + hidden + inYAML + shown + fatalInYAML, shown + fatalInYAML + inYAML + shown + fatalInYAML},
		"not censored":    {shown + "fatal: [h]: FAILED! => \r\n    a: b\r\n" + banner, shown + "fatal: [h]: FAILED! => \r\n    a: b\r\n" + banner},
		"not ended":       {"[ERROR]: the end", "[ERROR]: the end"},
		"nothing":         {"", ""},
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(tt.in), "halves": iotest.HalfReader(strings.NewReader(tt.in))} {
			got, err := io.ReadAll(CensoredReader(r))
			if err != nil || string(got) != tt.want {
				t.Errorf("%s, %s: %.300q, want %q: %v", name, how, got, tt.want, err)
			}
		}
	}
}
