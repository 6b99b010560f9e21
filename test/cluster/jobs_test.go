//go:build e2e

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// TestJobs makes runs in their own Pods, with an operator that is a process of the node, so that it can be killed and
// started again. The Pods use the programs of the machine: their image is the pause image, which every node has and which
// is empty.
func TestJobs(t *testing.T) {
	p := newPotter(t)
	p.install(t)
	p.goThrough(t, []part{
		{"success", brewed}, {"failure", spilled}, {"the operator is killed and loses its disk", survives}, {"the run ends while there is no operator", waits},
		{"a command", commanded}, {"the object is deleted", deleted}, {"the Pod is deleted", evicted}, {"a Pod that has no node", unschedulable},
		{"a Pod that has no image", imageless}, {"a run that takes too much memory", glutton}, {"nothing is left", swept},
	})
}

// part is a test of one thing that happens to runs.
type part struct {
	name string
	test func(*testing.T, *potter)
}

// goThrough starts the operator and does the parts one after the other, until one fails.
func (p *potter) goThrough(t *testing.T, parts []part) {
	t.Helper()
	p.start(t)
	t.Cleanup(func() { p.stop(t, syscall.SIGKILL) })
	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { part.test(t, p) }) {
			log, _ := os.ReadFile(filepath.Join(p.dir, "operator.log"))
			t.Fatalf("the end of the operator's log:\n%s", log[max(0, len(log)-8000):])
		}
	}
}

// potter is a shell with an operator.
type potter struct {
	shell

	root     string
	operator *exec.Cmd
	// image is the image that the operator takes for its own, and program is its program, at the same path.
	image, program string
	// flags are further flags.
	flags []string
}

func newPotter(t *testing.T, flags ...string) *potter {
	t.Helper()
	program := must.Get(filepath.Abs(filepath.Join(repository, "bin/rolewright")))(t)
	return &potter{shell: shell{dir: t.TempDir()}, root: filepath.Join(t.TempDir(), "runner"), image: "docker.io/rolewright/pause:1", program: program, flags: flags}
}

// podTemplate uses the programs of the machine.
const podTemplate = `{spec: {securityContext: {runAsUser: 0}, %s containers: [{name: run, imagePullPolicy: IfNotPresent, %s volumeMounts: [
  {name: tmp, mountPath: /tmp}, {name: usr, mountPath: /usr, readOnly: true}, {name: lib, mountPath: /lib, readOnly: true}, {name: lib64, mountPath: /lib64, readOnly: true},
  {name: bin, mountPath: /bin, readOnly: true}, {name: etc, mountPath: /etc, readOnly: true}, {name: here, mountPath: %[3]q, readOnly: true}, {name: work, mountPath: %[4]q}]}],
  volumes: [{name: tmp, emptyDir: {}}, {name: usr, hostPath: {path: /usr}}, {name: lib, hostPath: {path: /usr/lib}}, {name: lib64, hostPath: {path: /usr/lib64}},
  {name: work, emptyDir: {}}, {name: bin, hostPath: {path: /usr/bin}}, {name: etc, hostPath: {path: /etc}}, {name: here, hostPath: {path: %[3]q}}]}}`

func (p *potter) install(t *testing.T) {
	t.Helper()
	here := must.Get(filepath.Abs(repository))(t)
	var watches strings.Builder
	for _, w := range []struct{ kind, content, pod, container, more string }{
		{"Tea", roleOf(here, "tea"), "", "", ""},
		{"Lost", roleOf(here, "tea"), "nodeSelector: {there: is-none},", "", ""},
		{"Bare", roleOf(here, "tea"), "", "image: docker.io/rolewright/there-is-none:1,", ""},
		{"Glutton", roleOf(here, "glutton"), "", "resources: {limits: {memory: 300Mi}},", "retry: {maxAttempts: 1}"},
		{"Cup", fmt.Sprintf("command: [%q]", filepath.Join(here, "test/cluster/testdata/jobs/pour.py")), "", "",
			"requireResult: true, secrets: [{name: sugar, key: lumps}]"},
	} {
		p.define(t, w.kind)
		fmt.Fprintf(&watches, "- {group: jobs.example.com, version: v1, kind: %s, %s, executor: job, %s\n   job: %s}\n", w.kind,
			w.content, strings.TrimPrefix(w.more+",", ","), fmt.Sprintf(podTemplate, w.pod, w.container, here, p.dir))
	}
	p.write(t, "watches.yaml", watches.String())
	p.eventually(t, "the default service account", p.equals("serviceaccount/default", "get", "serviceaccount", "default", "--output=name"))
}

