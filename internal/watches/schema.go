package watches

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// defaultMaxRunnerArtifacts is how many runs are kept if the file does not set it.
const defaultMaxRunnerArtifacts = 20

// defaultMaxFailedRunnerArtifacts is how many failed runs are kept in addition,
// unless maxRunnerArtifacts is 0.
const defaultMaxFailedRunnerArtifacts = 5

// minPeriod is the shortest period between two reconciles of an object: with a
// shorter one an operator does little else.
const minPeriod = time.Second

// The limits of a run if the file sets none. Existing roles wait long and without
// output: a module that waits for a rollout prints nothing until the end.
const (
	defaultTimeout     = 2 * time.Hour
	defaultIdleTimeout = 30 * time.Minute
)

// Field describes one key of a watches file.
type Field struct {
	// Key is the key as it is documented, with the keys above it:
	// finalizer.name, blacklist[].kind.
	Key string
	// Type is the kind of value, in words.
	Type string
	// Default is the value if the key is missing; empty if there is none.
	Default string
	// Required keys must be given.
	Required bool
	// Description is one or two sentences.
	Description string
}

// Fields lists every key that Load knows, in the order of the reference.
func Fields() []Field {
	list := describe("", watchFields())
	list = append(list, describe("finalizer.", finalizerFields())...)
	list = append(list, describe("check.", checkFields())...)
	list = append(list, describe("secrets[].", secretFields())...)
	list = append(list, describe("stop.", stopFields())...)
	list = append(list, describe("retry.", retryFields())...)
	list = append(list, describe("schedule.", scheduleFields())...)
	list = append(list, describe("schedule.windows[].", windowFields())...)
	list = append(list, describe("enabledIf.", enabledIfFields())...)
	list = append(list, describe("inputs.", inputsFields())...)
	list = append(list, describe("rollout.", rolloutFields())...)
	list = append(list, describe("references[].", referenceFields())...)
	list = append(list, describe("varsFrom[].", varsFromFields())...)
	list = append(list, describe("varsFrom[].secretRef.", varsSourceFields())...)
	list = append(list, describe("varsFrom[].configMapRef.", varsSourceFields())...)
	list = append(list, describe("webhooks.", webhookFields())...)
	list = append(list, describe("webhooks.validate[].", validationFields())...)
	list = append(list, describe("webhooks.mutate[].", mutationFields())...)
	list = append(list, describe("webhooks.conversion[].", conversionFields())...)
	list = append(list, describe("webhooks.conversion[].moves[].", moveFields())...)
	list = append(list, describe("triggers[].", triggerFields())...)
	list = append(list, describe("triggers[].selector.", selectorFields())...)
	list = append(list, describe("triggers[].selector.matchExpressions[].", requirementFields())...)
	list = append(list, describe("triggers[].namespaceSelector.", selectorFields())...)
	list = append(list, describe("triggers[].namespaceSelector.matchExpressions[].", requirementFields())...)
	list = append(list, describe("blacklist[].", kindFields())...)
	list = append(list, describe("pruneKinds[].", kindFields())...)
	list = append(list, describe("selector.", selectorFields())...)
	return append(list, describe("selector.matchExpressions[].", requirementFields())...)
}

func describe[T any](prefix string, fields []field[T]) []Field {
	list := make([]Field, 0, len(fields))
	for _, f := range fields {
		f.Key = prefix + f.Key
		list = append(list, f.Field)
	}
	return list
}

// field is a key of the mapping that becomes a T: its documentation, and how
// to read its value.
type field[T any] struct {
	Field
	// set stores the value, which is not null, or reports why it cannot.
	set func(c *decoding, into *T, value at)
}

// Types of values, as documented and as named in problems.
const (
	typeString   = "string"
	typeBool     = "boolean"
	typeInt      = "integer"
	typeNumber   = "number"
	typeDuration = "duration"
	typeMap      = "mapping"
	typeList     = "list"
)

// watchFields are the keys of a watch.
func watchFields() []field[entry] {
	return slices.Concat(contentFields(), chartFields(), runFields(), objectFields(), dependentFields())
}

