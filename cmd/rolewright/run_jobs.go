package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/jobs"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/collection"
	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/runner/supervise"
)

// The controllers find out at run time whether their runner makes Jobs.
var _ controller.JobRunner = (*jobs.Runner)(nil)

// jobOptions are the flags for runs as Jobs.
type jobOptions struct {
	jobURL, jobAddress, jobNamespace, jobImage string
}

func (o *jobOptions) bindJobs(fs *pflag.FlagSet) {
	fs.StringVar(&o.jobURL, "job-url", "", "The URL at which Pods of runs reach the operator: that of a Service for --job-bind-address, such as https://my-operator-runs.my-operator-system.svc:8444. The executor job needs it.")
	fs.StringVar(&o.jobAddress, "job-bind-address", ":8444", "The address on which the operator serves Pods of runs, for the executor job: only the leader, or with --shards every replica.")
	fs.StringVar(&o.jobNamespace, "job-namespace", "", "The namespace of Jobs of runs. Empty for the operator's own.")
	fs.StringVar(&o.jobImage, "job-image", "", "The image of Pods of runs whose watch names no other: the operator's own, with this program in it. Empty for the image of the operator's Pod.")
}

// makesJobs reports whether runs of some watch are made as Jobs.
func makesJobs(watched []watches.Watch) bool {
	return slices.ContainsFunc(watched, func(w watches.Watch) bool { return w.Executor == watches.ExecutorJob })
}

// checkJobs reports settings that do not go together with the executor job.
func (o *runOptions) checkJobs(watched []watches.Watch) error {
	if !makesJobs(watched) {
		return nil
	}
	if o.follow != nil || o.copied != nil {
		for i := range watched {
			if watched[i].Executor == watches.ExecutorJob {
				watched[i].Executor = watches.ExecutorAuto // dev, once and the like run on this machine
				if watched[i].Content.Command != nil {
					watched[i].Executor = watches.ExecutorRunner
				}
			}
		}
		return nil
	}
	at, err := url.Parse(o.jobURL)
	switch {
	case o.watchContent:
		return usage(errors.New("the executor job does not go with --watch-content: Pods of runs have the content of their image"))
	case o.jobURL == "":
		return usage(errors.New("the executor job needs --job-url: where the Pods of runs find this operator, such as https://my-operator-runs.my-operator-system.svc:8444"))
	case err != nil || at.Scheme != "https" || at.Host == "" || strings.Trim(at.Path, "/") != "":
		return usage(fmt.Errorf("--job-url %q: write https:// with a host and a port, and no path", o.jobURL))
	}
	return nil
}

// jobRunner returns what executes runs: the local Runner or, if a watch wants Jobs, one that
// makes Jobs, too, which it adds to mgr.
func (op *operator) jobRunner(mgr manager.Manager, gateway *proxy.Proxy) (controller.Runner, error) {
	if !makesJobs(op.watched) {
		return op.Runner, nil
	}
	own := *mgr.GetHTTPClient()
	clock := &serverClock{next: own.Transport}
	own.Transport = clock
	client, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), &own)
	if err != nil {
		return nil, fmt.Errorf("client for Jobs: %w", err)
	}
	options := jobs.Options{
		Client: client, Namespace: op.jobNamespace, Image: op.jobImage, URL: strings.TrimSuffix(op.jobURL, "/"), Address: op.jobAddress,
		Now: clock.now, Proxy: gateway, Log: op.log.WithName("jobs"), Connections: op.Recorder.JobConnections,
	}
	if op.lease != nil {
		options.Leads = func() bool { return op.lease.held() == nil }
	}
	if op.shards > 0 {
		options.Has = op.has
	}
	if options.Program, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	if op.ansibleRunner != "ansible-runner" {
		options.AnsibleRunner = op.ansibleRunner
	}
	if options.Namespace == "" {
		if options.Namespace = podNamespace(); options.Namespace == "" {
			return nil, errors.New("the executor job needs a namespace for Jobs: outside of a Pod, set --job-namespace")
		}
	}
	if options.Image == "" {
		if options.Image, err = ownImage(client, podNamespace()); err != nil {
			return nil, err
		}
	}
	r := jobs.New(op.Runner, options)
	if err := mgr.Add(r); err != nil {
		return nil, fmt.Errorf("add what makes Jobs: %w", err)
	}
	op.adopt = r.Adopt
	return r, nil
}

