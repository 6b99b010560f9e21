package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/testenv"
)

// One kind has two watches, the second of which is added while the operator runs. The labels of an object decide which
// role runs it.
func TestSeveralWatches_TheLabelsOfAnObjectSayWhichRoleRunsIt(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	note := s.notes()
	k := s.kind()
	for _, role := range []string{"plain", "gold", "farewell"} {
		s.role(role, strings.Replace(noteTask, "'main'", "'"+role+"'", 1))
	}
	s.watch(k, "role: plain", "selector: {matchExpressions: [{key: tier, operator: NotIn, values: [gold]}]}")
	s.start("--watch-content")
	expect := func(want string) {
		t.Helper()
		testenv.Eventually(t, want+" runs", func(context.Context) error {
			if got := note("it"); got != want {
				return fmt.Errorf("%q has run", got)
			}
			return nil
		})
	}
	k.create("it", nil)
	expect("plain")
	k.awaitReady("it")
	k.patch("it", `{"metadata":{"labels":{"tier":"gold"}}}`)
	s.watch(k, "role: gold", "selector: {matchLabels: {tier: gold}}", "finalizer: {name: "+finalizerName+", role: farewell}")
	expect("gold")
	k.awaitReady("it")
	k.patch("it", `{"metadata":{"labels":{"tier":"tin"}}}`)
	expect("plain")
	is := k.await("it", "run by the first watch", func(o object) bool { return o.settled() && o.lastRun().Cause == "changed" })
	if want := "watch: v1alpha1, tier notin (gold)"; !strings.HasPrefix(is.lastRun().Trigger, want) || len(is.GetFinalizers()) > 0 {
		t.Errorf("trigger %q, want %s; finalizers %v, want none", is.lastRun().Trigger, want, is.GetFinalizers())
	}
	if out := s.tool(0, "explain", strings.ToLower(k.gvk.Kind)+"/it", "-n", s.namespace); !strings.Contains(out, "changed (watch: v1alpha1, tier notin (gold)") {
		t.Errorf("explanation:\n%s", out)
	}
	k.patch("it", `{"metadata":{"labels":{"tier":"gold"}}}`)
	expect("gold")
	k.delete("it")
	k.awaitGone("it")
	expect("farewell")
}
