package jobs

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/net/netutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	batchinformers "k8s.io/client-go/informers/batch/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/runner/rundir"
	"github.com/rolewright/rolewright/runner/selfsigned"
)

// Options are the options of [New].
type Options struct {
	Client kubernetes.Interface
	// Namespace is the namespace of the Jobs: the operator's own.
	Namespace string
	// Image is the operator's image, and Program the path of the program in it.
	Image, Program string
	// AnsibleRunner is the ansible-runner program in the images; empty for the usual one.
	AnsibleRunner string
	// URL is where Pods reach this operator, which listens on Address.
	URL, Address string
	// Proxy serves the runs' requests to the API server.
	Proxy *proxy.Proxy
	// Has reports whether this replica has the object with the UID, if replicas share the objects: see
	// [Runner.Adopt]. nil if it has all objects.
	Has func(types.UID) bool
	// Leads reports whether this replica can prove that it leads. nil if there is no election.
	Leads func() bool
	// Now returns the time of the API server; nil means that of this machine.
	Now func() time.Time
	// Connections is called with the number of connections that Pods have, and whether another one was refused or has to
	// wait. It may be nil.
	Connections func(open int, refused bool)
	Log         logr.Logger
}

// Runner makes runs with [runner.ExecutorJob] as Jobs, and all others with the [runner.Runner] that it
// embeds. It serves Pods while it leads.
type Runner struct {
	*runner.Runner

	opts Options
	hub  *remote.Hub
	// certificate is for the Pods; it is set before ready is closed.
	certificate []byte
	pods, jobs  cache.SharedIndexInformer
	// ready is closed once runs can be made and found, drained once no Pod is served any more.
	ready, drained chan struct{}
	refusals       *lastEvents
	warnings       *lastEvents

	finding sync.Mutex           // held by adopt: one list of the runs of earlier processes at a time
	listed  time.Time            // when the last list began
	runs    map[string]types.UID // the last list: the UIDs of the objects, by the IDs of the runs
	mu      sync.Mutex
	found   map[string]found // runs of earlier processes that are neither followed nor ended yet, by their IDs
	adopted atomic.Int64     // how many runs of earlier processes are followed
	said    atomic.Int64     // when too many connections were last logged, in Unix time
}

// found is a run of an earlier process.
type found struct {
	subject types.UID
	since   time.Time
	asked   bool // FindJobRun was called for it
}

// New returns a Runner. The caller has to add it to a manager.
func New(local *runner.Runner, opts Options) *Runner {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	r := &Runner{
		Runner: local, opts: opts, ready: make(chan struct{}), drained: make(chan struct{}), found: map[string]found{},
		refusals: refusals(opts.Namespace), warnings: warnings(),
		pods: coreinformers.NewFilteredPodInformer(opts.Client, opts.Namespace, 0, byRun(), ofRuns),
		jobs: batchinformers.NewFilteredJobInformer(opts.Client, opts.Namespace, 0, byRun(), ofRuns),
	}
	r.hub = remote.NewHub(r.place)
	return r
}

// NeedLeaderElection returns true: only the leader listens, or the replicas that share the objects.
func (r *Runner) NeedLeaderElection() bool { return true }

