package controller

import (
	"context"
	"errors"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// Runner makes one run and returns when nothing of it is left.
type Runner interface {
	Run(ctx context.Context, req runner.Request) (runner.Result, error)
	// Recover returns what Run would have, for a run whose operator did not
	// live to see its end; [runner.ErrNoRecord] if that is not known.
	Recover(ctx context.Context, dir, id string, mask runner.Masker) (runner.Result, error)
	// Reap ends what is left on this machine of a run of another process.
	Reap(id string) error
}

// Options says what is watched and how runs are made. Durations of zero mean
// what the flag of the same name says about zero.
type Options struct {
	Watches []watches.Watch
	// Content is the copy of the content from which runs are made; nil for what lies there.
	Content *contentcopy.Copy
	Runner  Runner
	Proxy   *proxy.Proxy
	// Handlers are the Go code that watches may name.
	Handlers map[string]Handler
	// InjectOwnerRef marks what runs create as their objects', and watches it.
	InjectOwnerRef bool
	// RunnerRoot is the directory below which every run gets its private data
	// directory. It is created if missing.
	RunnerRoot string
	// Leads is nil if there are no other replicas; else it says until when this
	// one proves that it leads, with a monotonic clock reading. No run begins
	// after that. That nothing is written then is for the manager's client to see to.
	Leads func() time.Time
	// Sharded is true if the objects are shared with other replicas that lead, too: what is
	// served is what [Set.Hold] says.
	Sharded bool
	// ArtifactsMaxBytes is how much of the disk finished runs may take, over all
	// objects, and ArtifactsMaxAge how old they may become where the watch does
	// not say: 0 keeps none, less than 0 is no limit.
	ArtifactsMaxBytes int64
	ArtifactsMaxAge   time.Duration
	// RunMaxBytes is how much a run may take before it is stopped; 0 is no limit.
	RunMaxBytes int64
	// MaxConcurrentRuns is how many runs there are at a time, over all kinds; 0 is no limit
	// but those of the kinds.
	MaxConcurrentRuns int
	// Namespaces restricts what is watched; empty means all.
	Namespaces []string

	// SuppressOverrideValues hides overrideValues of charts in Events.
	SuppressOverrideValues bool
	// ReconcilePeriod is the period of watches that set none; 0 disables.
	ReconcilePeriod time.Duration
	// RetryMin and RetryMax bound the time after which a failed run is
	// repeated: it doubles with each failure in a row.
	RetryMin, RetryMax time.Duration
	// ProgressInterval is the least time between two writes of a run's
	// progress into the status; 0 writes none.
	ProgressInterval time.Duration
	// GracefulShutdown is how long the manager waits at its end. Runs may use
	// all of it but what stopping them and recording the end needs.
	GracefulShutdown time.Duration
	// KindPollInterval is how often a kind is looked for; 0 means 10 s.
	KindPollInterval time.Duration

	// History records the runs; it may be nil.
	History *history.Recorder
	// Versions tells the versions of Ansible, the same for as long as the process lives. It
	// may take seconds the first time. Nil: they do not count.
	Versions func(ctx context.Context) (runner.Versions, error)

	// AnsibleArgs, Inventory and SkipFacts go into every run.
	AnsibleArgs string
	Inventory   string
	SkipFacts   bool
	// RolesPath and CollectionsPath are the directories that Ansible searches;
	// their content is part of what makes a run worth repeating.
	RolesPath, CollectionsPath []string

	LogEvents eventlog.Level
	// LogLines has one line for each task that has ended in the log, and no blocks of text.
	LogLines bool
	// LogVerbosity above 0 logs the raw output of tasks, as the verbosity
	// annotation of an object does that is trusted (ANSIBLE_VERBOSITY).
	LogVerbosity int
	// EventOut receives the task blocks of the log; it is shared by all runs.
	EventOut  io.Writer
	DebugLogs bool
	// Follow, if not nil, is called when a run starts, and returns what is told of it.
	// The ends of those runs are not logged.
	Follow  func(gvk schema.GroupVersionKind, object types.NamespacedName, cause string) Follower
	Metrics *metrics.Recorder
	// Metric changes a metric of a role's; nil keeps none. The request is as the API
	// proxy got it. Errors are answered as those of [proxy.Calls] are.
	Metric func(request []byte) error

	// readProgram reads the digest of the program at most once.
	readProgram func() (string, error)
	// limitsRoot is below which the limits of the container are found; empty is "/". Tests set it.
	limitsRoot string
}

// Follower is told of one run, from one goroutine. What it is told is masked.
type Follower interface {
	Event(e jobevent.Event)
	End(run status.Run)
}

// Reasons for which a run is cut short: context.Cause of its context.
var (
	// ErrShutdown: the operator stops and the time for running runs is over.
	ErrShutdown = errors.New("the operator shuts down")
	// ErrLeadershipLost: another replica may lead.
	ErrLeadershipLost = errors.New("leadership was lost")
	// ErrKindGone: the kind is no longer installed.
	ErrKindGone = errors.New("the kind is no longer installed")
	// errReplaced: the watch of the kind was changed or removed. Its runs go on to their end.
	errReplaced = errors.New("the watch was changed or removed")
	// ErrObjectDeleted: the object is being deleted, and this is not the run
	// that it waits for.
	ErrObjectDeleted = errors.New("the object is being deleted")
	// ErrObjectGone: the object is gone, or another one has its name.
	ErrObjectGone = errors.New("the object is gone")
	// ErrObjectChanged: the object is changed, and the watch says onChange: restart.
	ErrObjectChanged = errors.New("the object was changed")
	// ErrCancelled: the annotation cancel of the object names the run.
	ErrCancelled = errors.New("it was cancelled: the annotation " + ownPrefix + "cancel names this run")
	// ErrTimeout and ErrIdle: the run has reached a limit of its watch.
	ErrTimeout = errors.New("timeout")
	ErrIdle    = errors.New("idleTimeout")
)
