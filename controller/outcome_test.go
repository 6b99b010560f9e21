package controller

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
	"time"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/runner"
)

// Every reason that a verdict can have is known as ours: the condition that
// shows a failure gives way to the next success.
func TestOutcome_NoReasonOfAFailureStays(t *testing.T) {
	t.Parallel()
	reasons := append(reasonsOf(t, "../runner/verdict.go", "Reason"), status.ReasonUnavailable, status.ReasonNotRun, status.ReasonTimedOut, status.ReasonArtifactsTooLarge)
	if len(reasons) < 15 {
		t.Fatalf("reasons = %q", reasons)
	}
	now := time.Now()
	for _, reason := range reasons {
		if reason == string(runner.Succeeded) {
			continue
		}
		failed := status.Conclude(nil, status.Run{ID: "1", Generation: 1, Result: status.Failed, Reason: reason, Started: now, Finished: now}, time.Second, now)
		fine := status.Conclude(failed, status.Run{ID: "2", Generation: 2, Result: status.Succeeded, Reason: "Succeeded", Started: now, Finished: now}, 0, now)
		for _, item := range fine["conditions"].([]any) {
			if c := item.(map[string]any); c["type"] == status.Ready && c["status"] != "True" {
				t.Errorf("after %s and a success, Ready = %v", reason, c)
			}
		}
	}
}

// reasonsOf are the constants of a type in a file.
func reasonsOf(t *testing.T, file, kind string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name, isName := spec.Type.(*ast.Ident)
		value, isValue := spec.Values[0].(*ast.BasicLit)
		if isName && isValue && name.Name == kind {
			text, err := strconv.Unquote(value.Value)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, text)
		}
		return true
	})
	return found
}
