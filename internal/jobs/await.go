package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
)

// look is the time between two checks of a run's Pod in the cache. askEvery is the time between two requests to the API
// server if the cache has nothing of the run. cachePatience is how long a new Job may be missing in the cache.
const (
	look          = 250 * time.Millisecond
	askEvery      = 5 * time.Second
	cachePatience = 30 * time.Second
)

// leavePatience is longer than a container takes from its start until it asks for permission to start the run.
const leavePatience = 20 * time.Second

// silencePatience is how long the Pod of a run, which keeps asking whether to go on, may be silent before that is reported.
const silencePatience = 6 * remote.Beat

// drainPatience is longer than the API proxy takes to end.
const drainPatience = 8 * time.Second

// watched is a run that await follows to its end.
type watched struct {
	*Runner

	req     runner.Request
	session *remote.Session
	// last is the last known state of the Pod; nil if it was never seen.
	last *corev1.Pod
	// why is the cause for which this process has stopped the run, or [runner.ErrHandedOver]; nil if neither. killed is
	// true once its Pod and Job are deleted.
	why    error
	killed bool
	// seen is true once the Job was in the cache; since is when the run was begun or stopped.
	seen  bool
	since time.Time
	asked time.Time // when the API server was last asked
	// tried is when this process last tried to delete the Pod and Job of a stopped run, and pause how long to wait for
	// another try.
	tried time.Time
	pause time.Duration
	told  bool      // OnBegun was called
	begun bool      // the container has started
	as    time.Time // since when begun has this value; zero before the first check
	freed time.Time // when space was last freed for what the run sends
	phase string    // the last text of OnPhase
}

// await waits until nothing of the run is left or, if the run was stopped, until this process ends. why is the cause for
// which this process has stopped the run, or [runner.ErrHandedOver]; lost is why there is no outcome, nil if there is
// one. last is the last known state of the Pod; nil if it was never seen.
func (r *Runner) await(ctx context.Context, req runner.Request, session *remote.Session) (last *corev1.Pod, why, lost error) {
	w := &watched{Runner: r, req: req, session: session, since: time.Now()}
	tick := time.NewTicker(look)
	defer tick.Stop()
	stop := ctx.Done()
	var drained <-chan struct{} // nil until the run is to end
	for {
		if !w.told && isClosed(session.Started) {
			w.told = true
			req.JobRun.OnBegun(r.begunAgo(req))
		}
		select {
		case <-session.Done:
			return w.last, w.why, nil
		case <-stop:
			if why := context.Cause(ctx); req.JobRun.GoesOn(why) {
				return w.last, w.leave(why), nil
			}
			stop, drained = nil, r.drained
			w.stop(ctx)
		case <-drained:
			// This process ends, and no longer watches the Pod. The next run of the object waits for the Pod.
			return w.last, w.why, r.lost(r.podOf(req.ID), r.jobOf(req.ID), session)
		case <-tick.C:
			if w.why != nil && !w.killed && time.Since(w.tried) >= w.pause {
				w.kill(ctx)
			}
		}
		if done, lost := w.look(ctx); done {
			return w.last, w.why, lost
		}
	}
}

// leave waits until no request of the run is in progress here, and leaves the run to another process. It returns nil if the
// run has ended meanwhile.
func (w *watched) leave(why error) error {
	select {
	case <-w.drained:
	case <-w.session.Done:
		return nil
	case <-w.req.JobRun.Replaced: // this process goes on, and answers the requests in progress
	case <-time.After(drainPatience):
	}
	return fmt.Errorf("%w: %w", runner.ErrHandedOver, why)
}

// stop ends the run because ctx has ended.
func (w *watched) stop(ctx context.Context) {
	w.why = context.Cause(ctx)
	switch {
	case w.phase == "":
	case isClosed(w.session.Started):
		w.why = fmt.Errorf("%w; %s", w.why, w.phase)
	default:
		w.why = fmt.Errorf("%w; its Pod waited: %s", w.why, w.phase)
	}
	w.since = time.Now()
	w.kill(ctx)
}

// kill deletes the Pod, and the Job, so that no other Pod begins. If that fails, the next try comes later each time.
func (w *watched) kill(ctx context.Context) {
	w.killed = w.Runner.kill(ctx, w.req.ID)
	w.tried, w.pause = time.Now(), min(max(2*w.pause, askEvery), time.Minute)
}

