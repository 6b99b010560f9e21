package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/watches"
)

// runOptions are the settings of the run command. Flags set most of them;
// complete adds the environment and settles what depends on several flags.
type runOptions struct {
	logOptions
	// The content and how it is run.
	contentPaths
	historyOptions
	webhookOptions
	jobOptions

	watchesFile         string
	strict              bool
	watchContent        bool
	ansibleRunner       string
	executor            string
	warmIdle            time.Duration
	trustLine           bool
	runnerRoot          string
	artifactsMaxAge     time.Duration
	artifactsMaxBytes   byteSize
	runMaxBytes         byteSize
	ansibleVerbosity    int
	ansibleArgs         string
	logEvents           string
	injectOwnerRef      bool
	suppressOverrides   bool
	reconcilePeriod     time.Duration
	chartPeriod         *time.Duration // for charts; nil if the flag is not given
	retryMin, retryMax  time.Duration
	progressInterval    time.Duration
	maxConcurrent       int
	maxRuns             int
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
	shards              shardCount
	debugWindow         *debugWindow // set by the command run

	// Set by complete: what logEvents means, and the environment.
	eventLevel eventlog.Level
	namespaces []string // empty means all
	debugLogs  bool
	// logVerbosity is ANSIBLE_VERBOSITY: above 0 the log has raw task output.
	logVerbosity int
	inventory    string
	skipFacts    bool

	// Set by dev: who follows the runs, and who is told about the controllers. Nil otherwise.
	follow  func(gvk schema.GroupVersionKind, object types.NamespacedName, cause string) controller.Follower
	started func(*controller.Set)
	// copied is the content that dev has copied; nil to use the files directly.
	copied *contentcopy.Copy
	// held is the lease of dev while it has taken over from another operator. It is held
	// already, and stays held.
	held *lease
}

// flagGroup is a set of flags that belong together in the help and in the
// reference.
type flagGroup struct {
	title string
	bind  func(*pflag.FlagSet)
}

func (o *runOptions) flagGroups() []flagGroup {
	return []flagGroup{
		{"Content", func(fs *pflag.FlagSet) {
			o.bindContent(fs)
			o.bindWatchContent(fs)
		}},
		{"Runs", o.bindRuns},
		{"Runs as Jobs", o.bindJobs},
		{"Reconciling", o.bindReconcile},
		{"API proxy", o.bindProxy},
		{"Metrics and health", o.bindServing},
		{"History", o.bindHistory},
		{"Webhooks", o.bindWebhooks},
		{"Leader election", o.bindLeaderElection},
		{"Logging", o.bindLogging},
	}
}

// BindFlags adds all flags to fs and sets o to their defaults.
func (o *runOptions) BindFlags(fs *pflag.FlagSet) {
	for _, g := range o.flagGroups() {
		g.bind(fs)
	}
	hideFlags(fs)
}

// usageWidth is the width of the help in columns.
const usageWidth = 100

// printUsage prints the flags in their groups.
func (o *runOptions) printUsage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s [flags]\n\nExamples:\n%s\n", cmd.CommandPath(), cmd.Example)
	var defaults runOptions
	for _, g := range defaults.flagGroups() {
		fs := pflag.NewFlagSet(g.title, pflag.ContinueOnError)
		g.bind(fs)
		hideFlags(fs)
		fs.VisitAll(func(f *pflag.Flag) {
			if own := cmd.Flags().Lookup(f.Name); own != nil {
				f.DefValue = own.DefValue // the default may depend on the name by which the program was called
			}
		})
		fmt.Fprintf(&b, "\n%s:\n%s", g.title, fs.FlagUsagesWrapped(usageWidth))
	}
	b.WriteString("\nWhat each flag does in detail: docs/reference/flags.md. Environment: docs/reference/environment.md.\n")
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

func (o *runOptions) bindContent(fs *pflag.FlagSet) {
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched, and which role, playbook, command or chart runs for each.")
	fs.BoolVar(&o.strict, "strict", false, "Refuse to start if there are warnings about the watches file, such as an unknown key.")
	bindAnsibleRunner(fs, &o.ansibleRunner)
	fs.StringVar(&o.rolesPath, "ansible-roles-path", "", "Directories with roles, separated by colons. Sets ANSIBLE_ROLES_PATH.")
	fs.StringVar(&o.collectionsPath, "ansible-collections-path", "", "Directories with collections, separated by colons. Sets ANSIBLE_COLLECTIONS_PATH.")
}

