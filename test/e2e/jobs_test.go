package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/shard"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// farNode is the node of the Pods of runs. Each Pod is a process of this machine with its own files, and outlives the
// operator. No scheduler knows the Pods, so no other node gets them.
type farNode struct {
	*stage
	client kubernetes.Interface
	roots  []string // the runner roots of the replicas that make the runs; in a Pod, they are other directories
	dir    string

	mu     sync.Mutex
	opened map[string]bool     // objects whose Pods may begin, by UID
	begun  map[string][]farPod // by object
	known  map[types.UID]bool  // Pods
	all    sync.WaitGroup      // processes
}

type farPod struct{ name, dir, log string }

// unscheduled is a Pod template for a farNode.
const unscheduled = `job: {spec: {schedulerName: none}}`

const runOfPod, objectOfPod = "rolewright.dev/run", "rolewright.dev/object"

func newFarNode(s *stage, roots ...string) *farNode {
	n := &farNode{
		stage: s, client: kubernetes.NewForConfigOrDie(s.cfg), roots: roots, dir: s.t.TempDir(),
		opened: map[string]bool{}, begun: map[string][]farPod{}, known: map[types.UID]bool{},
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(s.t.Context()))
	n.all.Go(func() {
		for tick := time.NewTicker(200 * time.Millisecond); ctx.Err() == nil; {
			n.look(ctx)
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	s.t.Cleanup(func() {
		stop()
		n.all.Wait()
	})
	return n
}

// open lets the Pods of an object begin.
func (n *farNode) open(o object) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.opened[string(o.GetUID())] = true
}

// pods returns the Pods of an object that have begun.
func (n *farNode) pods(o object) []farPod {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.begun[string(o.GetUID())])
}

// look begins the Pods that exist and may begin.
func (n *farNode) look(ctx context.Context) {
	there, err := n.client.CoreV1().Pods(n.namespace).List(ctx, metav1.ListOptions{LabelSelector: runOfPod})
	if err != nil {
		return // it is tried again
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pod := range there.Items {
		if of := pod.Labels[objectOfPod]; n.opened[of] && !n.known[pod.UID] {
			n.known[pod.UID] = true
			p := farPod{name: pod.Name, dir: filepath.Join(n.dir, string(pod.UID))}
			p.log = filepath.Join(p.dir, "log")
			n.begun[of] = append(n.begun[of], p)
			n.all.Go(func() {
				if err := n.run(ctx, &pod, p); err != nil && ctx.Err() == nil {
					n.t.Errorf("Pod %s: %v", p.name, err)
				}
			})
		}
	}
}

// run plays the life of a Pod.
func (n *farNode) run(ctx context.Context, pod *corev1.Pod, p farPod) error {
	process, log, err := n.start(ctx, pod, p)
	if err != nil {
		return err
	}
	defer log.Close()
	phase := corev1.PodSucceeded
	if err := process.Wait(); err != nil {
		phase = corev1.PodFailed
	}
	said, _ := os.ReadFile(p.log)
	is := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(process.ProcessState.ExitCode()), Message: string(said)}}
	_ = n.say(ctx, pod, phase, is) // its Job may have been deleted
	return nil
}

// start begins a Pod, and reports that. Its process writes to log.
func (n *farNode) start(ctx context.Context, pod *corev1.Pod, p farPod) (process *exec.Cmd, log *os.File, err error) {
	secret, err := n.client.CoreV1().Secrets(n.namespace).Get(ctx, pod.Labels[runOfPod], metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	input, err := moved(secret.Data["input"], n.roots, p.dir)
	if err != nil {
		return nil, nil, err
	}
	work := filepath.Join(p.dir, ".runs", pod.Labels[objectOfPod])
	if err := os.MkdirAll(work, 0o700); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(filepath.Join(p.dir, "input"), input, 0o600); err != nil {
		return nil, nil, err
	}
	if log, err = os.Create(p.log); err != nil {
		return nil, nil, err
	}
	process = exec.CommandContext(ctx, binary(n.t), append(pod.Spec.Containers[0].Command[1:2:2], "--input="+filepath.Join(p.dir, "input"))...)
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.Stdout, process.Stderr = log, log
	process.Env = append(slices.Clone(n.env), "ROLEWRIGHT_POD="+string(pod.UID), "TMPDIR="+work)
	if err := process.Start(); err != nil {
		return nil, nil, errors.Join(err, log.Close())
	}
	is := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
	if err := n.say(ctx, pod, corev1.PodRunning, is); err != nil {
		return nil, nil, errors.Join(err, process.Cancel(), process.Wait(), log.Close())
	}
	return process, log, nil
}

// say reports about a Pod what a kubelet reports.
func (n *farNode) say(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, is corev1.ContainerState) error {
	status, err := json.Marshal(map[string]any{"status": corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: "run", State: is}}}})
	if err != nil {
		return err
	}
	_, err = n.client.CoreV1().Pods(n.namespace).Patch(ctx, pod.Name, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	return err
}

