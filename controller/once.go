package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
)

// causeOnce is the cause of [RunOnce]'s runs. No status records it.
const causeOnce cause = "once"

// Once is the result of [RunOnce].
type Once struct {
	status.Run
	// ExitCode is ansible-runner's exit code; -1 if it is not known.
	ExitCode int
	// Dir is the private data directory of the run.
	Dir string
}

// OnceOptions say which run [RunOnce] executes.
type OnceOptions struct {
	// Deleting executes the finalizer run. The watch needs a finalizer.
	Deleting bool
	// Check executes a run that changes nothing, even if the watch and the object say
	// otherwise.
	Check bool
	// Timeout is the run's time limit; 0 for the limit of the watch and the object.
	Timeout time.Duration
}

// RunOnce executes one run of the watch for obj, as the operator would. It writes nothing to
// the object in the cluster. What the run creates gets an owner reference if obj has a UID,
// which has to be the UID of the object in the cluster. An error means that there was no run.
// RunOnce does not change obj. The run is kept in a directory of its own in the runner root, with
// the last runs of earlier calls.
func RunOnce(ctx context.Context, config *rest.Config, w watches.Watch, opts Options, obj *unstructured.Unstructured, how OnceOptions) (Once, error) {
	log, deleting := logr.FromContextOrDiscard(ctx), how.Deleting
	if deleting && w.Finalizer == nil {
		return Once{}, fmt.Errorf("the watch of %s has no finalizer: nothing runs for an object that is deleted", w.GVK)
	}
	w.ManageStatus = false
	opts.InjectOwnerRef = opts.InjectOwnerRef && obj.GetUID() != ""
	store, tidy, err := onceStore(&opts, log)
	if err != nil {
		return Once{}, err
	}
	defer tidy()
	targets, err := dynamic.NewForConfig(config)
	if err != nil {
		return Once{}, fmt.Errorf("client for what runs wait for: %w", err)
	}
	r := &reconciler{
		watch: w, gvk: w.GVK, opts: &opts, cfg: config, store: store, metrics: opts.Metrics, objects: newObjects(),
		log: log, now: time.Now, set: &Set{runs: context.WithoutCancel(ctx), content: targets},
	}
	id := uuid.NewString()
	s := &scope{
		key: client.ObjectKeyFromObject(obj), log: log, object: obj.DeepCopy(), memory: &memory{}, runID: id, deleting: deleting,
		content: newContentVersion(w, &opts, nil, vault.New(opts.AnsibleArgs, os.LookupEnv)), due: r.now(), plan: plan{cause: causeOnce},
	}
	s.active = status.Active{ID: id, Cause: string(causeOnce), Generation: obj.GetGeneration(), Started: r.now()}
	s.settings, s.warnings = r.settingsOf(obj)
	s.plan.check = how.Check || s.settings.mode == watches.ModeCheck && !deleting
	if deleting {
		s.settings.timeout, s.settings.idleTimeout = w.Finalizer.Timeout, w.Finalizer.IdleTimeout
	}
	if how.Timeout > 0 {
		s.settings.timeout = how.Timeout
	}
	if _, err := r.run(ctx, s); err != nil {
		return Once{}, err
	}
	run := r.endedRun(s)
	if run.Result == status.Interrupted {
		run.Message = strings.TrimSuffix(run.Message, "; it is repeated") + "; what it had done by then stays"
	}
	if s.follower != nil {
		s.follower.End(run)
	}
	if err := store.Record(s.uid(), deleting, run); err != nil {
		log.Error(err, "The end of the run cannot be noted in its directory")
	}
	store.Finish(s.uid(), id, s.settings.retention())
	once := Once{Run: run, ExitCode: -1, Dir: filepath.Join(store.Object(s.uid()), id)}
	if s.ran {
		once.ExitCode = s.result.ExitCode
	}
	return once, nil
}

// onceStore returns a store in a runner root of its own, which it sets in opts. tidy is called after the run.
func onceStore(opts *Options, log logr.Logger) (store *runstore.Store, tidy func(), err error) {
	var lock *os.File
	if opts.RunnerRoot, lock, err = runstore.OnceRoot(opts.RunnerRoot); err != nil {
		return nil, nil, err
	}
	tidy = func() {
		if err := errors.Join(runstore.TidyOnce(opts.RunnerRoot, kubeconfigFile), lock.Close()); err != nil {
			log.Error(err, "Directories of earlier runs cannot be removed", "directory", filepath.Dir(opts.RunnerRoot))
		}
	}
	store, err = runstore.New(runstore.Options{
		Root: opts.RunnerRoot, MaxBytes: opts.ArtifactsMaxBytes, Given: []string{kubeconfigFile}, Metrics: opts.Metrics,
	}, log)
	if err != nil {
		tidy()
	}
	return store, tidy, err
}
