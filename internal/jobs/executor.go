package jobs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
)

// Options say where runs are made.
type Options struct {
	Client kubernetes.Interface
	// Namespace is where Jobs are: the operator's own.
	Namespace string
	// Image is that of the operator, with Program in it.
	Image, Program string
	// AnsibleRunner is the program in the images; empty for the usual one.
	AnsibleRunner string
	// URL is where Pods find this operator, which listens on Address.
	URL, Address string
	// Proxy lets the runs talk to the API server.
	Proxy *proxy.Proxy
	Log   logr.Logger
}

// Executor makes runs of [runner.ExecutorJob] as Jobs, and all others with the Runner that it
// embeds. It serves while it leads.
type Executor struct {
	*runner.Runner

	opts Options
	hub  *remote.Hub
	// certificate is for the Pods; it is set before ready is closed.
	certificate []byte
	pods, jobs  cache.SharedIndexInformer
	// ready is closed once runs can be made and found, drained once no Pod is served any more.
	ready, drained chan struct{}

	mu      sync.Mutex
	waiting map[string]string // tokens of runs of an earlier process, by run
	forget  *time.Timer       // of forgetRuns
	unmet   map[string]bool   // those of them that no one has asked for
	since   time.Time         // of the list of them
	adopted atomic.Int64      // so many of them are followed
}

// New returns an Executor, which has to be added to a manager.
func New(local *runner.Runner, opts Options) *Executor {
	return &Executor{
		Runner: local, opts: opts, hub: remote.NewHub(), ready: make(chan struct{}), drained: make(chan struct{}), waiting: map[string]string{}, unmet: map[string]bool{},
		pods: informer(opts, func(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
			return opts.Client.CoreV1().Pods(opts.Namespace).List(ctx, o)
		}, opts.Client.CoreV1().Pods(opts.Namespace).Watch, &corev1.Pod{}),
		jobs: informer(opts, func(ctx context.Context, o metav1.ListOptions) (*batchv1.JobList, error) {
			return opts.Client.BatchV1().Jobs(opts.Namespace).List(ctx, o)
		}, opts.Client.BatchV1().Jobs(opts.Namespace).Watch, &batchv1.Job{}),
	}
}

// NeedLeaderElection has no replica but the leader listen, so that Pods find it.
func (e *Executor) NeedLeaderElection() bool { return true }

// Start serves the Pods until ctx ends.
func (e *Executor) Start(ctx context.Context) error {
	defer close(e.drained)
	if err := e.mayList(ctx); err != nil {
		return err // or the caches below would be waited for without end
	}
	// A run that is not recorded at last, such as one that was ended for its object's deletion, is known as long as its Job is there.
	if _, err := e.jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: e.jobGone}); err != nil {
		return fmt.Errorf("watch the Jobs of runs: %w", err)
	}
	var informers sync.WaitGroup
	defer informers.Wait()
	for _, i := range []cache.SharedIndexInformer{e.pods, e.jobs} {
		informers.Go(func() { i.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), e.pods.HasSynced, e.jobs.HasSynced) {
		return nil // ctx has ended
	}
	pair, err := e.identity(ctx)
	if err != nil {
		return err
	}
	if err := e.findRuns(ctx); err != nil {
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", e.opts.Address)
	if err != nil {
		return fmt.Errorf("listen for the Pods of runs: %w; choose another address with --job-bind-address", err)
	}
	listener = netutil.LimitListener(newFairListener(listener, maxOfAddress), maxConnections)
	close(e.ready)
	e.opts.Log.Info("Runs in Pods of their own are served", "address", listener.Addr().String(), "url", e.opts.URL, "namespace", e.opts.Namespace)
	defer e.forgetLater().Stop()
	return e.opts.Proxy.ServeRemote(ctx, listener, pair, remote.Root, e.hub)
}

func (e *Executor) jobGone(obj any) {
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		e.hub.Recorded(key.Name)
	}
}

// mayList is an error where the operator has no permission to list Pods or Jobs.
func (e *Executor) mayList(ctx context.Context) error {
	one := metav1.ListOptions{Limit: 1}
	_, pods := e.opts.Client.CoreV1().Pods(e.opts.Namespace).List(ctx, one)
	_, jobs := e.opts.Client.BatchV1().Jobs(e.opts.Namespace).List(ctx, one)
	for _, err := range []error{pods, jobs} {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("runs as Jobs: %w; %s", err, grantIt)
		}
	}
	return nil
}

// maxConnections is how many connections Pods may have to the operator; further ones wait.
const maxConnections = 4096

// IdentityName is the Secret with the certificate for Pods, which a new operator has to have
// as well.
const IdentityName = "rolewright-runs"

// identity is the certificate of this operator for its Pods, made where there is none.
func (e *Executor) identity(ctx context.Context) (tls.Certificate, error) {
	secrets := e.opts.Client.CoreV1().Secrets(e.opts.Namespace)
	found, err := secrets.Get(ctx, IdentityName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		certificate, key, makeErr := remote.NewCertificate(remote.ServerName)
		if makeErr != nil {
			return tls.Certificate{}, makeErr
		}
		found, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: IdentityName, Namespace: e.opts.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "rolewright"}},
			Type:       corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("the certificate for runs in Pods, Secret %s: %w; %s", IdentityName, err, grantIt)
	}
	e.certificate = found.Data[corev1.TLSCertKey]
	pair, err := tls.X509KeyPair(e.certificate, found.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return pair, fmt.Errorf("the certificate for runs in Pods, Secret %s: %w; delete the Secret, and it is made again", IdentityName, err)
	}
	return pair, nil
}

