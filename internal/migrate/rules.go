// Package migrate says what changes for an operator that ansible-operator has run: in its
// project, in its Deployment, and in the results of its past runs. On request, it changes a
// project. It knows files, not clusters.
package migrate

import (
	"slices"

	"github.com/rolewright/rolewright/internal/lint"
)

// Severity is what a difference means for people.
type Severity string

// The severities, the most urgent first.
const (
	// Blocked: the operator, its image or its roles do not work until it is changed.
	Blocked Severity = "blocked"
	// Change: a line that refers to ansible-operator, and has to refer to Rolewright.
	Change Severity = "change"
	// Different: it works, but does something else.
	Different Severity = "different"
	// Better: something that ansible-operator gets wrong.
	Better Severity = "better"
	// Unread: it could not be checked.
	Unread Severity = "unread"
)

// Severities returns all severities, in order.
func Severities() []Severity { return []Severity{Blocked, Change, Different, Better, Unread} }

// Rule is a kind of difference.
type Rule struct {
	// ID is the rule's ID, such as RW601.
	ID       string
	Severity Severity
	Title    string
	// AnsibleOperator and Rolewright say what each does; either may be empty.
	AnsibleOperator, Rolewright string
	// Switch is the setting that restores the old behaviour; empty if there is none.
	Switch string
	// Do says what to do; empty if nothing needs to be done.
	Do string
}

// The IDs of the rules. docs/migration.md has all differences; these are the ones that
// can be seen in files.
const (
	baseImage     = "RW601"
	runTarget     = "RW602"
	dnfPackages   = "RW603"
	pipPackages   = "RW604"
	unknownFlag   = "RW605"
	logSidecar    = "RW606"
	noPatch       = "RW607"
	badWatch      = "RW608"
	ownWatch      = "RW609"
	chartImage    = "RW610"
	grace         = "RW611"
	memory        = "RW612"
	statusSchema  = "RW613"
	concurrency   = "RW614"
	restart       = "RW615"
	environment   = "RW616"
	marking       = "RW617"
	reservedName  = "RW618"
	annotation    = "RW619"
	longTask      = "RW620"
	background    = "RW621"
	openProxy     = "RW622"
	chartMemory   = "RW623"
	alert         = "RW624"
	otherWatch    = "RW625"
	noProgram     = "RW626"
	impersonation = "RW627"
	queueMetric   = "RW628"
	assertion     = "RW629"
	chartHook     = "RW630"
	rescued       = "RW631"
	requeue       = "RW632"
	otherHosts    = "RW633"
	finalizer     = "RW634"
	markingOff    = "RW635"
	noGet         = "RW636"
	notRead       = "RW641"
	unnamedImage  = "RW642"
	roleElsewhere = "RW643"
	otherImage    = "RW644"
)

// deploymentKind is the kind of the operator's Deployment.
const deploymentKind = "Deployment"

// graceSeconds and the memory sizes are what the migration guide requires of a Pod.
const (
	graceSeconds  = "45"
	leastMemory   = "384Mi"
	limitOfMemory = "768Mi"
)

// Rules returns all rules, by their IDs.
func Rules() []Rule {
	return slices.Concat(rulesOfWork(), rulesOfPermissions(), rulesOfPods(), rulesOfContent(), rulesOfReaders(), rulesOfFaults())
}

