package watches

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Watch is one entry of watches.yaml after defaults and path resolution.
type Watch struct {
	// GVK is the watched kind; an empty group is the core group.
	GVK schema.GroupVersionKind
	// Content is the main role or playbook.
	Content Content
	// CheckCommand runs in place of the command when a run only checks; nil for the
	// command itself.
	CheckCommand *Command `json:",omitempty"`
	// Vars are added to the extra vars of every run.
	Vars map[string]any
	// MaxRunnerArtifacts is how many runs are kept per object; 0 keeps none,
	// a negative number all.
	MaxRunnerArtifacts int
	// MaxFailedRunnerArtifacts is how many failed runs are kept in addition, older than
	// those; 0 keeps none, a negative number all.
	MaxFailedRunnerArtifacts int
	// ArtifactsMaxAge is how old kept runs may become; nil when unset (the flag
	// decides), 0 keeps none, a negative value is no limit.
	ArtifactsMaxAge *time.Duration
	// ReconcilePeriod is nil when unset (the flag decides); 0 disables.
	ReconcilePeriod *time.Duration
	// Schedule says when runs start that no change of an object asks for.
	Schedule Schedule
	// EnabledIf says what has to be installed for the kind to be served.
	EnabledIf EnabledIf
	// Timeout bounds the time of a run, IdleTimeout the time without a sign of
	// life; 0 is no limit.
	Timeout, IdleTimeout time.Duration
	// Mode says which runs change something.
	Mode Mode
	// OnChange says what happens to a run if its object changes in the meantime.
	OnChange OnChange
	// Annotations says how much the annotations of an object may ask for.
	Annotations Annotations
	// Executor says how runs are started; the one of Defaults when unset.
	Executor Executor
	// Job is the Pod template of runs of [ExecutorJob] as JSON; nil for none.
	Job json.RawMessage
	// Retry says when a failed run is repeated.
	Retry Retry

	ManageStatus                bool
	WatchDependentResources     bool
	WatchClusterScopedResources bool
	// WatchDependentStatus makes a change of only the status of a dependent count as
	// a change.
	WatchDependentStatus    bool
	SnakeCaseParameters     bool
	WatchAnnotationsChanges bool
	MarkUnsafe              bool
	// AllowReservedVariables lets spec keys become extra vars even when their
	// names are reserved (ansible_* and others): the switch back to
	// ansible-operator's unsafe behaviour.
	AllowReservedVariables bool

	// Inputs says what else decides whether a run is due.
	Inputs Inputs
	// References are objects whose changes start runs of the objects that refer to them.
	References []Reference
	// VarsFrom are Secrets and ConfigMaps whose keys are added to the extra vars.
	VarsFrom []VarsFrom
	// Triggers are objects whose changes start runs although no object names them.
	Triggers []Trigger
	// Webhooks are what the API server does, or asks for, before it accepts an object.
	Webhooks Webhooks
	// Rollout says how changed content reaches the objects.
	Rollout Rollout

	// Blacklist are dependent kinds that are not watched.
	Blacklist []schema.GroupVersionKind
	// Adopt says whether objects that a run writes but did not create get an owner.
	Adopt Adopt
	// PruneOnDelete deletes, with the watched object, the dependent objects
	// that garbage collection does not reach.
	PruneOnDelete bool
	// Prune removes objects that earlier runs created and the last run did not touch, if Prunes
	// lists their kind. PruneKinds are kinds in addition to the usual ones.
	Prune      bool
	PruneKinds []schema.GroupVersionKind
	// OwnNamespaceOnly confines runs to the namespace of their object.
	OwnNamespaceOnly bool
	// SecretVars are dotted paths in the object, in its spec and in Vars, as they
	// are spelled there: the values at and below them are masked.
	SecretVars []string
	// Selector restricts the objects; the zero value selects all. It is valid.
	Selector metav1.LabelSelector
	// Finalizer is nil if the watch has none.
	Finalizer *Finalizer

	// MaxConcurrentReconciles and AnsibleVerbosity come from the per-GVK
	// environment variables, else from Defaults.
	MaxConcurrentReconciles int
	AnsibleVerbosity        int

	// Hooks is Go code of the program around the runs. It cannot be set in a file.
	Hooks Hooks `json:"-"`

	// Pos is where the entry starts in the file.
	Pos Position
}