func roleOf(here, name string) string {
	return "role: " + filepath.Join(here, "test/cluster/testdata/jobs/roles", name)
}

// define installs a kind in the API server.
func (p *potter) define(t *testing.T, kind string) {
	t.Helper()
	plural := strings.ToLower(kind) + "s"
	crd := fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s.jobs.example.com}, spec: {
  group: jobs.example.com, scope: Namespaced, names: {kind: %s, plural: %[1]s, singular: %[3]s}, versions: [{name: v1, served: true, storage: true,
  subresources: {status: {}}, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, plural, kind, strings.ToLower(kind))
	p.write(t, kind+".yaml", crd)
	p.ask(t, "apply", "--filename="+kind+".yaml")
	p.ask(t, "wait", "--for=condition=Established", "--timeout=600s", "crd/"+plural+".jobs.example.com")
}

func (p *potter) write(t *testing.T, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
}

func (p *potter) start(t *testing.T) {
	t.Helper()
	log := must.Get(os.OpenFile(filepath.Join(p.dir, "operator.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(t)
	defer log.Close()
	p.operator = exec.Command(p.program, append([]string{"run", "--watches-file=watches.yaml", "--runner-root=" + p.root, "--job-namespace=default",
		"--job-url=https://10.244.0.1:8444", "--job-image=" + p.image, "--proxy-port=0", "--metrics-bind-address=0",
		"--health-probe-bind-address=0", "--user-metrics-bind-address=0", "--progress-interval=500ms", "--retry-min=10m", "--retry-max=10m"}, p.flags...)...)
	p.operator.Env = append(os.Environ(), "ANSIBLE_GATHERING=explicit")
	p.operator.Dir, p.operator.Stdout, p.operator.Stderr = p.dir, log, log
	must.Do(t, p.operator.Start())
}

func (p *potter) stop(t *testing.T, signal syscall.Signal) {
	t.Helper()
	_ = p.operator.Process.Signal(signal) // it may have ended
	_ = p.operator.Wait()
}

// create creates an object with a spec.
func (p *potter) create(t *testing.T, kind, name, spec string) {
	t.Helper()
	p.write(t, name+".yaml", fmt.Sprintf("{apiVersion: jobs.example.com/v1, kind: %s, metadata: {name: %s, namespace: default}, spec: {%s}}", kind, name, spec))
	p.ask(t, "apply", "--filename="+name+".yaml")
}

// status is what the operator reports about an object's runs.
type status struct {
	ActiveRun struct{ ID, Waiting string }
	NextRetry string
	LastRun   struct{ ID, Result, Reason, Message, Executor, Cause string }
}

func (p *potter) status(t *testing.T, kind, name string) (s status) {
	t.Helper()
	out, err := p.run("get", kind, name, "--output=jsonpath={.status.ansible}")
	if err == nil && out != "" {
		err = json.Unmarshal([]byte(out), &s)
	}
	if err != nil {
		t.Fatalf("the status of %s %s: %v\n%s", kind, name, err, out)
	}
	return s
}

// ends waits for the end of a run that is accepted.
func (p *potter) ends(t *testing.T, kind, name string, accepts func(status) bool) (s status) {
	t.Helper()
	p.eventually(t, "the end of the run of "+name, func() error {
		if s = p.status(t, kind, name); s.LastRun.ID == "" || !accepts(s) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	return s
}

func anyEnd(status) bool { return true }

func (p *potter) cup(want, name string) func() error {
	return p.equals(want, "get", "configmap", name, "--output=jsonpath={.data.state}")
}

// open lets a run continue that waits at its gate.
func (p *potter) open(t *testing.T, run string) {
	t.Helper()
	p.eventually(t, "the gate of run "+run, func() error {
		out, err := p.run("exec", p.ask(t, "get", "pods", "--selector=rolewright.dev/run="+run, "--output=name"), "--", "/usr/bin/touch", "/tmp/go")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func brewed(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Tea", "assam", "")
	if s := p.ends(t, "tea", "assam", anyEnd); s.LastRun.Result != "Succeeded" || s.LastRun.Executor != "job" {
		t.Errorf("the run is %+v, want a success of a job", s.LastRun)
	}
	p.eventually(t, "the cup", p.cup("poured", "assam"))
	p.eventually(t, "its owner", p.equals("Tea", "get", "configmap", "assam", "--output=jsonpath={.metadata.ownerReferences[*].kind}"))
}

func spilled(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Tea", "mate", "spill: true")
	if s := p.ends(t, "tea", "mate", anyEnd); s.LastRun.Result != "Failed" || s.LastRun.Reason != "TaskFailed" || !strings.HasPrefix(s.LastRun.Message, "spilled\n") {
		t.Errorf("the run is %+v, want the failure of the task", s.LastRun)
	}
}

func survives(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Tea", "sencha", "gate: true")
	p.eventually(t, "the brew", p.cup("brewed", "sencha"))
	run := p.status(t, "tea", "sencha").ActiveRun.ID
	p.stop(t, syscall.SIGKILL)
	must.Do(t, os.RemoveAll(p.root))
	p.start(t)
	p.open(t, run)
	if s := p.ends(t, "tea", "sencha", anyEnd); s.LastRun.ID != run || s.LastRun.Result != "Succeeded" {
		t.Errorf("after run %s the last one is %+v, want its success", run, s.LastRun)
	}
}

func waits(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Tea", "rooibos", "gate: true")
	p.eventually(t, "the brew", p.cup("brewed", "rooibos"))
	run := p.status(t, "tea", "rooibos").ActiveRun.ID
	p.stop(t, syscall.SIGTERM)
	p.open(t, run)
	pod := []string{"logs", "--selector=rolewright.dev/run=" + run, "--tail=-1"}
	p.eventually(t, "the task that asks for the operator", func() error {
		out, err := p.run(append([]string{"exec", p.ask(t, "get", "pods", "--selector=rolewright.dev/run="+run, "--output=name"), "--", "/bin/sh", "-c"},
			"grep -l '\"task\": \"Pour\"' $(dirname "+p.root+")/runner/.runs/*/*/artifacts/*/job_events/*.json")...)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	p.start(t)
	if s := p.ends(t, "tea", "rooibos", anyEnd); s.LastRun.ID != run || s.LastRun.Result != "Succeeded" {
		log, _ := p.run(pod...)
		t.Errorf("after run %s the last one is %+v, want its success\n%s", run, s.LastRun, log)
	}
}

// commanded kills the operator in the middle of a command, which has reported before and reports afterwards.
func commanded(t *testing.T, p *potter) {
	t.Helper()
	p.ask(t, "create", "secret", "generic", "sugar", "--from-literal=lumps=three-lumps")
	p.create(t, "Cup", "espresso", "wait: true")
	reported := func(conditions string) func() error {
		return p.equals(conditions, "get", "cup", "espresso", `--output=jsonpath={.status.conditions[?(@.type=="Warm")].reason} {.status.conditions[?(@.type=="Full")].reason}`)
	}
	p.eventually(t, "the first report", reported("Poured"))
	run := p.status(t, "cup", "espresso").ActiveRun.ID
	p.stop(t, syscall.SIGKILL)
	must.Do(t, os.RemoveAll(p.root))
	p.start(t)
	p.ask(t, "create", "configmap", "drink", "--from-literal=now=yes")
	if s := p.ends(t, "cup", "espresso", anyEnd); s.LastRun.ID != run || s.LastRun.Result != "Succeeded" || s.LastRun.Executor != "job" {
		t.Errorf("after run %s the last one is %+v, want its success as a job", run, s.LastRun)
	}
	p.eventually(t, "the last report", reported("Poured Poured"))
	p.eventually(t, "what it has made", p.cup("11 bytes, mode 400", "espresso"))
	p.eventually(t, "its owner", p.equals("Cup", "get", "configmap", "espresso", "--output=jsonpath={.metadata.ownerReferences[*].kind}"))
	p.create(t, "Cup", "ristretto", "spill: true")
	if s := p.ends(t, "cup", "ristretto", anyEnd); s.LastRun.Result != "Failed" || s.LastRun.Reason != "CommandFailed" || !strings.HasPrefix(s.LastRun.Message, "spilled\n") {
		t.Errorf("the run is %+v, want the failure of the command", s.LastRun)
	}
}

func deleted(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Tea", "oolong", "seconds: 300")
	p.eventually(t, "the brew", p.cup("brewed", "oolong"))
	run := p.status(t, "tea", "oolong").ActiveRun.ID
	p.ask(t, "delete", "tea", "oolong")
	p.eventually(t, "the end of the Pod", p.equals("", "get", "jobs,pods,secrets", "--selector=rolewright.dev/run="+run, "--output=name"))
}

func evicted(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Tea", "puerh", "gate: true")
	p.eventually(t, "the brew", p.cup("brewed", "puerh"))
	run := p.status(t, "tea", "puerh").ActiveRun.ID
	p.ask(t, "delete", "pods", "--selector=rolewright.dev/run="+run, "--wait=false")
	if s := p.ends(t, "tea", "puerh", anyEnd); s.LastRun.ID != run || s.LastRun.Result != "Interrupted" || s.LastRun.Reason != "Disrupted" || s.NextRetry == "" {
		t.Errorf("the run is %+v, repeated at %q; want an interruption of %s", s.LastRun, s.NextRetry, run)
	}
	p.ask(t, "annotate", "tea", "puerh", "rolewright.dev/reconcile-at=now") // the back-off is long by now
	next := ""
	p.eventually(t, "the run after it", func() error {
		if next = p.status(t, "tea", "puerh").ActiveRun.ID; next == "" || next == run {
			return fmt.Errorf("the active run is %q", next)
		}
		return nil
	})
	p.open(t, next)
	s := p.ends(t, "tea", "puerh", func(s status) bool { return s.LastRun.ID != run })
	if s.LastRun.Result != "Succeeded" || s.LastRun.Cause != "manual" {
		t.Errorf("the run after it is %+v, want a success", s.LastRun)
	}
}

func (p *potter) waiting(t *testing.T, kind, name, want string) {
	t.Helper()
	p.create(t, kind, name, "")
	p.waits(t, kind, name, want)
	p.ask(t, "delete", kind, name)
}

// waits waits until the status says what a run waits for.
func (p *potter) waits(t *testing.T, kind, name, want string) {
	t.Helper()
	p.eventually(t, "what the run waits for", func() error {
		if s := p.status(t, kind, name); !strings.Contains(s.ActiveRun.Waiting, want) {
			return fmt.Errorf("it waits for %q, want %s", s.ActiveRun.Waiting, want)
		}
		return nil
	})
}

func unschedulable(t *testing.T, p *potter) {
	t.Helper()
	p.waiting(t, "Lost", "chai", "Unschedulable: ")
}

// The operator's program is not in the image of this kind, so the init container copies nothing, and fails.
func imageless(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Bare", "kombucha", "")
	if s := p.ends(t, "bare", "kombucha", anyEnd); s.LastRun.Result != "Failed" || s.LastRun.Reason != "RunnerUnavailable" || !strings.Contains(s.LastRun.Message, "container rolewright-program") {
		t.Errorf("the run is %+v, want one that could not begin", s.LastRun)
	}
}

// The first time the cause may be anything; the second time it is the run.
func glutton(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Glutton", "buffet", "")
	s := p.ends(t, "glutton", "buffet", func(s status) bool { return s.LastRun.Result == "Failed" })
	if s.LastRun.Reason != "RunnerDied" && s.LastRun.Reason != "OutOfMemory" && s.LastRun.Reason != "TaskFailed" {
		t.Errorf("the run is %+v, want one that died of its memory", s.LastRun)
	}
	t.Logf("%+v", s.LastRun)
}

func swept(t *testing.T, p *potter) {
	t.Helper()
	p.ask(t, "delete", "teas,losts,bares,gluttons,cups", "--all")
	p.eventually(t, "nothing to be left", p.equals("", "get", "jobs,pods,secrets", "--selector=rolewright.dev/run", "--output=name"))
}
