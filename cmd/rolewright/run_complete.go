package main

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/internal/watches"
)

// The environment variables that run reads itself. Variables about single kinds
// are read with the watches file, and Ansible reads its own.
const (
	envWatchNamespace  = "WATCH_NAMESPACE"
	envOperatorName    = "OPERATOR_NAME"
	envDebugLogs       = "ANSIBLE_DEBUG_LOGS"
	envVerbosity       = "ANSIBLE_VERBOSITY"
	envGathering       = "ANSIBLE_GATHERING"
	envInventory       = "ANSIBLE_INVENTORY"
	envRolesPath       = "ANSIBLE_ROLES_PATH"
	envCollectionsPath = "ANSIBLE_COLLECTIONS_PATH"
)

// maxVerbosity is the highest verbosity that ansible-playbook knows of.
const maxVerbosity = 7

// leaderRetryPeriod is the period of ansible-operator, which has no flag for it.
const leaderRetryPeriod = 2 * time.Second

// sources are the inputs of complete: which flags were given on the command
// line, and the environment.
type sources struct {
	given     func(flag string) bool
	lookupEnv func(name string) (string, bool)
}

// complete resolves aliases, reads the environment and checks the result. It
// changes nothing but o. The error names everything that is wrong. The notices
// are for the log.
func (o *runOptions) complete(src sources) ([]notice, error) {
	var notices []notice
	note := func(message string, values ...any) {
		notices = append(notices, notice{message, values})
	}
	for _, d := range deprecations() {
		if src.given(d.flag) {
			note(fmt.Sprintf("Flag --%s has been deprecated, %s", d.flag, d.instead))
		}
	}
	aliasErr := o.settleAliases(src)
	if src.given("reconcile-period") {
		o.chartPeriod = &o.reconcilePeriod
	}
	o.settleLeaderID(src, note)
	o.settleLogEvents(note)
	o.settleConcurrency(note)
	if o.ansibleVerbosity > maxVerbosity {
		note("--ansible-verbosity is above 7; using 7", "value", o.ansibleVerbosity)
		o.ansibleVerbosity = maxVerbosity
	}
	o.readEnv(src, note)
	if !o.injectOwnerRef {
		note("Warning: injection of owner references and dependent watches is turned off")
	}
	if o.proxyAnonymous {
		note("Warning: the API proxy lets every process of this machine act as the operator (--proxy-anonymous)", "port", o.proxyPort)
	}
	switch {
	case o.metricsBindAddress == "0":
	case !o.metricsSecure:
		note("metrics are served without encryption and authentication; use --metrics-secure and --metrics-require-rbac",
			"address", o.metricsBindAddress)
	case !o.metricsRequireRBAC:
		note("metrics are served without authentication; use --metrics-require-rbac", "address", o.metricsBindAddress)
	}
	return notices, errors.Join(aliasErr, o.validate())
}

func (o *runOptions) settleAliases(src sources) error {
	var problems []error
	if src.given("metrics-addr") {
		if src.given("metrics-bind-address") {
			problems = append(problems, errors.New("only one of --metrics-addr and --metrics-bind-address may be set"))
		}
		o.metricsBindAddress = o.metricsAddr
	}
	if src.given("enable-leader-election") {
		if src.given("leader-elect") {
			problems = append(problems, errors.New("only one of --leader-elect and --enable-leader-election may be set"))
		}
		o.leaderElect = o.enableLeaderElect
	}
	return errors.Join(problems...)
}

func (o *runOptions) settleLeaderID(src sources, note func(string, ...any)) {
	name, ok := src.lookupEnv(envOperatorName)
	if !ok {
		return
	}
	if src.given("leader-election-id") {
		note("Ignoring OPERATOR_NAME environment variable since --leader-election-id is set")
		return
	}
	note("Environment variable OPERATOR_NAME has been deprecated, use --leader-election-id instead.")
	o.leaderID = name
}

func (o *runOptions) settleLogEvents(note func(string, ...any)) {
	level, ok := eventlog.ParseLevel(o.logEvents)
	if !ok {
		note(fmt.Sprintf("--ansible-log-events flag value '%s' not recognized. Must be one of: Tasks, Everything, Nothing", o.logEvents))
	}
	o.eventLevel = level
}

// settleConcurrency replaces an invalid number of workers with a valid one, as
// ansible-operator does.
func (o *runOptions) settleConcurrency(note func(string, ...any)) {
	if o.maxConcurrent < 1 {
		note("--max-concurrent-reconciles is below 1; using 1", "value", o.maxConcurrent)
		o.maxConcurrent = 1
	}
	if most := watches.MostReconciles; o.maxConcurrent > most {
		note(fmt.Sprintf("--max-concurrent-reconciles is above %d; using %d", most, most), "value", o.maxConcurrent)
		o.maxConcurrent = most
	}
}

