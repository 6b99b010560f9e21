package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/controller/eventlog"
	"github.com/rolewright/rolewright/test/must"
)

// parse parses the command line and the environment. It returns the options before complete, and the sources to complete
// them from.
func parse(t *testing.T, args []string, env map[string]string) (*runOptions, sources) {
	t.Helper()
	o := &runOptions{}
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	fs.SetOutput(&strings.Builder{})
	o.BindFlags(fs)
	must.Do(t, fs.Parse(args))
	return o, sources{
		given:     fs.Changed,
		lookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok },
	}
}

// text formats notices as "message key=value".
func text(notices []notice) []string {
	var lines []string
	for _, n := range notices {
		line := n.message
		for i := 0; i+1 < len(n.values); i += 2 {
			line += fmt.Sprintf(" %v=%v", n.values[i], n.values[i+1])
		}
		lines = append(lines, line)
	}
	return lines
}

const plainMetrics = "metrics are served without encryption and authentication; use --metrics-secure and --metrics-require-rbac address="

func TestComplete_SettlesFlagsAndEnvironment(t *testing.T) {
	tests := []struct {
		name  string
		args  []string
		env   map[string]string
		check func(*runOptions) any // returns what is compared with want
		want  any
		notes []string // exact, without the notices of every start
	}{
		{
			name:  "the old name of the metrics address",
			args:  []string{"--metrics-addr=:9000"},
			check: func(o *runOptions) any { return o.metricsBindAddress },
			want:  ":9000",
			notes: []string{"Flag --metrics-addr has been deprecated, use --metrics-bind-address instead"},
		},
		{
			name:  "the old name of leader election",
			args:  []string{"--enable-leader-election", "--leader-election-id=me"},
			check: func(o *runOptions) any { return o.leaderElect },
			want:  true,
			notes: []string{"Flag --enable-leader-election has been deprecated, use --leader-elect instead"},
		},
		{
			name:  "the old name switches leader election off too",
			args:  []string{"--enable-leader-election=false"},
			check: func(o *runOptions) any { return o.leaderElect },
			want:  false,
			notes: []string{"Flag --enable-leader-election has been deprecated, use --leader-elect instead"},
		},
		{
			name:  "OPERATOR_NAME where no id is given",
			env:   map[string]string{"OPERATOR_NAME": "from-env"},
			check: func(o *runOptions) any { return o.leaderID },
			want:  "from-env",
			notes: []string{"Environment variable OPERATOR_NAME has been deprecated, use --leader-election-id instead."},
		},
		{
			name:  "OPERATOR_NAME loses against the flag",
			args:  []string{"--leader-election-id=from-flag"},
			env:   map[string]string{"OPERATOR_NAME": "from-env"},
			check: func(o *runOptions) any { return o.leaderID },
			want:  "from-flag",
			notes: []string{"Ignoring OPERATOR_NAME environment variable since --leader-election-id is set"},
		},
		{
			name:  "event level in any case",
			args:  []string{"--ansible-log-events=EveryThing"},
			check: func(o *runOptions) any { return o.eventLevel },
			want:  eventlog.Everything,
		},
		{
			name:  "unknown event level",
			args:  []string{"--ansible-log-events=all"},
			check: func(o *runOptions) any { return o.eventLevel },
			want:  eventlog.Tasks,
			notes: []string{"--ansible-log-events flag value 'all' not recognized. Must be one of: Tasks, Everything, Nothing"},
		},
		{
			name:  "no workers at all",
			args:  []string{"--max-concurrent-reconciles=0"},
			check: func(o *runOptions) any { return o.maxConcurrent },
			want:  1,
			notes: []string{"--max-concurrent-reconciles is below 1; using 1 value=0"},
		},
		{
			name:  "more workers than there can be",
			args:  []string{"--max-concurrent-reconciles=9223372036854775807"},
			check: func(o *runOptions) any { return o.maxConcurrent },
			want:  10000,
			notes: []string{"--max-concurrent-reconciles is above 10000; using 10000 value=9223372036854775807"},
		},
		{
			name:  "several namespaces, untidily written",
			env:   map[string]string{"WATCH_NAMESPACE": " a ,b,, a,"},
			check: func(o *runOptions) any { return o.namespaces },
			want:  []string{"a", "b"},
			notes: []string{"Watching namespaces namespaces=[a b]"},
		},
		{
			name:  "no namespace is all of them",
			env:   map[string]string{"WATCH_NAMESPACE": " , "},
			check: func(o *runOptions) any { return o.namespaces },
			want:  []string(nil),
		},
		{
			name:  "debug logs",
			env:   map[string]string{"ANSIBLE_DEBUG_LOGS": "True"},
			check: func(o *runOptions) any { return o.debugLogs },
			want:  true,
		},
		{
			name:  "debug logs, not a boolean",
			env:   map[string]string{"ANSIBLE_DEBUG_LOGS": "yes"},
			check: func(o *runOptions) any { return o.debugLogs },
			want:  false,
			notes: []string{"Could not parse environment variable as an boolean; using default value variable=ANSIBLE_DEBUG_LOGS value=yes default=false"},
		},
		{
			name:  "explicit gathering",
			env:   map[string]string{"ANSIBLE_GATHERING": "explicit"},
			check: func(o *runOptions) any { return o.skipFacts },
			want:  true,
		},
		{
			name:  "gathering is compared exactly",
			env:   map[string]string{"ANSIBLE_GATHERING": "Explicit"},
			check: func(o *runOptions) any { return o.skipFacts },
			want:  false,
		},
		{
			name:  "an inventory of one's own",
			env:   map[string]string{"ANSIBLE_INVENTORY": "/inv"},
			check: func(o *runOptions) any { return o.inventory },
			want:  "/inv",
		},
		{
			name:  "owner references off",
			args:  []string{"--inject-owner-ref=false"},
			check: func(o *runOptions) any { return o.injectOwnerRef },
			want:  false,
			notes: []string{"Warning: injection of owner references and dependent watches is turned off"},
		},
		{
			name:  "a proxy for everybody is warned about",
			args:  []string{"--proxy-port=8889", "--proxy-anonymous"},
			check: func(o *runOptions) any { return o.proxyPort },
			want:  8889,
			notes: []string{"Warning: the API proxy lets every process of this machine act as the operator (--proxy-anonymous) port=8889"},
		},
		{
			name:  "the old lock is taken and ignored",
			args:  []string{"--leader-elect-resource-lock=endpoints"},
			check: func(o *runOptions) any { return o.managerOptions(discard).LeaderElectionResourceLock },
			want:  "", // controller-runtime's default: leases
			notes: []string{"Flag --leader-elect-resource-lock has been deprecated, it is ignored, the lock is always a Lease"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, src := parse(t, tt.args, tt.env)
			notices := must.Get(o.complete(src))(t)
			must.Be(t, "setting", tt.want, tt.check(o))
			var notes []string
			for _, line := range text(notices) {
				if line != "Watching all namespaces" && !strings.HasPrefix(line, plainMetrics) {
					notes = append(notes, line)
				}
			}
			must.Be(t, "notices", tt.notes, notes)
		})
	}
}

