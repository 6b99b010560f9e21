package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// jobCommand records when it begins and ends. It does not end if it is told so.
const jobCommand = `#!/bin/sh
say() { echo "$1 $ROLEWRIGHT_UID $ROLEWRIGHT_OBJECT $(date +%s%N)" >> "$LEDGER"; }
say begin
if [ -e "$LEDGER-$ROLEWRIGHT_UID" ]; then sleep 600; fi
say end
`

// TestManyJobs prints the cost of many runs in their own Pods at a time, for make simulate-jobs: JOBS is their number.
// All have their Job before the first one begins. A quota leaves room for a quarter of the Pods. One Pod in forty is
// evicted in the middle of its run, and another one loses its node: these runs are repeated, and no others. The test
// plays the kubelet, and begins 16 Pods at a time. Jobs, quota, eviction and the removal of Pods of a lost node are the
// cluster's own.
func TestManyJobs(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("JOBS"))
	if n <= 0 {
		t.Skip("make simulate-jobs runs it")
	}
	s := newStage(t)
	h := &sharing{replicas: &replicas{stage: s, lease: "operator"}, ledger: filepath.Join(t.TempDir(), "ledger"), kinds: []kind{s.kind()}}
	s.env = append(s.env, "LEDGER="+h.ledger)
	s.script("pour.sh", jobCommand)
	s.watch(h.kinds[0], "command: [./pour.sh]", "inheritEnv: [LEDGER]", "executor: job", unscheduled)
	address := testenv.Address(t)
	h.args = []string{"--job-url=https://" + address, "--job-bind-address=" + address, "--job-namespace=" + s.namespace, "--job-image=none",
		"--max-concurrent-reconciles=" + strconv.Itoa(n), "--max-concurrent-runs=" + strconv.Itoa(n), "--retry-min=1s", "--ansible-log-events=Nothing"}
	client := kubernetes.NewForConfigOrDie(s.cfg)
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse(strconv.Itoa(n/4 + 1))}
	must.Get(client.CoreV1().ResourceQuotas(s.namespace).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "quarter"}, Spec: corev1.ResourceQuotaSpec{Hard: room},
	}, metav1.CreateOptions{}))(t)

	o := h.another()
	o.awaitOutput("Runs in Pods of their own are served")
	idle := manyJobsUse(t, o)
	began := time.Now()
	each, ctx := errgroup.WithContext(t.Context())
	each.SetLimit(16)
	for i := range n {
		h.names = append(h.names, fmt.Sprintf("it-%d", i))
		each.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			h.kinds[0].create(h.names[i], map[string]any{})
			return nil
		})
	}
	must.Do(t, each.Wait())
	must.Do(t, wait.PollUntilContextTimeout(t.Context(), time.Second, 20*time.Minute, true, func(ctx context.Context) (bool, error) {
		there, err := client.BatchV1().Jobs(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: runOfPod})
		return err == nil && len(there.Items) == n, nil
	}))
	made, waiting := time.Since(began), manyJobsUse(t, o)
	repeated := h.kubelet(client, o)
	h.awaitReady()
	took, after := time.Since(began), manyJobsUse(t, o)
	h.expectNothingLeft()
	if repeated == 0 {
		t.Error("no Pod was evicted, or lost its node")
	}
	again := 0
	for uid, runs := range h.ledgered() {
		ended := 0
		for _, is := range runs {
			if is.ended {
				ended++
			}
		}
		if ended != 1 || len(runs) > 2 {
			t.Errorf("object %s has run %d times, and ended %d times: %v", uid, len(runs), ended, runs)
		}
		again += len(runs) - 1
	}
	if again != repeated {
		t.Errorf("%d runs were repeated, want the %d whose Pods were evicted or have lost their node", again, repeated)
	}
	fmt.Println("| Jobs | seconds until all are made | MiB with none, with all | CPU seconds to make them | seconds until all have ended | CPU seconds for all | requests per run | repeated |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	fmt.Printf("| %d | %.1f | %.0f, %.0f | %.1f | %.0f | %.1f | %.1f | %d |\n", n, made.Seconds(), idle.memory/(1<<20), waiting.memory/(1<<20),
		waiting.cpu-idle.cpu, took.Seconds(), after.cpu-idle.cpu, (after.requests-idle.requests)/float64(n), repeated)
}

type jobsUse struct{ memory, cpu, requests float64 }

