package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Limits for how much of the logs of hooks is shown.
const (
	maxLog      = 2 << 10
	maxLogPods  = 3
	maxLogLines = 20
)

// GetWaiterWithOptions is Helm's, but for a hook that fails, the waiter collects the end of its logs
// before Helm deletes it.
func (m *marking) GetWaiterWithOptions(strategy kube.WaitStrategy, options ...kube.WaitOption) (kube.Waiter, error) {
	waiter, err := m.Client.GetWaiterWithOptions(strategy, options...)
	return hookWaiter{waiter, m}, err
}

type hookWaiter struct {
	kube.Waiter
	m *marking
}

// WatchUntilReady is what Helm calls to wait for a hook.
func (w hookWaiter) WatchUntilReady(resources kube.ResourceList, timeout time.Duration) error {
	err := w.Waiter.WatchUntilReady(resources, timeout)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: the hook takes longer than this run may, and is not stopped; set a longer timeout in the watch", err)
	}
	client, clientErr := w.m.Factory.KubernetesClientSet()
	if clientErr != nil {
		return err
	}
	// Not the context of the run, which may have been stopped.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, info := range resources {
		if info.Mapping == nil {
			continue
		}
		w.m.h.logs = tail(w.m.h.logs+logsOf(ctx, client, info.Mapping.GroupVersionKind.Kind, info.Namespace, info.Name), maxLog)
	}
	return err
}

// logsOf returns the ends of the logs of a Pod, or of a Job's Pods; empty for other kinds.
func logsOf(ctx context.Context, client kubernetes.Interface, kind, namespace, name string) string {
	var which metav1.ListOptions
	switch kind {
	case "Pod":
		which.FieldSelector = "metadata.name=" + name
	case "Job":
		which.LabelSelector = "job-name=" + name
	default:
		return ""
	}
	which.Limit = maxLogPods
	pods, err := client.CoreV1().Pods(namespace).List(ctx, which)
	if err != nil {
		return fmt.Sprintf("\nthe Pods of the hook %s cannot be read: %v", name, cause(err))
	}
	var text strings.Builder
	for _, pod := range pods.Items[:min(len(pods.Items), maxLogPods)] {
		for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			lines, most := int64(maxLogLines), int64(4*maxLog)
			log, err := client.CoreV1().Pods(namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
				Container: container.Name, TailLines: &lines, LimitBytes: &most,
			}).DoRaw(ctx)
			switch {
			case err != nil:
				fmt.Fprintf(&text, "\nthe log of Pod %s, container %s, cannot be read: %v", pod.Name, container.Name, cause(err))
			case len(log) > 0:
				fmt.Fprintf(&text, "\nthe log of Pod %s, container %s, ends with:\n%s", pod.Name, container.Name, tail(strings.TrimSpace(string(log)), maxLog/2))
			default:
				fmt.Fprintf(&text, "\nthe log of Pod %s, container %s, is empty", pod.Name, container.Name)
			}
		}
	}
	return text.String()
}

// tail returns the end of a text.
func tail(s string, most int) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "?"), "\x00", "?")
	if len(s) <= most {
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-most+len("…"):], "")
}

// test runs the tests of a revision that have not succeeded yet, if the watch asks for that.
func (h *handler) test(ctx context.Context, is *release.Release) error {
	if !h.in.settings.Test || h.check() {
		return nil
	}
	last, err := h.last()
	if err != nil {
		return err
	}
	if !h.trusted || last.Version != is.Version {
		note("the tests are not run: revision %d is not known to be made by this operator, or not the last one", is.Version)
		return nil
	}
	due := slices.ContainsFunc(last.Hooks, func(hook *release.Hook) bool {
		return slices.Contains(hook.Events, release.HookTest) && hook.LastRun.Phase != release.HookPhaseSucceeded
	})
	if !due {
		return nil
	}
	h.reports.progress("Test the release %s", h.name())
	testing := action.NewReleaseTesting(h.config)
	testing.Namespace, testing.Timeout = h.in.Object.GetNamespace(), h.left()
	options, stop := h.bounded(ctx)
	defer stop()
	testing.WaitOptions = options
	_, shutdown, err := testing.Run(h.name())
	if undo := shutdown(); err == nil {
		err = undo
	}
	if err != nil {
		return fmt.Errorf("the tests of the chart: %w", cause(err))
	}
	return nil
}
