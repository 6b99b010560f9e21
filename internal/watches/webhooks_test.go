package watches

import (
	"strings"
	"testing"
)

// What the API server would refuse in a policy is refused here, with its line.
func TestLoad_Webhooks(t *testing.T) {
	t.Parallel()
	dir := project(t)
	for name, tt := range map[string]struct{ fields, problem string }{
		"rule":                   {"validate: [{rule: object.spec.size <= 5, message: m}]", ""},
		"authorizer":             {"validate: [{rule: \"authorizer.group('').resource('secrets').check('get').allowed()\"}]", ""},
		"apply":                  {"mutate: [{apply: 'Object{spec: Object.spec{size: 3}}'}]", ""},
		"patch":                  {`mutate: [{jsonPatch: '[JSONPatch{op: "remove", path: "/spec/size"}]'}]`, ""},
		"unknown variable":       {"validate: [{rule: objct.spec.size <= 5}]", "5:32: error: [0].webhooks.validate[0].rule: no CEL expression that the API server takes: 1:1: undeclared reference to 'objct'"},
		"no boolean":             {"validate: [{rule: object.spec.size}]", "must evaluate to bool but got dyn"},
		"not closed":             {"validate: [{rule: 'object.spec.list.all(a, a'}]", "1:26: Syntax error"},
		"no rule":                {"validate: [{message: m}]", "a validation must have rule"},
		"empty rule":             {"validate: [{rule: ' '}]", "the CEL expression is empty"},
		"message of two lines":   {`validate: [{rule: "true", message: "a\nb"}]`, "5:49: error: [0].webhooks.validate[0].message: a message is one line"},
		"too long":               {"validate: [{rule: '" + strings.Repeat("true && ", 4000) + "true'}]", "more than 16384 bytes"},
		"too many":               {"validate: [" + strings.Repeat("{rule: 'true'}, ", 33) + "]", "more than 32 validations"},
		"no object":              {"mutate: [{apply: '{}'}]", "must evaluate to Object but got map"},
		"neither":                {"mutate: [{}]", "5:23: error: [0].webhooks.mutate[0]: a mutation must have one of apply and jsonPatch"},
		"both":                   {"mutate: [{apply: 'Object{}', jsonPatch: '[JSONPatch{}]'}]", "a mutation must have one of apply and jsonPatch"},
		"patch of another type":  {"mutate: [{jsonPatch: '[1]'}]", "must evaluate to list(JSONPatch) but got list(int)"},
		"objects in a rule":      {"validate: [{rule: 'Object{} == Object{}'}]", "undeclared reference to 'Object'"},
		"neither list nor value": {"validate: {rule: 'true'}", "is not a list"},
	} {
		text := "- version: v1\n  kind: A\n  group: g.example.com\n  role: memcached\n  webhooks: {" + tt.fields + "}\n"
		got := loadText(t, dir, text, Options{})
		if (got.err == nil) != (tt.problem == "") || tt.problem != "" && (len(got.problems) != 1 || !strings.Contains(got.problems[0], tt.problem)) {
			t.Errorf("%s: %v, %q; want %q", name, got.err, got.problems, tt.problem)
		}
	}
}