func manyJobsUse(t *testing.T, o *operator) jobsUse {
	t.Helper()
	read := func(name string) float64 { return must.Get(o.metric(t.Context(), name))(t) }
	return jobsUse{read("process_resident_memory_bytes"), read("process_cpu_seconds_total"), read("rest_client_requests_total")}
}

// kubelet makes all Pods begin and end, and returns how many were evicted or have lost their node.
func (h *sharing) kubelet(client kubernetes.Interface, o *operator) (repeated int) {
	h.t.Helper()
	n := &farNode{stage: h.stage, client: client, roots: []string{o.stage.root}, dir: h.t.TempDir()}
	gone, lost := false, must.Get(client.CoreV1().Nodes().Create(h.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "lost-"}}, metav1.CreateOptions{}))(h.t).Name
	h.t.Cleanup(func() {
		_ = client.CoreV1().Nodes().Delete(context.WithoutCancel(h.t.Context()), lost, metav1.DeleteOptions{}) // it may be gone
	})
	var onLost atomic.Int64
	pods, ctx := errgroup.WithContext(h.t.Context())
	pods.SetLimit(16)
	fates, known := map[string]bool{}, map[types.UID]bool{}
	ended := func() int {
		text, _ := os.ReadFile(h.ledger) // there is none before the first one begins
		return strings.Count(string(text), "end ")
	}
	for began := time.Now(); ctx.Err() == nil && ended() < len(h.names) && time.Since(began) < time.Hour; time.Sleep(time.Second) {
		there, err := client.CoreV1().Pods(h.namespace).List(ctx, metav1.ListOptions{LabelSelector: runOfPod})
		if err != nil {
			continue // it is tried again
		}
		for _, pod := range there.Items {
			if of := pod.Labels[objectOfPod]; !known[pod.UID] && pod.DeletionTimestamp == nil {
				known[pod.UID] = true
				fate := ""
				if first := !fates[of]; first {
					fate = map[int]string{0: "evicted", 1: "lost"}[len(fates)%40]
					fates[of] = true
				}
				if fate != "" {
					repeated++
				}
				pods.Go(func() error {
					err := n.live(ctx, &pod, fate, lost)
					if fate == "lost" {
						onLost.Add(1)
					}
					return err
				})
			}
		}
		// When the controllers know that the node is gone, they remove its Pods.
		if all := (len(h.names) + 38) / 40; !gone && int(onLost.Load()) == all {
			must.Do(h.t, client.CoreV1().Nodes().Delete(ctx, lost, metav1.DeleteOptions{}))
			gone = true
		}
	}
	must.Do(h.t, pods.Wait())
	return repeated
}

// live plays the life of a Pod, which may be evicted or lose its node in the middle of its run.
func (n *farNode) live(ctx context.Context, pod *corev1.Pod, fate, lost string) error {
	p := farPod{name: pod.Name, dir: filepath.Join(n.dir, string(pod.UID))}
	p.log = filepath.Join(p.dir, "log")
	if fate == "" {
		return n.run(ctx, pod, p)
	}
	uid := pod.Labels[objectOfPod]
	hangs := n.env[len(n.env)-1][len("LEDGER="):] + "-" + uid
	if err := os.WriteFile(hangs, nil, 0o600); err != nil {
		return err
	}
	if fate == "lost" {
		binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: lost}}
		if err := n.client.CoreV1().Pods(n.namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	process, log, err := n.start(ctx, pod, p)
	if err != nil {
		return err
	}
	defer log.Close()
	middle := func() error {
		for {
			if text, err := os.ReadFile(n.env[len(n.env)-1][len("LEDGER="):]); err == nil && strings.Contains(string(text), "begin "+uid+" ") {
				return os.Remove(hangs)
			}
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if err := middle(); err != nil {
		return errors.Join(err, process.Process.Kill(), process.Wait())
	}
	if fate == "lost" {
		_ = process.Process.Signal(syscall.SIGKILL)
		_ = process.Wait()
		return nil
	}
	if err := n.client.CoreV1().Pods(n.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: n.namespace}}); err != nil {
		return err
	}
	_ = process.Cancel()
	_ = process.Wait()
	is := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 143}}
	err = n.say(ctx, pod, corev1.PodFailed, is)
	if err == nil {
		err = n.client.CoreV1().Pods(n.namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	}
	if apierrors.IsNotFound(err) { // the cluster waits for no kubelet if the Pod has no node
		return nil
	}
	return err
}
