package jobs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
)

// Run makes the run of req, and returns when nothing of it is left, or when it is handed over to another process.
func (r *Runner) Run(ctx context.Context, req runner.Request) (runner.Result, error) {
	if req.Executor != runner.ExecutorJob || req.JobRun == nil {
		return r.Runner.Run(ctx, req)
	}
	res := runner.Result{ID: req.ID, ExitCode: -1}
	if !req.JobRun.Adopted { // an adopted run was found when this Runner was ready, and goes on until await stops it
		select {
		case <-r.ready:
		case <-ctx.Done():
			return res, fmt.Errorf("run %s not started: %w", req.ID, context.Cause(ctx))
		}
	}
	r.claim(req.ID)
	if req.JobRun.Adopted {
		r.adopted.Add(1)
		defer r.adopted.Add(-1)
	}
	mirror := req
	mirror.Files = map[string][]byte{}
	if len(req.JobRun.Ticket) > 0 {
		mirror.Files["ticket.json"] = req.JobRun.Ticket
	}
	if err := runner.CreateMirror(mirror); err != nil {
		return res, notFollowed(req, err)
	}
	pod := ""
	if p := r.podOf(req.ID); req.JobRun.Adopted && p != nil && begun(p) {
		pod = string(p.UID)
	}
	session, err := r.hub.Admit(req, pod)
	if err != nil {
		return res, notFollowed(req, err)
	}
	defer session.Close()
	if !req.JobRun.Adopted {
		if err := r.begin(ctx, req); err != nil {
			switch cause := context.Cause(ctx); {
			case cause == nil:
			case errors.Is(err, cause):
				err = fmt.Errorf("%w: %w", runner.ErrNoTurn, err)
			default: // the client does not mention the cause
				err = fmt.Errorf("run %s not started: %w: %w", req.ID, runner.ErrNoTurn, cause)
			}
			return res, err
		}
	}
	res, err = r.follow(ctx, req, session)
	if errors.Is(err, runner.ErrHandedOver) { // if it has ended meanwhile, its Pod has to tell the next operator, and not this one
		session.Close()
		r.hub.Recorded(req.ID, "")
	}
	return res, err
}

// notFollowed returns the error for a run whose artifacts this process cannot receive. An adopted run goes on all the same.
func notFollowed(req runner.Request, err error) error {
	if req.JobRun.Adopted {
		return fmt.Errorf("%w: %w", runner.ErrNotFollowed, err)
	}
	return err
}

// begin makes the Job, once no other run of the object is left.
func (r *Runner) begin(ctx context.Context, req runner.Request) error {
	earlier, err := r.earlier(ctx, req)
	if err != nil {
		return fmt.Errorf("run %s not started: find earlier runs of the object: %w", req.ID, err)
	}
	for _, id := range earlier {
		if err := r.end(ctx, req.JobRun, id); err != nil {
			return fmt.Errorf("run %s not started: end an earlier run of the object: %w", req.ID, err)
		}
	}
	if req.Until != nil && !time.Now().Before(req.Until()) {
		return runner.ErrTooLate
	}
	secret, err := r.secret(req)
	if err != nil {
		return err
	}
	job, err := r.job(req)
	if err != nil {
		return err
	}
	secrets := r.opts.Client.CoreV1().Secrets(r.opts.Namespace)
	// After an error, the Secret or the Job may have been made nevertheless. A Job without its Secret starts nothing.
	clean := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
		defer cancel()
		_ = r.deleteJob(ctx, req.ID)
	}
	if _, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
		clean()
		return fmt.Errorf("create the Secret of the run: %w", refusedWith(err, r.opts.Namespace))
	}
	jobs := r.opts.Client.BatchV1().Jobs(r.opts.Namespace)
	made, err := jobs.Create(ctx, job, metav1.CreateOptions{})
	// client-go repeats a request after some errors: then the Job of this ID is there already.
	if (isUnknown(err) || apierrors.IsAlreadyExists(err)) && ctx.Err() == nil {
		switch is, lookErr := jobs.Get(ctx, req.ID, metav1.GetOptions{}); {
		case lookErr == nil:
			made, err = is, nil
		case isUnknown(lookErr):
			return nil // await finds out; a run that has begun must not count as not started
		}
	}
	if err != nil {
		clean()
		return fmt.Errorf("create the Job of the run: %w", refusedWith(err, r.opts.Namespace))
	}
	owner := fmt.Sprintf(`{"metadata":{"ownerReferences":[{"apiVersion":"batch/v1","kind":"Job","name":%q,"uid":%q}]}}`, made.Name, made.UID)
	if _, err := secrets.Patch(ctx, req.ID, types.MergePatchType, []byte(owner), metav1.PatchOptions{}); err != nil {
		r.opts.Log.V(1).Info("The Secret of a run cannot get its Job as owner; the operator removes the Secret", "secret", req.ID, "error", err.Error())
	}
	return nil
}

