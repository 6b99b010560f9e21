//go:build e2e

package cluster

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/procs"
)

// TestJobs_LongFaults makes runs in Pods of an operator's own image, and makes the cluster do to them what clusters do.
func TestJobs_LongFaults(t *testing.T) {
	p := newPotter(t)
	p.image = "docker.io/library/tea-operator:v0.0.1"
	here := must.Get(filepath.Abs(repository))(t)
	// The operator is a process of the node. Its program has the same path there.
	template := fmt.Sprintf(`{spec: {containers: [{name: run, imagePullPolicy: IfNotPresent, volumeMounts: [{name: here, mountPath: %[1]q, readOnly: true}]}],
     volumes: [{name: here, hostPath: {path: %[1]q}}]}}`, here)
	var watches strings.Builder
	for _, w := range []struct{ kind, more string }{
		{"Tea", "finalizer: {name: jobs.example.com/rinse, vars: {rinse: true}}"},
		{"Stew", "timeout: 20s"},
	} {
		p.define(t, w.kind)
		fmt.Fprintf(&watches, "- {group: jobs.example.com, version: v1, kind: %s, %s, executor: job, %s,\n   job: %s}\n",
			w.kind, roleOf(here, "tea"), w.more, template)
	}
	p.write(t, "watches.yaml", watches.String())
	p.eventually(t, "the default service account", p.equals("serviceaccount/default", "get", "serviceaccount", "default", "--output=name"))
	p.goThrough(t, []part{
		{"an object's life", lives}, {"a run that is cancelled", cancelled}, {"a run that takes too long", tooLong}, {"an image that cannot be pulled", unpulled},
		{"a quota that is used up", overQuota}, {"a node that is drained", drained}, {"a kubelet that is frozen", frozen},
	})
	p.ask(t, "delete", "teas,stews", "--all")
	p.eventually(t, "nothing to be left", p.equals("", "get", "jobs,pods,secrets", "--selector=rolewright.dev/run", "--output=name"))
}

// after waits for the end of a run that comes after a given one.
func (p *potter) after(t *testing.T, run, kind, name string) status {
	t.Helper()
	return p.ends(t, kind, name, func(s status) bool { return s.LastRun.ID != run })
}

func lives(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Tea", "assam", "")
	first := p.after(t, "", "tea", "assam").LastRun
	p.ask(t, "patch", "tea", "assam", "--type=merge", `--patch={"spec": {"sugar": 1}}`)
	second := p.after(t, first.ID, "tea", "assam").LastRun
	p.eventually(t, "the cup", p.cup("poured", "assam"))
	p.ask(t, "delete", "configmap", "assam")
	third := p.after(t, second.ID, "tea", "assam").LastRun
	p.eventually(t, "the cup that was deleted", p.cup("poured", "assam"))
	for cause, run := range map[string]struct{ Result, Executor, Cause string }{
		"created": {first.Result, first.Executor, first.Cause}, "changed": {second.Result, second.Executor, second.Cause}, "dependent": {third.Result, third.Executor, third.Cause},
	} {
		if run.Result != "Succeeded" || run.Executor != "job" || run.Cause != cause {
			t.Errorf("%+v, want a success of a job, and the cause %s", run, cause)
		}
	}
	p.ask(t, "delete", "tea", "assam")
	p.ask(t, "get", "configmap", "assam-rinsed", "--namespace=kube-public")
}

func cancelled(t *testing.T, p *potter) {
	t.Helper()
	run := p.brewing(t, "Tea", "oolong", 300)
	p.ask(t, "annotate", "tea", "oolong", "rolewright.dev/cancel="+run)
	p.over(t, "tea", "oolong", run, "Failed", "Cancelled")
}

// brewing makes a run wait in the middle of the role.
func (p *potter) brewing(t *testing.T, kind, name string, seconds int) (run string) {
	t.Helper()
	p.create(t, kind, name, fmt.Sprintf("seconds: %d", seconds))
	p.eventually(t, "the brew", p.cup("brewed", name))
	return p.status(t, kind, name).ActiveRun.ID
}

