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

	"k8s.io/apimachinery/pkg/runtime/schema"
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

// GroupVersionKind is the kind that is watched.
func (w Watch) GroupVersionKind() schema.GroupVersionKind { return w.is.GVK }

// String names the watch by its place in the file and its kind.
func (w Watch) String() string {
	return fmt.Sprintf("%s:%d: the watch of %s", w.file, w.is.Pos.Line, w.is.GVK)
}

// LoadWatches reads a watches file as the command run does, with the environment. The error
// has all that is wrong with the file, with its lines.
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
		said = nil // once
	}
	return all, nil
}

// Options say what goes for all watches. The zero value is what the command run does without
// flags: it reads the same environment variables of Ansible. It keeps no history beside that
// in the objects and the directories of runs, and serves no API and no page.
type Options struct {
	// Handlers are the Go code that watches name with the key handler.
	Handlers map[string]Handler
	// Namespaces restricts the objects to those of some namespaces; empty means all.
	Namespaces []string
	// RunnerRoot is the directory for the files of runs; by default /tmp/ansible-operator/runner.
	// Only one process may use it at a time.
	RunnerRoot string
	// AnsibleRunner is the program ansible-runner: a path, or a name that is looked up in PATH.
	AnsibleRunner string
	// ReconcilePeriod is the time from a run of an object to its next one where neither watch
	// nor object says it: 10 hours by default, never if it is negative.
	ReconcilePeriod time.Duration
	// MaxConcurrentRuns is how many runs of all kinds there are at a time; 0 leaves that to
	// the number of CPUs.
	MaxConcurrentRuns int
	// GracefulShutdown is how long runs may go on when the manager stops: 30 seconds by
	// default, as the manager waits, none if it is negative. It must not be longer than the
	// manager's GracefulShutdownTimeout. Runs end at once when the manager does not wait, as
	// when it has lost its Lease.
	GracefulShutdown time.Duration
}

// Add has mgr serve watches as long as it runs, and leads if it has leader election. It is
// called once for a manager, with all watches, before the manager starts; only one manager of
// a process may run them at a time. Errors about a watch name it. What cannot be found out
// before, such as a missing ansible-core where a watch requires forked runs, is an error of the
// manager's Start.
func Add(mgr manager.Manager, opts Options, all ...Watch) error {
	if len(all) == 0 {
		return errors.New("rolewright: there are no watches to add")
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

// check finds what is wrong with a watch in this program.
func (w Watch) check(opts Options) error {
	if w.is.GVK.Kind == "" {
		return errors.New("a watch is empty: take those that LoadWatches returns")
	}
	if w.is.Webhooks.NeedServer() {
		return fmt.Errorf("%s has commands or conversions in webhooks, which only the command run serves: add webhooks to the manager yourself", w)
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