// moved returns the input of a run with its files in another directory.
func moved(input []byte, from []string, to string) ([]byte, error) {
	packed, err := gzip.NewReader(bytes.NewReader(input))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(packed)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	packing := gzip.NewWriter(&b)
	for _, root := range from {
		data = bytes.ReplaceAll(data, []byte(root), []byte(to))
	}
	_, err = packing.Write(data)
	err = errors.Join(err, packing.Close())
	return b.Bytes(), err
}

// jobTasks record that a run has begun, wait for a file, and may then ask the API server for something.
const jobTasks = `- name: Begin
  ansible.builtin.shell: echo {{ ansible_operator_meta.name }} >> %[1]s/begun
- name: Wait
  ansible.builtin.wait_for: {path: "%[1]s/{{ ansible_operator_meta.name }}", sleep: 1, timeout: 600}
- name: Pour
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  when: pours | default(false)
`

// stageJobs makes the runs of a kind as Jobs. Their Pods reach the operators at url.
func (r *replicas) stageJobs(gates, url string) {
	r.t.Helper()
	must.Do(r.t, os.Remove(filepath.Join(r.dir, "watches.yaml")))
	r.role("job", fmt.Sprintf(jobTasks, gates))
	r.watch(r.kind, "role: job", "executor: job", unscheduled)
	r.args = append(r.args, "--job-url=https://"+url, "--job-namespace="+r.namespace, "--job-image=none", "--max-concurrent-reconciles=50")
}

// newJobReplicas starts two replicas that make runs as Jobs. The first one leads.
func newJobReplicas(t *testing.T, gates string) (r *replicas, first, second *operator) {
	t.Helper()
	r = newReplicas(t)
	address := testenv.Address(t)
	r.stageJobs(gates, address)
	r.args = append(r.args, "--job-bind-address="+address)
	first = r.another()
	first.awaitOutput("Runs in Pods of their own are served")
	second = r.another()
	second.awaitOutput("Attempting to acquire leader lease")
	return r, first, second
}

// Of two replicas, the leader is killed while runs are in progress in their Pods. The other replica adopts them: one that
// is in the middle, one that ends while no replica leads, and one whose Pod has not begun. No run is made twice.
func TestJobs_AreTakenOverByTheReplicaThatLeadsNext(t *testing.T) {
	t.Parallel()
	gates := t.TempDir()
	r, first, second := newJobReplicas(t, gates)
	node := newFarNode(r.stage, first.stage.root)

	objects := map[string]object{}
	for _, name := range []string{"middle", "alone", "early"} {
		objects[name] = r.kind.create(name, map[string]any{"pours": name == "middle"})
	}
	node.open(objects["middle"])
	node.open(objects["alone"])
	runs := map[string]string{}
	testenv.Eventually(t, "two runs in the middle, and a Pod that waits", func(context.Context) error {
		for name := range objects {
			is := r.kind.get(name)
			if last := is.lastRun(); last.ID != "" {
				t.Fatalf("%s: a run has ended already: %+v", name, last)
			}
			if is.status.Ansible.ActiveRun == nil {
				return fmt.Errorf("%s has no run", name)
			}
			runs[name] = is.status.Ansible.ActiveRun.ID
		}
		begun, err := os.ReadFile(filepath.Join(gates, "begun"))
		if err != nil || strings.Count(string(begun), "\n") < 2 {
			return fmt.Errorf("%q have begun, %w", begun, err)
		}
		_, err = node.client.BatchV1().Jobs(r.namespace).Get(t.Context(), runs["early"], metav1.GetOptions{})
		return err
	})
	first.signal(syscall.SIGKILL)
	first.exit()
	must.Do(t, os.WriteFile(filepath.Join(gates, "alone"), nil, 0o600))
	testenv.Eventually(t, "the end of a run without an operator", func(context.Context) error {
		said, err := os.ReadFile(node.pods(objects["alone"])[0].log)
		if err != nil || !bytes.Contains(said, []byte("has ended")) {
			return fmt.Errorf("it says %q, %w", said, err)
		}
		return nil
	})
	second.awaitOutput("Runs in Pods of their own are served")
	must.Do(t, os.WriteFile(filepath.Join(gates, "middle"), nil, 0o600))
	must.Do(t, os.WriteFile(filepath.Join(gates, "early"), nil, 0o600))
	node.open(objects["early"])
	for name, o := range objects {
		r.expectOneRun(node, second, o, runs[name])
	}
	r.expectNoJobs(len(objects))
}