// look reports whether nothing of the run is left to wait for, and then why it has no outcome; nil if it has one. Else it
// calls OnPhase with what the run waits for.
func (w *watched) look(ctx context.Context) (done bool, lost error) {
	pod, job := w.podOf(w.req.ID), w.jobOf(w.req.ID)
	if pod != nil {
		w.last = pod
	}
	w.seen = w.seen || job != nil
	switch {
	case isClosed(w.req.JobRun.Replaced) && w.why != nil && pod != nil && silent(pod):
		return true, w.lost(pod, job, w.session) // w.why is the result; the next run of the object waits for the Pod
	case isClosed(w.req.JobRun.Replaced) && w.why == nil && (pod != nil && silent(pod) || !isClosed(w.session.Started)):
		w.why = fmt.Errorf("%w: its Pod has not started, or the node of the Pod does not respond", runner.ErrHandedOver)
		return true, nil
	case pod == nil && w.gone(ctx, job), pod != nil && (over(pod) || forced(pod)):
		if pod == nil && w.last != nil && disruption(w.last) != nil {
			pod = w.last // it says why it ended
		}
		return true, w.lost(pod, job, w.session)
	}
	now := phaseOf(pod)
	if pod == nil && w.why == nil {
		now = w.absence(ctx, job)
	}
	if now == "" && pod != nil && w.why == nil {
		now = w.unheard(ctx, pod)
	}
	if isClosed(w.session.Started) && (pod == nil || !silent(pod)) {
		now = w.silence(pod)
	}
	if err := w.session.Trouble(); err != nil && !errors.Is(err, runner.ErrTooLarge) {
		now = "what the run sends cannot be written to the disk of the operator, and is sent again: " + err.Error()
		w.makeRoom(err, now != w.phase)
	}
	if now != w.phase {
		w.phase = now
		w.req.JobRun.OnPhase(now)
	}
	return false, nil
}

// unheard says what to do about a Pod that does not begin, or runs and does not ask for permission to start the run;
// empty while that may still happen soon.
func (w *watched) unheard(ctx context.Context, pod *corev1.Pod) string {
	if begun := begun(pod); w.as.IsZero() || begun != w.begun {
		w.begun, w.as = begun, time.Now()
	}
	switch {
	case time.Since(w.as) < leavePatience:
		return ""
	case !w.begun:
		return cmp.Or(w.warnings.of(ctx, w.Runner, pod.UID), fmt.Sprintf("its Pod %s has not started: look at the Events of the Pod in the namespace %s", pod.Name, pod.Namespace))
	}
	return fmt.Sprintf("its Pod %s runs, and cannot reach the operator at %s: see the log of the Pod; possible causes are a NetworkPolicy "+
		"of its namespace or of the operator's (config/jobs/allow-runs.yaml), or the Service", pod.Name, w.opts.URL)
}

// silence says since when the Pod of a run that has begun no longer reaches this operator; empty if it does, or if there
// is no Pod.
func (w *watched) silence(pod *corev1.Pod) string {
	heard := w.session.Heard()
	if pod == nil || w.why != nil || heard.IsZero() || time.Since(heard) < silencePatience {
		return ""
	}
	return fmt.Sprintf("its Pod %s runs, and has not reached this operator at %s since %s: see the log of the Pod; possible causes are a NetworkPolicy "+
		"or a node that is cut off", pod.Name, w.opts.URL, heard.UTC().Format(time.TimeOnly+"Z"))
}

// makeRoom frees space if the disk is full. It logs err if first is true.
func (w *watched) makeRoom(err error, first bool) {
	if first {
		w.opts.Log.Error(err, "What a run sends cannot be written", "job", w.req.ID)
	}
	if runner.IsNoSpace(err) && w.req.JobRun.MakeRoom != nil && time.Since(w.freed) >= askEvery {
		w.freed = time.Now()
		w.req.JobRun.MakeRoom()
	}
}

// gone reports whether a run without a Pod in the cache will not get one any more. If there is no Job either, it asks the
// API server: the cache may be out of date.
func (w *watched) gone(ctx context.Context, job *batchv1.Job) bool {
	switch {
	case job != nil:
		return finished(job)
	case !w.seen && time.Since(w.since) <= cachePatience, time.Since(w.asked) < askEvery:
		return false
	}
	w.asked = time.Now()
	left, _, err := w.isLeft(ctx, w.req.ID)
	return err == nil && !left
}

// lost returns why a run whose Pod has ended has no outcome; nil if the outcome has arrived meanwhile.
func (r *Runner) lost(pod *corev1.Pod, job *batchv1.Job, session *remote.Session) error {
	if isClosed(session.Done) {
		return nil // the Pod ends after it has sent the outcome
	}
	if err := session.Trouble(); errors.Is(err, runner.ErrTooLarge) {
		return err
	}
	what, memory := endOf(pod, job)
	switch {
	case memory:
		return fmt.Errorf("%w: its Pod was killed for its memory: %s", runner.ErrCut, what)
	case pod != nil && pod.Status.Reason == "" && !isClosed(session.Started) && disruption(pod) == nil && pod.DeletionTimestamp == nil:
		return fmt.Errorf("%w: %s", runner.ErrPod, what)
	case pod != nil && isClosed(session.Started) && endedAlone(pod, session.Heard()):
		return fmt.Errorf("%w: %s", runner.ErrPodEnded, what)
	}
	return fmt.Errorf("%w: %s", runner.ErrCluster, what)
}