func (o *runOptions) bindWatchContent(fs *pflag.FlagSet) {
	fs.BoolVar(&o.watchContent, "watch-content", false, "Use changed roles, playbooks and watches without a restart, as soon as all of them can be read. Runs use a copy of them in --runner-root.")
}

// bindAnsibleRunner adds a flag that several subcommands share.
func bindAnsibleRunner(fs *pflag.FlagSet, path *string) {
	fs.StringVar(path, "ansible-runner", "ansible-runner", "The ansible-runner program: a path, or a name that is looked up on PATH.")
}

func (o *runOptions) bindReconcile(fs *pflag.FlagSet) {
	fs.DurationVar(&o.reconcilePeriod, "reconcile-period", 10*time.Hour, "The time from a run of an object to its next one, unless its watch or annotation says otherwise; 0 for never.")
	fs.IntVar(&o.maxConcurrent, "max-concurrent-reconciles", runtime.GOMAXPROCS(0), "How many objects of one kind run at the same time, for kinds without a variable MAX_CONCURRENT_RECONCILES_<KIND>_<GROUP>.")
	fs.IntVar(&o.maxRuns, "max-concurrent-runs", 0, "How many objects of all kinds run at the same time; 0 for four times the CPUs that the process may use, or the highest limit of a kind if that is more.")
	// The number differs between machines; the documentation must not.
	fs.Lookup("max-concurrent-reconciles").DefValue = "the CPUs that the process may use"
	fs.DurationVar(&o.retryMin, "retry-min", time.Second, "The time until a failed run is retried. It doubles with each failure in a row.")
	fs.DurationVar(&o.retryMax, "retry-max", time.Minute, "The longest time between two retries.")
}

func (o *runOptions) bindRuns(fs *pflag.FlagSet) {
	o.artifactsMaxBytes, o.runMaxBytes = 1<<30, 512<<20
	fs.StringVar(&o.executor, "executor", string(watches.ExecutorAuto), "How runs start, unless the watch says otherwise: auto forks them from a fork server that has Ansible loaded, and starts ansible-runner if the server's self-check fails; warm makes that check when the operator starts, and refuses to start if it fails; runner always starts ansible-runner; job makes each run in a Pod of its own.")
	fs.DurationVar(&o.warmIdle, "warm-idle", assembly.WarmIdle, "How long an idle fork server is kept. Then it exits, and the next run starts a new one and waits for it. 0 keeps it forever.")
	fs.BoolVar(&o.trustLine, "executor-trust-line", false, "Fork runs even with an untested version of ansible-core in which something that forked runs rely on has changed. Without this flag, the log and \"rolewright doctor\" say what has changed.")
	bindRunnerRoot(fs, &o.runnerRoot)
	fs.IntVar(&o.ansibleVerbosity, "ansible-verbosity", 2, "Ansible's verbosity, 0 to 7, for kinds without a variable ANSIBLE_VERBOSITY_<KIND>_<GROUP> or an annotation.")
	fs.StringVar(&o.ansibleArgs, "ansible-args", "", "Further arguments for ansible-playbook in every run, such as '--tags \"a,b\"'.")
	fs.BoolVar(&o.suppressOverrides, "suppress-override-values", false, "Write **** in place of the overrideValues of charts in Events.")
	fs.DurationVar(&o.progressInterval, "progress-interval", 5*time.Second, "The shortest time between two reports of progress in the object's status; 0 for no reports.")
	fs.DurationVar(&o.gracefulShutdown, "graceful-shutdown-timeout", 30*time.Second, "How long runs in progress may continue when the operator stops; negative for as long as they need.")
	fs.Var(&o.artifactsMaxBytes, "artifacts-max-bytes", "How much disk the artifacts of finished runs of all objects may take, such as 500Mi. The object with the most loses its oldest first. 0 keeps none, a negative number is no limit.")
	fs.Var(&o.runMaxBytes, "artifacts-max-bytes-per-run", "How much disk one run may take. A run that takes more is stopped and fails. 0 is no limit.")
	fs.DurationVar(&o.artifactsMaxAge, "artifacts-max-age", -time.Second, "How long the artifacts of a run are kept, unless the watch says otherwise. 0 keeps none, a negative duration is no limit.")
}

// bindRunnerRoot adds a flag that several subcommands share.
func bindRunnerRoot(fs *pflag.FlagSet, root *string) {
	fs.StringVar(root, "runner-root", "/tmp/ansible-operator/runner", "The directory for the private data directories and artifacts of runs.")
}

