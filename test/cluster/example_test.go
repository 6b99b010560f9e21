//go:build e2e

package cluster

import (
	"bufio"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/testenv"
)

var _ = flag.String("transcript", "", "a file for what was said and answered")

func TestMain(m *testing.M) { testenv.Main(m) }

const (
	system  = "memcached-operator-system"
	manager = "deployment/memcached-operator-controller-manager"
	lease   = "lease/memcached-operator"
	sample  = "memcached/memcached-sample"
	account = "system:serviceaccount:memcached-operator-system:memcached-operator-controller-manager"
	managed = "app.kubernetes.io/instance=memcached-sample"
)

// TestExample is the life of the example operator in a cluster, in the order in which a person would do it.
func TestExample(t *testing.T) {
	s := &shell{dir: t.TempDir()}
	s.transcript.WriteString(preamble)
	if err := os.CopyFS(filepath.Join(s.dir, "config"), os.DirFS(filepath.Join(repository, "config"))); err != nil {
		t.Fatalf("copy the manifests: %v", err)
	}
	file, err := os.OpenFile(filepath.Join(s.dir, "config/default/kustomization.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatalf("name the image: %v", err)
	}
	if _, err := file.WriteString("images:\n  - name: controller\n    newName: rolewright/example\n    newTag: e2e\n"); err != nil {
		t.Fatalf("name the image: %v", err)
	}
	if err := file.Close(); err != nil {
		t.Fatalf("name the image: %v", err)
	}
	parts := []struct {
		name string
		test func(*testing.T, *shell)
	}{
		{"install", install}, {"hardening", hardening}, {"doctor", diagnosis}, {"create", create}, {"change", change}, {"dependent", dependent},
		{"restart", restart}, {"fail-over", failOver}, {"metrics", metrics}, {"arbitrary user", arbitraryUser},
		{"finalizer", finalizer}, {"permissions", permissions}, {"uninstall", uninstall},
	}
	ran := 0
	for _, part := range parts {
		if !t.Run(part.name, func(t *testing.T) { ran++; part.test(t, s) }) {
			logs, _ := s.run("logs", "--namespace="+system, manager, "--tail=40")
			t.Fatalf("the parts after it build on %s; the end of the operator's log:\n%s", part.name, logs)
		}
	}
	if ran == len(parts) { // not if -run has selected some
		s.publish(t)
	}
}

const preamble = `# The example operator in a cluster

A transcript: ` + "`make e2e`" + ` builds the image, starts a control plane and a node with containerd and a kubelet, and goes through
this as a test. Only the name of the image was set in ` + "`config/default`" + ` before.
`

func install(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Install", "The namespace enforces the restricted Pod security standard.")
	s.kubectl(t, "apply", "--server-side", "--kustomize", "config/default")
	s.kubectl(t, "rollout", "status", "--namespace="+system, "--timeout=600s", manager)
	s.kubectl(t, "get", "pods", "--namespace="+system)
}

// hardening checks the operator's process from inside its container.
func hardening(t *testing.T, s *shell) {
	t.Helper()
	s.heading("What the operator may do on its node", "It has no capability, gains none, and writes to its volume only.")
	in := []string{"exec", "--namespace=" + system, manager, "--"}
	id := s.kubectl(t, append(in, "id")...)
	if !strings.HasPrefix(id, "uid=1001(ansible) gid=0(root)") {
		t.Errorf("the operator is %s", id)
	}
	status := s.kubectl(t, append(in, "grep", "-E", "^(CapEff|CapBnd|NoNewPrivs|Seccomp):", "/proc/1/status")...)
	for _, want := range []string{"CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, want) {
			t.Errorf("the operator's process has not %q:\n%s", want, status)
		}
	}
	for _, path := range []string{"/opt/ansible/x", "/etc/x", "/var/tmp/x"} {
		if out := s.refused(t, append(in, "touch", path)...); !strings.Contains(out, "Read-only file system") {
			t.Errorf("writing %s failed, but not for the file system: %s", path, out)
		}
	}
	// Only the volume is writable, and what the kubelet and the kernel add: a container tells the kubelet by the
	// termination log why it has ended.
	allowed := []string{"/tmp", "/dev", "/dev/pts", "/dev/mqueue", "/dev/shm", "/dev/termination-log", "/etc/hosts", "/etc/hostname",
		"/etc/resolv.conf", "/proc",
		"/sys/fs/cgroup"} // only root may write to it
	for line := range strings.Lines(s.ask(t, append(in, "cat", "/proc/mounts")...)) {
		fields := strings.Fields(line)
		writable := slices.Contains(strings.Split(fields[3], ","), "rw")
		if writable && !slices.Contains(allowed, fields[1]) && !strings.HasPrefix(fields[1], "/proc/") {
			t.Errorf("%s is mounted to be written to", fields[1])
		}
	}
	// Paths that users other than the owner may write to, outside of directories that only root may read.
	open := s.ask(t, append(in, "sh", "-c", "find / -xdev -perm /0022 ! -type l -print 2>/dev/null || true")...)
	if want := "/run/secrets/kubernetes.io/serviceaccount /tmp"; strings.Join(slices.Sorted(strings.FieldsSeq(open)), " ") != want {
		t.Errorf("others than the owner may write to %q, want the mounts %s", open, want)
	}
}

