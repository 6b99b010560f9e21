package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/scenario"
	"github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/localcluster"
	"github.com/rolewright/rolewright/internal/watches"

	plaintext "github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/runner/rundir"
)

// testOptions are the settings of test: those of dev, and its own.
type testOptions struct {
	devOptions

	current, download bool
	parallel          int
	stepTimeout       time.Duration
	junit             string
}

const scenarioHelp = `Play scenarios: start an API server and the operator of this project, apply
objects, and check whether the runs and the cluster are as expected. Scenarios are
the given files, or else those in tests/, or else one for each sample: it becomes
Ready, a second run changes nothing, and it can be deleted.

A scenario is a list of steps. Paths are relative to it:

  given: secret.yaml
  steps:
    - apply: ../config/samples/cache_v1_memcached.yaml
      expect:
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: memcached-sample}
        spec: {replicas: 3}
    - apply: broken.yaml
      fails: TaskFailed
      message: size must be positive
    - delete: ../config/samples/cache_v1_memcached.yaml
      absent: {apiVersion: apps/v1, kind: Deployment, metadata: {name: memcached-sample}}

Each value is an object, the path of a file with objects, or a list of them. The run
of each applied object must succeed, or fail with the reason in fails, and a second
run must not change anything, except with idempotent: false. If an object is applied
again without a change, a run is requested, unless it is paused.
changed is the number of tasks that must report a change, timeout the time that the
step may take. Objects in the cluster may have more fields than expect names; a field
that is null in expect must be absent, as in spec: {replicas: null}.

The API server is that of "rolewright cluster exec": without nodes and most
controllers, so that no Pod starts and no Deployment becomes available. If a role
waits for them, set their status in the step: status sets the status of objects as
soon as they exist, with their observedGeneration if it has none.

    - apply: ../config/samples/cache_v1_memcached.yaml
      status:
        apiVersion: apps/v1
        kind: Deployment
        metadata: {name: memcached-sample}
        status: {replicas: 3, readyReplicas: 3, updatedReplicas: 3, availableReplicas: 3}

The status of objects in given is set, too. Or play the scenarios in a test cluster whose
Pods become ready, such as one of kind or kwokctl, with --current-cluster.`

func newTestCommand() *cobra.Command {
	var o testOptions
	cmd := &cobra.Command{
		Use:   "test [FILE...]",
		Short: "Play the scenarios of this project against an API server",
		Long:  scenarioHelp,
		Example: `  rolewright test
  rolewright test tests/size.yaml --junit report.xml`,
		ValidArgsFunction: files("yaml", "yml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.settle(cmd.Flags().Changed)
			if err := o.completeAsDeployed(cmd.Flags()); err != nil {
				return err
			}
			o.namespaces = nil // scenarios have namespaces of their own
			return o.run(cmd, args)
		},
	}
	fs := cmd.Flags()
	o.bindContent(fs)
	o.bindRuns(fs)
	showDevRoot(fs)
	o.bindReconcile(fs)
	o.bindErrorLog(fs)
	hideFlags(fs)
	fs.BoolVar(&o.current, "current-cluster", false, "Use the current cluster, which must be a test cluster: the CRDs are applied to it, and the operator watches all its namespaces.")
	fs.BoolVar(&o.download, "download", false, "Fetch etcd and kube-apiserver where they are missing.")
	fs.IntVar(&o.parallel, "parallel", 4, "How many scenarios are played at a time.")
	fs.DurationVar(&o.stepTimeout, "step-timeout", 2*time.Minute, "How long a step without a timeout may take.")
	fs.StringVar(&o.junit, "junit", "", "Write the results to this file, in the format of JUnit.")
	return cmd
}