// Content is a role, a playbook, a command or a handler: at most one field is set.
type Content struct {
	// Playbook is an absolute path.
	Playbook string
	// Role is a directory, absolute or relative to the working directory.
	Role string
	// Command is an executable. A finalizer that names none has its watch's.
	Command *Command `json:",omitempty"`
	// Handler names Go code of the program. A finalizer that names none has its watch's.
	Handler string `json:",omitempty"`
}

// Contents returns all contents that the watch runs, each once: for its objects, for their
// deletion, and to check them.
func (w Watch) Contents() []Content {
	all := []Content{w.Content}
	if w.Finalizer != nil && w.Finalizer.Content != w.Content {
		all = append(all, w.Finalizer.Content)
	}
	if w.CheckCommand != nil {
		all = append(all, Content{Command: w.CheckCommand})
	}
	return all
}

// Ansible reports whether c is a role or playbook, or empty.
func (c Content) Ansible() bool { return c.Command == nil && c.Handler == "" }

// IsZero reports whether no field is set.
func (c Content) IsZero() bool { return c == Content{} }

// Finalizer says what runs before an object is deleted.
type Finalizer struct {
	// Name is the finalizer put on the object.
	Name string
	// Former is another name of the finalizer, which an earlier operator has put on objects.
	Former string
	// Content is the role or playbook; the watch's own content if only vars are
	// given.
	Content Content
	// Vars are added after the watch's.
	Vars map[string]any
	// Timeout and IdleTimeout are like the watch's, for the finalizer run.
	Timeout, IdleTimeout time.Duration
	// OnFailure says what happens to an object whose finalizer run fails.
	OnFailure OnFailure
}

// Mode says which runs change something. Any value but [ModeCheck] and
// [ModeCheckThenApply], including the zero value, is [ModeApply].
type Mode string

// The modes.
const (
	// ModeApply: all runs change something.
	ModeApply Mode = "apply"
	// ModeCheck: no runs but finalizer runs do.
	ModeCheck Mode = "check"
	// ModeCheckThenApply: the runs after a period only check. The others do change something. One
	// of these follows each check that has found changes, or failed.
	ModeCheckThenApply Mode = "checkThenApply"
)

// OnFailure says what follows a finalizer run that fails. Any value but
// [OnFailureOrphan], including the zero value, retries.
type OnFailure string

// The values of OnFailure.
const (
	// OnFailureRetry: the run is repeated until it succeeds.
	OnFailureRetry OnFailure = "retry"
	// OnFailureOrphan: after some failures in a row, the object is deleted without it.
	OnFailureOrphan OnFailure = "orphan"
)

// OnChange says what a change of an object does to its run in progress. Any
// value but [OnChangeRestart], including the zero value, waits.
type OnChange string

// The values of OnChange.
const (
	// OnChangeWait: the run goes on, and another one follows.
	OnChangeWait OnChange = "wait"
	// OnChangeRestart: the run is stopped, and another one follows.
	OnChangeRestart OnChange = "restart"
)

// Annotations says how much the annotations of an object may ask for. Any value but
// [AnnotationsTrusted], including the zero value, means [AnnotationsBounded].
type Annotations string

// What annotations may ask for.
const (
	// AnnotationsBounded: no more than the watch allows.
	AnnotationsBounded Annotations = "bounded"
	// AnnotationsTrusted: more than the watch allows, too.
	AnnotationsTrusted Annotations = "trusted"
)

// Executor is a way to start runs.
type Executor string

// The executors.
const (
	// ExecutorAuto: forked runs, from a fork server that has already imported Ansible,
	// if that is possible.
	ExecutorAuto Executor = "auto"
	// ExecutorWarm: forked runs; if they are not possible, the operator does not start.
	ExecutorWarm Executor = "warm"
	// ExecutorRunner: plain runs, each of which starts ansible-runner.
	ExecutorRunner Executor = "runner"
	// ExecutorJob: each run in a Pod of its own, created by a Job.
	ExecutorJob Executor = "job"
)

// Adopt is a policy for existing objects without an owner. Any value but
// [AdoptIfUnowned], including the zero value, adopts nothing.
type Adopt string

// The policies of adoption.
const (
	// AdoptNever: only objects that a run creates get an owner.
	AdoptNever Adopt = "never"
	// AdoptIfUnowned: objects that a run changes get an owner, too, if they have none.
	AdoptIfUnowned Adopt = "ifUnowned"
)

// Position is a place in the file, both from 1.
type Position struct {
	Line, Column int
}
