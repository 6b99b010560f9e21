package jobs

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/test/must"
)

// The Job is made from the watch's Pod template, and gets what the run needs.
func TestJob_IsMadeOfTheTemplate(t *testing.T) {
	t.Parallel()
	r := &Runner{opts: Options{Namespace: "system", Image: "operator:1", Program: "/usr/local/bin/rolewright", URL: "https://here:1"}}
	req := runner.Request{
		ID: "an-id", Dir: "/runs/uid/an-id",
		JobRun: &runner.JobRun{Subject: "uid", Timeout: time.Hour, Template: []byte(`{
			"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "batch", "rolewright.dev/run": "another"}},
			"spec": {"restartPolicy": "Always", "nodeSelector": {"pool": "batch"}, "containers": [
				{"name": "run", "image": "ee:2", "resources": {"limits": {"memory": "1Gi"}}, "volumeMounts": [{"name": "cache", "mountPath": "/cache"}]}
			], "volumes": [{"name": "cache", "emptyDir": {}}]}
		}`)},
	}
	job, err := r.job(req)
	if err != nil {
		t.Fatal(err)
	}
	pod := job.Spec.Template.Spec
	if job.Name != "an-id" || job.Labels["kueue.x-k8s.io/queue-name"] != "batch" || job.Labels[runLabel] != "an-id" || job.Spec.Template.Labels[runLabel] != "an-id" {
		t.Errorf("the Job is %s with labels %v", job.Name, job.Labels)
	}
	if *job.Spec.BackoffLimit != 0 || *job.Spec.ActiveDeadlineSeconds != 130*60 || pod.RestartPolicy != corev1.RestartPolicyNever {
		t.Errorf("the Job has back-off %d, deadline %d, restart policy %s; want none, behind the timeout, Never",
			*job.Spec.BackoffLimit, *job.Spec.ActiveDeadlineSeconds, pod.RestartPolicy)
	}
	c := pod.Containers[0]
	if len(pod.Containers) != 1 || c.Image != "ee:2" || c.Resources.Limits.Memory().String() != "1Gi" || pod.NodeSelector["pool"] != "batch" {
		t.Errorf("the Pod has not what the template says: %+v", pod)
	}
	if len(pod.InitContainers) != 1 || pod.InitContainers[0].Image != "operator:1" || c.Command[0] != programDir+"/rolewright" {
		t.Errorf("the program does not come into another image: %+v, %v", pod.InitContainers, c.Command)
	}
	if s := c.SecurityContext; *s.AllowPrivilegeEscalation || !*s.RunAsNonRoot || *pod.AutomountServiceAccountToken {
		t.Errorf("the Pod may more than a restricted one: %+v", s)
	}
	if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/runs/uid" && !m.ReadOnly }) {
		t.Errorf("there is no place for the run's files: %+v", c.VolumeMounts)
	}
	req.JobRun.Template = nil
	if job, err = r.job(req); err != nil {
		t.Fatal(err)
	}
	if pod = job.Spec.Template.Spec; len(pod.InitContainers) != 0 || pod.Containers[0].Image != "operator:1" || pod.Containers[0].Command[0] != "/usr/local/bin/rolewright" {
		t.Errorf("without a template, the Pod is %+v; want the operator's image as it is", pod)
	}
}

// The Pod of a command has the command's grace period. The command gets the variables that it inherits, unless the watch
// or the template sets them. It does not get those for Ansible.
func TestJob_OfACommand(t *testing.T) {
	t.Setenv("REGION", "west")
	t.Setenv("LEVEL", "operator")
	t.Setenv("MIRROR", "operator")
	t.Setenv("ANSIBLE_GATHERING", "explicit")
	r := &Runner{opts: Options{Namespace: "system", Image: "operator:1", Program: "/rolewright", URL: "https://here:1"}}
	command := &runner.Command{
		Path: "/c", Dir: "/", Grace: 2 * time.Minute, InheritEnv: []string{"REGION", "LEVEL", "MIRROR", "UNSET"}, Env: map[string]string{"LEVEL": "watch"},
	}
	req := runner.Request{
		ID: "an-id", Dir: "/runs/uid/an-id", Content: runner.Content{Command: command}, Env: map[string]string{"ROLEWRIGHT_ACTION": "check"},
		JobRun: &runner.JobRun{Subject: "uid", Template: []byte(`{"spec": {"containers": [{"name": "run", "env": [{"name": "MIRROR", "value": "pod"}]}]}}`)},
	}
	job := must.Get(r.job(req))(t)
	if grace := *job.Spec.Template.Spec.TerminationGracePeriodSeconds; grace != 180 {
		t.Errorf("the Pod has %d s to end, want those of the command and a minute", grace)
	}
	secret := must.Get(r.secret(req))(t)
	in := must.Get(remote.Decode(secret.Data[inputKey]))(t)
	must.Be(t, "variables of the command", map[string]string{"REGION": "west", "LEVEL": "watch"}, in.Request.Command.Env)
	if diff := cmp.Diff(req.Env, in.Request.Env); diff != "" || len(command.Env) != 1 {
		t.Errorf("variables of the run (-want +got):\n%s\nand the watch has %v", diff, command.Env)
	}
}

// What the cluster says about the Pod becomes the phase of the run.
func TestPhases(t *testing.T) {
	t.Parallel()
	waiting := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "not\nfound"}}}
	killed := corev1.ContainerStatus{Name: "run", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: outOfMemory, ExitCode: 137}}}
	for want, pod := range map[string]*corev1.Pod{
		"ImagePullBackOff: not found": {Status: corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{waiting}}},
		"Unschedulable: no room":      {Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "no room"}}}},
		"":                            {Status: corev1.PodStatus{Phase: corev1.PodRunning}},
	} {
		if got := phaseOf(pod); got != want {
			t.Errorf("a Pod waits for %q, want %q", got, want)
		}
	}
	if what, memory := endOf(&corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{killed}}}, nil); !memory || what == "" {
		t.Errorf("the end for lack of memory is %q, %v", what, memory)
	}
	evicted := &corev1.Pod{Status: corev1.PodStatus{Reason: "Evicted", Message: "The node was low on memory"}}
	if what, memory := endOf(evicted, nil); memory || what != "Evicted: The node was low on memory" {
		t.Errorf("the end of an evicted Pod is %q, %v", what, memory)
	}
}