func (o *runOptions) bindProxy(fs *pflag.FlagSet) {
	fs.BoolVar(&o.injectOwnerRef, "inject-owner-ref", true, "Give objects that a run creates an owner reference to the custom resource, and watch them.")
	fs.IntVar(&o.proxyPort, "proxy-port", 8888, "The port of the API proxy on the loopback addresses; 0 for any free one.")
	fs.BoolVar(&o.proxyAnonymous, "proxy-anonymous", false, "Let every process of this machine act as the operator through the API proxy without a token, for sidecars that use http://localhost:8888.")
	fs.StringVar(&o.recordAPICalls, "record-api-calls", "", "Record in this file which verbs and resources runs use, for \"generate rbac --api-calls\". No names, no contents. Empty for none.")
}

func (o *runOptions) bindServing(fs *pflag.FlagSet) {
	fs.StringVar(&o.metricsBindAddress, "metrics-bind-address", ":8443", "The address on which metrics are served; 0 for none.")
	fs.StringVar(&o.metricsAddr, "metrics-addr", ":8443", "The address on which metrics are served.")
	fs.BoolVar(&o.metricsSecure, "metrics-secure", false, "Serve metrics over HTTPS with a self-signed certificate.")
	fs.BoolVar(&o.metricsRequireRBAC, "metrics-require-rbac", false, "Serve metrics only to clients that the cluster's RBAC allows. Needs --metrics-secure.")
	fs.BoolVar(&o.enableHTTP2, "enable-http2", false, "Offer HTTP/2 for metrics over HTTPS.")
	fs.StringVar(&o.userMetricsAddress, "user-metrics-bind-address", "localhost:5050", "The address that accepts metrics of roles (osdk_metric); 0 for none.")
	fs.StringVar(&o.healthBindAddress, "health-probe-bind-address", ":6789", "The address of /healthz and /readyz; 0 for none.")
}

func (o *runOptions) bindLeaderElection(fs *pflag.FlagSet) {
	fs.BoolVar(&o.leaderElect, "leader-elect", false, "Let only one of several replicas work at a time, by a Lease. Needs --leader-election-id.")
	fs.BoolVar(&o.enableLeaderElect, "enable-leader-election", false, "Let only one of several replicas work at a time.")
	fs.StringVar(&o.leaderID, "leader-election-id", "", "The name of the Lease.")
	fs.StringVar(&o.leaderNamespace, "leader-election-namespace", "", "The namespace of the Lease; in a cluster, by default the operator's own.")
	fs.StringVar(&o.leaderResourceLock, "leader-elect-resource-lock", "configmapsleases", "Ignored.")
	fs.DurationVar(&o.leaderLeaseDuration, "leader-elect-lease-duration", 15*time.Second, "How long other replicas wait before they take over from a leader that does not renew its Lease.")
	fs.Var(&o.shards, "shards", "Share the objects of all kinds among the replicas, in this number of shards: 2 to 64, auto for 8, 0 for a single leader without shards. Each replica runs the objects of its shards; if a replica dies, others take over its shards. Needs --leader-elect.")
	fs.DurationVar(&o.leaderRenewDeadline, "leader-elect-renew-deadline", 10*time.Second, "How long a leader tries to renew its Lease before it gives up.")
}

func (o *runOptions) bindLogging(fs *pflag.FlagSet) {
	fs.StringVar(&o.logEvents, "ansible-log-events", "tasks", "Which job events are logged: Tasks, Everything or Nothing.")
	o.bindLog(fs)
}

// deprecation is a flag that still works but should be replaced.
type deprecation struct{ flag, instead string }

func deprecations() []deprecation {
	return []deprecation{
		{"metrics-addr", "use --metrics-bind-address instead"},
		{"enable-leader-election", "use --leader-elect instead"},
		{"leader-elect-resource-lock", "it is ignored, the lock is always a Lease"},
	}
}

// hideFlags keeps deprecated flags out of the help. pflag's own deprecation
// would do that too, but cobra prints its notices to the standard output, among
// the tasks.
func hideFlags(fs *pflag.FlagSet) {
	for _, d := range deprecations() {
		if f := fs.Lookup(d.flag); f != nil {
			f.Hidden = true
		}
	}
}

// byteSize is the value of a flag in bytes, written like a Kubernetes quantity.
type byteSize int64

func (b *byteSize) String() string {
	return resource.NewQuantity(int64(*b), resource.BinarySI).String()
}

// Set implements pflag.Value.
func (b *byteSize) Set(text string) error {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return fmt.Errorf("%q is not a number of bytes: write for example 500Mi or 2Gi", text)
	}
	*b = byteSize(q.Value())
	return nil
}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "bytes" }
