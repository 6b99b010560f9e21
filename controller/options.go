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

// Runner executes runs.
type Runner interface {
	// Run executes one run and returns when nothing of it is left.
	Run(ctx context.Context, req runner.Request) (runner.Result, error)
	// Recover returns what Run would have returned, for a run whose operator
	// process died before its end; [runner.ErrNoRecord] if that is not known.
	Recover(ctx context.Context, dir, id string, requireResult bool, mask runner.Masker) (runner.Result, error)
	// Reap ends what is left on this machine of another process's run.
	Reap(id string) error
}

// Options says what is watched and how runs are executed. A duration of zero
// means what the flag of the same name says about zero.
type Options struct {
	Watches []watches.Watch
	// Content is the copy of the content that runs use; nil for the original files.
	Content *contentcopy.Copy
	Runner  Runner
	Proxy   *proxy.Proxy
	// Handlers are the handlers in Go that watches may name.
	Handlers map[string]Handler
	// InjectOwnerRef sets owner marks on what runs create, and watches these dependents.
	InjectOwnerRef bool
	// RunnerRoot is the directory below which every run gets its private data
	// directory. It is created if missing.
	RunnerRoot string
	// Leads is nil if there are no other replicas; else it returns the time, with a
	// monotonic clock reading, until which this replica is certain to lead. No run begins
	// after that time. The manager's client has to prevent writes after it.
	Leads func() time.Time
	// Sharded is true if several replicas lead, each for some shards: then [Set.Hold] says
	// which objects are served.
	Sharded bool
	// ArtifactsMaxBytes is how many bytes of the disk ended runs of all objects may
	// occupy together. ArtifactsMaxAge is how old they may become, unless the watch
	// says otherwise. For both, 0 keeps none, and less than 0 is no limit.
	ArtifactsMaxBytes int64
	ArtifactsMaxAge   time.Duration
	// RunMaxBytes is how many bytes a run may write before it is stopped; 0 is no limit.
	RunMaxBytes int64
	// MaxConcurrentRuns is how many runs of all kinds there may be at a time; 0 leaves only
	// the limits of the kinds.
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
	// ProgressInterval is the shortest time between two writes of a run's
	// progress into the status; 0 writes none.
	ProgressInterval time.Duration
	// GracefulShutdown is how long the manager waits for runs when it stops. Runs may
	// use it except for the time that ending and recording them takes.
	GracefulShutdown time.Duration
	// KindPollInterval is how often the API server is asked for a kind; 0 means 10 s.
	KindPollInterval time.Duration

	// History records the runs; it may be nil.
	History *history.Recorder
	// Versions returns the versions of Ansible, which do not change while the process lives.
	// The first call may take seconds. If it is nil, versions do not count as inputs.
	Versions func(ctx context.Context) (runner.Versions, error)

	// AnsibleArgs, Inventory and SkipFacts apply to every run.
	AnsibleArgs string
	Inventory   string
	SkipFacts   bool
	// RolesPath and CollectionsPath are the directories that Ansible searches.
	// Their files are inputs.
	RolesPath, CollectionsPath []string

	LogEvents eventlog.Level
	// LogLines logs one line for each ended task instead of blocks of text.
	LogLines bool
	// LogVerbosity above 0 logs the raw output of tasks, like a trusted
	// verbosity annotation of an object (ANSIBLE_VERBOSITY).
	LogVerbosity int
	// EventOut receives the task blocks of the log; it is shared by all runs.
	EventOut  io.Writer
	DebugLogs bool
	// Follow, if not nil, is called when a run starts, and returns the run's follower; nil for
	// none. If there is a follower, the run's end is not logged.
	Follow  func(gvk schema.GroupVersionKind, object types.NamespacedName, cause string) Follower
	Metrics *metrics.Recorder
	// Metric changes one of the roles' metrics; nil keeps none. request is the body that
	// the API proxy got. Errors are answered like those of [proxy.Calls].
	Metric func(request []byte) error

	// readProgram reads the digest of the program at most once.
	readProgram func() (string, error)
	// limitsRoot is the directory below which the container's limits are found; empty is "/". Tests set it.
	limitsRoot string
}

// Follower gets the events and the end of one run, masked, from one goroutine.
type Follower interface {
	Event(e jobevent.Event)
	End(run status.Run)
}

// Reasons why a run is cut short: the context.Cause of its context.
var (
	// ErrShutdown: the operator stops and the time for running runs is over.
	ErrShutdown = errors.New("the operator shuts down")
	// ErrLeadershipLost: another replica may lead.
	ErrLeadershipLost = errors.New("leadership was lost")
	// ErrKindGone: the kind is no longer installed.
	ErrKindGone = errors.New("the kind is no longer installed")
	// errReplaced: the watch of the kind was changed or removed. Its runs go on to their end.
	errReplaced = errors.New("the watch was changed or removed")
	// ErrObjectDeleted: the object is being deleted, and this is not its
	// finalizer run.
	ErrObjectDeleted = errors.New("the object is being deleted")
	// ErrObjectGone: the object is gone, or another one has its name.
	ErrObjectGone = errors.New("the object is gone")
	// ErrObjectChanged: the object has changed, and the watch says onChange: restart;
	// or it changed between the decision and the start.
	ErrObjectChanged = errors.New("the object was changed")
	// ErrCancelled: the annotation cancel of the object names the run.
	ErrCancelled = errors.New("it was cancelled: the annotation " + ownPrefix + "cancel names this run")
	// ErrTimeout and ErrIdle: the run has reached a limit of its watch.
	ErrTimeout = errors.New("timeout")
	ErrIdle    = errors.New("idleTimeout")
)
