package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/internal/watches"
)

// runOptions is everything that the run subcommand can be told. Flags fill the
// most of it; complete adds the environment and settles what depends on more
// than one flag.
type runOptions struct {
	// The content and how it is run.
	watchesFile         string
	strict              bool
	ansibleRunner       string
	executor            string
	refuseVulnerable    bool
	runnerRoot          string
	artifactsMaxAge     time.Duration
	artifactsMaxBytes   byteSize
	runMaxBytes         byteSize
	ansibleVerbosity    int
	rolesPath           string
	collectionsPath     string
	ansibleArgs         string
	logEvents           string
	injectOwnerRef      bool
	reconcilePeriod     time.Duration
	retryMin, retryMax  time.Duration
	progressInterval    time.Duration
	maxConcurrent       int
	gracefulShutdown    time.Duration
	proxyPort           int
	proxyAnonymous      bool
	recordAPICalls      string
	userMetricsAddress  string
	metricsBindAddress  string
	metricsAddr         string // alias of metricsBindAddress
	metricsSecure       bool
	metricsRequireRBAC  bool
	enableHTTP2         bool
	healthBindAddress   string
	leaderElect         bool
	enableLeaderElect   bool // alias of leaderElect
	leaderID            string
	leaderNamespace     string
	leaderResourceLock  string // ignored
	leaderLeaseDuration time.Duration
	leaderRenewDeadline time.Duration
	zap                 zap.Options

	// Set by complete: what logEvents means, and the environment.
	eventLevel eventlog.Level
	namespaces []string // empty means all
	debugLogs  bool
	// logVerbosity is ANSIBLE_VERBOSITY: above 0 the log has raw task output.
	logVerbosity int
	inventory    string
	skipFacts    bool
}

// flagGroup is a set of flags that belong together; the reference
// documentation keeps them so.
type flagGroup struct {
	title string
	bind  func(*pflag.FlagSet)
}

func (o *runOptions) flagGroups() []flagGroup {
	return []flagGroup{
		{"Content", o.bindContent},
		{"Reconciling", o.bindReconcile},
		{"Metrics and health", o.bindServing},
		{"Leader election", o.bindLeaderElection},
		{"Logging", func(fs *pflag.FlagSet) { bindZapFlags(&o.zap, fs) }},
	}
}

// BindFlags adds all flags to fs and sets o to their defaults.
func (o *runOptions) BindFlags(fs *pflag.FlagSet) {
	for _, g := range o.flagGroups() {
		g.bind(fs)
	}
	hideFlags(fs)
}

func (o *runOptions) bindContent(fs *pflag.FlagSet) {
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched and which role or playbook answers for each.")
	fs.BoolVar(&o.strict, "strict", false, "Refuse to start on what is only a warning about the watches file, such as an unknown key.")
	bindAnsibleRunner(fs, &o.ansibleRunner)
	fs.StringVar(&o.executor, "executor", string(watches.ExecutorAuto), "How runs are made, for kinds whose watch does not say: auto forks them from an interpreter that has imported Ansible already, where a self-check shows that it can, else it is as runner; warm is as auto, but refuses to start where the self-check fails; runner starts ansible-runner for each.")
	fs.BoolVar(&o.refuseVulnerable, "refuse-vulnerable-ansible", false, "Refuse to start, and to be ready, with an ansible-core or ansible-runner that known vulnerabilities concern, instead of a warning in the log.")
	fs.StringVar(&o.runnerRoot, "runner-root", "/tmp/ansible-operator/runner", "The directory for the private data directories of runs and their artifacts.")
	o.artifactsMaxBytes, o.runMaxBytes = 1<<30, 512<<20
	fs.Var(&o.artifactsMaxBytes, "artifacts-max-bytes", "How much of the disk finished runs may take, over all objects, such as 500Mi; the oldest of the object that keeps the most go first. 0 keeps none, a negative number is no limit.")
	fs.Var(&o.runMaxBytes, "artifacts-max-bytes-per-run", "How much of the disk a run may take; one that takes more is stopped and has failed. 0 for no limit.")
	fs.DurationVar(&o.artifactsMaxAge, "artifacts-max-age", -time.Second, "How long the artifacts of a run are kept, for kinds whose watch does not say. 0 keeps none, a negative duration is no limit.")
	fs.IntVar(&o.ansibleVerbosity, "ansible-verbosity", 2, "Ansible's verbosity, 0 to 7, for kinds without a variable ANSIBLE_VERBOSITY_<KIND>_<GROUP> or an annotation.")
	fs.StringVar(&o.rolesPath, "ansible-roles-path", "", "Directories with roles, separated by colons. Sets ANSIBLE_ROLES_PATH.")
	fs.StringVar(&o.collectionsPath, "ansible-collections-path", "", "Directories with collections, separated by colons. Sets ANSIBLE_COLLECTIONS_PATH.")
	fs.StringVar(&o.ansibleArgs, "ansible-args", "", "Further arguments for ansible-playbook in every run, such as '--tags \"a,b\"'.")
	fs.StringVar(&o.logEvents, "ansible-log-events", "tasks", "Which job events are logged: Tasks, Everything or Nothing.")
}