// Two replicas share the objects, behind one address. One is killed, or asked to stop, while runs of both are in progress
// in their Pods. The Pods find the replica that has their object, before and after. No run is made twice.
func TestJobs_OfReplicasThatShareTheObjects(t *testing.T) {
	t.Parallel()
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "stopped": syscall.SIGTERM} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			outliveReplica(t, signal)
		})
	}
}

// sharingJobs returns two replicas, not yet started, that share the objects and make Jobs, the directory of the files
// that their runs wait for, and their addresses.
func sharingJobs(t *testing.T) (r *replicas, gates string, addresses []string) {
	t.Helper()
	r, gates, addresses = newReplicas(t), t.TempDir(), []string{testenv.Address(t), testenv.Address(t)}
	r.stageJobs(gates, split(t, addresses))
	r.args = append(r.args, append(longLease(), "--shards="+strconv.Itoa(shardsOfTest))...)
	return r, gates, addresses
}

func outliveReplica(t *testing.T, by syscall.Signal) {
	t.Helper()
	r, gates, addresses := sharingJobs(t)
	first := r.another("--job-bind-address=" + addresses[0])
	second := r.another("--job-bind-address=" + addresses[1])
	for _, o := range []*operator{first, second} {
		o.awaitOutput("Runs in Pods of their own are served")
		o.awaitOutput("This replica takes a shard")
	}
	node := newFarNode(r.stage, first.stage.root, second.stage.root)
	objects, runs, of := map[string]object{}, map[string]string{}, map[*operator]int{}
	for i := 0; of[first] < 2 || of[second] < 2; i++ {
		name := "it-" + strconv.Itoa(i)
		o := r.kind.create(name, map[string]any{"pours": true})
		objects[name] = o
		node.open(o)
		testenv.Eventually(t, "the run of "+name+" is begun", func(context.Context) error {
			is := r.kind.get(name)
			if is.status.Ansible.ActiveRun == nil {
				return errors.New("it has no run")
			}
			runs[name] = is.status.Ansible.ActiveRun.ID
			begun, err := os.ReadFile(filepath.Join(gates, "begun"))
			if err != nil || !strings.Contains(string(begun), name+"\n") {
				return fmt.Errorf("%q have begun, %w", begun, err)
			}
			return nil
		})
		for _, replica := range []*operator{first, second} {
			if _, err := os.Stat(filepath.Join(replica.stage.root, ".runs", string(o.GetUID()))); err == nil {
				of[replica]++
			}
		}
	}
	first.signal(by)
	first.exit()
	for name := range objects {
		must.Do(t, os.WriteFile(filepath.Join(gates, name), nil, 0o600))
	}
	for name, o := range objects {
		r.expectOneRun(node, second, o, runs[name])
	}
	r.expectNoJobs(len(objects))
}

// A replica that joins gets its shards while runs are in progress in their Pods, and follows these runs from then on.
// Each run ends once, and the replica that began it no longer has it.
func TestJobs_FollowTheirShardToAReplicaThatJoins(t *testing.T) {
	t.Parallel()
	r, gates, addresses := sharingJobs(t)
	first := r.another("--job-bind-address=" + addresses[0])
	first.awaitOutput("Runs in Pods of their own are served")
	first.awaitOutput("This replica takes a shard")
	node := newFarNode(r.stage, first.stage.root)
	runs, all, covered := map[string]string{}, map[string]object{}, map[int]bool{}
	for i := 0; len(covered) <= shardsOfTest/2; i++ { // so that at least one moves, with half of the shards
		name := "it-" + strconv.Itoa(i)
		all[name] = r.kind.create(name, map[string]any{"pours": true})
		covered[shard.Of(all[name].GetUID(), shardsOfTest)] = true
		node.open(all[name])
	}
	testenv.Eventually(t, "all runs are begun", func(context.Context) error {
		begun, err := os.ReadFile(filepath.Join(gates, "begun"))
		for name := range all {
			active := r.kind.get(name).status.Ansible.ActiveRun
			if active == nil || !strings.Contains(string(begun), name+"\n") {
				return fmt.Errorf("%s has not begun, %w", name, err)
			}
			runs[name] = active.ID
		}
		return nil
	})
	second := r.another("--job-bind-address=" + addresses[1])
	second.awaitOutput("Adopted a run of an earlier operator process")
	first.awaitOutput("This replica has given a shard up")
	for name := range all {
		must.Do(t, os.WriteFile(filepath.Join(gates, name), nil, 0o600))
	}
	for name, o := range all {
		has := first
		r.kind.awaitReady(name)
		if _, err := os.Stat(filepath.Join(second.stage.root, ".runs", string(o.GetUID()))); err == nil {
			has = second
		}
		r.expectOneRun(node, has, o, runs[name])
	}
	r.expectNoJobs(len(all))
}

