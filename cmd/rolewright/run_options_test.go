package main

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/rolewright/rolewright/test/must"
)

var discard = logr.Discard()

func TestBindFlags_HasEveryFlagOfAnsibleOperatorAndOurOwn(t *testing.T) {
	type flag struct {
		Default string
		Hidden  bool
	}
	want := map[string]flag{
		// ansible-operator has these.
		"watches-file":                {Default: "./watches.yaml"},
		"inject-owner-ref":            {Default: "true"},
		"ansible-verbosity":           {Default: "2"},
		"artifacts-max-age":           {Default: "-1s"},
		"artifacts-max-bytes":         {Default: "1Gi"},
		"artifacts-max-bytes-per-run": {Default: "512Mi"},
		"ansible-roles-path":          {},
		"ansible-collections-path":    {},
		"ansible-args":                {},
		"ansible-log-events":          {Default: "tasks"},
		"reconcile-period":            {Default: "10h0m0s"},
		"max-concurrent-reconciles":   {Default: "the CPUs that the process may use"},
		"max-concurrent-runs":         {Default: "0"},
		"metrics-bind-address":        {Default: ":8443"},
		"metrics-addr":                {Default: ":8443", Hidden: true},
		"metrics-secure":              {Default: "false"},
		"metrics-require-rbac":        {Default: "false"},
		"health-probe-bind-address":   {Default: ":6789"},
		"leader-elect":                {Default: "false"},
		"enable-leader-election":      {Default: "false", Hidden: true},
		"leader-election-id":          {},
		"leader-election-namespace":   {},
		"leader-elect-resource-lock":  {Default: "configmapsleases", Hidden: true},
		"leader-elect-lease-duration": {Default: "15s"},
		"leader-elect-renew-deadline": {Default: "10s"},
		"shards":                      {Default: "0"},
		"graceful-shutdown-timeout":   {Default: "30s"},
		"proxy-port":                  {Default: "8888"},
		"enable-http2":                {Default: "false"},
		"zap-devel":                   {Default: "false"},
		"zap-encoder":                 {},
		"zap-log-level":               {},
		"zap-stacktrace-level":        {},
		"zap-time-encoding":           {},
		"suppress-override-values":    {Default: "false"}, // helm-operator has it
		// Only Rolewright has these.
		"log-format":                {},
		"warm-idle":                 {Default: "10m0s"},
		"watch-content":             {Default: "false"},
		"strict":                    {Default: "false"},
		"history-max-runs":          {Default: "10000"},
		"history-max-age":           {Default: "720h0m0s"},
		"history-max-bytes":         {Default: "64Mi"},
		"api-port":                  {Default: "0"},
		"ui":                        {Default: "false"},
		"ui-hosts":                  {Default: "[]"},
		"webhook-port":              {Default: "9443"},
		"webhook-service":           {},
		"webhook-cert-dir":          {},
		"ui-actions":                {Default: "false"},
		"proxy-anonymous":           {Default: "false"},
		"record-api-calls":          {},
		"user-metrics-bind-address": {Default: "localhost:5050"},
		"ansible-runner":            {Default: "ansible-runner"},
		"executor":                  {Default: "auto"},
		"executor-trust-line":       {Default: "false"},
		"job-url":                   {},
		"job-bind-address":          {Default: ":8444"},
		"job-namespace":             {},
		"job-image":                 {},
		"runner-root":               {Default: "/tmp/ansible-operator/runner"},
		"retry-min":                 {Default: "1s"},
		"retry-max":                 {Default: "1m0s"},
		"progress-interval":         {Default: "5s"},
	}
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	(&runOptions{}).BindFlags(fs)
	got := map[string]flag{}
	fs.VisitAll(func(f *pflag.Flag) {
		got[f.Name] = flag{f.DefValue, f.Hidden}
	})
	must.Be(t, "flags", want, got)
}

func TestManagerOptions_SayWhatTheFlagsSay(t *testing.T) {
	o, src := parse(t, []string{
		"--leader-elect", "--leader-election-id=id", "--leader-election-namespace=ns",
		"--leader-elect-lease-duration=20s", "--leader-elect-renew-deadline=12s",
		"--metrics-bind-address=:2", "--metrics-secure", "--metrics-require-rbac", "--graceful-shutdown-timeout=1m",
	}, map[string]string{"WATCH_NAMESPACE": "a,b"})
	must.Get(o.complete(src))(t)
	got := o.managerOptions(discard)
	lease, renew, retry, grace := 20*time.Second, 12*time.Second, 2*time.Second, time.Minute
	want := ctrl.Options{
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{"a": {}, "b": {}}},
		HealthProbeBindAddress:        "0",
		GracefulShutdownTimeout:       &grace,
		LeaderElection:                true,
		LeaderElectionID:              "id",
		LeaderElectionNamespace:       "ns",
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		LeaderElectionReleaseOnCancel: true,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(ctrl.Options{}),
		cmpopts.IgnoreFields(ctrl.Options{}, "Metrics"),
		cmp.Comparer(func(a, b logr.Logger) bool { return true })); diff != "" {
		t.Errorf("manager options (-want +got):\n%s", diff)
	}
	if m := got.Metrics; m.BindAddress != ":2" || !m.SecureServing || m.FilterProvider == nil || len(m.TLSOpts) != 1 {
		t.Errorf("metrics options = %+v, want :2, secure, with a filter and HTTP/1.1 only", m)
	}
}
