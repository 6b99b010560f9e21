package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// process returns a command that ends after ten minutes at the latest: if one hangs, only its own test fails.
func process(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Minute) // it may clean up
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Minute // children may have its output open
	return cmd
}

// client returns a command that talks to the API server with a kubeconfig.
func (s *stage) client(kubeconfig, name string, args ...string) *exec.Cmd {
	s.t.Helper()
	if name == "kubectl" || name == "helm" {
		name = absolute(s.t, "bin", "tools", name)
	}
	cmd := process(s.t, name, args...)
	cmd.Dir = s.dir
	cmd.Env = append(s.env[:len(s.env):len(s.env)], "KUBECONFIG="+kubeconfig, "K8S_AUTH_KUBECONFIG="+kubeconfig)
	return cmd
}

// command runs a client to its end, and returns all that it prints.
func (s *stage) command(kubeconfig, name string, args ...string) (string, error) {
	s.t.Helper()
	out, err := s.client(kubeconfig, name, args...).CombinedOutput()
	return string(out), err
}

// byHand is "rolewright proxy" in its own process.
type byHand struct {
	*operator
	t          *testing.T
	kubeconfig string
}

// proxy starts the proxy for an object, and returns when its kubeconfig exists. The proxy is stopped at the end of the
// test.
func (s *stage) proxy(owner string) byHand {
	s.t.Helper()
	path := filepath.Join(s.t.TempDir(), "kubeconfig")
	o := s.launchWith(func(o *operator) {
		o.cmd.Args = []string{o.cmd.Path, "proxy", "--owner=" + owner, "--namespace=" + s.namespace, "--kubeconfig=" + path}
	})
	testenv.Eventually(s.t, "the kubeconfig", func(context.Context) error {
		if o.hasEnded() {
			s.t.Fatalf("the proxy has ended: %s", o.output())
		}
		if !strings.Contains(o.output(), "export KUBECONFIG="+path) {
			return errors.New("not there yet")
		}
		return nil
	})
	return byHand{o, s.t, path}
}

