package jobs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
)

// phaseOf says what a Pod waits for before its run can start, or end; empty if it waits for nothing.
func phaseOf(pod *corev1.Pod) string {
	if pod == nil {
		return ""
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" {
			return said(w.Reason, w.Message)
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return said(c.Reason, c.Message)
		}
	}
	if pod.DeletionTimestamp != nil {
		return fmt.Sprintf("the Pod %s is being deleted, and its node %s has not said yet that it has ended%s", pod.Name, pod.Spec.NodeName, ifNodeIsGone)
	}
	return ""
}

// ifNodeIsGone is the advice about a Pod whose node does not answer any more.
const ifNodeIsGone = "; if the node is gone for good, delete the Pod with --force"

// begun reports whether the container of the run was started: before that, it cannot have asked for permission to start
// the run.
func begun(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == watches.JobContainer && (c.State.Running != nil || c.State.Terminated != nil)
	})
}

// begunAgo returns how long ago the container of an adopted run was started; 0 for other runs, or if that is not known.
// The result is no longer than the age of the Pod: the clock of the node may be wrong.
func (r *Runner) begunAgo(req runner.Request) time.Duration {
	pod := r.podOf(req.ID)
	if !req.JobRun.Adopted || pod == nil {
		return 0
	}
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == watches.JobContainer && c.State.Running != nil {
			now := r.opts.Now()
			return min(now.Sub(c.State.Running.StartedAt.Time), now.Sub(pod.CreationTimestamp.Time))
		}
	}
	return 0
}

// silent reports whether the Pod should have ended long ago: its node does not answer.
func silent(pod *corev1.Pod) bool {
	const patience = time.Minute
	return pod.DeletionTimestamp != nil && time.Since(pod.DeletionTimestamp.Time) > patience // the timestamp is the end of its grace period
}

// forced reports whether a Pod was deleted with --force: its run is not to be waited for. The finalizer of the Job
// controller keeps such a Pod until its Job is deleted.
func forced(pod *corev1.Pod) bool {
	grace := pod.DeletionGracePeriodSeconds
	return pod.DeletionTimestamp != nil && grace != nil && *grace == 0
}

// over reports whether the run has ended in the Pod. Containers that a webhook has added may go on.
func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded ||
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			return c.Name == watches.JobContainer && c.State.Terminated != nil // it is not restarted
		})
}

// promptly is longer than the time between two signs of life of a Pod, together with the time until its end is known here.
const promptly = 2 * remote.Beat

// endedAlone reports whether the container of the run has failed by itself, soon after heard, the last sign of life of
// its Pod: the Pod was not evicted or deleted, and its node was not restarted, after which kubelets also report that a
// container has failed.
func endedAlone(pod *corev1.Pod, heard time.Time) bool {
	return pod.Status.Reason == "" && pod.DeletionTimestamp == nil && disruption(pod) == nil && time.Since(heard) < promptly &&
		slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
			t := c.State.Terminated
			return c.Name == watches.JobContainer && t != nil && t.ExitCode != 0 && t.Reason != "Unknown" && t.Reason != "ContainerStatusUnknown"
		})
}

// outOfMemory is the reason of a container that the kernel has killed because of its memory.
const outOfMemory = "OOMKilled"

// endOf says how a Pod has ended, and whether the reason was its memory.
func endOf(pod *corev1.Pod, job *batchv1.Job) (what string, memory bool) {
	var parts []string
	if pod != nil && pod.Status.Reason != "" { // Evicted, NodeLost
		parts = append(parts, said(pod.Status.Reason, pod.Status.Message))
	}
	if pod != nil {
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if t := c.State.Terminated; t != nil && (t.ExitCode != 0 || t.Signal != 0) {
				memory = memory || t.Reason == outOfMemory
				parts = append(parts, fmt.Sprintf("container %s: %s", c.Name, said(t.Reason, fmt.Sprintf("exit code %d: %s", t.ExitCode, t.Message))))
			}
		}
		if c := disruption(pod); c != nil {
			parts = append(parts, saidOf(c))
		}
	}
	if job != nil {
		for _, c := range job.Status.Conditions {
			if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue && c.Reason != batchv1.JobReasonBackoffLimitExceeded {
				parts = append(parts, said(c.Reason, c.Message))
			}
		}
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, "; "), memory
	case pod == nil, pod.DeletionTimestamp != nil:
		return "its Job or its Pod was deleted", false
	}
	return "its Pod has ended", memory
}

// disruption returns the condition of a Pod that the cluster has ended because it was evicted or
// preempted, or its node drained; nil for other Pods.
func disruption(pod *corev1.Pod) *corev1.PodCondition {
	for i, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// saidOf returns the reason and message of a condition, on one line.
func saidOf(c *corev1.PodCondition) string { return said(c.Reason, c.Message) }

// said returns a reason and a message of the cluster, on one line.
func said(reason, message string) string {
	if message == "" {
		return reason
	}
	const most = 300
	return reason + ": " + text.OneLine(text.Clip(message, most))
}