// contentFields say which kind is watched, and which content runs for it.
func contentFields() []field[entry] {
	return []field[entry]{
		{Field{"group", typeString, `""`, false, "The API group of the watched kind; empty for the core group."},
			textField(func(e *entry) *string { return &e.watch.GVK.Group })},
		{Field{"version", typeString, "", true, "The API version of the watched kind."},
			textField(func(e *entry) *string { return &e.watch.GVK.Version })},
		{Field{"kind", typeString, "", true, "The watched kind."},
			textField(func(e *entry) *string { return &e.watch.GVK.Kind })},
		{Field{"playbook", typeString, "", false, "The playbook to run, absolute or relative to the working directory. It wins over role."},
			textField(func(e *entry) *string { return &e.playbook })},
		{Field{"role", typeString, "", false, "The role to run: a path, a name in the roles path, or namespace.collection.role."},
			textField(func(e *entry) *string { return &e.role })},
		{Field{"command", typeList, "", false,
			"The executable to run in place of a role or playbook, with its arguments, as a list: no shell and no template is applied. " +
				"A path is relative to the watches file; a name without a slash is looked up in PATH."},
			setCommand(func(e *entry) *[]string { return &e.command })},
		{Field{"check", typeMap, "", false, "What is run where a run only checks: see mode."},
			func(c *decoding, e *entry, a at) { e.check.keys = object(c, a, checkFields(), &e.check) }},
		{Field{"handler", typeString, "", false,
			"The Go code to run in place of a role or playbook, by the name that the program gives it which has added the watch to its own manager."},
			setHandler(func(e *entry) *string { return &e.handler })},
		{Field{"inheritEnv", typeList, "[]", false,
			"Names of environment variables of the operator that the command gets, beside PATH, LANG, TZ, SSL_CERT_* and those of web proxies. A change of one starts a run."},
			setInheritEnv},
		{Field{"env", typeMap, "", false, "Environment variables of the command with their values, which are texts as they are: no shell and no template is applied."},
			setEnv},
		{Field{"secrets", typeList, "[]", false,
			"Values of Secrets that the command gets as files in the directory $ROLEWRIGHT_SECRETS_DIR. A change of such a Secret runs the object, too."},
			setSecrets},
		{Field{"stop", typeMap, "", false, "How the command is stopped: at its timeout, when it is cancelled, and when the operator stops."},
			func(c *decoding, e *entry, a at) { object(c, a, stopFields(), &e.settings.Stop) }},
		{Field{"requireResult", typeBool, "false", false, "Whether a run of the command fails that reports no result and ends with exit code 0."},
			boolean(func(e *entry) *bool { return &e.settings.RequireResult })},
		{Field{"vars", typeMap, "", false, "Extra vars for every run, of any YAML type."},
			variables(func(e *entry) *map[string]any { return &e.watch.Vars })},
		{Field{"enabledIf", typeMap, "", false, "What has to be installed for the kind to be served; nothing else if it is missing."},
			func(c *decoding, e *entry, a at) { object(c, a, enabledIfFields(), &e.watch.EnabledIf) }},
	}
}