func (o *testOptions) run(cmd *cobra.Command, args []string) (err error) {
	scenarios, err := readScenarios(args)
	if err != nil {
		return usage(err)
	}
	if o.parallel < 1 || o.stepTimeout <= 0 {
		return usage(errors.New("--parallel and --step-timeout have to be more than 0"))
	}
	watched, err := o.loadWatches(logr.Discard())
	if err != nil {
		return usage(err)
	}
	if !o.current {
		stop, err := o.startCluster()
		if err != nil {
			return explainPrograms(err)
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err := o.ownWebhooks(); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(logr.NewContext(cmd.Context(), o.logger(cmd.ErrOrStderr())))
	defer stop()
	player, err := o.player(ctx, watched)
	if err != nil {
		return err
	}
	player.Waiting = func(object, why string) {
		fmt.Fprintln(cmd.ErrOrStderr(), plaintext.Uncoloured(fmt.Sprintf("still waiting for %s: %s", object, why)))
	}
	o.follow = player.Runs.Follow
	given := o.runnerRoot
	ended := make(chan error, 1)
	go func() {
		ended <- o.operate(ctx, io.Discard)
		stop()
	}()
	if !o.current && admission.NeedServer(watched) {
		o.awaitWebhooks(ctx)
	}
	results := playAll(ctx, player, scenarios, o.parallel, func(r scenario.Result) { printResult(cmd.OutOrStdout(), r) })
	interrupted := cmd.Context().Err()
	o.setLevel(zapcore.PanicLevel) // errors of what the stop cuts short are not worth logging
	stop()
	if err := errors.Join(<-ended, interrupted); err != nil {
		return err
	}
	err = o.sum(cmd.ErrOrStderr(), results)
	if err == nil && !o.current && o.runnerRoot != given { // no other command is in this cluster
		if left := rundir.Remove(o.runnerRoot); left != nil {
			fmt.Fprintf(cmd.ErrOrStderr(), "the artifacts of the runs cannot be removed: %v\n", left)
		}
	}
	return err
}

// sum prints how many scenarios have passed, and also writes it to a file for other programs. It
// returns an error if some have not passed.
func (o *testOptions) sum(stderr io.Writer, results []scenario.Result) error {
	if o.junit != "" {
		if err := writeJUnit(o.junit, results); err != nil {
			return err
		}
	}
	failed, waited := 0, false
	for _, r := range results {
		if r.Failed() {
			failed++
		}
		waited = waited || !o.current && timedOut(r)
	}
	fmt.Fprintf(stderr, "%d of %d scenarios passed\n", len(results)-failed, len(results))
	if waited {
		fmt.Fprintln(stderr, "hint: this API server starts no Pods: where a role waits for them, set the status in the step, or give --current-cluster; see --help")
	}
	if failed > 0 {
		return errInvalid
	}
	return nil
}

// timedOut tells whether a task has waited in vain, by the wording of kubernetes.core.
func timedOut(r scenario.Result) bool {
	return slices.ContainsFunc(r.Steps, func(s scenario.StepResult) bool {
		return s.Err != nil && strings.Contains(strings.ToLower(s.Err.Error()), "timed out")
	})
}

// readScenarios reads the scenarios that are named, or those of the project.
func readScenarios(paths []string) ([]scenario.Scenario, error) {
	read := scenario.Read
	if len(paths) == 0 {
		paths = globbed("tests/*.y*ml")
	}
	if len(paths) == 0 {
		read = scenario.OfSample
		paths = slices.DeleteFunc(globbed("config/samples/*.y*ml"), func(p string) bool {
			return strings.HasPrefix(filepath.Base(p), "kustomization.")
		})
	}
	if len(paths) == 0 {
		return nil, errors.New("there is nothing to play: name scenarios, or write some into tests/ or samples into config/samples/")
	}
	var all []scenario.Scenario
	var errs []error
	for _, p := range paths {
		s, err := read(p)
		all, errs = append(all, s), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// startCluster starts an API server, and makes it the current cluster of this process.
func (o *testOptions) startCluster() (stop func() error, err error) {
	c, err := localcluster.StartKept(localcluster.Options{Download: o.download})
	if err != nil {
		return nil, err
	}
	if err := os.Setenv("KUBECONFIG", c.Path); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c.Stop, nil
}

// player installs the CRDs, and returns a player for scenarios in that cluster.
func (o *testOptions) player(ctx context.Context, watched []watches.Watch) (*scenario.Player, error) {
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		return nil, unreachable(err)
	}
	if err := found.waitForServer(ctx, startPatience()); err != nil {
		return nil, endOf(ctx, unreachable(err))
	}
	manifests, err := newApplier(found, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range globbed(kindDefinitions) {
		if _, err := manifests.apply(ctx, p); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
	}
	if err := manifests.webhooks(ctx, watched, o.webhookService); err != nil {
		return nil, err
	}
	isWatched := func(kind schema.GroupKind) bool {
		return slices.ContainsFunc(watched, func(w watches.Watch) bool { return w.GVK.GroupKind() == kind })
	}
	return &scenario.Player{Client: manifests.client, Apply: manifests.one, Runs: scenario.NewRuns(), Watched: isWatched, Timeout: o.stepTimeout}, nil
}

// playAll plays the scenarios, parallel of them at a time, and calls say with each result.
func playAll(ctx context.Context, player *scenario.Player, all []scenario.Scenario, parallel int, say func(scenario.Result)) []scenario.Result {
	results := make([]scenario.Result, len(all))
	turns := make(chan struct{}, parallel)
	var saying sync.Mutex
	var wg sync.WaitGroup
	for i, s := range all {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			results[i] = player.Play(ctx, s)
			saying.Lock()
			defer saying.Unlock()
			say(results[i])
		})
	}
	wg.Wait()
	return results
}

func printResult(out io.Writer, r scenario.Result) {
	for _, s := range r.Steps {
		word, why := "ok", ""
		if s.Err != nil {
			word, why = "FAILED", "\n    "+strings.ReplaceAll(s.Err.Error(), "\n", "\n    ")
		}
		// The text contains values from the cluster, which must not control the terminal.
		fmt.Fprintln(out, plaintext.Uncoloured(fmt.Sprintf("%-6s %5.1fs  %s: %s%s", word, s.Took.Seconds(), r.Path, s.Name, why)))
	}
}

// The elements of JUnit's reports that tools understand.
type (
	junitSuites struct {
		XMLName xml.Name     `xml:"testsuites"`
		Suites  []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Time     float64     `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    float64       `xml:"time,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
	}
	junitFailure struct {
		Message string `xml:"message,attr"`
	}
)

func writeJUnit(path string, results []scenario.Result) error {
	var report junitSuites
	for _, r := range results {
		suite := junitSuite{Name: r.Path, Tests: len(r.Steps), Time: r.Took.Seconds()}
		for _, s := range r.Steps {
			one := junitCase{Name: s.Name, Class: r.Path, Time: s.Took.Seconds()}
			if s.Err != nil {
				suite.Failures++
				one.Failure = &junitFailure{Message: s.Err.Error()}
			}
			suite.Cases = append(suite.Cases, one)
		}
		report.Suites = append(report.Suites, suite)
	}
	data, err := xml.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), append(data, '\n')...), 0o644)
}
