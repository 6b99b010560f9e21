package jobs

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/test/must"
)

// The time of an adopted run counts from the start of its container, not from the creation of its Job. If the node's clock
// is wrong, it counts from the creation of the Pod at the earliest.
func TestBegunAgo(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, tt := range map[string]struct {
		adopted bool
		state   corev1.ContainerState
		want    time.Duration
	}{
		"adopted":            {true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-10 * time.Minute))}}, 10 * time.Minute},
		"the node's clock":   {true, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-24 * time.Hour))}}, time.Hour},
		"seen to begin here": {false, corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now.Add(-10 * time.Minute))}}, 0},
		"not seen yet":       {true, corev1.ContainerState{}, 0},
	} {
		r, req, _ := aRun(t, corev1.ContainerStatus{Name: "run", State: tt.state})
		r.opts.Now, req.JobRun.Adopted = func() time.Time { return now }, tt.adopted
		pod := r.podOf(req.ID)
		pod.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
		if got := r.begunAgo(req); got != tt.want {
			t.Errorf("%s: it has begun %s ago, want %s", name, got, tt.want)
		}
	}
}

// New runs wait until the runs of an earlier process have been adopted or have ended, or until the wait has been long
// enough. Then the Jobs that are left are deleted, but not while other runs are still followed, and not if another replica
// has the object by then.
func TestAdoption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ids := []string{"11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"}
		client := fake.NewClientset()
		has := map[types.UID]bool{}
		r := New(nil, Options{Client: client, Namespace: "system", Has: func(uid types.UID) bool { return has[uid] }, Log: logr.Discard()})
		add := func(id string) {
			has[types.UID("object of "+id)] = true
			meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id, objectLabel: "object of " + id}}
			if err := errors.Join(client.Tracker().Add(&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{tokenKey: []byte("token of " + id)}}),
				client.Tracker().Add(&batchv1.Job{ObjectMeta: meta}), r.jobs.GetStore().Add(&batchv1.Job{ObjectMeta: meta})); err != nil {
				t.Fatal(err)
			}
		}
		for _, id := range ids {
			add(id)
		}
		if !r.Adopting() {
			t.Error("new runs begin before it is known which there are")
		}
		close(r.ready)
		r.Adopt(t.Context(), func(uid types.UID) bool { return uid != types.UID("object of "+ids[3]) })
		for _, id := range ids[:3] {
			if !r.Adopting() {
				t.Errorf("new runs do not wait for run %s", id)
			}
			if id == ids[2] {
				break
			}
			if token, _, _, ok, err := r.FindJobRun(t.Context(), id, "object of "+id); err != nil || !ok || !strings.HasSuffix(token, id) {
				t.Errorf("run %s is %v with token %q, %v", id, ok, token, err)
			}
		}
		r.claim(ids[0])
		r.adopted.Add(1)
		r.kill(t.Context(), ids[1])
		time.Sleep(adoptionWait)
		if r.Adopting() {
			t.Error("new runs wait without end for a run that no object has")
		}
		r.Adopt(t.Context(), func(uid types.UID) bool { return uid == types.UID("object of "+ids[3]) })
		if !r.Adopting() {
			t.Error("new runs do not wait for those of a shard that is taken later")
		}
		has[types.UID("object of "+ids[3])] = false // and its shard is given up
		if r.Adopting() {
			t.Error("new runs wait for those of a shard that was given up")
		}
		left := func() (names []string) {
			jobs := must.Get(client.BatchV1().Jobs("system").List(t.Context(), metav1.ListOptions{}))(t)
			for _, job := range jobs.Items {
				names = append(names, job.Name)
			}
			return names
		}
		time.Sleep(orphanedJobAge)
		r.sweep(t.Context())
		must.Be(t, "Jobs while there may have been no worker for one", []string{ids[0], ids[2], ids[3]}, left())
		r.adopted.Add(-1)
		time.Sleep(orphanedJobAge)
		r.sweep(t.Context())
		must.Be(t, "Jobs that are followed, or another replica's", []string{ids[0], ids[3]}, left())
	})
}

