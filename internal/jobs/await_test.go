package jobs

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/test/must"
)

// If the node of a run does not answer, the run is handed over to the replica that has the object next. That replica also
// has to wait for the end of the run.
func TestAwait_HandsOverWhatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	begun, pending, stopped := make(chan struct{}), make(chan struct{}), errors.New("cancelled")
	close(begun)
	for name, tt := range map[string]struct {
		deleted bool
		begun   chan struct{}
		cause   error // why it was stopped; nil if it was not
		want    error
		says    string
	}{
		"its node is gone":                 {true, begun, nil, runner.ErrHandedOver, "--force"},
		"its node is gone before it began": {true, pending, nil, runner.ErrHandedOver, "--force"},
		"it was stopped":                   {true, begun, stopped, stopped, "--force"},
		"its Pod waits":                    {false, pending, nil, runner.ErrHandedOver, ""},
		"its Pod answers":                  {false, begun, nil, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}}
				if tt.deleted {
					meta.DeletionTimestamp = new(metav1.Now())
				}
				pod, job := &corev1.Pod{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta}
				r := New(nil, Options{Client: fake.NewClientset(), Namespace: "system", Log: logr.Discard()})
				must.Do(t, errors.Join(r.jobs.GetStore().Add(job), r.pods.GetIndexer().Add(pod)))
				replaced, phase := make(chan struct{}), ""
				req := runner.Request{ID: id, JobRun: &runner.JobRun{
					Replaced: replaced, OnPhase: func(now string) { phase = now }, OnBegun: func(time.Duration) {}, GoesOn: func(error) bool { return false },
				}}
				ctx, cancel := context.WithCancelCause(t.Context())
				why := make(chan error, 1)
				go func() {
					_, err, _ := r.await(ctx, req, &remote.Session{Started: tt.begun})
					why <- err
				}()
				if tt.cause != nil {
					cancel(tt.cause)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				select {
				case err := <-why:
					t.Fatalf("the run is left while no other replica wants the object: %v", err)
				default:
				}
				if !strings.Contains(phase, tt.says) {
					t.Errorf("the status says %q", phase)
				}
				close(replaced)
				time.Sleep(time.Minute)
				synctest.Wait()
				select {
				case err := <-why:
					if tt.want == nil || !errors.Is(err, tt.want) {
						t.Errorf("the run ends with %v, want %v", err, tt.want)
					}
				default:
					if tt.want != nil {
						t.Error("the run is not left")
					}
				}
				synctest.Wait()
				cancel(runner.ErrCluster)
				synctest.Wait() // until await has seen the cancellation
				_ = r.pods.GetIndexer().Delete(pod)
				_ = r.jobs.GetStore().Delete(job)
				if tt.want != nil {
					return
				}
				if err := <-why; !errors.Is(err, runner.ErrCluster) {
					t.Errorf("the run ends with %v", err)
				}
			})
		})
	}
}

// If the API server refuses to stop a run, the operator tries again, with longer and longer pauses.
func TestAwait_TriesToStopLessAndLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "11111111-1111-4111-8111-111111111111"
		meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}}
		pod, job := &corev1.Pod{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta}
		client, refused := fake.NewClientset(pod, job), atomic.Int32{}
		var granted atomic.Bool
		client.PrependReactor("delete", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if granted.Load() {
				return false, nil, nil
			}
			refused.Add(1)
			return true, nil, errors.New("refused")
		})
		r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
		must.Do(t, errors.Join(r.jobs.GetStore().Add(job), r.pods.GetIndexer().Add(pod)))
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the object was deleted"))
		req := runner.Request{ID: id, JobRun: &runner.JobRun{OnPhase: func(string) {}, GoesOn: func(error) bool { return false }}}
		ended := make(chan struct{})
		go func() {
			_, _, _ = r.await(ctx, req, &remote.Session{})
			close(ended)
		}()
		time.Sleep(10 * time.Minute)
		if n := refused.Load(); n < 5 || n > 20 {
			t.Errorf("the Pod was to be deleted %d times in ten minutes", n)
		}
		granted.Store(true)
		time.Sleep(time.Minute)
		if left, err := client.CoreV1().Pods("system").List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
			t.Errorf("%d Pods are left, %v", len(left.Items), err)
		}
		_ = r.pods.GetIndexer().Delete(pod)
		_ = r.jobs.GetStore().Delete(job)
		<-ended
	})
}