// runFields say how runs start, when they end and which artifacts are kept.
func runFields() []field[entry] {
	return []field[entry]{
		{Field{"maxRunnerArtifacts", typeInt, "20", false,
			"How many runs' artifacts are kept per object; 0 keeps none, a negative number all."},
			setMaxRunnerArtifacts},
		{Field{"maxFailedRunnerArtifacts", typeInt, "5", false,
			"How many failed runs' artifacts are kept per object beside those, of the runs before them; 0 keeps none, a negative " +
				"number all. The default is 0 where maxRunnerArtifacts is."},
			setMaxFailedRunnerArtifacts},
		{Field{"artifactsMaxAge", typeDuration, "--artifacts-max-age", false,
			`How long the artifacts of a run are kept, such as "720h"; 0 keeps none, a negative duration is no limit.`},
			setArtifactsMaxAge},
		{Field{"reconcilePeriod", typeDuration, "--reconcile-period", false,
			`How long after a run the next one starts although nothing changed, such as "30m"; 0 for never. With a chart it is 1m, unless this or ` +
				"the flag says otherwise."},
			setReconcilePeriod},
		{Field{"schedule", typeMap, "", false, "When each object is run, as cron, and maintenance windows."},
			func(c *decoding, e *entry, a at) { e.watch.Schedule = c.schedule(a) }},
		{Field{"timeout", typeDuration, "2h", false, "How long a run may take before it is stopped, and counts as failed; 0 for no limit. With a chart the default is 5m."},
			limit(func(e *entry) *time.Duration { return &e.watch.Timeout })},
		{Field{"idleTimeout", typeDuration, "30m", false,
			"How long a run may go without a sign of life, such as the start or the end of a task; 0 for no limit. With a chart there is none by default."},
			limit(func(e *entry) *time.Duration { return &e.watch.IdleTimeout })},
		{Field{"mode", typeString, "apply", false,
			"Which runs change something: with apply all; with check none but finalizer runs, the others say what they would change; " +
				"with checkThenApply those after reconcilePeriod and by schedule are checks, and one that finds changes is followed by a run that makes them."},
			word("mode", func(e *entry) *Mode { return &e.watch.Mode }, ModeApply, ModeCheck, ModeCheckThenApply)},
		{Field{"onChange", typeString, "wait", false,
			"What becomes of a run whose object is changed meanwhile: with wait it goes on and another one follows, with restart " +
				"it is stopped first."},
			word("value of onChange", func(e *entry) *OnChange { return &e.watch.OnChange }, OnChangeWait, OnChangeRestart)},
		{Field{"rollout", typeMap, "", false, "How a changed role, playbook or environment, or a changed object that starts many, reaches the objects: all at once if it is missing."},
			func(c *decoding, e *entry, a at) { object(c, a, rolloutFields(), &e.watch.Rollout) }},
		{Field{"retry", typeMap, "", false, "When a failed run is repeated. With a chart, max is 15m unless it is given."},
			func(c *decoding, e *entry, a at) { e.watch.Retry = c.retry(a) }},
		{Field{"annotations", typeString, "bounded", false,
			"What annotations of an object may change of mode, timeout, idleTimeout, maxRunnerArtifacts and the raw output in the log: " +
				"with bounded they ask for no more than the watch allows, with trusted for anything."},
			word("value of annotations", func(e *entry) *Annotations { return &e.watch.Annotations }, AnnotationsBounded, AnnotationsTrusted)},
		{Field{"executor", typeString, "--executor", false,
			"How runs are made: auto forks them from an interpreter that has imported Ansible already, where that is possible; " +
				"so does warm, with which the operator does not start where it is not; runner starts ansible-runner for each; " +
				"job makes each run in a Pod of its own. For a command or a chart it is job, or not given: --executor is for roles and playbooks."},
			word("executor", func(e *entry) *Executor { return &e.watch.Executor }, ExecutorAuto, ExecutorWarm, ExecutorRunner, ExecutorJob)},
		{Field{"job", typeMap, "", false,
			"The Pod template of runs with executor: job, with metadata and spec. The container of the run is called run; the operator adds the rest."},
			setJob},
	}
}