// If a replica does not know a run, the run may belong to another replica: the Pod is not told that the run does not
// exist.
func TestPlace_OfARunThatIsNotKnown(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		has   func(types.UID) bool
		leads func() bool
		since time.Duration // since when the cache has lacked a Job that exists
		want  int
	}{
		"one leader":                         {nil, func() bool { return true }, time.Hour, http.StatusUnauthorized},
		"one without election":               {nil, nil, time.Hour, http.StatusUnauthorized},
		"one leader that has just begun":     {nil, nil, 0, http.StatusServiceUnavailable},
		"one leader that has lost its Lease": {nil, func() bool { return false }, time.Hour, http.StatusServiceUnavailable},
		"replicas":                           {func(types.UID) bool { return true }, nil, time.Hour, http.StatusServiceUnavailable},
	} {
		r := New(nil, Options{Client: fake.NewClientset(), Namespace: "system", Has: tt.has, Leads: tt.leads, Log: logr.Discard()})
		r.found["11111111-1111-4111-8111-111111111111"] = found{since: time.Now().Add(-tt.since)}
		answer, request := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, remote.Root+"here", nil)
		request.Header.Set("Authorization", "Bearer of a Job that was made just now")
		if r.hub.ServeHTTP(answer, request); answer.Code != tt.want {
			t.Errorf("%s: the hub answers %d, want %d", name, answer.Code, tt.want)
		}
	}
}

// A Pod that waits for its image has not begun its run, even if it is on a node.
func TestBegun(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	for want, state := range map[bool]corev1.ContainerState{
		false: {Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}},
		true:  {Running: &corev1.ContainerStateRunning{}},
	} {
		pod := &corev1.Pod{Status: corev1.PodStatus{StartTime: &now, ContainerStatuses: []corev1.ContainerStatus{{Name: watches.JobContainer, State: state}}}}
		if begun(pod) != want {
			t.Errorf("begun is %v with %+v", !want, state)
		}
	}
}

// If the status of another object has the ID of a run, this object does not adopt the run, and removes nothing of it.
func TestForget_LeavesTheRunsOfOtherObjects(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id, objectLabel: "victim"}}
	client := fake.NewClientset(&batchv1.Job{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta})
	r := New(nil, Options{Client: client, Namespace: "system"})
	must.Do(t, r.jobs.GetStore().Add(&batchv1.Job{ObjectMeta: meta}))
	close(r.ready)
	there := func() bool {
		_, err := client.BatchV1().Jobs("system").Get(t.Context(), id, metav1.GetOptions{})
		return err == nil
	}
	if _, _, _, ok, err := r.FindJobRun(t.Context(), id, "attacker"); ok || err != nil {
		t.Errorf("the run is adopted: %v, %v", ok, err)
	}
	if r.ForgetJobRun(id, "attacker"); !there() {
		t.Error("the Job of another object is deleted")
	}
	if r.ForgetJobRun(id, "victim"); there() {
		t.Error("the Job is not deleted for its own object")
	}
}

// The age of a run is measured by the API server's clock. A machine whose clock is ahead does not end the run.
func TestHeld_AgeIsByTheClockOfTheServer(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	now := time.Now().Add(-3 * time.Hour).Truncate(time.Second)
	meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{objectLabel: "object"}, CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}
	client := fake.NewClientset(&batchv1.Job{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta})
	r := New(nil, Options{Client: client, Namespace: "system", Now: func() time.Time { return now }})
	close(r.ready)
	if _, _, age, ok, err := r.FindJobRun(t.Context(), id, "object"); !ok || err != nil || age != time.Minute {
		t.Errorf("the run is %s old, %v, %v", age, ok, err)
	}
}