// split passes each connection to one of several addresses, like a Service.
func split(t *testing.T, addresses []string) (address string) {
	t.Helper()
	address = testenv.Address(t)
	var lc net.ListenConfig
	l := must.Get(lc.Listen(t.Context(), "tcp", address))(t)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var all sync.WaitGroup
	pass := func(from net.Conn, to string) {
		defer from.Close()
		far, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
		if err != nil {
			return // nothing listens there
		}
		defer far.Close()
		defer context.AfterFunc(ctx, func() { _, _ = from.Close(), far.Close() })()
		all.Go(func() {
			_, _ = io.Copy(far, from)
			_ = far.Close()
		})
		_, _ = io.Copy(from, far)
	}
	all.Go(func() {
		for i := 0; ; i++ {
			from, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { pass(from, addresses[i%len(addresses)]) })
		}
	})
	t.Cleanup(func() {
		stop()
		_ = l.Close()
		all.Wait()
	})
	return address
}

// expectOneRun checks that the status of an object has the success of one run, and that the operator that has the object
// has all of that run.
func (r *replicas) expectOneRun(node *farNode, operator *operator, o object, run string) {
	r.t.Helper()
	name := o.GetName()
	r.kind.awaitReady(name)
	if is := r.kind.get(name).lastRun(); is.ID != run || is.Result != "Succeeded" {
		r.t.Errorf("%s: the last run is %+v, want the success of %s", name, is, run)
	}
	r.expectOneEnd(name)
	pods := node.pods(o)
	if len(pods) != 1 {
		r.t.Errorf("%s: the Pods %v have begun, want one", name, pods)
		return
	}
	dir := filepath.Join(".runs", string(o.GetUID()), run)
	expectAllEvents(r.t, name, filepath.Join(pods[0].dir, dir), filepath.Join(operator.stage.root, dir))
}

// expectOneEnd checks that the status of an object has recorded one end of a run.
func (r *replicas) expectOneEnd(name string) {
	r.t.Helper()
	ends := map[string]bool{}
	for _, e := range testenv.AuditEvents(r.t, r.namespace, func(e testenv.AuditEvent) bool {
		return e.Writes() && e.ResponseStatus.Code == http.StatusOK && e.ObjectRef.Name == name && e.ObjectRef.APIGroup == r.kind.gvk.Group && e.ObjectRef.Subresource == "status"
	}) {
		var is struct {
			Status struct{ Ansible struct{ LastRun *run } }
		}
		must.Do(r.t, json.Unmarshal(e.ResponseObject, &is))
		if last := is.Status.Ansible.LastRun; last != nil {
			ends[last.ID+" "+last.Finished.String()] = true
		}
	}
	if len(ends) != 1 {
		r.t.Errorf("%s: its status had the ends %v, want one", name, ends)
	}
}

// expectNoJobs checks that this many Jobs were created, and that nothing of them is left.
func (r *replicas) expectNoJobs(made int) {
	r.t.Helper()
	created := testenv.AuditEvents(r.t, r.namespace, func(e testenv.AuditEvent) bool {
		return e.Verb == "create" && e.ObjectRef.Resource == "jobs" && e.ObjectRef.Namespace == r.namespace
	})
	if len(created) != made {
		r.t.Errorf("%d Jobs were made, want %d", len(created), made)
	}
	r.expectNothingLeft()
}

// expectNothingLeft waits until all Jobs, and what belongs to them, are gone.
func (r *replicas) expectNothingLeft() {
	r.t.Helper()
	client, runs := kubernetes.NewForConfigOrDie(r.cfg), metav1.ListOptions{LabelSelector: runOfPod}
	testenv.Eventually(r.t, "nothing left of Jobs", func(ctx context.Context) error {
		jobs, err := client.BatchV1().Jobs(r.namespace).List(ctx, runs)
		if err != nil {
			return err
		}
		pods, err := client.CoreV1().Pods(r.namespace).List(ctx, runs)
		if err != nil {
			return err
		}
		secrets, err := client.CoreV1().Secrets(r.namespace).List(ctx, runs)
		if err == nil && len(jobs.Items)+len(pods.Items)+len(secrets.Items) > 0 {
			err = fmt.Errorf("%d Jobs, %d Pods and %d Secrets are left", len(jobs.Items), len(pods.Items), len(secrets.Items))
		}
		return err
	})
}

// expectAllEvents checks that the operator has the events that a Pod has written.
func expectAllEvents(t *testing.T, name, pod, operator string) {
	t.Helper()
	events := func(dir string) (names []string) {
		for _, path := range must.Get(filepath.Glob(filepath.Join(dir, "artifacts", "*", "job_events", "*.json")))(t) {
			names = append(names, filepath.Base(path))
		}
		return names
	}
	all := events(pod)
	if len(all) < 5 {
		t.Errorf("%s: the Pod has the events %v", name, all)
	}
	must.Be(t, name+": events of the operator", all, events(operator))
}
