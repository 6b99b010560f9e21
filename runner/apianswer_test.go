package runner

import "testing"

func TestWithoutStatus(t *testing.T) {
	const answer = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Service \"a\" is invalid: it's not — x","reason":"Invalid","code":422}`
	const want = `Failed to create object: Service "a" is invalid: it's not — x`
	for name, tt := range map[string][2]string{
		"text":            {"Failed to create object: " + answer + "\n", want},
		"bytes of Python": {`Failed to create object: b'{"kind":"Status","apiVersion":"v1","message":"Service \\"a\\" is invalid: it\'s not \xe2\x80\x94 x","code":422}\n'`, want},
		"text after it":   {answer + " (of x)", `Service "a" is invalid: it's not — x (of x)`},
		"cut":             {"Failed: " + answer[:50], "Failed: " + answer[:50]},
		"bytes, cut":      {`Failed: b'{"kind":"Status","message":"a\`, `Failed: b'{"kind":"Status","message":"a\`},
		"no message":      {`Failed: {"kind":"Status","code":1}`, `Failed: {"kind":"Status","code":1}`},
		"no answer":       {"Failed: {\"kind\":\"Pod\"}", "Failed: {\"kind\":\"Pod\"}"},
	} {
		if got := withoutStatus(tt[0]); got != tt[1] {
			t.Errorf("%s: %q, want %q", name, got, tt[1])
		}
	}
}
