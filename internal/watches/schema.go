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
		{Field{"playbook", typeString, "", false,
			"The playbook to run: an absolute path, or a path relative to the working directory. If role is set too, the playbook runs."},
			textField(func(e *entry) *string { return &e.playbook })},
		{Field{"role", typeString, "", false,
			"The role to run: a path, the name of a role in ANSIBLE_ROLES_PATH or ./roles, or namespace.collection.role."},
			textField(func(e *entry) *string { return &e.role })},
		{Field{"command", typeList, "", false,
			"The executable that runs instead of a role or playbook, with its arguments, as a list. There is no shell, and templates are not " +
				"evaluated. A path is relative to the watches file; a name without a slash is looked up in PATH."},
			setCommand(func(e *entry) *[]string { return &e.command })},
		{Field{"check", typeMap, "", false, "For a watch with a command: what runs instead of the command when a run only checks (see mode)."},
			func(c *decoding, e *entry, a at) { e.check.keys = object(c, a, checkFields(), &e.check) }},
		{Field{"handler", typeString, "", false,
			"The Go code that runs instead of a role or playbook: the name under which a Go program registers it. Only that program can serve the kind."},
			setHandler(func(e *entry) *string { return &e.handler })},
		{Field{"inheritEnv", typeList, "[]", false,
			"Names of the operator's environment variables that the command gets in addition to PATH, LANG, TZ, SSL_CERT_FILE, SSL_CERT_DIR " +
				"and those of web proxies. A changed value of one of them starts a run."},
			setInheritEnv},
		{Field{"env", typeMap, "", false,
			"Environment variables of the command. The values are literal: there is no shell, and templates are not evaluated. They override inherited variables."},
			setEnv},
		{Field{"secrets", typeList, "[]", false,
			"Values of Secrets that the command gets as files in the directory $ROLEWRIGHT_SECRETS_DIR. When one of these Secrets changes, the object runs."},
			setSecrets},
		{Field{"stop", typeMap, "", false, "How the command is stopped at a time limit, when it is cancelled, and when the operator stops."},
			func(c *decoding, e *entry, a at) { object(c, a, stopFields(), &e.settings.Stop) }},
		{Field{"requireResult", typeBool, "false", false,
			"If true, a run of the command that ends with exit code 0 and has not reported a result fails."},
			boolean(func(e *entry) *bool { return &e.settings.RequireResult })},
		{Field{"vars", typeMap, "", false, "Extra vars of every run, of any YAML type. They override the variables that come from the object."},
			variables(func(e *entry) *map[string]any { return &e.watch.Vars })},
		{Field{"enabledIf", typeMap, "", false,
			"APIs that must be installed before the kind is served. If missing, only the kind itself must be installed."},
			func(c *decoding, e *entry, a at) { object(c, a, enabledIfFields(), &e.watch.EnabledIf) }},
	}
}

// runFields say how runs start, when they end and which artifacts are kept.
func runFields() []field[entry] {
	return []field[entry]{
		{Field{"maxRunnerArtifacts", typeInt, "20", false,
			"How many runs per object keep their artifacts. 0 keeps none, a negative number keeps all."},
			setMaxRunnerArtifacts},
		{Field{"maxFailedRunnerArtifacts", typeInt, "5", false,
			"How many failed runs per object keep their artifacts in addition, among the runs older than the newest maxRunnerArtifacts. 0 " +
				"keeps none, a negative number keeps all. If maxRunnerArtifacts is 0, the default is 0."},
			setMaxFailedRunnerArtifacts},
		{Field{"artifactsMaxAge", typeDuration, "--artifacts-max-age", false,
			`How long the artifacts of a run are kept, such as "720h". 0 keeps none; a negative duration means no limit.`},
			setArtifactsMaxAge},
		{Field{"reconcilePeriod", typeDuration, "--reconcile-period", false,
			`How long after a run the next one starts if nothing has changed, such as "30m"; at least 1s, or 0 for never. With ` +
				"schedule.cron, the default is never; with a chart and no schedule, it is 1m unless the flag is given."},
			setReconcilePeriod},
		{Field{"schedule", typeMap, "", false, "When each object runs, as a cron expression, and the maintenance windows in which runs may start."},
			func(c *decoding, e *entry, a at) { e.watch.Schedule = c.schedule(a) }},
		{Field{"timeout", typeDuration, "2h", false,
			"How long a run may take. A run that takes longer is stopped and fails; 0 for no limit. With a chart, the default is 5m."},
			limit(func(e *entry) *time.Duration { return &e.watch.Timeout })},
		{Field{"idleTimeout", typeDuration, "30m", false,
			"How long a run may go without a sign of life, such as the start or the end of a task. A run that exceeds this is stopped and " +
				"fails; 0 for no limit. With a chart, the default is no limit."},
			limit(func(e *entry) *time.Duration { return &e.watch.IdleTimeout })},
		{Field{"mode", typeString, "apply", false,
			"Which runs change something. With apply, all runs do. With check, only finalizer runs do, and the others report what they would " +
				"change. With checkThenApply, runs after reconcilePeriod or by schedule only check; if such a run finds changes or fails, a run " +
				"that applies them follows."},
			word("mode", func(e *entry) *Mode { return &e.watch.Mode }, ModeApply, ModeCheck, ModeCheckThenApply)},
		{Field{"onChange", typeString, "wait", false,
			"What happens to a run in progress when its object changes. With wait, it continues, and another run follows; with restart, it is stopped first."},
			word("value of onChange", func(e *entry) *OnChange { return &e.watch.OnChange }, OnChangeWait, OnChangeRestart)},
		{Field{"rollout", typeMap, "", false,
			"Limits on how fast a changed role, playbook or environment, or a trigger that starts many objects, reaches the objects. If " +
				"missing, only the limits for all runs apply."},
			func(c *decoding, e *entry, a at) { object(c, a, rolloutFields(), &e.watch.Rollout) }},
		{Field{"retry", typeMap, "", false, "When a failed run is repeated. With a chart, the default of max is 15m."},
			func(c *decoding, e *entry, a at) { e.watch.Retry = c.retry(a) }},
		{Field{"annotations", typeString, "bounded", false,
			"How far annotations of an object may change mode, timeout, idleTimeout and maxRunnerArtifacts, and log the raw output of tasks. " +
				"With bounded, they cannot exceed what the watch allows; with trusted, they can set any value."},
			word("value of annotations", func(e *entry) *Annotations { return &e.watch.Annotations }, AnnotationsBounded, AnnotationsTrusted)},
		{Field{"executor", typeString, "--executor", false,
			"How runs are started. auto forks them from a Python process that has already imported Ansible, if that is possible, and starts " +
				"ansible-runner otherwise. warm forks them, and the operator does not start if that is not possible. runner starts ansible-runner " +
				"for each run. job makes each run in its own Pod. For a command or a chart, only job can be set, and --executor has no effect."},
			word("executor", func(e *entry) *Executor { return &e.watch.Executor }, ExecutorAuto, ExecutorWarm, ExecutorRunner, ExecutorJob)},
		{Field{"job", typeMap, "", false,
			"The Pod template, with metadata and spec, of runs with executor: job. Its only container, which may be left out, is named " +
				"run and executes the run. The operator adds the rest."},
			setJob},
	}
}