// What another operator in the namespace has made is neither waited for nor removed.
func TestAdopt_LeavesOtherOperatorsAlone(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset()
	theirs := New(nil, Options{Client: client, Namespace: "system", URL: "https://theirs:8444", Log: logr.Discard()})
	for _, id := range []string{"with-a-job", "without"} {
		req := runner.Request{ID: id, Dir: "/runs/uid/" + id, JobRun: &runner.JobRun{Subject: "of-" + id}}
		must.Do(t, theirs.begin(t.Context(), req))
	}
	must.Do(t, client.BatchV1().Jobs("system").Delete(t.Context(), "without", metav1.DeleteOptions{}))
	ours := New(nil, Options{Client: client, Namespace: "system", URL: "https://ours:8444", Log: logr.Discard()})
	if err := ours.adopt(t.Context(), func(types.UID) bool { return true }, time.Now()); err != nil || len(ours.found) > 0 {
		t.Errorf("the runs %v are found, %v", ours.found, err)
	}
	ours.removeAlone(t.Context())
	if left, err := client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) != 2 {
		t.Errorf("%d Secrets are left of two, %v", len(left.Items), err)
	}
}

// A replica that takes several shards at once lists the Jobs once. It does not list Secrets, which may be large.
func TestAdopt_ListsOnceForSeveralShards(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	client := fake.NewClientset(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id, objectLabel: "late"}}})
	r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
	close(r.ready)
	taken := time.Now()
	for _, mine := range []types.UID{"early", "late"} {
		must.Do(t, r.adopt(t.Context(), func(uid types.UID) bool { return uid == mine }, taken))
	}
	must.Be(t, "what is found by the second shard", []string{id}, r.UnclaimedJobRuns(t.Context(), "late"))
	must.Be(t, "what another shard has of it", []string(nil), r.UnclaimedJobRuns(t.Context(), "early"))
	if lists := len(client.Actions()); lists != 1 {
		t.Errorf("there are %d requests for two shards, want one", lists)
	}
	must.Do(t, r.adopt(t.Context(), func(types.UID) bool { return true }, time.Now()))
	if lists := len(client.Actions()); lists != 2 {
		t.Errorf("there are %d requests, want one more for a shard that is taken later", lists)
	}
	if r.ForgetJobRun(id, "early"); len(r.UnclaimedJobRuns(t.Context(), "late")) != 1 {
		t.Error("a run is forgotten for another object")
	}
	refused := errors.New("refused")
	client.PrependReactor("delete", "jobs", func(k8stesting.Action) (bool, runtime.Object, error) { return refused != nil, nil, refused })
	if r.ForgetJobRun(id, "late"); len(r.UnclaimedJobRuns(t.Context(), "late")) != 1 {
		t.Error("a run whose Job could not be deleted is forgotten")
	}
	refused = nil
	if r.ForgetJobRun(id, "late"); len(r.UnclaimedJobRuns(t.Context(), "late")) != 0 {
		t.Error("a run whose end is recorded is waited for")
	}
}

// If an operator ended before it made the Job, its Secret is removed, unless the Secret may belong to a run that is
// beginning.
func TestRemoveAlone(t *testing.T) {
	t.Parallel()
	const alone, begins, whole, foreign = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222", "33333333-3333-4333-8333-333333333333", "44444444-4444-4444-8444-444444444444"
	client := fake.NewClientset()
	for id, age := range map[string]time.Duration{alone: 2 * orphanedJobAge, begins: time.Minute, whole: 2 * orphanedJobAge, foreign: 2 * orphanedJobAge} {
		must.Do(t, client.Tracker().Add(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: id, Namespace: "system", Labels: map[string]string{runLabel: id, objectLabel: "of " + id}, CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
		}}))
	}
	must.Do(t, client.Tracker().Add(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: whole, Namespace: "system"}}))
	r := New(nil, Options{Client: client, Namespace: "system", Has: func(uid types.UID) bool { return uid != "of "+foreign }, Log: logr.Discard()})
	left := func() (names []string) {
		for _, s := range must.Get(client.CoreV1().Secrets("system").List(t.Context(), metav1.ListOptions{}))(t).Items {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return names
	}
	r.removeAlone(t.Context())
	must.Be(t, "Secrets left", []string{begins, whole, foreign}, left())
}
