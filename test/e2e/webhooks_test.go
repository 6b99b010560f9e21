package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// applied applies what a subcommand prints, and deletes it when the test ends.
func (s *stage) applied(manifests string) {
	s.t.Helper()
	kubeconfig := s.env[slices.IndexFunc(s.env, func(e string) bool { return strings.HasPrefix(e, "KUBECONFIG=") })]
	kubectl := func(args ...string) *exec.Cmd {
		cmd := exec.Command(absolute(s.t, "bin", "tools", "kubectl"), args...)
		cmd.Env, cmd.Stdin = append(cleanEnvironment(), kubeconfig), strings.NewReader(manifests)
		return cmd
	}
	if out, err := kubectl("apply", "-f", "-").CombinedOutput(); err != nil {
		s.t.Fatalf("apply: %v\n%s\n%s", err, out, manifests)
	}
	s.t.Cleanup(func() {
		if out, err := kubectl("delete", "--ignore-not-found", "-f", "-").CombinedOutput(); err != nil {
			s.t.Errorf("delete: %v\n%s", err, out)
		}
	})
}

// try creates an object, or says why the API server does not.
func (k kind) try(name string, spec map[string]any) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(k.gvk)
	u.SetName(name)
	_, err := k.objects.Create(k.t.Context(), u, metav1.CreateOptions{})
	return err
}

// awaitRefused creates objects until one is refused as a rule says.
func (k kind) awaitRefused(spec map[string]any, why string) {
	k.t.Helper()
	n := 0
	testenv.Eventually(k.t, "an object refused: "+why, func(context.Context) error {
		n++
		err := k.try(fmt.Sprintf("early-%d", n), spec)
		if err == nil || !strings.Contains(err.Error(), why) {
			return fmt.Errorf("not refused so: %w", err)
		}
		return nil
	})
}

const expressions = `
webhooks:
  validate:
    - rule: object.spec.size <= 5
      message: size may be at most 5
    - rule: >-
        !has(object.spec.list) || object.spec.list.all(a, object.spec.list.all(b, object.spec.list.all(c, a + b + c > 0)))
  mutate:
    - apply: "has(object.spec.size) ? Object{} : Object{spec: Object.spec{size: 3}}"
    - jsonPatch: '[JSONPatch{op: "add", path: "/spec/twice", value: object.spec.size + object.spec.size}]'
`

// The API server fills objects in and refuses them, with no operator there. What is older than a rule, and breaks it,
// gets its finalizer and its status, and goes.
func TestWebhooks_ExpressionsArePoliciesOfTheAPIServer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.role("quick", "- ansible.builtin.debug: {msg: done}\n")
	k := s.kind()
	s.watch(k, "role: quick", "finalizer: {name: "+finalizerName+", role: quick}", strings.TrimSpace(expressions))
	k.create("older", map[string]any{"size": int64(9)})
	s.applied(s.tool(0, "generate", "webhooks"))
	k.awaitRefused(map[string]any{"size": int64(6)}, "size may be at most 5")

	testenv.Eventually(t, "an object filled in", func(context.Context) error {
		o := k.create(testenv.Random("filled-"), map[string]any{})
		if twice, _, _ := unstructured.NestedInt64(o.Object, "spec", "twice"); twice != 6 {
			return fmt.Errorf("spec: %v", o.Object["spec"])
		}
		return nil
	})
	long := make([]any, 400) // 64 million times the rule
	for i := range long {
		long[i] = int64(1)
	}
	if err := k.try("costly", map[string]any{"list": long}); err == nil || !strings.Contains(err.Error(), "exceeded") {
		t.Errorf("a rule that costs too much: %v", err)
	}
	if _, err := k.objects.Patch(t.Context(), "older", types.MergePatchType, []byte(`{"spec": {"size": 8}}`), metav1.PatchOptions{}); err == nil {
		t.Error("the rule holds for creations only")
	}

	s.start()
	is := k.awaitReady("older")
	must.Be(t, "finalizers", []string{finalizerName}, is.GetFinalizers())
	k.delete("older")
	k.awaitGone("older")
}

// A broken expression ends each command with its line, and nothing is written.
func TestWebhooks_ABrokenExpressionIsNotInstalled(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.role("quick", "- ansible.builtin.debug: {msg: done}\n")
	s.watch(s.kindOf(testenv.CRD(t, s.cfg)), "role: quick", "webhooks:", "  validate:", "    - rule: objct.spec.size <= 5")
	out := s.tool(2, "generate", "webhooks", "--output", filepath.Join(s.dir, "policies.yaml"))
	if want := "watches.yaml:7:15: error: [0].webhooks.validate[0].rule: no CEL expression that the API server takes: 1:1: undeclared reference to 'objct'"; !strings.Contains(out, want) {
		t.Errorf("got %s, want %s", out, want)
	}
	if _, there := s.texts()["policies.yaml"]; there {
		t.Error("policies were written all the same")
	}
}