// run runs a command line, without quotes, to its end, and returns what it prints.
func (b byHand) run(line string) string {
	b.t.Helper()
	words := strings.Fields(line)
	out, err := b.stage.command(b.kubeconfig, words[0], words[1:]...)
	if err != nil {
		b.t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

// configMap writes the manifest of a ConfigMap, and returns its path.
func (s *stage) configMap(namespace, name, size string) string {
	s.t.Helper()
	path := name + "-" + size + ".yaml"
	s.write(path, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", namespace: "+namespace+"}\ndata: {size: \""+size+"\"}\n")
	return path
}

// pythonScript uses the two clients of the Python package kubernetes.
const pythonScript = `
import sys
from kubernetes import client, config, dynamic, watch

config.load_kube_config()
ns = sys.argv[1]
typed = client.CoreV1Api()
meta = client.V1ObjectMeta(name="typed", labels={"by": "python"})
made = typed.create_namespaced_config_map(ns, client.V1ConfigMap(metadata=meta, data={"n": "1"}))
assert len(made.metadata.owner_references) == 1, made
typed.patch_namespaced_config_map("typed", ns, {"data": {"n": "2"}})
typed.replace_namespaced_config_map("typed", ns, client.V1ConfigMap(metadata=meta, data={"n": "3"}))
assert typed.read_namespaced_config_map("typed", ns).data == {"n": "3"}

dyn = dynamic.DynamicClient(client.ApiClient())
maps = dyn.resources.get(api_version="v1", kind="ConfigMap")
def body(n):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dynamic", "labels": {"by": "python"}}, "data": {"n": n}}
maps.create(body=body("1"), namespace=ns)
maps.patch(body=body("2"), namespace=ns, content_type="application/merge-patch+json")
maps.replace(body=body("3"), namespace=ns)
maps.create(body={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "passing"}}, namespace=ns)
maps.delete(name="passing", namespace=ns)
assert [m.data.n for m in maps.get(namespace=ns, label_selector="by=python").items] == ["3", "3"]

seen = set()
for event in watch.Watch().stream(typed.list_namespaced_config_map, ns, label_selector="by=python", timeout_seconds=60):
    seen.add(event["object"].metadata.name)
    if seen == {"typed", "dynamic"}:
        break
print("done")
`

// ansiblePython returns the Python interpreter of Ansible, which has the packages that modules use.
func ansiblePython(t *testing.T) string {
	t.Helper()
	out := must.Get(process(t, "ansible-playbook", "--version").Output())(t)
	found := regexp.MustCompile(`python version = .*\((/[^)]+)\)`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("ansible-playbook does not say which Python it uses:\n%s", out)
	}
	return string(found[1])
}

// clientStage returns a stage with an object it, a proxy for it, and a ConfigMap lost without an owner. The watch has
// these further fields.
func clientStage(t *testing.T, fields ...string) (*stage, kind, object, byHand) {
	t.Helper()
	needAnsible(t)
	s := newStage(t)
	s.clients()
	s.role("one", "- ansible.builtin.debug: {msg: done}\n")
	k := s.kind()
	s.watch(k, append(fields, "role: one")...)
	it := k.create("it", nil)
	p := s.proxy("Widget/it")
	if out, err := s.command(testenv.Kubeconfig(t, s.cfg), "kubectl", "create", "configmap", "lost", "--namespace="+s.namespace); err != nil {
		t.Fatalf("create what has no owner: %v\n%s", err, out)
	}
	return s, k, it, p
}

func TestProxyByHand_Kubectl(t *testing.T) {
	t.Parallel()
	s, k, it, p := clientStage(t)
	other := testenv.Namespace(t, s.cfg)
	cs := s.children()
	of := func(name string) child { return child{"configmaps.v1.", s.namespace, name} }
	in := " --namespace=" + s.namespace + " "

	info, err := os.Stat(p.kubeconfig)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("kubeconfig: %v, %v; want a file that only its owner can read", info.Mode(), err)
	}
	p.run("kubectl create configmap created --from-literal=size=1" + in)
	for _, n := range []string{"1", "2"} {
		p.run("kubectl apply -f " + s.configMap(s.namespace, "applied", n))
		p.run("kubectl apply --server-side -f " + s.configMap(s.namespace, "served", n))
	}
	p.run("kubectl apply -f " + s.configMap(other, "remote", "1"))
	p.run("kubectl create configmap replaced --from-literal=size=1" + in)
	p.run("kubectl replace -f " + s.configMap(s.namespace, "replaced", "2"))
	p.run("kubectl create configmap forced --from-literal=size=1" + in)
	p.run("kubectl replace --force -f " + s.configMap(s.namespace, "forced", "2"))
	p.run(`kubectl patch configmap created --type=json -p [{"op":"replace","path":"/data/size","value":"2"}]` + in)
	p.run(`kubectl patch configmap created --type=merge -p {"data":{"merged":"1"}}` + in)
	p.run(`kubectl patch configmap created --type=strategic -p {"data":{"strategic":"1"}}` + in)
	p.run("kubectl annotate configmap created note=1" + in)
	p.run("kubectl create configmap passing" + in)
	p.run("kubectl delete configmap passing" + in)
	p.run("kubectl label configmap lost by=kubectl" + in)
	p.run("kubectl create configmap never --dry-run=server" + in)

	definition := newDefinition(s)
	p.run("kubectl apply -f " + definition.path)
	p.run("kubectl wait --for=condition=established --timeout=3m customresourcedefinition/" + definition.name)
	testenv.Eventually(t, "an object of the new kind", func(context.Context) error { // discovery has the kind a moment later
		if out, err := s.command(p.kubeconfig, "kubectl", "apply", "-f", definition.object); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	cs.owned(it, child{"customresourcedefinitions.v1.apiextensions.k8s.io", "", definition.name},
		child{definition.resource, s.namespace, "new"})

	watching := s.watching(p, "get", "configmap", "created", "--watch", "--output-watch-events", "--no-headers", "--namespace="+s.namespace)
	watching.await("ADDED")
	p.run("kubectl label configmap created seen=1" + in)
	watching.await("MODIFIED")
	watching.stop()

	if got := p.run("kubectl auth can-i create configmaps" + in); got != "yes\n" {
		t.Errorf("kubectl auth can-i: %q", got)
	}
	if got := p.run("kubectl api-resources --no-headers"); !strings.Contains(got, k.gvk.Group) || !strings.Contains(got, "apps/v1") {
		t.Errorf("kubectl api-resources:\n%s", got)
	}
	if got := p.run("kubectl explain deployment.spec.replicas"); !strings.Contains(got, "Number of desired pods") {
		t.Errorf("kubectl explain:\n%s", got)
	}

	cs.owned(it, of("created"), of("applied"), of("served"), of("replaced"), of("forced"), child{"configmaps.v1.", other, "remote"})
	data := cs.get(of("created")).Object["data"].(map[string]any)
	if data["size"] != "2" || data["merged"] != "1" || data["strategic"] != "1" {
		t.Errorf("the patched object has %v", data)
	}
	cs.unowned(of("lost"))
	cs.absent(of("passing"))
	cs.absent(of("never"))

	k.delete("it")
	testenv.Eventually(t, "a refusal to write for an object that is gone", func(context.Context) error {
		out, err := s.command(p.kubeconfig, "kubectl", "create", "configmap", testenv.Random("late"), "--namespace="+s.namespace)
		if err == nil || !strings.Contains(out, "the object is gone") {
			return errors.New(out)
		}
		return nil
	})
	p.expectEnd()
}

// definition is a kind that is not installed, and an object of it.
type definition struct {
	name, resource string
	path, object   string // of the manifests
}

func newDefinition(s *stage) definition {
	s.t.Helper()
	group := testenv.Random("late") + ".rolewright.test"
	d := definition{name: "things." + group, resource: "things.v1." + group, path: "definition.yaml", object: "thing.yaml"}
	s.write(d.path, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: `+d.name+`}
spec:
  group: `+group+`
  scope: Namespaced
  names: {kind: Thing, plural: things, singular: thing, listKind: ThingList}
  versions:
    - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`)
	s.write(d.object, "{apiVersion: "+group+"/v1, kind: Thing, metadata: {name: new, namespace: "+s.namespace+"}}\n")
	crds := s.children().in(child{resource: "customresourcedefinitions.v1.apiextensions.k8s.io"})
	ctx := context.WithoutCancel(s.t.Context()) // cleanup runs after the test's context has ended
	s.t.Cleanup(func() {
		if err := crds.Delete(ctx, d.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			s.t.Errorf("delete the definition: %v", err)
		}
	})
	return d
}

// expectEnd stops the proxy, and checks that nothing of it is left.
func (b byHand) expectEnd() {
	b.t.Helper()
	data := must.Get(os.ReadFile(b.kubeconfig))(b.t)
	b.stage.write("kept.kubeconfig", string(data))
	b.stop()
	if _, err := os.Stat(b.kubeconfig); !os.IsNotExist(err) {
		b.t.Errorf("kubeconfig after the end: %v, want that there is none", err)
	}
	if out, err := b.stage.command("kept.kubeconfig", "kubectl", "get", "namespaces"); err == nil {
		b.t.Errorf("a copy of the kubeconfig still works:\n%s", out)
	}
}

// watching is a client that prints a line for each event.
type watching struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func (s *stage) watching(p byHand, args ...string) watching {
	s.t.Helper()
	cmd := s.client(p.kubeconfig, "kubectl", append(args, "--request-timeout=2m")...)
	out := must.Get(cmd.StdoutPipe())(s.t)
	must.Do(s.t, cmd.Start())
	return watching{s.t, cmd, bufio.NewScanner(out)}
}

// await reads until a line has the word; the client's timeout ends the wait.
func (w watching) await(word string) {
	w.t.Helper()
	for w.lines.Scan() {
		if strings.Contains(w.lines.Text(), word) {
			return
		}
	}
	w.t.Fatalf("the watch has ended without %s: %v", word, w.lines.Err())
}

func (w watching) stop() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM) // an error means that it has ended
	for w.lines.Scan() {
	}
	var ended *exec.ExitError
	if err := w.cmd.Wait(); err != nil && !errors.As(err, &ended) && !errors.Is(err, io.EOF) {
		w.t.Errorf("stop the watch: %v", err)
	}
}

func TestProxyByHand_HelmAndPython(t *testing.T) {
	t.Parallel()
	s, _, it, p := clientStage(t, "adopt: ifUnowned")
	s.chart("chart")
	s.write("script.py", pythonScript)
	cs := s.children()
	in := " --namespace=" + s.namespace
	release := func(n string) child { return child{"secrets.v1.", s.namespace, "sh.helm.release.v1.tiny.v" + n} }
	made := child{"configmaps.v1.", s.namespace, "tiny-it"}

	p.run("helm install tiny ./chart" + in)
	cs.owned(it, made, release("1"))
	p.run("helm upgrade tiny ./chart --set-string size=7" + in)
	cs.owned(it, made, release("1"), release("2"))
	if data, _ := cs.get(made).Object["data"].(map[string]any); data["size"] != "7" {
		t.Errorf("the upgraded chart's object has %v", data)
	}
	if got := p.run("helm list" + in); !strings.Contains(got, "deployed") {
		t.Errorf("helm list:\n%s", got)
	}
	p.run("helm uninstall tiny" + in)
	for _, c := range []child{made, release("1"), release("2")} {
		cs.absent(c)
	}

	if got := p.run(ansiblePython(t) + " script.py " + s.namespace); got != "done\n" {
		t.Errorf("the Python script printed:\n%s", got)
	}
	p.run("kubectl label configmap lost by=kubectl" + in)
	for _, name := range []string{"typed", "dynamic", "lost"} {
		cs.owned(it, child{"configmaps.v1.", s.namespace, name})
	}
	p.expectEnd()
}