// objectFields say which parts of an object are read and written.
func objectFields() []field[entry] {
	return []field[entry]{
		{Field{"manageStatus", typeBool, "true", false,
			"If true, the operator writes the status of the objects. If false, nothing is recorded, so every restart of the operator runs every object."},
			boolean(func(e *entry) *bool { return &e.watch.ManageStatus })},
		{Field{"watchDependentResources", typeBool, "true", false,
			"If true, a run starts when another client changes or deletes a dependent: an object that a run has created."},
			boolean(func(e *entry) *bool { return &e.watch.WatchDependentResources })},
		{Field{"watchClusterScopedResources", typeBool, "false", false,
			"If true, cluster-scoped dependents of namespaced objects start runs too. If the watched kind is cluster-scoped, they always do."},
			boolean(func(e *entry) *bool { return &e.watch.WatchClusterScopedResources })},
		{Field{"watchDependentStatus", typeBool, "false", false, "If true, a change of only the status of a dependent starts a run too."},
			boolean(func(e *entry) *bool { return &e.watch.WatchDependentStatus })},
		{Field{"snakeCaseParameters", typeBool, "true", false,
			"If true, the keys of the spec are converted to snake_case, at every depth, before they become extra vars."},
			boolean(func(e *entry) *bool { return &e.watch.SnakeCaseParameters })},
		{Field{"watchAnnotationsChanges", typeBool, "false", false,
			"If true, a change of the object's annotations starts a run. Requests to the operator, such as paused and cancel, do not count."},
			boolean(func(e *entry) *bool { return &e.watch.WatchAnnotationsChanges })},
		{Field{"markUnsafe", typeBool, "true", false,
			"If true, strings from the object are marked unsafe, so Ansible never evaluates templates in them."},
			boolean(func(e *entry) *bool { return &e.watch.MarkUnsafe })},
		{Field{"allowReservedVariables", typeBool, "false", false,
			"If true, keys of the spec become extra vars even if Ansible reserves their names, such as ansible_connection. If false, such keys are left out."},
			boolean(func(e *entry) *bool { return &e.watch.AllowReservedVariables })},
		{Field{"inputs", typeMap, "", false, "Environment variables and files whose change starts a run too."},
			func(c *decoding, e *entry, a at) { object(c, a, inputsFields(), &e.watch.Inputs) }},
		{Field{"references", typeList, "[]", false,
			"Other objects that an object names, such as Secrets. When one is created, changed or deleted, the objects that name it run."},
			setReferences},
		{Field{"varsFrom", typeList, "[]", false, "Secrets and ConfigMaps whose keys become extra vars. When one of them changes, the object runs."},
			setVarsFrom},
		{Field{"triggers", typeList, "[]", false, "Objects whose changes start runs although no object names them, such as a shared ConfigMap."},
			setTriggers},
	}
}