func (o *runOptions) readEnv(src sources, note func(string, ...any)) {
	env := func(name string) string {
		value, _ := src.lookupEnv(name)
		return value
	}
	o.inventory = env(envInventory)
	o.skipFacts = env(envGathering) == "explicit"
	if value := env(envDebugLogs); value != "" {
		on, err := strconv.ParseBool(value)
		if err != nil {
			note("Could not parse environment variable as an boolean; using default value",
				"variable", envDebugLogs, "value", value, "default", false)
		}
		o.debugLogs = on
	}
	if value := env(envVerbosity); value != "" {
		n, err := strconv.Atoi(value)
		if err != nil {
			note("Could not parse environment variable as an integer; using default value",
				"variable", envVerbosity, "value", value, "default", 0)
		}
		o.logVerbosity = n
	}
	o.namespaces = splitNamespaces(env(envWatchNamespace))
	if len(o.namespaces) == 0 {
		note("Watching all namespaces")
	} else {
		note("Watching namespaces", "namespaces", o.namespaces)
	}
}

// splitNamespaces splits a comma-separated list. It ignores blanks, empty elements
// and repetitions.
func splitNamespaces(list string) []string {
	var names []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// validate checks options that complete has settled.
func (o *runOptions) validate() error {
	var problems []error
	wrong := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf(format, args...))
	}
	if o.metricsRequireRBAC && !o.metricsSecure {
		wrong("--metrics-secure flag is required when --metrics-require-rbac is present")
	}
	const notAnAddress = "--%s %q is not an address to listen on: give host:port or :port, or 0 to switch it off"
	if !isBindAddress(o.metricsBindAddress) {
		wrong(notAnAddress, "metrics-bind-address", o.metricsBindAddress)
	}
	if !isBindAddress(o.healthBindAddress) {
		wrong(notAnAddress, "health-probe-bind-address", o.healthBindAddress)
	}
	if !isBindAddress(o.userMetricsAddress) {
		wrong(notAnAddress, "user-metrics-bind-address", o.userMetricsAddress)
	}
	if all := assembly.Executors(); !slices.Contains(all, watches.Executor(o.executor)) {
		wrong("--executor %q: give one of %q", o.executor, all)
	}
	if o.proxyPort < 0 || o.proxyPort > 65535 {
		wrong("--proxy-port %d is not a port: give 1 to 65535, or 0 for any free one", o.proxyPort)
	}
	problems = append(problems, o.validateHistory()...)
	problems = append(problems, o.validateWebhooks()...)
	if o.reconcilePeriod < 0 {
		wrong("--reconcile-period %s is negative: give 0 for never", o.reconcilePeriod)
	}
	if o.warmIdle < 0 {
		wrong("--warm-idle %s is negative: give 0 to keep the fork server", o.warmIdle)
	}
	if o.maxRuns < 0 {
		wrong("--max-concurrent-runs %d is negative: give 0 for what the CPUs allow", o.maxRuns)
	}
	if o.ansibleVerbosity < 0 {
		wrong("--ansible-verbosity %d is negative: give 0 to 7", o.ansibleVerbosity)
	}
	if o.retryMin <= 0 || o.retryMax < o.retryMin {
		wrong("--retry-min %s and --retry-max %s: the first must be above 0, the second not below the first", o.retryMin, o.retryMax)
	}
	if o.progressInterval < 0 {
		wrong("--progress-interval %s is negative: give 0 to switch progress off", o.progressInterval)
	}
	if o.runMaxBytes < 0 {
		wrong("--artifacts-max-bytes-per-run %s is negative: give 0 for no limit", &o.runMaxBytes)
	}
	for _, name := range o.namespaces {
		if why := validation.IsDNS1123Label(name); len(why) > 0 {
			wrong("%s names %q, which is not a name of a namespace: %s", envWatchNamespace, name, why[0])
		}
	}
	if o.shards > 0 && !o.leaderElect {
		wrong("--shards %d needs --leader-elect: without Leases, two replicas would run one object", o.shards)
	}
	if o.leaderElect {
		problems = append(problems, o.validateLeaderElection())
	}
	return errors.Join(problems...)
}

func (o *runOptions) validateLeaderElection() error {
	if o.leaderID == "" {
		return errors.New("--leader-elect needs a name for the Lease: set --leader-election-id")
	}
	if o.leaderLeaseDuration <= o.leaderRenewDeadline {
		return fmt.Errorf("--leader-elect-lease-duration %s must be longer than --leader-elect-renew-deadline %s",
			o.leaderLeaseDuration, o.leaderRenewDeadline)
	}
	// client-go wants room for one retry, whose period it stretches by up to 20 %.
	if least := leaderRetryPeriod * 12 / 10; o.leaderRenewDeadline <= least {
		return fmt.Errorf("--leader-elect-renew-deadline %s must be longer than %s", o.leaderRenewDeadline, least)
	}
	return nil
}

// isBindAddress reports whether a server can listen on address. "" and "0" are valid,
// too: controller-runtime gives them a meaning.
func isBindAddress(address string) bool {
	if address == "" || address == "0" {
		return true
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	_, err = net.LookupPort("tcp", port)
	return err == nil
}