// diagnosis runs rolewright doctor in the operator's Pod. The exit code says whether the image has what it needs.
func diagnosis(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Ask whether it has what it needs", "")
	said := s.kubectl(t, "exec", "--namespace="+system, manager, "--", "rolewright", "doctor", "--strict", "--leader-elect", "--metrics-require-rbac")
	for line := range strings.Lines(said) {
		if state, _, _ := strings.Cut(line, " "); state != "ok" {
			t.Errorf("in the Pod of our own manifests: %s", line)
		}
	}
}

func create(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Create an object", "Its Pods really run, and memcached answers.")
	s.kubectl(t, "apply", "--filename", "config/samples/cache_v1alpha1_memcached.yaml")
	s.kubectl(t, "wait", "--for=condition=Successful", "--timeout=600s", sample)
	s.kubectl(t, "get", sample)
	s.kubectl(t, "get", "deployments,services,configmaps,pods", "--selector="+managed)
	s.kubectl(t, "get", sample, `--output=jsonpath={range .status.conditions[*]}{.type}: {.status}{"\n"}{end}`+
		"{.status.ansible.lastRun.result} in {.status.ansible.lastRun.duration}: {.status.ansible.lastRun.counts}")
	serving(t, s, 3)
	forked(t, s, system, manager)
}

// forked checks that runs are forked from a waiting Python process, which shows that it can start in the container.
func forked(t *testing.T, s *shell, namespace, pod string) {
	t.Helper()
	s.eventually(t, "the fork server", func() error {
		logs, err := s.run("logs", "--namespace="+namespace, pod)
		if err != nil {
			return fmt.Errorf("%w: %s", err, logs)
		}
		for line := range strings.Lines(logs) {
			if strings.Contains(line, "Runs are not forked, each starts a new Python") {
				t.Fatalf("no fork server: %s", line)
			}
			if strings.Contains(line, "Runs are forked") {
				t.Logf("after its first line, to the second: serves its kinds %s, forks runs %s", since(logs, "Starting workers"), since(logs, "Runs are forked"))
				return nil
			}
		}
		return errors.New("it is not there yet")
	})
}

// since returns the time from the operator's first log line to the line with the text.
func since(logs, text string) time.Duration {
	var times []time.Time
	for line := range strings.Lines(logs) {
		var entry struct{ TS time.Time }
		if json.Unmarshal([]byte(line), &entry) == nil && (len(times) == 0 || strings.Contains(line, text)) {
			times = append(times, entry.TS)
		}
	}
	return times[len(times)-1].Sub(times[0])
}

// serving asks every Pod of the sample for its version, in memcached's protocol.
func serving(t *testing.T, s *shell, count int) {
	t.Helper()
	servers(t, s, managed, count)
}

func servers(t *testing.T, s *shell, selector string, count int) {
	t.Helper()
	var addresses []string
	s.eventually(t, fmt.Sprintf("%d running Pods", count), func() error {
		out, err := s.run("get", "pods", "--selector="+selector, "--field-selector=status.phase=Running",
			"--output=jsonpath={.items[*].status.podIP}")
		addresses = strings.Fields(out)
		if err == nil && len(addresses) != count {
			err = fmt.Errorf("%d Pods: %s", len(addresses), out)
		}
		return err
	})
	for _, address := range addresses {
		s.eventually(t, "memcached at "+address, func() error { return version(address) })
	}
}