// over checks that the run has ended in this way, and that nothing of it is left.
func (p *potter) over(t *testing.T, kind, name, run, result, reason string) {
	t.Helper()
	if last := p.after(t, "", kind, name).LastRun; last.ID != run || last.Result != result || last.Reason != reason {
		t.Errorf("the last run is %+v, want %s to be %s, %s", last, run, result, reason)
	}
	p.eventually(t, "nothing of the run to be left", p.equals("", "get", "jobs,pods,secrets", "--selector=rolewright.dev/run="+run, "--output=name"))
}

func tooLong(t *testing.T, p *potter) {
	t.Helper()
	p.over(t, "stew", "gumbo", p.brewing(t, "Stew", "gumbo", 300), "Failed", "TimedOut")
}

// unpulled is an operator whose image is missing.
func unpulled(t *testing.T, p *potter) {
	t.Helper()
	image := p.image
	p.stop(t, syscall.SIGTERM)
	p.image = "docker.io/rolewright/there-is-none:1"
	p.start(t)
	p.waiting(t, "Stew", "kombucha", "Image")
	p.stop(t, syscall.SIGTERM)
	p.image = image
	p.start(t)
}

// overQuota has no room for a Pod at first.
func overQuota(t *testing.T, p *potter) {
	t.Helper()
	p.ask(t, "create", "quota", "none", "--hard=pods=0")
	p.create(t, "Tea", "ceylon", "")
	p.waits(t, "tea", "ceylon", "exceeded quota: none")
	p.ask(t, "delete", "quota", "none")
	if last := p.after(t, "", "tea", "ceylon").LastRun; last.Result != "Succeeded" {
		t.Errorf("with room for its Pod, the run is %+v", last)
	}
}

// drained checks that a run is repeated, on a node that accepts Pods again.
func drained(t *testing.T, p *potter) {
	t.Helper()
	run := p.brewing(t, "Tea", "puerh", 60)
	node := p.ask(t, "get", "nodes", "--output=jsonpath={.items[0].metadata.name}")
	p.ask(t, "drain", node, "--pod-selector=rolewright.dev/run="+run, "--force", "--delete-emptydir-data", "--timeout=600s")
	p.over(t, "tea", "puerh", run, "Interrupted", "Disrupted")
	p.ask(t, "patch", "tea", "puerh", "--type=merge", `--patch={"spec": {"seconds": 1}}`)
	p.waits(t, "tea", "puerh", "Unschedulable: ")
	p.ask(t, "uncordon", node)
	if last := p.after(t, run, "tea", "puerh").LastRun; last.Result != "Succeeded" {
		t.Errorf("on a node that takes Pods again, the run is %+v", last)
	}
}

// frozen makes a run end while its kubelet reports nothing. The object's next run has to wait, because only the kubelet
// can say that the previous Pod has ended.
func frozen(t *testing.T, p *potter) {
	t.Helper()
	run := p.brewing(t, "Tea", "sencha", 10)
	signal := func(s syscall.Signal) {
		found := 0
		for pid, line := range must.Get(procs.Titled("kubelet"))(t) {
			if program, _, _ := strings.Cut(line, " "); filepath.Base(program) == "kubelet" {
				must.Do(t, syscall.Kill(pid, s))
				found++
			}
		}
		if found == 0 {
			t.Fatal("there is no kubelet")
		}
	}
	signal(syscall.SIGSTOP)
	defer signal(syscall.SIGCONT)
	if last := p.after(t, "", "tea", "sencha").LastRun; last.ID != run || last.Result != "Succeeded" {
		t.Errorf("the last run is %+v, want %s to be a success", last, run)
	}
	p.eventually(t, "the node to be called lost", func() error {
		ready, err := p.run("get", "nodes", `--output=jsonpath={.items[0].status.conditions[?(@.type=="Ready")].status}`)
		if ready == "True" {
			err = errors.New("it is ready")
		}
		return err
	})
	p.ask(t, "patch", "tea", "sencha", "--type=merge", `--patch={"spec": {"seconds": 1}}`)
	signal(syscall.SIGCONT)
	if last := p.after(t, run, "tea", "sencha").LastRun; last.Result != "Succeeded" {
		t.Errorf("with its kubelet, the next run is %+v", last)
	}
}