// Start serves the Pods until ctx ends.
func (r *Runner) Start(ctx context.Context) error {
	defer close(r.drained)
	if err := r.mayList(ctx); err != nil {
		return err // else the wait for the caches below would never end
	}
	// The hub keeps a run whose end is never recorded, for instance because its object was deleted, as long as its Job
	// exists.
	if _, err := r.jobs.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: r.jobGone}); err != nil {
		return fmt.Errorf("watch the Jobs of runs: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer stop()
	for _, i := range []cache.SharedIndexInformer{r.pods, r.jobs} {
		background.Go(func() { i.RunWithContext(ctx) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), r.pods.HasSynced, r.jobs.HasSynced) {
		return nil // ctx has ended
	}
	secret, err := r.takeOver(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	r.certificate = secret.Data[corev1.TLSCertKey]
	pair, err := tls.X509KeyPair(r.certificate, secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return fmt.Errorf("the certificate for runs in Pods, Secret %s: %w; delete the Secret; the operator creates it again", IdentityName, err)
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", r.opts.Address)
	if err != nil {
		return fmt.Errorf("listen for the Pods of runs: %w; choose another address with --job-bind-address", err)
	}
	listener = netutil.LimitListener(newFairListener(listener, maxOfAddress, maxConnections, r.connections), maxConnections)
	close(r.ready)
	r.opts.Log.Info("Runs in Pods of their own are served", "address", listener.Addr().String(), "url", r.opts.URL, "namespace", r.opts.Namespace)
	background.Go(func() { r.sweepLater(ctx) })
	return r.opts.Proxy.ServeRemote(ctx, listener, pair, remote.Root, r.hub)
}

// takeOver returns the Secret with the certificate, and finds the runs of earlier processes. It tries again until ctx ends,
// but not without permission.
func (r *Runner) takeOver(ctx context.Context) (secret *corev1.Secret, err error) {
	err = wait.PollUntilContextCancel(ctx, again, true, func(ctx context.Context) (bool, error) {
		secret, err = r.identity(ctx)
		if err == nil && r.opts.Has == nil {
			err = r.adopt(ctx, func(types.UID) bool { return true }, time.Now())
		}
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) { // such as the namespace
			return false, err
		}
		if err != nil && ctx.Err() == nil {
			r.opts.Log.Error(err, "Runs in Pods cannot be served yet; trying again")
		}
		return err == nil, nil
	})
	return secret, err
}

func (r *Runner) jobGone(obj any) {
	if key, err := cache.DeletionHandlingObjectToName(obj); err == nil {
		r.hub.Recorded(key.Name, "")
	}
}

// mayList returns an error if the operator has no permission to list Pods or Jobs.
func (r *Runner) mayList(ctx context.Context) error {
	one := metav1.ListOptions{Limit: 1}
	_, pods := r.opts.Client.CoreV1().Pods(r.opts.Namespace).List(ctx, one)
	_, jobs := r.opts.Client.BatchV1().Jobs(r.opts.Namespace).List(ctx, one)
	for _, err := range []error{pods, jobs} {
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("runs as Jobs: %w; %s", err, grantIt)
		}
	}
	return nil
}

// maxConnections is how many connections Pods may have to the operator; more have to wait.
const maxConnections = 4096

// connections logs, at most once a minute, that Pods have too many connections.
func (r *Runner) connections(open int, refused bool) {
	if r.opts.Connections != nil {
		r.opts.Connections(open, refused)
	}
	if now := time.Now().Unix(); refused && now-r.said.Load() >= 60 {
		r.said.Store(now)
		r.opts.Log.Info("Pods of runs have reached the limit on connections; further connections wait, or are refused and retried: share the objects among replicas with --shards, or lower --max-concurrent-runs", "connections", open,
			"most", maxConnections, "mostOfOneAddress", maxOfAddress)
	}
}

// IdentityName is the name of the Secret with the certificate for Pods. It outlives the operator
// process, because Pods have to trust the next process, too.
const IdentityName = "rolewright-runs"

// identity returns the Secret with the certificate of this operator for its Pods. It makes one if there is none.
func (r *Runner) identity(ctx context.Context) (*corev1.Secret, error) {
	secrets := r.opts.Client.CoreV1().Secrets(r.opts.Namespace)
	found, err := secrets.Get(ctx, IdentityName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		certificate, key, makeErr := selfsigned.New(remote.ServerName)
		if makeErr != nil {
			return nil, makeErr
		}
		found, err = secrets.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: IdentityName, Namespace: r.opts.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "rolewright"}},
			Type:       corev1.SecretTypeTLS, Data: map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // another replica was first
			found, err = secrets.Get(ctx, IdentityName, metav1.GetOptions{})
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate for runs in Pods, Secret %s: %w; %s", IdentityName, err, grantIt)
	}
	return found, nil
}

// grantIt is the advice if the operator lacks a permission for Jobs.
const grantIt = "runs as Jobs need the Role of config/jobs"

// Reap ends what is left of a run that another process has begun. It does not wait for the Pod, which may take a while, or
// whose node may not answer: the next run of the object waits for it, see begin.
func (r *Runner) Reap(id string) error {
	err := r.Runner.Reap(id)
	select {
	case <-r.ready:
	case <-r.drained:
		return err
	}
	if r.jobOf(id) == nil && r.podOf(id) == nil {
		return err
	}
	if !r.kill(context.Background(), id) {
		// Return this error alone: together with an error about processes that cannot be killed, it would be ignored. Those
		// processes are looked for again.
		return fmt.Errorf("end what is left of run %s: its Job or its Pod cannot be deleted", id)
	}
	return err
}

// ForgetJobRun removes the Job of a run whose end is recorded, with all that belongs to it, if the run is for the object
// with the UID.
func (r *Runner) ForgetJobRun(id, uid string) {
	r.hub.Recorded(id, uid)
	select {
	case <-r.ready:
	default:
		return // this process has had no runs yet
	}
	if !rundir.IsID(id) || !r.isOf(id, uid) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), forgetTimeout)
	defer cancel()
	if err := r.deleteJob(ctx, id); err != nil {
		r.opts.Log.Error(err, "The Job of a run that has ended cannot be removed; the cluster removes it an hour after its end", "job", id)
		return
	}
	r.claim(id)
}

// isOf reports whether a run has a Job and is for the object with the UID. That must be checked because its ID comes from
// a status, which others can write.
func (r *Runner) isOf(id, uid string) bool {
	r.mu.Lock()
	run, ok := r.found[id]
	r.mu.Unlock()
	if job := r.jobOf(id); !ok && job != nil { // e.found may have a Job that is not in the cache yet
		run.subject, ok = types.UID(job.Labels[objectLabel]), true
	}
	return ok && run.subject == types.UID(uid)
}

const forgetTimeout = 10 * time.Second

// deleteJob deletes the Job of a run, with its Pod, and the Secret. The Secret may lack the Job as its owner, if that
// could not be written.
func (r *Runner) deleteJob(ctx context.Context, id string) error {
	err := r.opts.Client.BatchV1().Jobs(r.opts.Namespace).Delete(ctx, id, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Job %s: %w", id, err)
	}
	err = r.opts.Client.CoreV1().Secrets(r.opts.Namespace).Delete(ctx, id, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Secret %s: %w", id, err)
	}
	return nil
}