func version(address string) error {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(address, "11211"), time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprint(conn, "version\r\n"); err != nil {
		return err
	}
	answer, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && !strings.HasPrefix(answer, "VERSION 1.") {
		err = fmt.Errorf("memcached says %q", answer)
	}
	return err
}

// settled waits until the last change of the object has run.
func settled(t *testing.T, s *shell) {
	t.Helper()
	s.eventually(t, "a run for the last change", func() error {
		generation, err := s.run("get", sample, "--output=jsonpath={.metadata.generation}")
		if err != nil {
			return err
		}
		return s.equals(generation+" True", "get", sample,
			`--output=jsonpath={.status.observedGeneration} {.status.conditions[?(@.type=="Successful")].status}`)()
	})
}

func change(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Change it", "")
	s.kubectl(t, "patch", sample, "--type=merge", `--patch={"spec": {"size": 2, "servicePort": 11212}}`)
	settled(t, s)
	serving(t, s, 2)
	s.kubectl(t, "get", "pods", "--selector="+managed)
}

func dependent(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Delete what belongs to it", "The operator watches what its runs made, and a run makes it again.")
	uid := []string{"get", "deployment/memcached-sample", "--ignore-not-found", "--output=jsonpath={.metadata.uid}"}
	before := s.ask(t, uid...)
	s.kubectl(t, "delete", "deployment/memcached-sample")
	s.eventually(t, "the Deployment to be there again", func() error {
		out, err := s.run(uid...)
		if err == nil && (out == "" || out == before) {
			err = fmt.Errorf("its UID is %q, it was %q", out, before)
		}
		return err
	})
	s.kubectl(t, "wait", "--for=condition=Available", "--timeout=600s", "deployment/memcached-sample")
	serving(t, s, 2)
}

// leader returns the Pod that holds the Lease.
func leader(t *testing.T, s *shell) string {
	t.Helper()
	holder, _, _ := strings.Cut(s.ask(t, "get", lease, "--namespace="+system, "--output=jsonpath={.spec.holderIdentity}"), "_")
	return holder
}

// succeeded waits for a leader other than the given one and returns it.
func succeeded(t *testing.T, s *shell, old string) string {
	t.Helper()
	now := ""
	s.eventually(t, "another leader than "+old, func() error {
		if now = leader(t, s); now == old || now == "" {
			return fmt.Errorf("the leader is %q", now)
		}
		return s.equals("True", "get", "pod/"+now, "--namespace="+system,
			`--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}`)()
	})
	return now
}

// writes counts the writes of the operator and its runs to the object and its dependents.
func writes(t *testing.T) int {
	t.Helper()
	return len(testenv.AuditEvents(t, account, func(e testenv.AuditEvent) bool {
		return e.User.Username == account && e.Writes() && strings.HasPrefix(e.ObjectRef.Name, "memcached-sample") && e.ObjectRef.Resource != "events"
	}))
}

func restart(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Delete the operator's Pod", "Its successor finds nothing changed, and runs nothing.")
	settled(t, s)
	before, old := writes(t), leader(t, s)
	s.kubectl(t, "delete", "pod/"+old, "--namespace="+system)
	succeeded(t, s, old)
	time.Sleep(2 * time.Second) // a run would begin in the first of these seconds
	s.kubectl(t, "get", "pods", "--namespace="+system)
	if after := writes(t); after != before {
		t.Errorf("the successor changed something of an unchanged object: %d writes, %d before", after, before)
	}
}