// serverClock estimates the API server's time from its last answer.
type serverClock struct {
	next  http.RoundTripper // nil for the usual one
	ahead atomic.Int64      // how far the server is ahead of this machine's clock, in nanoseconds
}

// RoundTrip implements [http.RoundTripper].
func (c *serverClock) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := cmp.Or(c.next, http.DefaultTransport).RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if at, err := http.ParseTime(res.Header.Get("Date")); err == nil {
		c.ahead.Store(int64(time.Until(at)))
	}
	return res, nil
}

func (c *serverClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// podNamespace returns the namespace of the Pod that this process is in; empty if it is in none.
func podNamespace() string {
	data, err := os.ReadFile(podNamespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// managerContainer is the name of the operator's container in its Pod.
const managerContainer = "manager"

// ownImage returns the image of the operator's container in the Pod that this process is in.
func ownImage(client kubernetes.Interface, namespace string) (string, error) {
	const remedy = "set --job-image to the operator's image"
	if namespace == "" {
		return "", errors.New("the executor job needs the operator's image: outside of a Pod, " + remedy)
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("find the operator's Pod: %w; %s", err, remedy)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the operator's Pod: %w; %s", err, remedy)
	}
	for _, c := range pod.Spec.Containers {
		if c.Name == managerContainer || len(pod.Spec.Containers) == 1 {
			return c.Image, nil
		}
	}
	return "", fmt.Errorf("the operator's Pod %s has no container %q; %s", name, managerContainer, remedy)
}

// newJobRunCommand returns the main program of a run's Pod.
func newJobRunCommand() *cobra.Command {
	var input, program string
	cmd := &cobra.Command{
		Use: jobs.CommandName, Short: "Make the run of a Pod", Hidden: true, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			say := func(text string) { fmt.Fprintln(cmd.OutOrStdout(), text) }
			options := runner.Options{Path: program}
			var err error
			if options.Temp, err = runner.NewTemp(os.TempDir()); err != nil {
				say("temporary files of killed runs are not removed: " + err.Error())
			}
			if options.Collections, err = collection.Install(os.TempDir()); err != nil {
				say("runs do without the collection rolewright.operator, unless it is installed: " + err.Error())
			}
			defer options.Collections.Close()
			defer options.Temp.Close()
			r := runner.New(options)
			defer r.Close()
			// This may be process 1 of its container.
			reaping, stop := context.WithCancel(context.WithoutCancel(cmd.Context()))
			var reaper sync.WaitGroup
			reaper.Go(func() { _ = supervise.ReapOrphans(reaping) })
			defer reaper.Wait()
			defer stop()
			return remote.Inside(cmd.Context(), remote.Options{
				Input: input, Pod: os.Getenv("ROLEWRIGHT_POD"), Termination: "/dev/termination-log", Runner: r, Say: say, Patience: 45 * time.Second,
			})
		},
	}
	cmd.Flags().StringVar(&input, "input", "", "The file with the input of the run.")
	bindAnsibleRunner(cmd.Flags(), &program)
	return cmd
}

// newJobInstallCommand returns the command that copies this program into a Pod with another image.
func newJobInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use: jobs.InstallName + " DIRECTORY", Short: "Copy this program into a directory", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return remote.Install(args[0]) },
	}
}

// logJobs logs what is not obvious about the executor job.
func logJobs(log logr.Logger, watched []watches.Watch) {
	for _, w := range watched {
		if w.Executor == watches.ExecutorJob && !w.ManageStatus {
			log.Info("Runs as Jobs of a watch with manageStatus: false are ended and repeated when the operator starts again, for their status does not name them",
				"gvk", w.GVK.String())
		}
	}
}
