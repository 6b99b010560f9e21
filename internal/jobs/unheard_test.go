package jobs

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/test/must"
)

// aRun returns a run whose Job and Pod, with these containers, are in the caches. gone removes both.
func aRun(t *testing.T, containers ...corev1.ContainerStatus) (r *Runner, req runner.Request, gone func()) {
	t.Helper()
	const id = "11111111-1111-4111-8111-111111111111"
	meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}}
	job := &batchv1.Job{ObjectMeta: meta}
	meta.UID = "pod"
	pod := &corev1.Pod{ObjectMeta: meta, Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: containers}}
	r = New(nil, Options{Client: fake.NewClientset(), Namespace: "system", URL: "https://operator:8444", Log: logr.Discard()})
	must.Do(t, errors.Join(r.jobs.GetStore().Add(job), r.pods.GetIndexer().Add(pod)))
	return r, runner.Request{ID: id, JobRun: &runner.JobRun{OnPhase: func(string) {}, OnBegun: func(time.Duration) {}, GoesOn: func(error) bool { return false }}}, func() {
		must.Do(t, errors.Join(r.pods.GetIndexer().Delete(pod), r.jobs.GetStore().Delete(job)))
	}
}

// A Pod that waits for a volume or for its network has no reason in its status: the kubelet's event has it.
func TestAwait_SaysWhyAPodDoesNotBegin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, req, gone := aRun(t, corev1.ContainerStatus{Name: "run", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}})
		phase := make(chan string, 1)
		req.JobRun.OnPhase = func(now string) { phase <- now }
		ended := make(chan struct{})
		go func() {
			_, _, _ = r.await(t.Context(), req, &remote.Session{})
			close(ended)
		}()
		if now := <-phase; !strings.HasPrefix(now, "its Pod 11111111-1111-4111-8111-111111111111 has not started: look at the Events") {
			t.Errorf("the status says %q", now)
		}
		must.Get(r.opts.Client.CoreV1().Events("system").Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Name: "one"}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", UID: "pod"}, Type: corev1.EventTypeWarning,
			Reason: "FailedMount", Message: `secret "absent" not found in 0123456789abcdef0123`,
		}, metav1.CreateOptions{}))(t)
		must.Be(t, "waiting", `FailedMount: secret "absent" not found in …`, <-phase)
		gone()
		<-ended
	})
}

// If a NetworkPolicy blocks the Pods of runs, nothing else reports it.
func TestAwait_SaysThatAPodDoesNotReachTheOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, req, gone := aRun(t, corev1.ContainerStatus{Name: "run", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		phase := make(chan string, 2)
		req.JobRun.OnPhase = func(now string) { phase <- now }
		begun, ended := make(chan struct{}), make(chan struct{})
		go func() {
			_, _, _ = r.await(t.Context(), req, &remote.Session{Started: begun})
			close(ended)
		}()
		time.Sleep(leavePatience)
		if len(phase) > 0 {
			t.Errorf("the status says %q of a Pod that has just begun", <-phase)
		}
		time.Sleep(time.Second)
		if now := <-phase; !strings.Contains(now, "cannot reach the operator at https://operator:8444") {
			t.Errorf("the status says %q", now)
		}
		close(begun)
		if now := <-phase; now != "" {
			t.Errorf("the status says %q of a run that has begun", now)
		}
		gone()
		<-ended
	})
}

// If a Pod no longer reaches the operator, its run has still begun. It ends by its timeout, and says why.
func TestAwait_SaysThatAPodReachesTheOperatorNoMore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		r, req, gone := aRun(t, corev1.ContainerStatus{Name: "run", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		req.Dir, req.JobRun.Token = dir, "token"
		must.Do(t, runner.CreateMirror(req))
		session := must.Get(r.hub.Admit(req, "pod"))(t)
		defer session.Close()
		phase, ends := make(chan string, 2), make(chan error, 1)
		req.JobRun.OnPhase = func(now string) { phase <- now }
		ctx, stop := context.WithCancelCause(t.Context())
		go func() {
			_, why, _ := r.await(ctx, req, session)
			ends <- why
		}()
		time.Sleep(silencePatience + time.Second)
		const says = "has not reached this operator at https://operator:8444 since "
		if now := <-phase; !strings.Contains(now, says) {
			t.Errorf("the status says %q", now)
		}
		stop(errors.New("the timeout"))
		time.Sleep(time.Second)
		gone()
		if why := <-ends; !strings.Contains(why.Error(), "the timeout; its Pod ") || !strings.Contains(why.Error(), says) {
			t.Errorf("the run ends with %v", why)
		}
	})
}

// A run that ends itself again and again was not ended by the cluster.
func TestLost_OfAPodThatEndsByItself(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		r, req, _ := aRun(t)
		req.Dir, req.JobRun.Token = dir, "token"
		must.Do(t, runner.CreateMirror(req))
		session := must.Get(r.hub.Admit(req, "pod"))(t)
		defer session.Close()
		ended := func(change func(*corev1.Pod, *corev1.ContainerStateTerminated)) *corev1.Pod {
			how := &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error"}
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}
			change(pod, how)
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "run", State: corev1.ContainerState{Terminated: how}}}
			return pod
		}
		killed := ended(func(*corev1.Pod, *corev1.ContainerStateTerminated) {})
		for name, tt := range map[string]struct {
			pod  *corev1.Pod
			want error
		}{
			"killed":  {killed, runner.ErrPodEnded},
			"gone":    {nil, runner.ErrCluster},
			"evicted": {ended(func(pod *corev1.Pod, _ *corev1.ContainerStateTerminated) { pod.Status.Reason = "Evicted" }), runner.ErrCluster},
			"deleted": {ended(func(pod *corev1.Pod, _ *corev1.ContainerStateTerminated) { pod.DeletionTimestamp = new(metav1.Now()) }), runner.ErrCluster},
			"drained": {ended(func(pod *corev1.Pod, _ *corev1.ContainerStateTerminated) {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
			}), runner.ErrCluster},
			"done":                       {ended(func(_ *corev1.Pod, how *corev1.ContainerStateTerminated) { how.ExitCode = 0 }), runner.ErrCluster},
			"its node was without power": {ended(func(_ *corev1.Pod, how *corev1.ContainerStateTerminated) { how.Reason = "Unknown" }), runner.ErrCluster},
		} {
			if err := r.lost(tt.pod, nil, session); !errors.Is(err, tt.want) {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
		waiting := &remote.Session{Started: make(chan struct{})}
		for want, pod := range map[error]*corev1.Pod{
			runner.ErrPod:     killed,
			runner.ErrCluster: ended(func(pod *corev1.Pod, _ *corev1.ContainerStateTerminated) { pod.DeletionTimestamp = new(metav1.Now()) }),
		} {
			if err := r.lost(pod, nil, waiting); !errors.Is(err, want) {
				t.Errorf("of a run that has not begun: %v, want %v", err, want)
			}
		}
		time.Sleep(time.Minute)
		if err := r.lost(ended(func(*corev1.Pod, *corev1.ContainerStateTerminated) {}), nil, session); !errors.Is(err, runner.ErrCluster) {
			t.Errorf("of one that was not heard of for a minute: %v", err)
		}
	})
}
