//go:build e2e

package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// elsewhere is a directory of the node that images have at the same path: with the operator's program, and with a role.
const elsewhere = "/var/tmp/rolewright-e2e"

// TestJobs_InOtherImages makes runs in images other than the operator's: one with Ansible and a role, an Execution
// Environment into which an init container copies the program, and one without Ansible.
func TestJobs_InOtherImages(t *testing.T) {
	p := newPotter(t)
	p.image, p.program = "rolewright/elsewhere:e2e", filepath.Join(elsewhere, "rolewright")
	t.Cleanup(func() { _ = os.RemoveAll(elsewhere) })
	must.Do(t, os.RemoveAll(elsewhere))
	must.Do(t, os.CopyFS(filepath.Join(elsewhere, "roles"), os.DirFS(filepath.Join(repository, "test/cluster/testdata/jobs/roles"))))
	must.Do(t, os.WriteFile(p.program, must.Get(os.ReadFile(filepath.Join(repository, "bin/rolewright")))(t), 0o700))
	var watches strings.Builder
	for kind, image := range map[string]string{"Well": "own-environment:e2e", "Desert": "memcached:1.6"} {
		p.define(t, kind)
		fmt.Fprintf(&watches, "- {group: jobs.example.com, version: v1, kind: %s, role: %s/roles/water, executor: job, retry: {maxAttempts: 1},\n"+
			"   job: {spec: {securityContext: {runAsUser: 1001}, containers: [{name: run, image: %q, imagePullPolicy: IfNotPresent}]}}}\n", kind, elsewhere, image)
	}
	p.write(t, "watches.yaml", watches.String())
	p.eventually(t, "the default service account", p.equals("serviceaccount/default", "get", "serviceaccount", "default", "--output=name"))
	p.goThrough(t, []part{{"with Ansible", drawn}, {"without Ansible", dry}})
}

func drawn(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Well", "deep", "")
	if s := p.ends(t, "well", "deep", anyEnd); s.LastRun.Result != "Succeeded" || s.LastRun.Executor != "job" {
		t.Errorf("the run is %+v, want a success of a job", s.LastRun)
	}
}

func dry(t *testing.T, p *potter) {
	t.Helper()
	p.create(t, "Desert", "wide", "")
	if s := p.ends(t, "desert", "wide", anyEnd); s.LastRun.Result != "Failed" || s.LastRun.Reason != "RunnerUnavailable" || !strings.Contains(s.LastRun.Message, "ansible-runner") {
		t.Errorf("the run is %+v, want one that found no ansible-runner", s.LastRun)
	}
}