// objectFields say which parts of an object are read and written.
func objectFields() []field[entry] {
	return []field[entry]{
		{Field{"manageStatus", typeBool, "true", false, "Whether the operator writes the status of the objects."},
			boolean(func(e *entry) *bool { return &e.watch.ManageStatus })},
		{Field{"watchDependentResources", typeBool, "true", false, "Whether a change to what a run created starts a run."},
			boolean(func(e *entry) *bool { return &e.watch.WatchDependentResources })},
		{Field{"watchClusterScopedResources", typeBool, "false", false, "Whether this holds for cluster-scoped objects too."},
			boolean(func(e *entry) *bool { return &e.watch.WatchClusterScopedResources })},
		{Field{"watchDependentStatus", typeBool, "false", false,
			"Whether a change of nothing but the status of what a run created starts a run too."},
			boolean(func(e *entry) *bool { return &e.watch.WatchDependentStatus })},
		{Field{"snakeCaseParameters", typeBool, "true", false, "Whether the keys of the spec become snake_case variables."},
			boolean(func(e *entry) *bool { return &e.watch.SnakeCaseParameters })},
		{Field{"watchAnnotationsChanges", typeBool, "false", false,
			"Whether a change of annotations starts a run. Requests to the operator, such as paused and cancel, do not count."},
			boolean(func(e *entry) *bool { return &e.watch.WatchAnnotationsChanges })},
		{Field{"markUnsafe", typeBool, "true", false,
			"Whether strings of the object are marked unsafe, so that Ansible never templates them."},
			boolean(func(e *entry) *bool { return &e.watch.MarkUnsafe })},
		{Field{"allowReservedVariables", typeBool, "false", false,
			"Whether spec keys become extra vars even where Ansible gives their names a meaning, as in ansible_connection."},
			boolean(func(e *entry) *bool { return &e.watch.AllowReservedVariables })},
		{Field{"inputs", typeMap, "", false, "What else starts a run when it changes: environment variables and files."},
			func(c *decoding, e *entry, a at) { object(c, a, inputsFields(), &e.watch.Inputs) }},
		{Field{"references", typeList, "[]", false, "Objects that an object names, such as Secrets: a change of one runs the objects that name it."},
			setReferences},
		{Field{"varsFrom", typeList, "[]", false, "Secrets and ConfigMaps whose keys become extra vars. A change of one runs the object, too."},
			setVarsFrom},
		{Field{"triggers", typeList, "[]", false, "Objects that start runs when they change though no object names them, such as a shared ConfigMap."},
			setTriggers},
	}
}

// dependentFields are about dependents, and about objects in deletion.
func dependentFields() []field[entry] {
	return []field[entry]{
		{Field{"blacklist", typeList, "[]", false, "Kinds of dependent objects that are not watched."},
			setBlacklist},
		{Field{"adopt", typeString, "never", false,
			"What becomes of an object that a run changes and that has no owner: with never it stays without, with ifUnowned the " +
				"watched object becomes its owner."},
			word("value of adopt", func(e *entry) *Adopt { return &e.watch.Adopt }, AdoptNever, AdoptIfUnowned)},
		{Field{"pruneOnDelete", typeBool, "false", false,
			"Whether the operator deletes, with an object, what its runs created where garbage collection does not reach: in " +
				"other namespaces and cluster-scoped."},
			boolean(func(e *entry) *bool { return &e.watch.PruneOnDelete })},
		{Field{"prune", typeBool, "false", false,
			"Whether the operator removes, after a run has succeeded, what earlier runs of the object have created and this one has not touched."},
			boolean(func(e *entry) *bool { return &e.watch.Prune })},
		{Field{"pruneKinds", typeList, "[]", false,
			"Kinds that prune removes beside those that hold no data."},
			setPruneKinds},
		{Field{"ownNamespaceOnly", typeBool, "false", false,
			"Whether runs may read and write in the namespace of their object only, whatever the operator may."},
			boolean(func(e *entry) *bool { return &e.watch.OwnNamespaceOnly })},
		{Field{"secretVars", typeList, "[]", false,
			"Variables with secret values, which are masked in logs and status: dotted paths in the object, in its spec and in " +
				"vars, such as database.password."},
			setSecretVars},
		{Field{"selector", typeMap, "", false, "The labels of the objects that are watched; all objects if it is missing."},
			func(c *decoding, e *entry, a at) { object(c, a, selectorFields(), &e.watch.Selector) }},
		{Field{"webhooks", typeMap, "", false, "What the API server checks and fills in before it takes an object: see docs/webhooks.md."},
			func(c *decoding, e *entry, a at) { object(c, a, webhookFields(), e) }},
		{Field{"finalizer", typeMap, "", false, "What is run before an object goes."},
			setFinalizer},
	}
}