// rulesOfWork are the rules about what has to be changed first.
func rulesOfWork() []Rule {
	return []Rule{
		{
			ID: baseImage, Severity: Change, Title: "the image is built on ansible-operator's",
			AnsibleOperator: "ansible-core 2.18 on UBI 9",
			Rolewright:      "ansible-core 2.19 on Debian, which is stricter about templates: conditions have to be true or false",
			Do:              "FROM rolewright/operator; or keep your image, and copy the program into it",
		},
		{
			ID: chartImage, Severity: Change, Title: "the image is built on helm-operator's",
			Rolewright: "has an image with Helm's library for watches with a chart",
			Do:         "FROM rolewright/charts; or keep your image, and copy the two programs into it",
		},
		{
			ID: runTarget, Severity: Change, Title: "a line runs ansible-operator or helm-operator",
			Rolewright: "has the same subcommand and flags", Do: "rolewright run",
		},
		{
			ID: dnfPackages, Severity: Blocked, Title: "the image installs packages of UBI",
			AnsibleOperator: "UBI 9, with dnf and microdnf", Rolewright: "Debian, with apt-get",
			Do: "apt-get install, or keep your image, and copy the program into it (docs/image.md)",
		},
		{
			ID: pipPackages, Severity: Blocked, Title: "the image installs packages with pip",
			AnsibleOperator: "UBI's Python, for which projects call pip", Rolewright: "neither pip nor a compiler in the image",
			Do: "Debian's packages, such as python3-jmespath, or a stage of its own (docs/image.md)",
		},
		{
			ID: unknownFlag, Severity: Blocked, Title: "a flag is not known",
			AnsibleOperator: "v1.42 refuses it, too", Rolewright: "refuses it, and does not start", Do: "remove the flag",
		},
		{
			ID: logSidecar, Severity: Blocked, Title: "a container shows the output of runs",
			AnsibleOperator: "old images had the program ao-logs", Rolewright: "has no such program: tasks are in the log of the operator",
			Switch: "ANSIBLE_DEBUG_LOGS=true has the whole output", Do: "remove the container",
		},
		{
			ID: ownWatch, Severity: Blocked, Title: "a watch runs a command",
			AnsibleOperator: "knows roles and playbooks only: this is not a project of ansible-operator", Rolewright: "runs it",
			Do: "nothing, if the operator is Rolewright's already",
		},
		{
			ID: noProgram, Severity: Blocked, Title: "a program is not in the image",
			AnsibleOperator: "UBI 9 has curl and rpm", Rolewright: "has none of curl, git, rpm and unzip in the image: the line fails with the exit code 127",
			Do: "apt-get install what is needed, or ADD, or a stage of its own; in a task, uri or get_url; or keep your image, and copy the program into it (docs/image.md)",
		},
		{ID: badWatch, Severity: Blocked, Title: "watches.yaml is invalid", Do: "rolewright validate"},
	}
}

// rulesOfPermissions are the rules about what the operator or a task is not allowed to do.
func rulesOfPermissions() []Rule {
	return []Rule{
		{
			ID: noPatch, Severity: Blocked, Title: "the operator may update a watched kind, and not patch it",
			AnsibleOperator: "writes status and finalizers with an update", Rolewright: "writes them with a patch, and otherwise has no status and no finalizer",
			Do: "grant patch beside update",
		},
		{
			ID: noGet, Severity: Blocked, Title: "the operator may list objects, and not get them",
			AnsibleOperator: "answers a task that reads an object by its name from its cache, for which list and watch are enough",
			Rolewright:      "sends such a request to the API server, which refuses it with 403", Do: "grant get beside list and watch",
		},
		{
			ID: impersonation, Severity: Blocked, Title: "a task acts as another user",
			AnsibleOperator: "the API proxy passes Impersonate-* on", Rolewright: "refuses such a request with 403",
			Do: "grant the operator what the task needs, or give the task a kubeconfig of its own, which does not lead to the API proxy",
		},
	}
}

// rulesOfPods are the rules about the operator's Pod and what it records.
func rulesOfPods() []Rule {
	return []Rule{
		{
			ID: grace, Severity: Different, Title: "the Pod has less time to end than its runs",
			AnsibleOperator: "does not end its runs: they are killed with the Pod",
			Rolewright:      "ends its runs within 30 s, and records how they ended; the kubelet kills it before",
			Do:              "terminationGracePeriodSeconds: " + graceSeconds,
		},
		{
			ID: memory, Severity: Different, Title: "the memory is less than forked runs take",
			AnsibleOperator: "a new Python for each run",
			Rolewright:      "keeps Ansible in memory and forks runs: two at a time take " + leastMemory + ", and " + limitOfMemory + " at most",
			Switch:          "--executor=runner", Do: "limits: {memory: " + limitOfMemory + "}",
		},
		{
			ID: chartMemory, Severity: Different, Title: "the memory is less than runs of charts take",
			Rolewright: "starts a process for each run: two at a time take " + leastMemory + " with the operator",
			Do:         "limits: {memory: " + leastMemory + "}",
		},
		{
			ID: statusSchema, Severity: Different, Title: "a schema drops the record of runs",
			AnsibleOperator: "keeps no record", Rolewright: "keeps a record in status.ansible; without it each restart runs every object",
			Do: "x-kubernetes-preserve-unknown-fields: true in the schema of the status",
		},
		{
			ID: concurrency, Severity: Different, Title: "a limit of CPU decides how many runs there are at a time",
			AnsibleOperator: "as many of a kind as the node has CPUs",
			Rolewright:      "as many as the CPU limit, rounded up, at least two where the node has them",
			Switch:          "--max-concurrent-reconciles",
		},
	}
}