// A stopped run whose Pod takes long to end does not delay the end of the operator.
func TestAwait_EndsWithTheOperator(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const id = "11111111-1111-4111-8111-111111111111"
		meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}}
		pod, job := &corev1.Pod{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta}
		client := fake.NewClientset(pod, job)
		r := New(nil, Options{Client: client, Namespace: "system", Log: logr.Discard()})
		must.Do(t, errors.Join(r.jobs.GetStore().Add(job), r.pods.GetIndexer().Add(pod)))
		ctx, cancel := context.WithCancelCause(t.Context())
		stopped := errors.New("the object was deleted")
		cancel(stopped)
		req := runner.Request{ID: id, JobRun: &runner.JobRun{OnPhase: func(string) {}, GoesOn: func(error) bool { return false }}}
		ended := make(chan error, 1)
		go func() {
			_, why, lost := r.await(ctx, req, &remote.Session{})
			if lost == nil {
				t.Error("the run has an outcome")
			}
			ended <- why
		}()
		time.Sleep(time.Hour)
		select {
		case err := <-ended:
			t.Errorf("it has ended while its Pod is there: %v", err)
		default:
		}
		if _, err := client.BatchV1().Jobs("system").Get(t.Context(), id, metav1.GetOptions{}); err == nil {
			t.Error("its Job is not deleted")
		}
		close(r.drained)
		if err := <-ended; !errors.Is(err, stopped) {
			t.Errorf("it ends with %v, want why it was stopped", err)
		}
	})
}

// If the operator's disk is full, the status of the run says so, and room is made on the disk. The Pod then sends its data
// again.
func TestAwait_MakesRoomForWhatRunsSend(t *testing.T) {
	t.Parallel()
	const id = "11111111-1111-4111-8111-111111111111"
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=256k,mode=0700"); err != nil {
		t.Skipf("NOT TESTED: a full disk. A file system cannot be mounted here (%v); run the test as root with CAP_SYS_ADMIN", err)
	}
	t.Cleanup(func() { must.Do(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	ballast := filepath.Join(disk, "ballast")
	phases, rooms := make(chan string, 10), atomic.Int32{}
	req := runner.Request{ID: id, Dir: filepath.Join(disk, id), MaxBytes: 1 << 20, JobRun: &runner.JobRun{
		Token: "token", Subject: "uid", OnPhase: func(now string) { phases <- now }, OnBegun: func(time.Duration) {}, GoesOn: func(error) bool { return false },
		MakeRoom: func() bool { rooms.Add(1); return os.Remove(ballast) == nil },
	}}
	must.Do(t, runner.CreateMirror(req))
	meta := metav1.ObjectMeta{Name: id, Namespace: "system", Labels: map[string]string{runLabel: id}}
	pod, job := &corev1.Pod{ObjectMeta: meta}, &batchv1.Job{ObjectMeta: meta}
	r := New(nil, Options{Client: fake.NewClientset(), Namespace: "system", Log: logr.Discard()})
	must.Do(t, errors.Join(r.jobs.GetStore().Add(job), r.pods.GetIndexer().Add(pod)))
	session := must.Get(r.hub.Admit(req, ""))(t)
	t.Cleanup(session.Close)
	post := func(at, epoch string, body []byte) *httptest.ResponseRecorder { return posted(t, r, at, epoch, body) }
	var begun struct{ Epoch string }
	must.Do(t, json.Unmarshal(post("start", "", nil).Body.Bytes(), &begun))
	event := eventOf(t, 64<<10)
	_ = os.WriteFile(ballast, make([]byte, 1<<20), 0o600) // fills the disk

	ended := make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _, _ = r.await(ctx, req, session)
		close(ended)
	}()
	if code := post("files", begun.Epoch, event).Code; code != http.StatusInternalServerError {
		t.Errorf("what cannot be written is answered %d", code)
	}
	if said := <-phases; !strings.Contains(said, "cannot be written") || !strings.Contains(said, "no space left") || rooms.Load() != 1 {
		t.Errorf("the status says %q, and room is made %d times", said, rooms.Load())
	}
	if code := post("files", begun.Epoch, event).Code; code != http.StatusOK {
		t.Errorf("what is sent again is answered %d", code)
	}
	if said := <-phases; said != "" {
		t.Errorf("then the status says %q", said)
	}
	cancel(errors.New("enough"))
	must.Do(t, errors.Join(r.pods.GetIndexer().Delete(pod), r.jobs.GetStore().Delete(job)))
	<-ended
}

// posted returns the hub's answer to a request of the Pod.
func posted(t *testing.T, r *Runner, at, epoch string, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, remote.Root+at+"?pod=it&epoch="+epoch, bytes.NewReader(body))
	req.Header.Set("Authorization", "Bearer token")
	answer := httptest.NewRecorder()
	r.hub.ServeHTTP(answer, req)
	return answer
}

// eventOf returns an event of that many bytes, as a Pod sends it.
func eventOf(t *testing.T, size int) []byte {
	t.Helper()
	return fileOf(t, "job_events/1-a.json", make([]byte, size))
}

