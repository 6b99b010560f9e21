package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/internal/watches"
)

// supportCluster reads the parts of a support bundle that come from the API server.
type supportCluster struct {
	*supportOptions

	found cluster
	kinds []string // of the objects that were read
}

// supportWatch is what is collected of a watch: nothing that may contain a secret. Command is the executable without its
// arguments.
type supportWatch struct {
	Group    string `json:"group"`
	Version  string `json:"version"`
	Kind     string `json:"kind"`
	Role     string `json:"role,omitempty"`
	Playbook string `json:"playbook,omitempty"`
	Command  string `json:"command,omitempty"`
	Chart    string `json:"chart,omitempty"` // its directory
	Mode     string `json:"mode,omitempty"`
	Timeout  string `json:"timeout,omitempty"`
	// Variables is the number of its variables.
	Variables int `json:"variables"`
}

func supportWatches(file string) (list []supportWatch, err error) {
	all, _, err := watches.Load(file, watches.Options{LookupEnv: os.LookupEnv})
	for _, w := range all {
		command, chart := "", ""
		if c := w.Content.Command; c != nil {
			command = c.Path
			if c.Chart != nil {
				chart = c.Chart.Dir
			}
		}
		list = append(list, supportWatch{
			Command: command, Chart: chart,
			Group: w.GVK.Group, Version: w.GVK.Version, Kind: w.GVK.Kind, Role: w.Content.Role, Playbook: w.Content.Playbook, Mode: string(w.Mode),
			Timeout: w.Timeout.String(), Variables: len(w.Vars),
		})
	}
	return list, err
}

func (c *supportCluster) versions() (any, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(c.found.config)
	is := map[string]any{"rolewright": version.Read(), "collected": time.Now().UTC()}
	if err == nil {
		is["server"], err = disco.ServerVersion()
	}
	return is, err
}

// objects returns the objects of a kind, as get objects shows them.
func (c *supportCluster) objects(ctx context.Context, kind string) (any, error) {
	o := selectOptions{namespace: c.namespace, allNamespaces: c.allNamespaces}
	client, err := o.objectsIn(c.found, kind)
	if err != nil {
		return nil, err
	}
	c.kinds = append(c.kinds, client.kind.Kind)
	found, err := client.list(ctx, &o, nil)
	if err != nil {
		return nil, err
	}
	list := objectList{TypeMeta: metav1.TypeMeta{APIVersion: api.Version, Kind: "ObjectList"}}
	for i := range found {
		list.Items = append(list.Items, controller.Summarize(&found[i], time.Now()))
	}
	return list, nil
}