// rulesOfContent are the rules about what roles and watches mean.
func rulesOfContent() []Rule {
	return []Rule{
		{
			ID: restart, Severity: Different, Title: "without a period, only a change runs an object",
			AnsibleOperator: "a restart ran every object", Rolewright: "a restart runs the objects whose inputs changed: the object, the content, the settings of the watch",
			Do: "set a period for roles that must run now and then",
		},
		{
			ID: environment, Severity: Different, Title: "a role reads a variable that differs from Pod to Pod",
			AnsibleOperator: "a restart ran every object, so that a new value took effect",
			Rolewright:      "a new value of an environment variable runs every object, except for those that differ from Pod to Pod, as this one",
			Do:              "name the variable in inputs.env of the watch if a new value has to run the objects",
		},
		{
			ID: marking, Severity: Different, Title: "strings of an object are not evaluated",
			AnsibleOperator: "evaluates templates in an object, so who writes one can run commands in the operator",
			Rolewright:      "takes them as text", Switch: "markUnsafe: false in the watch",
		},
		{
			ID: reservedName, Severity: Different, Title: "a field becomes no variable",
			AnsibleOperator: "makes each field of the spec a variable, whatever its name does to Ansible",
			Rolewright:      "makes no variable of it, since the name is Ansible's, or an expression; it is there in the variable of the whole spec",
			Switch:          "allowReservedVariables: true in the watch, or markUnsafe: false for names that are expressions",
		},
		{
			ID: annotation, Severity: Different, Title: "an annotation asks for more than the watch allows",
			AnsibleOperator: "obeys it", Rolewright: "obeys it as far as the watch allows, with a warning", Switch: "annotations: trusted in the watch",
		},
		{
			ID: longTask, Severity: Different, Title: "a task may take longer than a run may be silent",
			AnsibleOperator: "a run may take any time", Rolewright: "a run fails after 2 h, or 30 min without a sign of life",
			Switch: "timeout: 0s and idleTimeout: 0s in the watch",
		},
		{
			ID: background, Severity: Different, Title: "a task goes on in the background",
			AnsibleOperator: "it goes on after the run", Rolewright: "it ends with its run", Do: "wait for it in the same run, with async_status",
		},
		{
			ID: openProxy, Severity: Different, Title: "the API proxy is addressed by hand",
			AnsibleOperator: "serves every process of the Pod",
			Rolewright:      "wants the token of a run, which is in the kubeconfig that K8S_AUTH_KUBECONFIG names",
			Switch:          "--proxy-anonymous", Do: "use the kubeconfig of the run",
		},
		{
			ID: chartHook, Severity: Different, Title: "a hook of a chart has the time of its run",
			Rolewright: "ends a run after 5 min, where helm-operator waits: the release has failed, and is rolled back or removed while the hook continues; the next try deletes it and begins again",
			Switch:     "timeout: 0s and onChange: restart in the watch: a hook that never ends holds the object until it changes or the run is cancelled",
			Do:         "timeout in the watch, longer than the slowest hooks take together",
		},
		{ID: otherWatch, Severity: Different, Title: "watches.yaml means something else", AnsibleOperator: "does not mind"},
	}
}

