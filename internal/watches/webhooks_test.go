package watches

import (
	"fmt"
	"strings"
	"testing"
)

// A policy that the API server would refuse is refused here, with its line.
func TestLoad_Webhooks(t *testing.T) {
	t.Parallel()
	dir := project(t)
	for name, tt := range map[string]struct{ fields, problem string }{
		"rule":                   {"validate: [{rule: object.spec.size <= 5, message: m}]", ""},
		"authorizer":             {"validate: [{rule: \"authorizer.group('').resource('secrets').check('get').allowed()\"}]", ""},
		"apply":                  {"mutate: [{apply: 'Object{spec: Object.spec{size: 3}}'}]", ""},
		"patch":                  {`mutate: [{jsonPatch: '[JSONPatch{op: "remove", path: "/spec/size"}]'}]`, ""},
		"unknown variable":       {"validate: [{rule: objct.spec.size <= 5}]", "5:32: error: [0].webhooks.validate[0].rule: the API server would reject this CEL expression: 1:1: undeclared reference to 'objct'"},
		"no boolean":             {"validate: [{rule: object.spec.size}]", "must evaluate to bool but got dyn"},
		"not closed":             {"validate: [{rule: 'object.spec.list.all(a, a'}]", "1:26: Syntax error"},
		"no rule":                {"validate: [{message: m}]", "exactly one of rule, command must be set"},
		"empty rule":             {"validate: [{rule: ' '}]", "the CEL expression is empty"},
		"message of two lines":   {`validate: [{rule: "true", message: "a\nb"}]`, "5:49: error: [0].webhooks.validate[0].message: the message must be one line"},
		"too long":               {"validate: [{rule: '" + strings.Repeat("true && ", 4000) + "true'}]", "more than 16384 bytes"},
		"too many":               {"validate: [" + strings.Repeat("{rule: 'true'}, ", 33) + "]", "more than 32 entries; merge"},
		"no object":              {"mutate: [{apply: '{}'}]", "must evaluate to Object but got map"},
		"neither":                {"mutate: [{}]", "5:23: error: [0].webhooks.mutate[0]: exactly one of apply, jsonPatch, command must be set"},
		"both":                   {"mutate: [{apply: 'Object{}', jsonPatch: '[JSONPatch{}]'}]", "exactly one of apply, jsonPatch, command must be set"},
		"patch of another type":  {"mutate: [{jsonPatch: '[1]'}]", "must evaluate to list(JSONPatch) but got list(int)"},
		"objects in a rule":      {"validate: [{rule: 'Object{} == Object{}'}]", "undeclared reference to 'Object'"},
		"neither list nor value": {"validate: {rule: 'true'}", "is not a list"},
		"command":                {"validate: [{command: [/bin/sh, -c, x], timeout: 10s, failurePolicy: Ignore}], mutate: [{command: [/bin/sh]}]", ""},
		"no executable":          {"validate: [{command: [./missing]}]", "missing was not found"},
		"rule and command":       {"validate: [{rule: 'true', command: [/bin/sh]}]", "exactly one of rule, command must be set"},
		"message of a command":   {"validate: [{command: [/bin/sh], message: m}]", "message is only for entries with rule, and this one has command"},
		"timeout of a rule":      {"validate: [{rule: 'true', timeout: 2s}]", "5:49: error: [0].webhooks.validate[0].timeout: timeout is only for entries with command, and this one has rule"},
		"timeout too long":       {"validate: [{command: [/bin/sh], timeout: 11s}]", "whole seconds, from 1s to 10s"},
		"timeout too exact":      {"validate: [{command: [/bin/sh], timeout: 1500ms}]", "whole seconds, from 1s to 10s"},
		"another policy":         {"validate: [{command: [/bin/sh], failurePolicy: fail}]", `"fail" is not a valid failure policy; write Fail or Ignore`},
		"conversion":             {"conversion: [{from: v1alpha1, moves: [{from: spec.a, to: spec.b.c}, {from: spec.b, to: spec.a}, {from: spec.x}, {to: spec.y}]}, {from: v1beta1}]", ""},
		"conversion of itself":   {"conversion: [{from: v1}]", "from is the version of the watch itself"},
		"conversion twice":       {"conversion: [{from: v2}, {from: v2}]", "there are two conversions from version v2"},
		"conversion of nothing":  {"conversion: [{}]", "a conversion must have from"},
		"moved twice":            {"conversion: [{from: v2, moves: [{from: spec.a, to: spec.b}, {from: spec.a.c, to: spec.d}]}]", "5:74: error: [0].webhooks.conversion[0].moves[1]: two moves overlap: spec.a and spec.a.c"},
		"moved to one place":     {"conversion: [{from: v2, moves: [{from: spec.a, to: spec.b}, {from: spec.c, to: spec.b}]}]", "two moves overlap: spec.b and spec.b"},
		"not moved":              {"conversion: [{from: v2, moves: [{from: spec.a, to: spec.a}]}]", "from and to are the same field"},
		"empty move":             {"conversion: [{from: v2, moves: [{}]}]", "a move must have from, to or both"},
		"metadata":               {"conversion: [{from: v2, moves: [{from: metadata.labels, to: spec.b}]}]", `"metadata.labels" is not a path to a field in spec`},
		"elements":               {"conversion: [{from: v2, moves: [{from: 'spec.a[0]', to: spec.b}]}]", `"spec.a[0]" is not a path to a field in spec`},
	} {
		text := "- version: v1\n  kind: A\n  group: g.example.com\n  role: memcached\n  webhooks: {" + tt.fields + "}\n"
		got := loadText(t, dir, text, Options{})
		if (got.err == nil) != (tt.problem == "") || tt.problem != "" && (len(got.problems) != 1 || !strings.Contains(got.problems[0], tt.problem)) {
			t.Errorf("%s: %v, %q; want %q", name, got.err, got.problems, tt.problem)
		}
	}
}

// Only one watch can convert a kind.
func TestLoad_ConversionIsOfAKind(t *testing.T) {
	t.Parallel()
	watch := "- version: v1\n  kind: A\n  group: g.example.com\n  role: memcached\n  selector: {matchLabels: {a: b%d}}\n  webhooks: {conversion: [{from: v2}]}\n"
	got := loadText(t, project(t), fmt.Sprintf(watch+watch, 1, 2), Options{})
	if len(got.problems) != 1 || !strings.Contains(got.problems[0], "12:26: error: [1].webhooks.conversion: the watch at line 1 already has conversions of this kind") {
		t.Errorf("%q", got.problems)
	}
}