// fileOf returns a file, as a Pod sends it.
func fileOf(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	var packed bytes.Buffer
	files := tar.NewWriter(&packed)
	must.Do(t, files.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(data))}))
	must.Get(files.Write(data))(t)
	must.Do(t, files.Close())
	return packed.Bytes()
}

// A run that was stopped ends with the cause for which this process stopped it: its timeout, or a cancellation. The Pod
// does not know the cause.
func TestFollow_ARunThatWasStoppedEndsWithItsCause(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{errors.New("it has taken 1h, its timeout"), errors.New("cancelled")} {
		r, req, _ := aRun(t)
		req.Dir, req.JobRun.Token, req.JobRun.Subject = filepath.Join(t.TempDir(), "run"), "token", "uid"
		must.Do(t, runner.CreateMirror(req))
		session := must.Get(r.hub.Admit(req, ""))(t)
		t.Cleanup(session.Close)
		var begun struct{ Epoch string }
		must.Do(t, json.Unmarshal(posted(t, r, "start", "", nil).Body.Bytes(), &begun))
		ctx, stop := context.WithCancelCause(t.Context())
		stop(cause)
		outcome := must.Get(json.Marshal(runner.OutcomeOf(runner.Result{ExitCode: 254}, context.Canceled, 0)))(t)
		client := fake.NewClientset()
		client.PrependReactor("delete", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) { // deleting the Job ends the Pod
			if code := posted(t, r, "files", begun.Epoch, fileOf(t, runner.OutcomeFile, outcome)).Code; code != http.StatusOK {
				t.Errorf("the outcome is answered %d", code)
			}
			return true, nil, nil
		})
		r.opts.Client = client
		if _, err := r.follow(ctx, req, session); !errors.Is(err, cause) || errors.Is(err, runner.ErrCluster) {
			t.Errorf("the run ends with %v, want %v", err, cause)
		}
	}
}

// If a Pod sends more than a run may write, the run has failed. It is not repeated like a run that the cluster ended.
func TestLost_OfAPodThatSendsTooMuch(t *testing.T) {
	t.Parallel()
	req := runner.Request{ID: "11111111-1111-4111-8111-111111111111", Dir: filepath.Join(t.TempDir(), "run"), MaxBytes: 10 << 10, JobRun: &runner.JobRun{Token: "token", Subject: "uid"}}
	must.Do(t, runner.CreateMirror(req))
	r := New(nil, Options{Client: fake.NewClientset(), Namespace: "system", Log: logr.Discard()})
	session := must.Get(r.hub.Admit(req, ""))(t)
	t.Cleanup(session.Close)
	var begun struct{ Epoch string }
	must.Do(t, json.Unmarshal(posted(t, r, "start", "", nil).Body.Bytes(), &begun))
	for range 5 { // all answers but the last are lost
		if code := posted(t, r, "files", begun.Epoch, eventOf(t, 6<<10)).Code; code != http.StatusOK || session.Trouble() != nil {
			t.Errorf("what is sent again is answered %d", code)
		}
	}
	if code := posted(t, r, "files", begun.Epoch, eventOf(t, 20<<10)).Code; code != http.StatusForbidden {
		t.Errorf("what is too much is answered %d", code)
	}
	pod := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed}}
	if err := r.lost(pod, nil, session); !errors.Is(err, runner.ErrTooLarge) || errors.Is(err, runner.ErrCluster) {
		t.Errorf("the run has ended with %v, want %v", err, runner.ErrTooLarge)
	}
}

// endsWith checks that a run that has begun, and for which nothing is to be waited, ends with an error.
func endsWith(t *testing.T, r *Runner, req runner.Request, gone func(), want error) {
	t.Helper()
	begun, ended := make(chan struct{}), make(chan error, 1)
	close(begun)
	go func() {
		_, _, lost := r.await(t.Context(), req, &remote.Session{Started: begun})
		ended <- lost
	}()
	time.Sleep(time.Minute)
	if len(ended) == 0 {
		t.Error("the run is waited for")
		gone()
	}
	if lost := <-ended; !errors.Is(lost, want) {
		t.Errorf("the run ends with %v", lost)
	}
}

// A webhook may have added a container, such as vault-agent or istio-proxy. It goes on running after the container of the
// run was killed.
func TestAwait_EndsWithTheContainerOfTheRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, req, gone := aRun(t,
			corev1.ContainerStatus{Name: "run", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}},
			corev1.ContainerStatus{Name: "vault-agent", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		endsWith(t, r, req, gone, runner.ErrCut)
	})
}

// Who deletes a Pod with --force says that its node is gone. The Job controller keeps the Pod, for which the run must not
// wait.
func TestAwait_EndsWithAPodThatIsDeletedByForce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, req, gone := aRun(t, corev1.ContainerStatus{Name: "run", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
		pod := r.podOf(req.ID)
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.Now()), new(int64(0))
		endsWith(t, r, req, gone, runner.ErrCluster)
	})
}