// rulesOfReaders are the rules about what alerts, dashboards and tests read.
func rulesOfReaders() []Rule {
	return []Rule{
		{
			ID: assertion, Severity: Different, Title: "a test compares a list of conditions",
			AnsibleOperator: "writes Running, Successful and Failure",
			Rolewright:      "writes Ready, Reconciling and Stalled, too; kuttl and chainsaw compare lists by length and place. The message of Failure has more lines",
			Do:              "compare a condition by its type: (conditions[?type == 'Successful']) in chainsaw, a command with kubectl wait in kuttl",
		},
		{
			ID: alert, Severity: Different, Title: "a metric does not count failed runs",
			AnsibleOperator: "a failed run is an error of the reconcile", Rolewright: "a failed run is a result: errors are what keeps a run from taking place",
			Do: `ansible_operator_reconcile_result{result="failed"} or rolewright_runs_total`,
		},
		{
			ID: queueMetric, Severity: Different, Title: "a metric shows neither runs nor what waits",
			AnsibleOperator: "each reconcile is a run, and objects that wait for one are in the workqueue",
			Rolewright:      "objects wait in a queue of runs; a run takes two reconciles or more, and others start none",
			Do:              "rolewright_runs_waiting, rolewright_queue_oldest_seconds, rolewright_run_wait_seconds, rolewright_runs_total, rolewright_phase_duration_seconds{phase=\"run\"}",
		},
	}
}

// rulesOfFaults are the rules about what ansible-operator gets wrong, and what cannot be
// compared.
func rulesOfFaults() []Rule {
	return []Rule{
		{
			ID: rescued, Severity: Better, Title: "a rescued task",
			AnsibleOperator: "fails the run, which is repeated for ever", Rolewright: "the run succeeds if the rescue does",
		},
		{
			ID: requeue, Severity: Better, Title: "requeue_after",
			AnsibleOperator: "ends the reconcile at once, while the play goes on: its failures are lost",
			Rolewright:      "obeys it when the run has ended and its result is written",
		},
		{
			ID: otherHosts, Severity: Better, Title: "hosts beside localhost",
			AnsibleOperator: "unreachable hosts, and plays that find no host, count as success",
			Rolewright:      "they fail the run, with the reason Unreachable or NoHostsMatched", Do: "check that the inventory has them",
		},
		{
			ID: finalizer, Severity: Better, Title: "a finalizer",
			AnsibleOperator: "goes when no failed task was seen, even if the play could not be read",
			Rolewright:      "goes after a proved success only; a run in progress is stopped first",
		},
		{
			ID: markingOff, Severity: Better, Title: "strings of an object are evaluated",
			AnsibleOperator: "evaluates templates in an object, so who writes one can run commands in the operator",
			Rolewright:      "does the same with markUnsafe: false; without the key, it takes them as text",
			Do:              "markUnsafe: true, unless objects need templates",
		},
		{ID: notRead, Severity: Unread, Title: "a file was not read", Do: "look at it yourself"},
		{
			ID: unnamedImage, Severity: Unread, Title: "the base image is an argument",
			Do: "give it rolewright/operator, or an image of your own with the program, where the image is built",
		},
		{ID: roleElsewhere, Severity: Unread, Title: "the content of a watch is not here", Do: "report on the root of the image, with --root"},
		{
			ID: otherImage, Severity: Unread, Title: "the image is built on another",
			Do: "if it has ansible-operator, copy the program into it, under both names: COPY --from=rolewright/binary /rolewright /usr/local/bin/rolewright, and the same to /usr/local/bin/ansible-operator",
		},
	}
}

// LintRules returns the rules in the form of lint's, for commands that explain and print them.
func LintRules() []lint.Rule {
	var all []lint.Rule
	for _, r := range Rules() {
		text := ""
		for _, part := range r.parts() {
			text += part[0] + ": " + part[1] + "\n"
		}
		all = append(all, lint.Rule{ID: r.ID, Title: r.Title, Text: text + "docs/migration.md has all differences."})
	}
	return all
}

// parts returns the texts of a rule, each with its title.
func (r Rule) parts() [][2]string {
	var all [][2]string
	for _, part := range [][2]string{{"ansible-operator", r.AnsibleOperator}, {"Rolewright", r.Rolewright}, {"switch back", r.Switch}, {"do", r.Do}} {
		if part[1] != "" {
			all = append(all, part)
		}
	}
	return all
}