// metrics checks that only clients with the permission can read the metrics.
func metrics(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Read its metrics", "Over HTTPS, for those who are bound to the role for it.")
	s.kubectl(t, "create", "serviceaccount", "prometheus")
	token := s.ask(t, "create", "token", "prometheus")
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // it signs its certificate itself
	}}
	address := "https://" + net.JoinHostPort(s.ask(t, "get", "pod/"+settledLeader(t, s), "--namespace="+system, "--output=jsonpath={.status.podIP}"), "8443") + "/metrics"
	get := func(token string) (code int) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
		if err != nil {
			t.Fatalf("ask for the metrics: %v", err)
		}
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		s.eventually(t, "an answer about the metrics", func() error {
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if code = response.StatusCode; code >= http.StatusInternalServerError {
				return fmt.Errorf("status %d", code) // the API server has not yet said who the client is
			}
			return nil
		})
		return code
	}
	if code := get(""); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d, want %d", code, http.StatusUnauthorized)
	}
	if code := get(token); code != http.StatusForbidden {
		t.Errorf("with a token that may not: %d, want %d", code, http.StatusForbidden)
	}
	s.kubectl(t, "create", "clusterrolebinding", "prometheus", "--clusterrole=memcached-operator-metrics-reader", "--serviceaccount=default:prometheus")
	s.eventually(t, "the metrics", func() error {
		if code := get(token); code != http.StatusOK {
			return fmt.Errorf("status %d", code)
		}
		return nil
	})
}

// settledLeader returns the leader when its Pod exists.
func settledLeader(t *testing.T, s *shell) string {
	t.Helper()
	return succeeded(t, s, "nobody")
}

func arbitraryUser(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Run it as any user", "As clusters do that choose users themselves.")
	old := leader(t, s)
	s.kubectl(t, "patch", manager, "--namespace="+system, "--type=merge",
		`--patch={"spec": {"template": {"spec": {"securityContext": {"runAsUser": 1000650000, "fsGroup": 1000650000}}}}}`)
	s.kubectl(t, "rollout", "status", "--namespace="+system, "--timeout=600s", manager)
	now := succeeded(t, s, old)
	if id := s.kubectl(t, "exec", "--namespace="+system, now, "--", "id"); !strings.HasPrefix(id, "uid=1000650000 gid=0(root)") {
		t.Errorf("the operator is %s", id)
	}
	s.kubectl(t, "patch", sample, "--type=merge", `--patch={"spec": {"size": 1}}`)
	settled(t, s)
	serving(t, s, 1)
	forked(t, s, system, now)
}

func finalizer(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Delete the object", "The finalizer's role runs first, and leaves its farewell; then Kubernetes collects what belonged to the object.")
	uid, spec := s.ask(t, "get", sample, "--output=jsonpath={.metadata.uid}"), s.ask(t, "get", sample, "--output=jsonpath={.spec}")
	s.kubectl(t, "delete", sample, "--timeout=600s")
	s.eventually(t, "its dependents to go", s.equals("", "get", "deployments,services,pods", "--selector="+managed, "--output=name"))
	s.kubectl(t, "get", "deployments,services,configmaps,pods", "--selector="+managed)
	farewell(t, s, uid, spec)
}

// farewell checks what the finalizer's role has written: about this object, as it was, while it was being deleted.
func farewell(t *testing.T, s *shell, uid, spec string) {
	t.Helper()
	var found struct {
		Metadata struct{ OwnerReferences []any }
		Data     struct{ UID, Deleted, Spec string }
	}
	if err := json.Unmarshal([]byte(s.ask(t, "get", "configmap/memcached-sample-farewell", "--output=json")), &found); err != nil {
		t.Fatalf("read the farewell: %v", err)
	}
	if _, err := time.Parse(time.RFC3339, found.Data.Deleted); err != nil || found.Data.UID != uid || len(found.Metadata.OwnerReferences) > 0 {
		t.Errorf("the farewell is %+v, want one to %s, deleted and the owner of nothing (%v)", found, uid, err)
	}
	var was, said any
	if err := errors.Join(json.Unmarshal([]byte(spec), &was), json.Unmarshal([]byte(found.Data.Spec), &said)); err != nil || !reflect.DeepEqual(was, said) {
		t.Errorf("the farewell tells of the spec %s, it was %s (%v)", found.Data.Spec, spec, err)
	}
}

func uninstall(t *testing.T, s *shell) {
	t.Helper()
	s.heading("Uninstall", "")
	s.kubectl(t, "delete", "--kustomize", "config/default")
	s.eventually(t, "the namespace to go", s.equals("", "get", "namespace", system, "--ignore-not-found"))
}
