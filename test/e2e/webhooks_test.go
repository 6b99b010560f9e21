package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
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
		cmd := process(s.t, absolute(s.t, "bin", "tools", "kubectl"), args...)
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

// try creates an object, or returns why the API server refuses it.
func (k kind) try(name string, spec map[string]any) error {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(k.gvk)
	u.SetName(name)
	_, err := k.objects.Create(k.t.Context(), u, metav1.CreateOptions{})
	return err
}

// awaitRefused creates objects until one is refused with the message of a rule.
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

// The API server sets fields of objects and refuses objects, without an operator. An object that is older than a rule,
// and breaks it, gets its finalizer and its status, and can be deleted.
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
		name := testenv.Random("filled-")
		if err := k.try(name, map[string]any{}); err != nil {
			return err
		}
		o := k.get(name)
		if twice, _, _ := unstructured.NestedInt64(o.Object, "spec", "twice"); twice != 6 {
			return fmt.Errorf("spec: %v", o.Object["spec"])
		}
		return nil
	})
	long := make([]any, 400) // 64 million evaluations of the rule
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
	if want := "watches.yaml:7:15: error: [0].webhooks.validate[0].rule: the API server would reject this CEL expression: 1:1: undeclared reference to 'objct'"; !strings.Contains(out, want) {
		t.Errorf("got %s, want %s", out, want)
	}
	if _, there := s.texts()["policies.yaml"]; there {
		t.Error("policies were written all the same")
	}
}

// admits refuses objects that are too large, and does worse things when it is told to.
const admits = `#!/bin/sh
request=$(cat)
case "$request" in
*'"size":6'*) echo '{"allowed": false, "message": "six is right out"}' ;;
*'"size":7'*) sleep 60 ;;
*'"size":8'*) echo 'yes' ;;
*'"size":9'*) head -c 100000 /dev/zero | tr '\0' ' '; echo '{"allowed": true}' ;;
*'"size":10'*) exit 3 ;;
*'"size":11'*) env >&2; echo '{"allowed": true, "patch": {"spec": {"size": 1}}}' ;;
*) echo '{"allowed": true, "warnings": ["it was looked at"]}' ;;
esac
`

const fillsIn = `#!/bin/sh
echo '{"allowed": true, "patch": {"spec": {"color": "green"}, "metadata": {"labels": {"seen": "yes"}}}}'
`

// Commands refuse objects and set their fields. Without an answer no object is accepted, whatever the reason. An existing
// object can still be deleted, and gets its finalizer and its status.
func TestWebhooks_CommandsAnswer(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.role("quick", "- ansible.builtin.debug: {msg: done}\n")
	s.script("admit.sh", admits)
	s.script("fill.sh", fillsIn)
	k := s.kind()
	s.watch(k, "role: quick", "finalizer: {name: "+finalizerName+", role: quick}", "webhooks:", "  validate: [{command: [./admit.sh], timeout: 10s}]", "  mutate: [{command: [./fill.sh]}]")
	address := testenv.Address(t)
	s.applied(s.reachedBy(address, s.tool(0, "generate", "webhooks", "--name", s.namespace, "--operator-namespace", s.namespace)))
	sized := func(n int64) map[string]any { return map[string]any{"size": n} }
	refused := func(n int64, why string) {
		t.Helper()
		if err := k.try(testenv.Random("refused-"), sized(n)); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("size %d: %v, want %s", n, err, why)
		}
	}
	k.awaitRefused(sized(1), "failed calling webhook") // there is no operator

	_, port, _ := strings.Cut(address, ":")
	o := s.start("--webhook-service=https://"+address, "--webhook-port="+port)
	var made object
	testenv.Eventually(t, "an object taken", func(context.Context) error {
		name := testenv.Random("taken-")
		if err := k.try(name, sized(1)); err != nil {
			return err
		}
		made = k.get(name)
		return nil
	})
	if color, _, _ := unstructured.NestedString(made.Object, "spec", "color"); color != "green" || made.GetLabels()["seen"] != "yes" {
		t.Errorf("filled in: %v, labels %v", made.Object["spec"], made.GetLabels())
	}
	refused(6, "six is right out")
	refused(7, "admit.sh has not answered within 8s")
	refused(8, `admit.sh has not printed an answer such as {"allowed": true}`)
	refused(9, "admit.sh has printed more than 65536 bytes")
	refused(10, "admit.sh has ended with exit code 3")
	refused(11, "a command of validate changes nothing")
	if log := o.output(); strings.Contains(log, "KUBE") || !strings.Contains(log, "ROLEWRIGHT_WEBHOOK_ID=") {
		t.Error("the environment of the command is not its own")
	}
	must.Be(t, "files of calls that are over", 0, len(must.Get(filepath.Glob(filepath.Join(s.root, ".webhooks", "*")))(t)))

	k.awaitReady(made.GetName())
	o.stop()
	refused(1, "failed calling webhook")
	k.delete(made.GetName())
	if _, err := k.objects.Patch(t.Context(), made.GetName(), types.JSONPatchType, []byte(`[{"op": "remove", "path": "/metadata/finalizers"}]`), metav1.PatchOptions{}); err != nil {
		t.Errorf("an object cannot go while the operator is down: %v", err)
	}
	k.awaitGone(made.GetName())
}