// supportEvent is an Event of the operator, or about its objects or Pods.
type supportEvent struct {
	Last    time.Time `json:"last"`
	Object  string    `json:"object"`
	Type    string    `json:"type"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
}

func newSupportEvent(e corev1.Event) supportEvent {
	return supportEvent{
		Last:   slices.MaxFunc([]time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.CreationTimestamp.Time}, time.Time.Compare),
		Object: strings.Trim(e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Kind+"/"+e.InvolvedObject.Name, "/"),
		Type:   e.Type, Reason: e.Reason, Message: e.Message, Count: e.Count,
	}
}

// maxSupportEvents is how many Events are collected: the newest.
const maxSupportEvents = 1000

// events returns the Events about objects of the kinds, and those in the operator's namespace.
func (c *supportCluster) events(ctx context.Context) (any, error) {
	client, err := kubernetes.NewForConfig(c.found.config)
	if err != nil {
		return nil, err
	}
	namespaces := []string{cmp.Or(c.namespace, c.found.namespace, metav1.NamespaceDefault)}
	if c.allNamespaces {
		namespaces[0] = metav1.NamespaceAll
	} else if c.operatorNamespace != "" && c.operatorNamespace != namespaces[0] {
		namespaces = append(namespaces, c.operatorNamespace)
	}
	var all []supportEvent
	var failed []error
	for _, namespace := range namespaces {
		for options := (metav1.ListOptions{Limit: maxSupportEvents}); ; {
			list, err := client.CoreV1().Events(namespace).List(ctx, options)
			if err != nil {
				failed = append(failed, err)
				break
			}
			for _, e := range list.Items {
				if about := e.InvolvedObject; slices.Contains(c.kinds, about.Kind) || about.Namespace != "" && about.Namespace == c.operatorNamespace {
					all = append(all, newSupportEvent(e))
				}
			}
			slices.SortStableFunc(all, func(a, b supportEvent) int { return b.Last.Compare(a.Last) })
			all = all[:min(len(all), maxSupportEvents)]
			if options.Continue = list.Continue; options.Continue == "" {
				break
			}
		}
	}
	return orNothing(all), errors.Join(failed...)
}

// supportPod is what is collected of the operator's Pod: no environment, and no arguments for Ansible.
type supportPod struct {
	Name     string                   `json:"name"`
	Images   []string                 `json:"images"`
	Flags    []string                 `json:"flags"`
	Node     string                   `json:"node"`
	Phase    corev1.PodPhase          `json:"phase"`
	Statuses []corev1.ContainerStatus `json:"statuses,omitempty"`
}

// operatorPods returns the Pods that have the port of the API.
func (c *supportCluster) operatorPods(ctx context.Context) (kubernetes.Interface, []corev1.Pod, error) {
	client, err := kubernetes.NewForConfig(c.found.config)
	if err != nil {
		return nil, nil, err
	}
	list, err := client.CoreV1().Pods(c.operatorNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, err
	}
	pods := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { container, _ := apiPort(p); return container == "" })
	if len(pods) == 0 {
		err = fmt.Errorf("no Pod in namespace %s has a container port with the name %s", c.operatorNamespace, apiPortName)
	}
	return client, pods, err
}

// ansibleArgs is the flag whose value is passed to Ansible.
const ansibleArgs = "--ansible-args"

// flagsOf returns the flags of a command line, without what is passed to Ansible, which may be secret.
func flagsOf(args []string) (flags []string) {
	for i, arg := range args {
		name, _, _ := strings.Cut(arg, "=")
		switch {
		case !strings.HasPrefix(arg, "--"), i > 0 && args[i-1] == ansibleArgs: // not a flag, or the value of --ansible-args
		case name == ansibleArgs:
			flags = append(flags, name)
		default:
			flags = append(flags, arg)
		}
	}
	return flags
}

func (c *supportCluster) pods(ctx context.Context) (any, error) {
	_, pods, err := c.operatorPods(ctx)
	var all []supportPod
	for _, p := range pods {
		all = append(all, takenOf(p))
	}
	return orNothing(all), err
}

// takenOf returns what is collected of a Pod. It leaves out the flags of other programs in it, which may be secret.
func takenOf(p corev1.Pod) supportPod {
	is := supportPod{Name: p.Name, Node: p.Spec.NodeName, Phase: p.Status.Phase, Statuses: p.Status.ContainerStatuses}
	operator, _ := apiPort(p)
	for _, container := range p.Spec.Containers {
		is.Images = append(is.Images, container.Image)
		if container.Name == operator {
			is.Flags = flagsOf(container.Args)
		}
	}
	return is
}

// How much of a Pod's log is collected, in bytes and lines.
const (
	maxSupportLog   = 10 << 20
	maxSupportLines = int64(20_000)
)

// log returns the end of the logs of the operator's Pods, including what ran in them before.
func (c *supportCluster) log(ctx context.Context) (any, error) {
	client, pods, err := c.operatorPods(ctx)
	if err != nil {
		return nil, err
	}
	return podLogs(ctx, client, pods)
}

func podLogs(ctx context.Context, client kubernetes.Interface, pods []corev1.Pod) (string, error) {
	var all strings.Builder
	var failed []error
	for _, p := range pods {
		for _, previous := range []bool{true, false} {
			container, _ := apiPort(p)
			if previous && !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == container && s.RestartCount > 0 }) {
				continue
			}
			lines := maxSupportLines
			stream, err := client.CoreV1().Pods(p.Namespace).GetLogs(p.Name, &corev1.PodLogOptions{
				Container: container, Previous: previous, TailLines: &lines, Timestamps: true,
			}).Stream(ctx)
			if err != nil {
				failed = append(failed, err)
				continue
			}
			end, cut, err := tailOf(stream, maxSupportLog)
			failed = append(failed, err, stream.Close())
			fmt.Fprintf(&all, "=== Pod %s, container %s, previous %t", p.Name, container, previous)
			if cut {
				fmt.Fprintf(&all, ", the last %d MiB only", maxSupportLog>>20)
			}
			fmt.Fprintf(&all, "\n%s\n", end)
		}
	}
	return all.String(), errors.Join(failed...)
}

// tailOf reads a stream to its end, and returns the last part. If cut is true, there was more; the part begins with a
// whole line.
func tailOf(r io.Reader, most int) (end []byte, cut bool, err error) {
	var b bytes.Buffer
	for err == nil {
		_, err = io.CopyN(&b, r, int64(most))
		if more := b.Len() - most; more > 0 {
			b.Next(more)
			cut = true
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	end = b.Bytes()
	if _, lines, found := bytes.Cut(end, []byte("\n")); cut && found {
		end = lines
	}
	return end, cut, err
}

// How many runs a bundle lists, and how many of them it has with all details: failed runs
// first.
const (
	supportRuns    = 1000
	supportDetails = 50
)

// supportHistory is the part of a bundle about runs.
type supportHistory struct {
	// Metadata says which replica has them.
	Metadata api.ListMeta `json:"metadata"`

	Runs    []history.Brief `json:"runs"`
	Details []history.Run   `json:"details"`
}

func (r *reader) someRuns(ctx context.Context) (any, error) {
	query := url.Values{"limit": {fmt.Sprint(supportRuns)}}
	setQuery(query, "namespace", r.namespace)
	var list api.RunList
	if err := r.get(ctx, "/runs", query, &list); err != nil {
		return nil, err
	}
	is := supportHistory{Metadata: list.Metadata, Runs: list.Items}
	first := slices.Clone(list.Items)
	slices.SortStableFunc(first, func(a, b history.Brief) int { // the newest come first already
		switch {
		case a.Result == b.Result:
			return 0
		case a.Result == "Failed":
			return -1
		case b.Result == "Failed":
			return 1
		}
		return 0
	})
	for _, b := range first[:min(len(first), supportDetails)] {
		answer, err := r.run(ctx, b.ID)
		var coded codedError
		if errors.As(err, &coded) && coded.code == exitNothing {
			continue // it is too old by now
		}
		if err != nil {
			return is, err
		}
		is.Details = append(is.Details, answer.Run)
	}
	return is, nil
}

// raw returns the answer at a path.
func (r *reader) raw(ctx context.Context, path string) (any, error) {
	query := url.Values{}
	setQuery(query, "namespace", r.namespace)
	var is json.RawMessage
	err := r.get(ctx, path, query, &is)
	if err != nil {
		return nil, err
	}
	return is, nil
}
