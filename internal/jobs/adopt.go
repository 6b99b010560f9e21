package jobs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/runner/rundir"
)

// orphanedJobAge is how long a run of an earlier operator process may go on without an object that claims it.
// adoptionWait is how long new runs wait at most for such runs to be claimed. secretGrace is how long a Secret without a
// Job is kept: its Job may be about to be created.
const (
	orphanedJobAge = time.Hour
	adoptionWait   = 2 * time.Minute
	secretGrace    = 10 * time.Minute
)

// place returns where the run is whose token has the digest. Such a run has a Job. With several replicas, another one may
// just have made a run whose Job is not in this one's cache yet.
func (r *Runner) place(digest [sha256.Size]byte) remote.Place {
	of, _ := r.jobs.GetIndexer().ByIndex(digestAnnotation, hex.EncodeToString(digest[:]))
	for _, each := range of {
		job, ok := each.(*batchv1.Job)
		switch {
		case !ok || job.DeletionTimestamp != nil:
		case r.opts.Has == nil || r.opts.Has(types.UID(job.Labels[objectLabel])):
			return remote.Later
		default:
			return remote.Elsewhere
		}
	}
	switch {
	case r.opts.Has != nil:
		return remote.Elsewhere
	case r.isBehind(), r.opts.Leads != nil && !r.opts.Leads(): // another replica may lead, and have made the run
		return remote.Later
	}
	return remote.Nowhere
}

// isBehind reports whether the cache lacks a Job that was found a moment ago: an earlier process may have made it just
// before it ended.
func (r *Runner) isBehind() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, run := range r.found {
		if time.Since(run.since) < cachePatience && r.jobOf(id) == nil {
			return true
		}
	}
	return false
}

// Adopt finds the runs of earlier processes for objects that this operator has from now on; has tells which these are. It is
// called before any new run of these objects begins. It returns when this operator serves Pods and knows the runs, or when
// this operator or ctx ends.
func (r *Runner) Adopt(ctx context.Context, has func(types.UID) bool) {
	select {
	case <-r.ready:
	case <-r.drained:
		return
	case <-ctx.Done():
		return
	}
	asked := time.Now()
	_ = wait.PollUntilContextCancel(ctx, again, true, func(ctx context.Context) (bool, error) {
		err := r.adopt(ctx, has, asked)
		if err != nil && ctx.Err() == nil {
			r.opts.Log.Error(err, "Runs of an earlier operator process cannot be found yet; trying again")
		}
		return err == nil || isClosed(r.drained), nil
	})
}

// again is the time between two attempts to list the runs, or to read the certificate.
const again = 5 * time.Second

// adopt finds the runs of objects that this operator has, from a list that is not older than at: a replica takes several
// shards at once, for which one list is enough.
func (r *Runner) adopt(ctx context.Context, has func(types.UID) bool, at time.Time) error {
	r.finding.Lock()
	defer r.finding.Unlock()
	if !r.listed.After(at) {
		began := time.Now()
		runs, err := r.list(ctx)
		if err != nil {
			return fmt.Errorf("find the runs of an earlier process: %w; %s", err, grantIt)
		}
		r.runs, r.listed = runs, began
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, subject := range r.runs {
		if has(subject) {
			r.found[id] = found{subject: subject, since: time.Now()}
		}
	}
	return nil
}

// list returns the IDs of the runs that have Jobs, with the UIDs of their objects. It asks the API server: the cache may
// lack a Job that a replica made just before it died.
func (r *Runner) list(ctx context.Context) (map[string]types.UID, error) {
	runs := map[string]types.UID{}
	for from := (metav1.ListOptions{LabelSelector: runLabel, Limit: 500}); ; {
		page, err := r.opts.Client.BatchV1().Jobs(r.opts.Namespace).List(ctx, from)
		if err != nil {
			return nil, err
		}
		for _, job := range page.Items {
			if isRun(job.Name) && r.isOurs(job.Labels) {
				runs[job.Name] = types.UID(job.Labels[objectLabel])
			}
		}
		if from.Continue = page.Continue; from.Continue == "" {
			return runs, nil
		}
	}
}

// removeAlone removes Secrets of runs without a Job, for objects that this operator has: the process that made them ended
// before it made the Job. It leaves young Secrets, whose runs may be about to begin.
func (r *Runner) removeAlone(ctx context.Context) {
	secrets := r.opts.Client.CoreV1().Secrets(r.opts.Namespace)
	for from := (metav1.ListOptions{LabelSelector: runLabel, Limit: 20}); ; { // each has up to a megabyte
		page, err := secrets.List(ctx, from)
		if err != nil {
			if ctx.Err() == nil {
				r.opts.Log.Error(err, "Secrets of runs that have no Job are not removed; it is tried again in an hour")
			}
			return
		}
		for _, s := range page.Items {
			mine := r.opts.Has == nil || r.opts.Has(types.UID(s.Labels[objectLabel]))
			if !mine || !r.isOurs(s.Labels) || time.Since(s.CreationTimestamp.Time) < secretGrace || !r.isAlone(ctx, s.Name) {
				continue
			}
			if err := secrets.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				r.opts.Log.Error(err, "A Secret of a run that has no Job cannot be removed; it is tried again in an hour", "secret", s.Name)
			}
		}
		if from.Continue = page.Continue; from.Continue == "" {
			return
		}
	}
}