// isUnknown reports whether a request may have had its effect although it has failed with err.
func isUnknown(err error) bool {
	var is apierrors.APIStatus
	return err != nil && (!errors.As(err, &is) || is.Status().Code >= http.StatusInternalServerError)
}

// earlier returns the IDs of the other runs of the object that have a Job, or a Pod that has not ended: after its Job was
// deleted, a Pod may go on for a while. It asks the API server: the caches may be out of date.
func (r *Runner) earlier(ctx context.Context, req runner.Request) (ids []string, err error) {
	of := metav1.ListOptions{LabelSelector: objectLabel + "=" + req.JobRun.Subject}
	jobs, err := r.opts.Client.BatchV1().Jobs(r.opts.Namespace).List(ctx, of)
	if err != nil {
		return nil, err
	}
	pods, err := r.opts.Client.CoreV1().Pods(r.opts.Namespace).List(ctx, of)
	if err != nil {
		return nil, err
	}
	add := func(id string) {
		if id != req.ID && isRun(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	for _, job := range jobs.Items {
		add(job.Name)
	}
	for _, pod := range pods.Items {
		if id := pod.Labels[runLabel]; isPodOf(&pod, id) && !over(&pod) {
			add(id)
		}
	}
	return ids, nil
}

// EndJobRuns ends the runs of the object with the UID that still have a Job or a Pod, and says what is left of them;
// empty for nothing.
func (r *Runner) EndJobRuns(ctx context.Context, uid string) (left string, err error) {
	ids, err := r.earlier(ctx, runner.Request{JobRun: &runner.JobRun{Subject: uid}})
	if err != nil {
		return "", fmt.Errorf("find earlier runs of the object: %w", err)
	}
	for _, id := range ids {
		_ = r.kill(ctx, id) // it logs why it fails; then the Job is left
		if is := r.rest(ctx, id); is != "" {
			left = fmt.Sprintf("run %s %s", id, is)
		}
	}
	return left, nil
}

// rest says what is left of a run that is to end; empty for nothing. It also deletes Pods that are not in the cache.
func (r *Runner) rest(ctx context.Context, id string) (holds string) {
	left, running, err := r.isLeft(ctx, id)
	if err == nil && !left {
		return ""
	}
	for _, pod := range running {
		// If the Pod is gone already, or cannot be deleted now, the next call notices it.
		_ = r.opts.Client.CoreV1().Pods(r.opts.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
	}
	return whatHolds(running, err)
}

// isLeft reports whether a run has a Job, or Pods that have not ended, and returns these Pods. It asks the API server,
// because the caches may be out of date.
func (r *Runner) isLeft(ctx context.Context, id string) (left bool, running []corev1.Pod, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	pods, err := r.opts.Client.CoreV1().Pods(r.opts.Namespace).List(ctx, metav1.ListOptions{LabelSelector: runLabel + "=" + id})
	if err != nil {
		return true, nil, err
	}
	for _, pod := range pods.Items {
		if isPodOf(&pod, id) && !over(&pod) {
			running = append(running, pod)
		}
	}
	_, err = r.opts.Client.BatchV1().Jobs(r.opts.Namespace).Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return len(running) > 0, running, nil
	}
	return true, running, err
}

// follow waits for the end of the run.
func (r *Runner) follow(ctx context.Context, req runner.Request, session *remote.Session) (runner.Result, error) {
	over := make(chan struct{})
	type ended struct {
		res runner.Result
		err error
	}
	ends := make(chan ended, 1)
	go func() {
		res, err := runner.Mirrored(ctx, req, session.Told, over)
		ends <- ended{res, err}
	}()
	last, why, lost := r.await(ctx, req, session)
	close(over)
	end := <-ends
	switch {
	case errors.Is(why, runner.ErrHandedOver):
		return end.res, why
	case lost == nil && why != nil && (end.err != nil && errors.Is(end.err, runner.ErrCluster)):
		// This process has stopped it.
		return end.res, fmt.Errorf("run %s cut short: %w", req.ID, why)
	case lost == nil && last != nil && disruption(last) != nil && errors.Is(end.err, runner.ErrCluster):
		return end.res, fmt.Errorf("%w: %s: %s", runner.ErrCluster, strings.TrimPrefix(end.err.Error(), runner.ErrCluster.Error()+": "), saidOf(disruption(last)))
	case lost == nil:
		return end.res, end.err
	case why != nil && !isClosed(session.Started):
		return runner.Result{ID: req.ID, ExitCode: -1}, fmt.Errorf("run %s not started: %w: %w", req.ID, runner.ErrNoTurn, why)
	case why != nil:
		end.res.Finished = time.Now()
		return end.res, fmt.Errorf("run %s cut short: %w", req.ID, why)
	}
	end.res.Finished = time.Now()
	return end.res, lost
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// finished reports whether a Job has ended, and makes no more Pods.
func finished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// kill deletes the Pod of a run, and the Job, so that no other Pod begins. It returns false if that
// has to be tried again.
func (r *Runner) kill(ctx context.Context, id string) bool {
	r.claim(id)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTimeout)
	defer cancel()
	var err error
	if pod := r.podOf(id); pod != nil {
		err = r.opts.Client.CoreV1().Pods(r.opts.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			err = nil
		}
	}
	if err = errors.Join(err, r.deleteJob(ctx, id)); err != nil {
		r.opts.Log.Error(err, "The Pod of a run that has to stop cannot be deleted; it is tried again", "job", id)
	}
	return err == nil
}

// end stops an earlier run of the same object, and waits until nothing of it is left, or another replica is to have the
// object.
func (r *Runner) end(ctx context.Context, of *runner.JobRun, id string) error {
	pause := time.Second
	for killed := false; ; pause = min(2*pause, askEvery) {
		killed = killed || r.kill(ctx, id)
		holds := r.rest(ctx, id)
		if holds == "" {
			return nil
		}
		if of.OnPhase != nil {
			of.OnPhase(fmt.Sprintf("an earlier run of the object, %s, %s", id, holds))
		}
		select {
		case <-time.After(pause):
		case <-of.Replaced:
			return fmt.Errorf("%w: run %s does not end, and another replica takes over the object", runner.ErrNoTurn, id)
		case <-ctx.Done():
			return fmt.Errorf("run %s does not end: %w; it %s", id, context.Cause(ctx), holds)
		}
	}
}

// whatHolds says what is left of a run that is to end: its Pods or its Job. err is not nil if that is not known.
func whatHolds(pods []corev1.Pod, err error) string {
	if err != nil {
		return "may not have ended: " + text.OneLine(err.Error())
	}
	if len(pods) == 0 {
		return "has not ended: its Job still exists"
	}
	var names []string
	remedy := ""
	for _, pod := range pods {
		names = append(names, pod.Name)
		if silent(&pod) {
			remedy = ifNodeIsGone
		}
	}
	return "has not ended: Pods " + strings.Join(names, ", ") + remedy
}

func (r *Runner) jobOf(id string) *batchv1.Job {
	found, _, _ := r.jobs.GetStore().GetByKey(r.opts.Namespace + "/" + id)
	job, _ := found.(*batchv1.Job)
	return job
}

// podOf returns the Pod of a run from the cache, preferably one that has not ended; nil if there is none.
func (r *Runner) podOf(id string) *corev1.Pod {
	found, _ := r.pods.GetIndexer().ByIndex(runLabel, id)
	var last *corev1.Pod
	for _, each := range found {
		if pod, ok := each.(*corev1.Pod); ok && isPodOf(pod, id) && (last == nil || over(last)) {
			last = pod
		}
	}
	return last
}

// isRun reports whether a Job with the name can be the Job of a run. Other Jobs may have the labels of a run; they are
// left alone, and so are the Secrets of their names. Runs cannot make Jobs with such names.
func isRun(name string) bool {
	return len(name) == len(uuid.Nil.String()) && uuid.Validate(name) == nil
}

// isPodOf reports whether a Pod with the label of a run belongs to the run's Job: by the name, which runs cannot give to
// their own Pods, and by the controller, which an orphaned Pod does not have.
func isPodOf(pod *corev1.Pod, id string) bool {
	by := metav1.GetControllerOf(pod)
	return (pod.Name == id || strings.HasPrefix(pod.Name, id+"-")) && (by == nil || by.Kind == "Job" && by.Name == id)
}

// ofRuns restricts an informer to objects with the label of a run.
func ofRuns(o *metav1.ListOptions) { o.LabelSelector = runLabel }

// byRun returns the indexes for finding the Pods and Jobs of runs.
func byRun() cache.Indexers {
	return cache.Indexers{
		runLabel:         by(func(obj metav1.Object) string { return obj.GetLabels()[runLabel] }),
		digestAnnotation: by(func(obj metav1.Object) string { return obj.GetAnnotations()[digestAnnotation] }),
	}
}

func by(key func(metav1.Object) string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if of, ok := obj.(metav1.Object); ok && key(of) != "" {
			return []string{key(of)}, nil
		}
		return nil, nil
	}
}