// reachedBy makes the manifests name an address instead of the Service, which has no Pods here.
func (s *stage) reachedBy(address, manifests string) string {
	service := regexp.MustCompile(`service:\n +name: .*\n +namespace: .*\n +path: (.*)`)
	return service.ReplaceAllString(manifests, "url: https://"+address+"$1")
}

// Objects are written and read in both versions through the operator, which the API server asks without further
// installation. The role sees the version of its watch.
func TestWebhooks_VersionsAreConverted(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.role("sized", "- rolewright.operator.status: {fields: {seen: \"{{ size }}\"}}\n")
	k := s.kind(testenv.WithVersions("v1", "v1alpha1"))
	s.watch(k, "role: sized", "webhooks:", "  conversion:", "    - from: v1alpha1", "      moves:", "        - {from: spec.replicas, to: spec.size}",
		"        - {from: spec.storage, to: spec.storage.size}", "        - {from: spec.legacy}", "        - {to: spec.color}")
	resource := strings.ToLower(k.gvk.Kind) + "s"
	k.create("new", map[string]any{"size": int64(5), "color": "red"})
	address := testenv.Address(t)
	_, port, _ := strings.Cut(address, ":")
	s.start("--webhook-service=https://"+address, "--webhook-port="+port)
	kubeconfig := testenv.Kubeconfig(t, s.cfg)
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := s.command(kubeconfig, "kubectl", append([]string{"-n", s.namespace}, args...)...)
		if err != nil {
			t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	spec := func(version, name string) string {
		return kubectl("get", resource+"."+version+"."+k.gvk.Group, name, "-o", "jsonpath={.spec}")
	}
	testenv.Eventually(t, "objects converted", func(context.Context) error {
		if got := spec("v1alpha1", "new"); got != `{"replicas":5}` {
			return fmt.Errorf("spec: %s", got)
		}
		return nil
	})
	s.write("old.yaml", fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: %s\nmetadata: {name: old}\nspec: {replicas: 3, storage: 1Gi, legacy: [1, x]}\n", k.gvk.Group, k.gvk.Kind))
	kubectl("apply", "-f", "old.yaml")
	must.Be(t, "old as v1", `{"size":3,"storage":{"size":"1Gi"}}`, spec("v1", "old"))
	must.Be(t, "old as v1alpha1", `{"legacy":[1,"x"],"replicas":3,"storage":"1Gi"}`, spec("v1alpha1", "old"))

	kubectl("patch", resource+".v1alpha1."+k.gvk.Group, "new", "--type=merge", "-p", `{"spec": {"replicas": 6}}`)
	must.Be(t, "new as v1", `{"color":"red","size":6}`, spec("v1", "new"))
	for name, want := range map[string]string{"old": "3", "new": "6"} {
		k.await(name, "run as v1", func(o object) bool {
			seen, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "seen")
			return fmt.Sprint(seen) == want
		})
	}
}

// The scenarios of a project run with its policies, commands and conversions.
func TestWebhooks_ScenariosMeetThem(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.ownCluster()
	version := "{name: %s, served: true, storage: %t, subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}"
	s.write("config/crd/bases/jars.yaml", "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: jars.demo.example.com}\nspec:\n"+
		"  group: demo.example.com\n  names: {kind: Jar, plural: jars}\n  scope: Namespaced\n  versions:\n    - "+fmt.Sprintf(version, "v1", true)+"\n    - "+fmt.Sprintf(version, "v1alpha1", false)+"\n")
	s.script("fill.sh", fillsIn)
	s.script("run.sh", "#!/bin/sh\n")
	s.write("watches.yaml", "- group: demo.example.com\n  version: v1\n  kind: Jar\n  command: [./run.sh]\n  webhooks:\n    mutate:\n      - command: [./fill.sh]\n"+
		"      - apply: \"Object{spec: Object.spec{lid: 'cork'}}\"\n    conversion: [{from: v1alpha1, moves: [{from: spec.replicas, to: spec.size}]}]\n")
	s.write("tests/filled.yaml", "steps:\n  - apply: {apiVersion: demo.example.com/v1, kind: Jar, metadata: {name: b}, spec: {size: 4}}\n"+
		"    expect: {apiVersion: demo.example.com/v1alpha1, kind: Jar, metadata: {name: b}, spec: {replicas: 4, color: green, lid: cork}}\n")
	s.tool(0, "test", "--executor=runner", "--runner-root="+s.root)
}