// isOurs is false for the labels of what another operator in the namespace has made, whose Pods call another address.
// Earlier versions did not set the label.
func (r *Runner) isOurs(labels map[string]string) bool {
	by := labels[operatorLabel]
	return by == "" || by == r.operator()
}

// operator returns the value of operatorLabel for this operator and all its replicas.
func (r *Runner) operator() string {
	digest := sha256.Sum256([]byte(r.opts.URL))
	return hex.EncodeToString(digest[:8])
}

// isAlone reports whether the run has no Job. It asks the API server, too, because the cache may be out of date.
func (r *Runner) isAlone(ctx context.Context, id string) bool {
	if r.jobOf(id) != nil {
		return false
	}
	_, err := r.opts.Client.BatchV1().Jobs(r.opts.Namespace).Get(ctx, id, metav1.GetOptions{})
	return apierrors.IsNotFound(err)
}

// Adopting reports whether objects may still claim runs of earlier processes, for which new runs wait.
func (r *Runner) Adopting() bool {
	if !isClosed(r.ready) {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, run := range r.found {
		if run.asked || time.Since(run.since) >= adoptionWait || r.opts.Has != nil && !r.opts.Has(run.subject) {
			continue
		}
		if job := r.jobOf(id); job != nil && job.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// sweepLater ends the Jobs that belong to no object, and removes Secrets that have no Job, every hour, until ctx ends.
func (r *Runner) sweepLater(ctx context.Context) {
	r.removeAlone(ctx)
	tick := time.NewTicker(orphanedJobAge)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.sweep(ctx)
			r.removeAlone(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// sweep ends the runs of earlier processes that no object has claimed. While adopted runs are followed it does nothing:
// there may have been no free worker for the others.
func (r *Runner) sweep(ctx context.Context) {
	if r.adopted.Load() > 0 {
		return
	}
	r.mu.Lock()
	var left []string
	for id, run := range r.found {
		if time.Since(run.since) < orphanedJobAge {
			continue
		}
		if r.opts.Has == nil || r.opts.Has(run.subject) {
			left = append(left, id)
		} else {
			delete(r.found, id) // another replica has the object by now
		}
	}
	r.mu.Unlock()
	for _, id := range left {
		r.opts.Log.Info("Run of an earlier process belongs to no object; its Job is deleted", "job", id)
		if err := r.deleteJob(ctx, id); err != nil {
			r.opts.Log.Error(err, "The Job of a run that belongs to no object cannot be deleted; it is tried again", "job", id)
			continue
		}
		r.claim(id)
	}
}

// UnclaimedJobRuns returns the IDs of the runs of earlier processes that were found for the object with the UID, and are
// neither followed nor ended. It waits until the runs have been listed.
func (r *Runner) UnclaimedJobRuns(ctx context.Context, uid string) (ids []string) {
	select {
	case <-r.ready:
	case <-r.drained:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, run := range r.found {
		if run.subject == types.UID(uid) {
			ids = append(ids, id)
		}
	}
	return ids
}

// claim removes a run from found, because it is followed or ended now.
func (r *Runner) claim(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.found, id)
}

// FindJobRun finds a run of an earlier process for the object with the UID. The run goes on as a Job, or has ended since.
// token and ticket were kept with it. age is the Job's age by the clock of the API server: with a wrong clock of this
// machine, the run could be ended too early.
func (r *Runner) FindJobRun(ctx context.Context, id, uid string) (token string, ticket []byte, age time.Duration, ok bool, err error) {
	select {
	case <-r.ready:
	case <-ctx.Done():
		return "", nil, 0, false, fmt.Errorf("find run %s: %w", id, context.Cause(ctx))
	}
	if !rundir.IsID(id) {
		return "", nil, 0, false, nil
	}
	job := r.jobOf(id)
	if job == nil { // the cache may lack a Job that another replica has just made
		job, err = r.opts.Client.BatchV1().Jobs(r.opts.Namespace).Get(ctx, id, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil, 0, false, nil
		}
		if err != nil {
			return "", nil, 0, false, fmt.Errorf("find run %s: %w", id, err)
		}
	}
	if job.Labels[objectLabel] != uid {
		return "", nil, 0, false, nil
	}
	r.mu.Lock()
	if run, ok := r.found[id]; ok {
		run.asked = true
		r.found[id] = run
	}
	r.mu.Unlock()
	if job.DeletionTimestamp != nil {
		return "", nil, 0, false, nil
	}
	secret, err := r.opts.Client.CoreV1().Secrets(r.opts.Namespace).Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil, 0, false, nil
	}
	if err != nil {
		return "", nil, 0, false, fmt.Errorf("find run %s: %w", id, err)
	}
	return string(secret.Data[tokenKey]), secret.Data[ticketKey], r.opts.Now().Sub(job.CreationTimestamp.Time), true, nil
}
