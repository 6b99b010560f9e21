package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clientcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

// The times of the election that dev takes part in: the defaults of run.
const (
	devLeaseDuration = 15 * time.Second
	devRenewDeadline = 10 * time.Second
)

// fromProject is the value of --take-over for the Lease that the manifests of the
// project name.
const fromProject = "project"

// takeOver takes a Lease from the deployed operator, and gives it back.
type takeOver struct {
	lease  *lease
	client clientcoordinationv1.LeaseInterface
	name   string // of the Lease; place has its namespace, too
	place  string
	log    logr.Logger
}

// newTakeOver finds out which Lease --take-over means.
func (o *devOptions) newTakeOver(c cluster, log logr.Logger) (*takeOver, error) {
	place := o.takeOver
	if place == fromProject {
		var err error
		if place, err = deployedLease(); err != nil {
			return nil, usage(fmt.Errorf("--take-over: %w; name it: --take-over=NAMESPACE/LEASE", err))
		}
	}
	namespace, name, found := strings.Cut(place, "/")
	if !found || len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, usage(fmt.Errorf("--take-over=%q: give NAMESPACE/LEASE, as kubectl get leases -A shows them", place))
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name of this client: %w", err)
	}
	client, err := leaseClient(c, devRenewDeadline)
	if err != nil {
		return nil, err
	}
	l := leaseOf(client, namespace, name, "rolewright-dev_"+host+"_"+uuid.NewString(), devRenewDeadline, log)
	l.keeps = true
	return &takeOver{lease: l, client: client.Leases(namespace), name: name, place: place, log: log}, nil
}

// hold takes the Lease, and keeps it until ctx ends; then it gives the Lease back. It
// returns when the Lease is held, or with the reason why not. It calls lost if the Lease
// is lost. end waits until the Lease is given back.
func (t *takeOver) hold(ctx context.Context, patience time.Duration, lost func(), say func(string, ...any)) (end func(), err error) {
	holder, err := t.ask(ctx)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	led, ended := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: t.lease, LeaseDuration: devLeaseDuration, RenewDeadline: devRenewDeadline, RetryPeriod: leaderRetryPeriod,
		ReleaseOnCancel: true, Name: t.place,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(led) },
			OnStoppedLeading: func() {
				if ctx.Err() == nil {
					lost()
				}
			},
		},
	})
	if err != nil {
		stop()
		return nil, fmt.Errorf("election on the Lease %s: %w", t.place, err)
	}
	go func() {
		defer close(ended)
		elector.Run(ctx)
	}()
	end = func() {
		stop()
		<-ended
		t.withdraw(context.WithoutCancel(ctx))
	}
	if err := t.await(ctx, led, holder, patience, say); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// await waits until the Lease is held, and keeps asking for it in the meantime.
func (t *takeOver) await(ctx context.Context, led <-chan struct{}, holder string, patience time.Duration, say func(string, ...any)) error {
	if holder != "" {
		say("waiting for %s to give up the Lease %s: its runs in progress may end first", holder, t.place)
	}
	again := time.NewTicker(yieldLength / 3)
	defer again.Stop()
	over := time.NewTimer(patience)
	defer over.Stop()
	for {
		select {
		case <-led:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-over.C:
			namespace, _, _ := strings.Cut(t.place, "/")
			return coded(fmt.Errorf("the Lease %s is still held by %s after %s: a run is still in progress there, its clock differs, or it is not an operator "+
				"that gives up its Lease on request (ansible-operator does not); wait longer with --take-over-timeout, stop it with "+
				"\"kubectl -n %s scale deployment NAME --replicas=0\", or work in another namespace with WATCH_NAMESPACE",
				t.place, t.lease.lastHolder(), patience, namespace), exitTimeout)
		case <-again.C:
			if _, err := t.ask(ctx); err != nil {
				return err
			}
		}
	}
}

// ask asks for the Lease, or asks again, and returns who holds it.
func (t *takeOver) ask(ctx context.Context) (holder string, err error) {
	err = t.patch(ctx, func(is *coordinationv1.Lease) (yield, error) {
		if is.Spec.HolderIdentity != nil {
			holder = *is.Spec.HolderIdentity
		}
		now := time.Now()
		if other, err := readYield(is.Annotations, now); err == nil && other.live(now) && other.to != t.lease.Identity() {
			return yield{}, fmt.Errorf("it is already reserved for %s until %s", other.to, other.until)
		}
		return yield{to: t.lease.Identity(), until: now.Add(yieldLength)}, nil
	})
	if apierrors.IsNotFound(err) {
		return "", usage(fmt.Errorf("the Lease %s does not exist: is the operator deployed, with --leader-elect? See kubectl get leases -A", t.place))
	}
	if err != nil {
		return "", fmt.Errorf("request the Lease %s: %w", t.place, err)
	}
	return holder, nil
}

// errNothing is the reason why nothing is patched.
var errNothing = errors.New("there is nothing to change")

// withdraw removes the annotations that ask for the Lease. If the Lease was held, its release
// has removed them already; annotations that stay expire by themselves.
func (t *takeOver) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, devRenewDeadline)
	defer cancel()
	err := t.patch(ctx, func(is *coordinationv1.Lease) (yield, error) {
		if is.Annotations[yieldTo] != t.lease.Identity() {
			return yield{}, errNothing
		}
		return yield{}, nil
	})
	if err != nil && !errors.Is(err, errNothing) {
		t.log.Error(err, "The request for the Lease cannot be withdrawn; it ends by itself", "lease", t.place, "after", yieldLength.String())
	}
}

// patch writes the yield that say returns for the current Lease.
func (t *takeOver) patch(ctx context.Context, say func(*coordinationv1.Lease) (yield, error)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		is, err := t.client.Get(ctx, t.name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		y, err := say(is)
		if err != nil {
			return err
		}
		annotations := map[string]any{yieldTo: nil, yieldUntil: nil}
		if y.to != "" {
			annotations = map[string]any{yieldTo: y.to, yieldUntil: y.until.UTC().Format(time.RFC3339)}
		}
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": is.ResourceVersion, "annotations": annotations}})
		if err != nil {
			return err
		}
		_, err = t.client.Patch(ctx, t.name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
}

// The manifests in which a project says where its operator runs, and which Lease it
// holds.
const (
	managerManifest = "config/manager/manager.yaml"
	defaultManifest = "config/default/kustomization.yaml"
)

// deployedLease returns the Lease of the operator that the project in this directory
// deploys, as NAMESPACE/LEASE.
func deployedLease() (string, error) {
	var kustomization struct {
		Namespace string `json:"namespace"`
	}
	data, err := os.ReadFile(defaultManifest)
	if err == nil {
		err = yaml.Unmarshal(data, &kustomization)
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", defaultManifest, err)
	}
	containers, err := deployedContainers()
	if err != nil {
		return "", err
	}
	namespace, name := kustomization.Namespace, ""
	for _, c := range containers {
		for _, arg := range c.Args {
			if value, ok := strings.CutPrefix(arg, "--leader-election-id="); ok {
				name = value
			}
			if value, ok := strings.CutPrefix(arg, "--leader-election-namespace="); ok {
				namespace = value
			}
		}
	}
	if namespace == "" || name == "" {
		return "", fmt.Errorf("%s and %s do not set both the namespace and --leader-election-id", defaultManifest, managerManifest)
	}
	return namespace + "/" + name, nil
}