// grantIt is what to do if the operator may not do what Jobs need.
const grantIt = "runs as Jobs need the Role of config/jobs"

// unclaimed is how long Pods of an earlier operator wait for their runs to be found, and
// adoption is how long new runs wait for that.
const (
	unclaimed = time.Hour
	adoption  = 2 * time.Minute
)

// findRuns has the Pods of runs of an earlier process wait for those to be found, and removes
// Secrets that have no Job.
func (e *Executor) findRuns(ctx context.Context) error {
	secrets := e.opts.Client.CoreV1().Secrets(e.opts.Namespace)
	found, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: runLabel})
	if err != nil {
		return fmt.Errorf("find the runs of an earlier process: %w; %s", err, grantIt)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.since = time.Now()
	for _, s := range found.Items {
		if e.jobOf(s.Name) == nil {
			if err := secrets.Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				e.opts.Log.Error(err, "A Secret of a run that has no Job cannot be removed", "secret", s.Name)
			}
			continue
		}
		token := string(s.Data[tokenKey])
		e.waiting[s.Name], e.unmet[s.Name] = token, true
		e.hub.Expect(token)
		e.opts.Proxy.Expect(token)
	}
	return nil
}

// Adopting reports whether runs of an earlier process may still be found, before new ones.
func (e *Executor) Adopting() bool {
	if !isClosed(e.ready) {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.unmet) > 0 && time.Since(e.since) < adoption
}

// forgetLater has forgetRuns called in time.
func (e *Executor) forgetLater() *time.Timer {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.forget = time.AfterFunc(unclaimed, e.forgetRuns)
	return e.forget
}

// forgetRuns ends what findRuns has begun, for runs that no object had. While others are
// followed it is tried again later: there may have been no worker for more of them.
func (e *Executor) forgetRuns() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.adopted.Load() > 0 {
		e.forget.Reset(unclaimed)
		return
	}
	for id, token := range e.waiting {
		e.opts.Log.Info("Run of an earlier process belongs to no object; its Pod is told to end", "job", id)
		e.hub.Forget(token)
		e.opts.Proxy.Unexpect(token)
	}
	clear(e.waiting)
}

// abandon has the Pod of a run of an earlier process wait no more: the run is ended.
func (e *Executor) abandon(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if token, ok := e.waiting[id]; ok {
		e.hub.Forget(token)
		e.opts.Proxy.Unexpect(token)
	}
	delete(e.waiting, id)
	delete(e.unmet, id)
}

// Held finds the run of an earlier process that goes on as a Job, or has ended since, and what
// was kept with it.
func (e *Executor) Held(ctx context.Context, id string) (token string, ticket []byte, ok bool, err error) {
	select {
	case <-e.ready:
	case <-ctx.Done():
		return "", nil, false, fmt.Errorf("find run %s: %w", id, context.Cause(ctx))
	}
	if !runner.IsID(id) {
		return "", nil, false, nil
	}
	e.mu.Lock()
	delete(e.unmet, id)
	e.mu.Unlock()
	job := e.jobOf(id)
	if job == nil || job.DeletionTimestamp != nil {
		return "", nil, false, nil
	}
	secret, err := e.opts.Client.CoreV1().Secrets(e.opts.Namespace).Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil, false, nil
	}
	if err != nil {
		return "", nil, false, fmt.Errorf("find run %s: %w", id, err)
	}
	return string(secret.Data[tokenKey]), secret.Data[ticketKey], true, nil
}

// Reap ends what is left of a run that another process has begun.
func (e *Executor) Reap(id string) error {
	err := e.Runner.Reap(id)
	select {
	case <-e.ready:
	case <-e.drained:
		return err
	}
	if e.jobOf(id) == nil && e.podOf(id) == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*grace)
	defer cancel()
	return errors.Join(err, e.end(ctx, id))
}

// Forget removes the Job of a run whose end is recorded, with all that belongs to it.
func (e *Executor) Forget(id string) {
	e.hub.Recorded(id)
	select {
	case <-e.ready:
	default:
		return // there were none yet
	}
	if !runner.IsID(id) || e.jobOf(id) == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
	defer cancel()
	if err := e.deleteJob(ctx, id); err != nil {
		e.opts.Log.Error(err, "The Job of a run that has ended cannot be removed; it goes an hour after its end", "job", id)
	}
}

const forgetTimeout = 10 * time.Second

// deleteJob deletes the Job of a run, with its Pod, and the Secret, which may have no owner: where that could not be
// written.
func (e *Executor) deleteJob(ctx context.Context, id string) error {
	err := e.opts.Client.BatchV1().Jobs(e.opts.Namespace).Delete(ctx, id, metav1.DeleteOptions{PropagationPolicy: ptr(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Job %s: %w", id, err)
	}
	err = e.opts.Client.CoreV1().Secrets(e.opts.Namespace).Delete(ctx, id, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s: %w", id, err)
	}
	return nil
}