// dependentFields are about dependents, and about objects in deletion.
func dependentFields() []field[entry] {
	return []field[entry]{
		{Field{"blacklist", typeList, "[]", false, "Kinds of dependents that are not watched: their changes start no runs."},
			setBlacklist},
		{Field{"adopt", typeString, "never", false,
			"What happens to an existing object without an owner when a run changes it. With never, it stays without one; with ifUnowned, the " +
				"watched object becomes its owner."},
			word("value of adopt", func(e *entry) *Adopt { return &e.watch.Adopt }, AdoptNever, AdoptIfUnowned)},
		{Field{"pruneOnDelete", typeBool, "false", false,
			"If true, the operator deletes, together with an object, the dependents that garbage collection cannot delete: those in other " +
				"namespaces and, if the object is namespaced, those that are cluster-scoped."},
			boolean(func(e *entry) *bool { return &e.watch.PruneOnDelete })},
		{Field{"prune", typeBool, "false", false,
			"If true, the operator removes, after a successful run, objects that earlier runs have created and this run has not touched. This " +
				"applies to kinds that hold no data, and to pruneKinds."},
			boolean(func(e *entry) *bool { return &e.watch.Prune })},
		{Field{"pruneKinds", typeList, "[]", false, "Kinds that prune removes in addition to those that hold no data."},
			setPruneKinds},
		{Field{"ownNamespaceOnly", typeBool, "false", false,
			"If true, a run can read and write only in the namespace of its object, even if the operator is allowed to do more. If the " +
				"watched kind is cluster-scoped, a run can reach only its object."},
			boolean(func(e *entry) *bool { return &e.watch.OwnNamespaceOnly })},
		{Field{"secretVars", typeList, "[]", false,
			"Variables with secret values, which are masked in logs and status: dotted paths in the object, its spec or vars, such as " +
				"database.password. A path includes everything below it."},
			setSecretVars},
		{Field{"selector", typeMap, "", false, "The labels of the objects that are watched. If missing, all objects of the kind are watched."},
			func(c *decoding, e *entry, a at) { object(c, a, selectorFields(), &e.watch.Selector) }},
		{Field{"webhooks", typeMap, "", false,
			"What the API server validates, sets and converts. It takes effect when you apply what rolewright generate webhooks prints: see docs/webhooks.md."},
			func(c *decoding, e *entry, a at) { object(c, a, webhookFields(), e) }},
		{Field{"finalizer", typeMap, "", false,
			"What runs for an object that is being deleted, before it is gone. If missing, nothing runs, but the release of a chart is always uninstalled."},
			setFinalizer},
	}
}

func checkFields() []field[mapping] {
	return []field[mapping]{
		{Field{"command", typeList, "", false,
			"The executable, with its arguments, that runs instead of the command of the watch. If missing, the command of the watch runs, " +
				"with ROLEWRIGHT_ACTION=check."},
			setCommand(func(m *mapping) *[]string { return &m.command })},
	}
}

func finalizerFields() []field[finalizer] {
	return []field[finalizer]{
		{Field{"name", typeString, "", true, "The finalizer that the operator adds to the object, such as example.com/finalizer."},
			textField(func(f *finalizer) *string { return &f.Name })},
		{Field{"playbook", typeString, "", false, "The playbook to run. If role is set too, the playbook runs."},
			textField(func(f *finalizer) *string { return &f.playbook })},
		{Field{"role", typeString, "", false, "The role to run."},
			textField(func(f *finalizer) *string { return &f.role })},
		{Field{"command", typeList, "", false,
			"The executable to run, with its arguments, if the watch has a command. If missing, the command of the watch runs, with ROLEWRIGHT_ACTION=finalize."},
			setCommand(func(f *finalizer) *[]string { return &f.command })},
		{Field{"handler", typeString, "", false, "The Go code to run, if the watch has a handler. If missing, the handler of the watch runs."},
			setHandler(func(f *finalizer) *string { return &f.handler })},
		{Field{"vars", typeMap, "", false,
			"Extra vars of the finalizer run. They are added to vars of the watch, and override them. If neither playbook nor role is set, " +
				"the role or playbook of the watch runs with them."},
			variables(func(f *finalizer) *map[string]any { return &f.Vars })},
		{Field{"timeout", typeDuration, "2h", false, "Like timeout of the watch, but for the finalizer run. Annotations do not change it."},
			limit(func(f *finalizer) *time.Duration { return &f.Timeout })},
		{Field{"idleTimeout", typeDuration, "30m", false, "Like idleTimeout of the watch, but for the finalizer run. Annotations do not change it."},
			limit(func(f *finalizer) *time.Duration { return &f.IdleTimeout })},
		{Field{"onFailure", typeString, "retry", false,
			"What happens if the finalizer run fails. With retry, it is repeated until it succeeds. With orphan, the object is deleted " +
				"without it after retry.maxAttempts failures in a row, or after 5 if that is not set."},
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
		{Field{"matchExpressions", typeList, "", false, "Further conditions on labels, all of which must be met."},
			setMatchExpressions},
	}
}

func requirementFields() []field[metav1.LabelSelectorRequirement] {
	type requirement = metav1.LabelSelectorRequirement
	return []field[requirement]{
		{Field{"key", typeString, "", true, "The key of the label."},
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