func TestComplete_WarnsOfOpenMetricsOnly(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"plain", nil, []string{plainMetrics + ":8443", "Watching all namespaces"}},
		{"switched off", []string{"--metrics-bind-address=0"}, []string{"Watching all namespaces"}},
		{"secure, for everybody", []string{"--metrics-secure"}, []string{"metrics are served without authentication; use --metrics-require-rbac address=:8443", "Watching all namespaces"}},
		{"for whom RBAC allows it", []string{"--metrics-secure", "--metrics-require-rbac"}, []string{"Watching all namespaces"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, src := parse(t, tt.args, nil)
			notices := must.Get(o.complete(src))(t)
			got := map[string]bool{}
			for _, line := range text(notices) {
				got[line] = true
			}
			want := map[string]bool{}
			for _, line := range tt.want {
				want[line] = true
			}
			must.Be(t, "notices", want, got)
		})
	}
}

func TestComplete_RefusesWhatCannotBeMeant(t *testing.T) {
	const badAddress = " is not an address to listen on: give host:port or :port, or 0 to switch it off"
	tests := []struct {
		name string
		args []string
		env  map[string]string
		want string // the whole message
	}{
		{
			name: "both names of the metrics address",
			args: []string{"--metrics-addr=:1", "--metrics-bind-address=:1"},
			want: "only one of --metrics-addr and --metrics-bind-address may be set",
		},
		{
			name: "both names of leader election",
			args: []string{"--leader-elect", "--enable-leader-election", "--leader-election-id=x"},
			want: "only one of --leader-elect and --enable-leader-election may be set",
		},
		{
			name: "RBAC without encryption",
			args: []string{"--metrics-require-rbac"},
			want: "--metrics-secure flag is required when --metrics-require-rbac is present",
		},
		{
			name: "leader election without a name",
			args: []string{"--leader-elect"},
			want: "--leader-elect needs a name for the Lease: set --leader-election-id",
		},
		{
			name: "a Lease shorter than the time to renew it",
			args: []string{"--leader-elect", "--leader-election-id=x", "--leader-elect-lease-duration=10s"},
			want: "--leader-elect-lease-duration 10s must be longer than --leader-elect-renew-deadline 10s",
		},
		{
			name: "no room to renew",
			args: []string{"--leader-elect", "--leader-election-id=x", "--leader-elect-renew-deadline=2s"},
			want: "--leader-elect-renew-deadline 2s must be longer than 2.4s",
		},
		{
			name: "a port without a colon",
			args: []string{"--metrics-bind-address=8443"},
			want: `--metrics-bind-address "8443"` + badAddress,
		},
		{
			name: "a port that is none",
			args: []string{"--proxy-port=65536", "--user-metrics-bind-address=5050"},
			want: `--user-metrics-bind-address "5050"` + badAddress + "\n--proxy-port 65536 is not a port: give 1 to 65535, or 0 for any free one",
		},
		{
			name: "a history that is none",
			args: []string{"--history-max-runs=0", "--history-max-bytes=-1", "--api-port=6791"},
			want: "--api-port serves the history, which --history-max-runs=0 switches off: leave one of them out\n" +
				"--history-max-runs 0, --history-max-age 720h0m0s and --history-max-bytes -1 must not be negative",
		},
		{
			name: "a page without what it needs",
			args: []string{"--ui"},
			want: "--ui needs --api-port, the port that serves its page\n" +
				"--ui needs --ui-hosts, the hosts by which browsers reach the page, such as runs.example.com: it refuses all others",
		},
		{
			name: "a page at an address",
			args: []string{"--ui", "--api-port=6791", "--ui-hosts=runs.example.com:8443,https://runs.example.com,Runs.example.com,*/"},
			want: `--ui-hosts "https://runs.example.com" is not a host in lower case, with its port if it has one, such as runs.example.com` + "\n" +
				`--ui-hosts "Runs.example.com" is not a host in lower case, with its port if it has one, such as runs.example.com` + "\n" +
				`--ui-hosts "*/" is not a host in lower case, with its port if it has one, such as runs.example.com`,
		},
		{
			name: "actions on no page",
			args: []string{"--ui-actions"},
			want: "--ui-hosts and --ui-actions need --ui: add it, or remove them",
		},
		{
			name: "a port above all ports",
			args: []string{"--health-probe-bind-address=:99999"},
			want: `--health-probe-bind-address ":99999"` + badAddress,
		},
		{
			name: "retry bounds the wrong way round",
			args: []string{"--retry-min=2m"},
			want: "--retry-min 2m0s and --retry-max 1m0s: the first must be above 0, the second not below the first",
		},
		{
			name: "no such executor",
			args: []string{"--executor=fast"},
			want: `--executor "fast": give one of ["auto" "warm" "runner" "job"]`,
		},
		{
			name: "no time between retries",
			args: []string{"--retry-min=0s"},
			want: "--retry-min 0s and --retry-max 1m0s: the first must be above 0, the second not below the first",
		},
		{
			name: "negative size of a run",
			args: []string{"--artifacts-max-bytes-per-run=-1Mi"},
			want: "--artifacts-max-bytes-per-run -1Mi is negative: give 0 for no limit",
		},
		{
			name: "negative period and verbosity",
			args: []string{"--reconcile-period=-1s", "--warm-idle=-1s", "--ansible-verbosity=-1"},
			want: "--reconcile-period -1s is negative: give 0 for never\n--warm-idle -1s is negative: give 0 to keep the fork server\n--ansible-verbosity -1 is negative: give 0 to 7",
		},
		{
			name: "negative progress interval",
			args: []string{"--progress-interval=-1s"},
			want: "--progress-interval -1s is negative: give 0 to switch progress off",
		},
		{
			name: "a namespace that cannot exist",
			env:  map[string]string{"WATCH_NAMESPACE": "ok,Not Ok"},
			want: `WATCH_NAMESPACE names "Not Ok", which is not a name of a namespace: a lowercase RFC 1123 label must consist of ` +
				`lower case alphanumeric characters or '-', and must start and end with an alphanumeric character ` +
				`(e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
		},
		{
			name: "everything that is wrong is said at once",
			args: []string{"--metrics-require-rbac", "--progress-interval=-1s", "--leader-elect"},
			want: "--metrics-secure flag is required when --metrics-require-rbac is present\n" +
				"--progress-interval -1s is negative: give 0 to switch progress off\n" +
				"--leader-elect needs a name for the Lease: set --leader-election-id",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, src := parse(t, tt.args, tt.env)
			_, err := o.complete(src)
			if err == nil {
				t.Fatal("no error")
			}
			must.Be(t, "error", tt.want, err.Error())
		})
	}
}

func TestComplete_AcceptsWhatAnsibleOperatorAccepts(t *testing.T) {
	// These are deployments that exist. All of them must start.
	tests := []struct {
		name string
		args string
		env  map[string]string
	}{
		{name: "scaffold", args: "--health-probe-bind-address=:6789 --metrics-bind-address=127.0.0.1:8080 --leader-elect --leader-election-id=memcached-operator"},
		{name: "scaffold with secure metrics", args: "--metrics-require-rbac --metrics-secure --metrics-bind-address=:8443 --leader-elect --leader-election-id=x --health-probe-bind-address=:6789"},
		{name: "old scaffold", args: "--metrics-addr=127.0.0.1:8080 --enable-leader-election --leader-election-id=x"},
		{name: "older scaffold", args: "--enable-leader-election", env: map[string]string{"OPERATOR_NAME": "memcached-operator", "WATCH_NAMESPACE": ""}},
		{name: "services off", args: "--metrics-bind-address=0 --health-probe-bind-address=0"},
		{name: "everything else", args: "--zap-devel --zap-encoder=console --zap-log-level=2 --zap-stacktrace-level=panic --zap-time-encoding=iso8601 " +
			"--ansible-verbosity=9 --ansible-args=--diff --reconcile-period=0s --proxy-port=0 --graceful-shutdown-timeout=0s --enable-http2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o, src := parse(t, strings.Fields(tt.args), tt.env)
			if _, err := o.complete(src); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestGrace_LeavesTimeToEndRuns(t *testing.T) {
	tests := []struct {
		flag string
		want time.Duration
	}{
		{"30s", 30 * time.Second},
		{"0s", leastGrace},
		{"-1s", noLimit},
	}
	for _, tt := range tests {
		t.Run(tt.flag, func(t *testing.T) {
			o, _ := parse(t, []string{"--graceful-shutdown-timeout=" + tt.flag}, nil)
			if got := *o.managerOptions(discard).GracefulShutdownTimeout; got != tt.want {
				t.Errorf("grace = %s, want %s", got, tt.want)
			}
		})
	}
}