func checkFields() []field[mapping] {
	return []field[mapping]{
		{Field{"command", typeList, "", false, "The executable to run, where the watch has a command; the watch's own if it is missing."},
			setCommand(func(m *mapping) *[]string { return &m.command })},
	}
}

func finalizerFields() []field[finalizer] {
	return []field[finalizer]{
		{Field{"name", typeString, "", true, "The finalizer on the object, such as example.com/finalizer."},
			textField(func(f *finalizer) *string { return &f.Name })},
		{Field{"playbook", typeString, "", false, "The playbook to run. It wins over role."},
			textField(func(f *finalizer) *string { return &f.playbook })},
		{Field{"role", typeString, "", false, "The role to run."},
			textField(func(f *finalizer) *string { return &f.role })},
		{Field{"command", typeList, "", false, "The executable to run, where the watch has a command; the watch's own if it is missing."},
			setCommand(func(f *finalizer) *[]string { return &f.command })},
		{Field{"handler", typeString, "", false, "The Go code to run, where the watch has a handler; the watch's own if it is missing."},
			setHandler(func(f *finalizer) *string { return &f.handler })},
		{Field{"vars", typeMap, "", false,
			"Extra vars of the finalizer run. If there is neither playbook nor role, the watch's own is run with them."},
			variables(func(f *finalizer) *map[string]any { return &f.Vars })},
		{Field{"timeout", typeDuration, "2h", false, "As timeout, for the finalizer run."},
			limit(func(f *finalizer) *time.Duration { return &f.Timeout })},
		{Field{"idleTimeout", typeDuration, "30m", false, "As idleTimeout, for the finalizer run."},
			limit(func(f *finalizer) *time.Duration { return &f.IdleTimeout })},
		{Field{"onFailure", typeString, "retry", false,
			"What becomes of an object whose finalizer run fails: with retry the run is repeated until it succeeds, with orphan the " +
				"object goes without it after retry.maxAttempts failures, or 5 where that is not set."},
			word("value of onFailure", func(f *finalizer) *OnFailure { return &f.OnFailure }, OnFailureRetry, OnFailureOrphan)},
	}
}

func kindFields() []field[schema.GroupVersionKind] {
	type gvk = schema.GroupVersionKind
	return []field[gvk]{
		{Field{"group", typeString, `""`, false, "The API group; empty for the core group."},
			textField(func(k *gvk) *string { return &k.Group })},
		{Field{"version", typeString, "", true, "The API version."},
			textField(func(k *gvk) *string { return &k.Version })},
		{Field{"kind", typeString, "", true, "The kind."},
			textField(func(k *gvk) *string { return &k.Kind })},
	}
}

func selectorFields() []field[metav1.LabelSelector] {
	return []field[metav1.LabelSelector]{
		{Field{"matchLabels", typeMap, "", false, "Labels that the object must have, with their values."},
			setMatchLabels},
		{Field{"matchExpressions", typeList, "", false, "Further conditions, all of which must hold."},
			setMatchExpressions},
	}
}

func requirementFields() []field[metav1.LabelSelectorRequirement] {
	type requirement = metav1.LabelSelectorRequirement
	return []field[requirement]{
		{Field{"key", typeString, "", true, "The label."},
			textField(func(r *requirement) *string { return &r.Key })},
		{Field{"operator", typeString, "", true, "In, NotIn, Exists or DoesNotExist."},
			textField(func(r *requirement) *string { return (*string)(&r.Operator) })},
		{Field{"values", typeList, "", false, "The values for In and NotIn."},
			setValues},
	}
}

// foreignKey says what to use instead of keys that look as if they belonged
// here: ansible-operator's documentation once promised some of them.
func foreignKey(key string) string {
	switch strings.ToLower(key) {
	case "maxworkers", "maxconcurrentreconciles":
		return "use the flag --max-concurrent-reconciles or the environment variable MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>"
	case "ansibleverbosity", "verbosity":
		return "use the flag --ansible-verbosity or the environment variable ANSIBLE_VERBOSITY_<KIND>_<GROUP>"
	case "apiversion":
		return `write "group:" and "version:"`
	}
	return ""
}