// bindAnsibleRunner adds the flag that several subcommands have.
func bindAnsibleRunner(fs *pflag.FlagSet, path *string) {
	fs.StringVar(path, "ansible-runner", "ansible-runner", "The ansible-runner program: a path, or a name that is looked up on PATH.")
}

func (o *runOptions) bindReconcile(fs *pflag.FlagSet) {
	fs.DurationVar(&o.reconcilePeriod, "reconcile-period", 10*time.Hour, "How long after a run an object is run again, unless its watch or annotation says otherwise; 0 for never.")
	fs.IntVar(&o.maxConcurrent, "max-concurrent-reconciles", runtime.GOMAXPROCS(0), "How many objects of one kind are run at the same time, for kinds without a variable MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>.")
	// The number differs from machine to machine; documentation does not.
	fs.Lookup("max-concurrent-reconciles").DefValue = "the CPUs that the process may use"
	fs.DurationVar(&o.retryMin, "retry-min", time.Second, "How long after a first failure a run is repeated. The time doubles with each failure in a row.")
	fs.DurationVar(&o.retryMax, "retry-max", time.Minute, "The most that the time between two repetitions grows to.")
	fs.DurationVar(&o.progressInterval, "progress-interval", 5*time.Second, "The least time between two reports of a run's progress in the object's status; 0 for no such reports.")
	fs.DurationVar(&o.gracefulShutdown, "graceful-shutdown-timeout", 30*time.Second, "How long running runs may go on when the operator is told to stop; negative for as long as they need.")
	fs.BoolVar(&o.injectOwnerRef, "inject-owner-ref", true, "Give objects that a run creates an owner reference to the object it was run for, and watch them.")
	fs.IntVar(&o.proxyPort, "proxy-port", 8888, "The port of the API proxy on the loopback addresses; 0 for any free one.")
	fs.BoolVar(&o.proxyAnonymous, "proxy-anonymous", false, "Let every process of this machine act as the operator through the API proxy, without a token: for sidecars that ask http://localhost:8888.")
	fs.StringVar(&o.recordAPICalls, "record-api-calls", "", "Note in this file what runs ask of the API server, each verb and resource once, for \"generate rbac --api-calls\"; no names, no contents. None if empty.")
}

func (o *runOptions) bindServing(fs *pflag.FlagSet) {
	fs.StringVar(&o.metricsBindAddress, "metrics-bind-address", ":8443", "The address on which metrics are served; 0 for none.")
	fs.StringVar(&o.metricsAddr, "metrics-addr", ":8443", "The address on which metrics are served.")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", false, "Serve metrics by HTTPS with a self-signed certificate.")
	fs.BoolVar(&o.metricsRequireRBAC, "metrics-require-rbac", false, "Serve metrics only to whom the cluster's RBAC allows it. Needs --metrics-secure.")
	fs.BoolVar(&o.enableHTTP2, "enable-http2", false, "Offer HTTP/2 where metrics are served by HTTPS.")
	fs.StringVar(&o.userMetricsAddress, "user-metrics-bind-address", "localhost:5050", "The address that takes the metrics of roles (osdk_metric); 0 for none.")
	fs.StringVar(&o.healthBindAddress, "health-probe-bind-address", ":6789", "The address of /healthz and /readyz; 0 for none.")
}

func (o *runOptions) bindLeaderElection(fs *pflag.FlagSet) {
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Let only one of several instances work at a time, by a Lease. Needs --leader-election-id.")
	fs.BoolVar(&o.enableLeaderElect, "enable-leader-election", false, "Let only one of several instances work at a time.")
	fs.StringVar(&o.leaderID, "leader-election-id", "", "The name of the Lease.")
	fs.StringVar(&o.leaderNamespace, "leader-election-namespace", "", "The namespace of the Lease; in a cluster, the operator's own if empty.")
	fs.StringVar(&o.leaderResourceLock, "leader-elect-resource-lock", "configmapsleases", "Ignored.")
	fs.DurationVar(&o.leaderLeaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long the others wait before they take over from a leader that is silent.")
	fs.DurationVar(&o.leaderRenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long a leader tries to renew its Lease before it gives up.")
}

// deprecation is a flag that still works and is to be replaced.
type deprecation struct{ flag, instead string }

func deprecations() []deprecation {
	return []deprecation{
		{"metrics-addr", "use --metrics-bind-address instead"},
		{"enable-leader-election", "use --leader-elect instead"},
		{"leader-elect-resource-lock", "it is ignored, the lock is always a Lease"},
	}
}

// hideFlags keeps what nobody should start to use out of the help. pflag's own
// deprecation would do that too, but cobra prints its notices to the standard
// output, among the tasks.
func hideFlags(fs *pflag.FlagSet) {
	var hidden []string
	for _, d := range deprecations() {
		hidden = append(hidden, d.flag)
	}
	for _, name := range hidden {
		if f := fs.Lookup(name); f != nil {
			f.Hidden = true
		}
	}
}

// byteSize is a flag's number of bytes, written as Kubernetes writes quantities.
type byteSize int64

func (b *byteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Set implements pflag.Value.
func (b *byteSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is no number of bytes: write for example 500Mi or 2Gi", text)
	}
	*b = byteSize(q.Value())
	return nil
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "bytes" }
