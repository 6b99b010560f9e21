package rolewright

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/watches"
)

// Watch is one entry of a watches file: a kind, and what runs for its objects.
type Watch struct {
	// Hooks is Go code around the runs of the watch.
	Hooks Hooks

	is       watches.Watch
	file     string
	warnings []string
}

// GroupVersionKind returns the watched kind.
func (w Watch) GroupVersionKind() schema.GroupVersionKind { return w.is.GVK }

// String names the watch by its place in the file and its kind.
func (w Watch) String() string {
	return fmt.Sprintf("%s:%d: the watch of %s", w.file, w.is.Pos.Line, w.is.GVK)
}

// LoadWatches reads a watches file with the environment, as the command run does. The error
// contains everything that is wrong with the file, with line numbers.
func LoadWatches(file string) ([]Watch, error) {
	loaded, problems, err := watches.Load(file, watches.Options{
		LookupEnv: os.LookupEnv,
		Defaults: watches.Defaults{
			MaxConcurrentReconciles: runtime.GOMAXPROCS(0), AnsibleVerbosity: 2, Executor: watches.ExecutorAuto,
		},
	})
	var said []string
	for _, p := range problems {
		said = append(said, p.String())
	}
	if errors.Is(err, watches.ErrInvalid) {
		return nil, fmt.Errorf("%w\n  %s", err, strings.Join(said, "\n  "))
	}
	if err != nil {
		return nil, err
	}
	var all []Watch
	for _, w := range loaded {
		all = append(all, Watch{is: w, file: filepath.Base(file), warnings: said})
		said = nil // report them once
	}
	return all, nil
}

// Options apply to all watches. The zero value does what the command run does without flags:
// it reads the same environment variables for Ansible. The only history that it keeps is in the
// objects and the directories of runs, and it serves no API and no page.
type Options struct {
	// Handlers are the Go code that watches name with the key handler, by these names.
	Handlers map[string]Handler
	// Namespaces restricts the objects to some namespaces. If it is empty, or has an empty
	// name, it means all.
	Namespaces []string
	// RunnerRoot is the directory for the files of runs; by default /tmp/ansible-operator/runner.
	// Only one process may use it at a time.
	RunnerRoot string
	// AnsibleRunner is the program ansible-runner: a path, or a name that is looked up in PATH.
	AnsibleRunner string
	// ReconcilePeriod is the time from a run of an object to its next one, unless its watch or
	// the object sets it: 10 hours by default, never if it is negative. It does not apply to
	// charts, whose default is a minute.
	ReconcilePeriod time.Duration
	// MaxConcurrentRuns limits how many runs of all kinds are in progress at a time; 0 derives the
	// limit from the number of CPUs.
	MaxConcurrentRuns int
	// GracefulShutdown is how long runs may go on when the manager stops: 30 seconds by
	// default, like the manager's own timeout; a negative value means not at all. It must not be
	// longer than the manager's GracefulShutdownTimeout. If the manager does not wait, for example
	// because it has lost its Lease, runs end at once.
	GracefulShutdown time.Duration
}

// Add makes mgr serve watches as long as it runs and, with leader election, leads. Call it once
// for a manager, with all watches, before the manager starts. Only one manager of a
// process may serve watches at a time. Errors about a watch name it. Problems that only show
// later, such as a missing ansible-core where a watch requires forked runs, are errors of the
// manager's Start.
func Add(mgr manager.Manager, opts Options, all ...Watch) error {
	if len(all) == 0 {
		return errors.New("rolewright: there are no watches to add")
	}
	if err := opts.check(); err != nil {
		return fmt.Errorf("rolewright: %w", err)
	}
	s := &service{mgr: mgr, opts: opts, log: mgr.GetLogger().WithName("rolewright"), handlers: map[string]controller.Handler{}}
	var problems []error
	for _, w := range all {
		problems = append(problems, w.check(opts))
		for _, warning := range w.warnings {
			s.log.Info("problem in the watches file", "problem", warning)
		}
		w.is.Hooks = w.Hooks.internal()
		s.watched = append(s.watched, w.is)
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("rolewright: %w", err)
	}
	for name, h := range opts.Handlers {
		s.handlers[name] = s.handler(name, h)
	}
	if err := mgr.AddReadyzCheck("rolewright", s.ready); err != nil {
		return fmt.Errorf("rolewright: add the readiness check: %w", err)
	}
	for _, r := range []manager.Runnable{s, (*afterwards)(s)} {
		if err := mgr.Add(r); err != nil {
			return fmt.Errorf("rolewright: add the watches to the manager: %w", err)
		}
	}
	return nil
}

// check returns what is wrong with the options.
func (o Options) check() error {
	for _, name := range o.Namespaces {
		if wrong := validation.IsDNS1123Label(name); name != metav1.NamespaceAll && len(wrong) > 0 {
			return fmt.Errorf("%q in Options.Namespaces is not the name of a namespace: %s", name, strings.Join(wrong, "; "))
		}
	}
	return nil
}

// check returns what is wrong with a watch in this program.
func (w Watch) check(opts Options) error {
	if w.is.GVK.Kind == "" {
		return errors.New("a watch is empty: take those that LoadWatches returns")
	}
	if w.is.Webhooks.NeedServer() {
		return fmt.Errorf("%s has commands or conversions in webhooks, which only the command run serves: add webhooks to the manager yourself", w)
	}
	if w.is.Executor == watches.ExecutorJob {
		return fmt.Errorf("%s has executor: job, and only the command run makes Jobs: remove the key", w)
	}
	if w.Hooks.Vars != nil && !w.is.Content.Ansible() {
		return fmt.Errorf("%s: Hooks.Vars is for roles and playbooks; charts, commands and handlers get the whole object", w)
	}
	contents := []watches.Content{w.is.Content}
	if w.is.Finalizer != nil {
		contents = append(contents, w.is.Finalizer.Content)
	}
	for _, c := range contents {
		if c.Handler != "" && opts.Handlers[c.Handler] == nil {
			return fmt.Errorf("%s names the handler %q, and Options.Handlers has none of that name, but %q", w, c.Handler, slices.Sorted(maps.Keys(opts.Handlers)))
		}
	}
	return nil
}
