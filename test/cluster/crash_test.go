//go:build e2e

package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/testenv"
)

// failOver is a real crash: a replica that is stopped properly releases the Lease, and the others need not wait.
func failOver(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Lose the leader of two", "It is killed on its node, and cannot give up the Lease: the other takes over when that has expired. "+
		"The object changes while there is no leader, and is run for once.")
	s.kubectl(t, "scale", "--namespace="+system, "--replicas=2", manager)
	s.kubectl(t, "rollout", "status", "--namespace="+system, "--timeout=600s", manager)
	crashed := held(t, s)
	old, _, _ := strings.Cut(crashed.Holder, "_")
	kill(t, s, old)
	if now := held(t, s); now.Holder == crashed.Holder { // otherwise the other one leads already
		crashed = now
	}
	// Otherwise the kubelet would start it again.
	s.kubectl(t, "delete", "pod/"+old, "--namespace="+system, "--wait=false")
	s.kubectl(t, "patch", sample, "--type=merge", `--patch={"spec": {"size": 3}}`)
	generation := s.ask(t, "get", sample, "--output=jsonpath={.metadata.generation}")
	outlasted(t, s, crashed)
	succeeded(t, s, old)
	settled(t, s)
	serving(t, s, 3)
	time.Sleep(2 * time.Second) // in this time another run would begin
	if ran := runsFor(t, generation); len(ran) != 1 {
		t.Errorf("the change was run for by %q, want one run", ran)
	}
	s.kubectl(t, "get", "pods", "--namespace="+system)
	s.kubectl(t, "get", sample)
	s.kubectl(t, "scale", "--namespace="+system, "--replicas=1", manager)
	s.eventually(t, "one replica", s.equals("1", "get", manager, "--namespace="+system, "--output=jsonpath={.status.replicas}"))
}

// kill ends the operator in a Pod from outside, with the signal that a process cannot catch.
func kill(t *testing.T, s *shell, pod string) {
	t.Helper()
	uid := s.ask(t, "get", "pod/"+pod, "--namespace="+system, "--output=jsonpath={.metadata.uid}")
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatalf("list the processes of the node: %v", err)
	}
	for _, group := range groups {
		dir := filepath.Dir(group)
		if in, err := os.ReadFile(group); err != nil || !strings.Contains(string(in), uid) {
			continue // it has ended, or belongs to another Pod
		}
		if program, err := os.Readlink(filepath.Join(dir, "exe")); err != nil || filepath.Base(program) != "rolewright" {
			continue
		}
		if status, err := os.ReadFile(filepath.Join(dir, "status")); err != nil || !firstOfContainer.Match(status) {
			continue // what it has started ends with it
		}
		id, err := strconv.Atoi(filepath.Base(dir))
		if err == nil {
			err = syscall.Kill(id, syscall.SIGKILL)
		}
		if err != nil {
			t.Fatalf("kill the operator: %v", err)
		}
		s.did(fmt.Sprintf("kill -KILL %d", id))
		return
	}
	t.Fatalf("no process of the operator on the node belongs to the Pod %s", uid)
}

// firstOfContainer matches the status of a process that is the first one in its own PID namespace.
var firstOfContainer = regexp.MustCompile(`(?m)^NSpid:.*\t1$`)

// holding is what a Lease says about its holder.
type holding struct {
	Holder          string    `json:"holderIdentity"`
	Acquired        time.Time `json:"acquireTime"`
	Renewed         time.Time `json:"renewTime"`
	DurationSeconds int       `json:"leaseDurationSeconds"`
}

func held(t *testing.T, s *shell) holding {
	t.Helper()
	var h holding
	if err := json.Unmarshal([]byte(s.ask(t, "get", lease, "--namespace="+system, "--output=jsonpath={.spec}")), &h); err != nil {
		t.Fatalf("read the Lease: %v", err)
	}
	return h
}

// outlasted waits for another holder of the Lease, and checks that the previous holder kept it until it expired.
func outlasted(t *testing.T, s *shell, crashed holding) {
	t.Helper()
	var now holding
	s.eventually(t, "another holder of the Lease", func() error {
		if now = held(t, s); now.Holder == crashed.Holder {
			return fmt.Errorf("it is held by %s", now.Holder)
		}
		return nil
	})
	expires := crashed.Renewed.Add(time.Duration(crashed.DurationSeconds) * time.Second)
	if now.Holder == "" || crashed.DurationSeconds < 10 || now.Acquired.Before(expires) {
		t.Errorf("the Lease went from %+v to %+v, before it had expired at %s", crashed, now, expires)
	}
	t.Logf("another leader %s after the last sign of life, for a Lease of %d s", now.Acquired.Sub(crashed.Renewed).Round(time.Second), crashed.DurationSeconds)
}

// runsFor returns the runs of the sample for one of its generations, from all writes of its status.
func runsFor(t *testing.T, generation string) []string {
	t.Helper()
	var ids []string
	type run struct {
		ID         string
		Generation int64
	}
	for _, event := range testenv.AuditEvents(t, "memcached-sample", func(e testenv.AuditEvent) bool {
		return e.Writes() && e.ObjectRef.Resource == "memcacheds" && e.ObjectRef.Name == "memcached-sample" && e.ResponseStatus.Code == http.StatusOK
	}) {
		var object struct {
			Status struct {
				Ansible struct{ ActiveRun, LastRun run }
			}
		}
		if err := json.Unmarshal(event.ResponseObject, &object); err != nil {
			t.Fatalf("read what %s of the sample answered: %v", event.Verb, err)
		}
		for _, r := range []run{object.Status.Ansible.ActiveRun, object.Status.Ansible.LastRun} {
			if strconv.FormatInt(r.Generation, 10) == generation && !slices.Contains(ids, r.ID) {
				ids = append(ids, r.ID)
			}
		}
	}
	return ids
}
