// Package jobs makes runs as Jobs of the cluster, each in a Pod of its own, whose main program is
// [remote.Inside]. It knows Jobs, Pods and Secrets, and nothing of what a run is for.
//
// A Job is named by the ID of its run, so that a run has at most one Job, even if the operator has
// forgotten the run. The Job makes one Pod. The Pod starts the run when the operator permits it,
// and the operator permits it only one Pod.
package jobs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/remote"
)

// Labels of Jobs, Pods and Secrets: the ID of the run, the UID of its object, and the operator that has made the run.
const (
	runLabel      = "rolewright.dev/run"
	objectLabel   = "rolewright.dev/object"
	operatorLabel = "rolewright.dev/operator"
)

// digestAnnotation is the annotation of a Job with the digest of the run's token, by which operators find the run of a
// Pod that asks.
const digestAnnotation = "rolewright.dev/token-digest"

// The keys of a run's Secret.
const (
	inputKey  = "input"
	tokenKey  = "token"
	ticketKey = "ticket"
)

// Directories in the Pod: of the input, and of the program in an image other than the operator's.
const (
	inputDir   = "/var/run/rolewright"
	programDir = "/opt/rolewright"
)

// CommandName is the hidden subcommand that the Pod runs, and InstallName the one that copies the
// program into a Pod with another image.
const (
	CommandName = "job-run"
	InstallName = "job-install"
)

// grace is how long a Pod has to end its run and to send the rest of the artifacts.
const grace = 60 * time.Second

// graceOf returns the grace period of a run's Pod: a command may need longer than a role to end.
func graceOf(req runner.Request) time.Duration {
	if c := req.Content.Command; c != nil {
		return grace + c.Grace
	}
	return grace
}

// backstop is the time between the latest end of a run and the deadline of its Job. A run may wait as long as its
// timeout, and then take as long again.
const backstop = 10 * time.Minute

// kept is how long a Job stays after its end if no operator removes it.
const kept = time.Hour

// maxInput is how many bytes of input fit into a Secret, with room for its other data.
const maxInput = corev1.MaxSecretSize - 16<<10

// secret returns the Secret of a run, with the input for its Pod, and what a later operator needs to adopt it.
func (r *Runner) secret(req runner.Request) (*corev1.Secret, error) {
	template, err := watches.PodTemplate(req.JobRun.Template)
	if err != nil {
		return nil, err
	}
	if req.Content.Command != nil {
		req.Content.Command = inherited(*req.Content.Command, template)
	} else {
		req.Env = r.environment(req.Env, template)
	}
	input, err := remote.Encode(req, r.opts.URL, r.certificate)
	if err != nil {
		return nil, err
	}
	if len(input) > maxInput {
		return nil, fmt.Errorf("the input of the run has %d bytes when compressed, and a Secret holds %d: make the object, or the values of varsFrom, smaller", len(input), maxInput)
	}
	return &corev1.Secret{
		ObjectMeta: r.meta(req),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{inputKey: input, tokenKey: []byte(req.JobRun.Token), ticketKey: req.JobRun.Ticket},
	}, nil
}

// environment returns the environment of a run: of, and the ANSIBLE_* variables of this process,
// which its other runs inherit, unless the template sets them.
func (r *Runner) environment(of map[string]string, template corev1.PodTemplateSpec) map[string]string {
	env := map[string]string{}
	for _, entry := range os.Environ() {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "ANSIBLE_") {
			env[name] = value
		}
	}
	for _, name := range variablesOf(template) {
		delete(env, name)
	}
	maps.Copy(env, of)
	return env
}

// inherited returns a command with the values of the variables that it inherits from this process,
// unless the template sets them.
func inherited(c runner.Command, template corev1.PodTemplateSpec) *runner.Command {
	env, said := map[string]string{}, variablesOf(template)
	for _, name := range c.InheritEnv {
		if value := os.Getenv(name); value != "" && !slices.Contains(said, name) {
			env[name] = value
		}
	}
	maps.Copy(env, c.Env)
	c.Env = env
	return &c
}

// variablesOf returns the names of the variables that a template sets.
func variablesOf(template corev1.PodTemplateSpec) (names []string) {
	for _, c := range template.Spec.Containers {
		for _, v := range c.Env {
			names = append(names, v.Name)
		}
	}
	return names
}

func (r *Runner) meta(req runner.Request) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: req.ID, Namespace: r.opts.Namespace, Labels: r.labelsOf(req)}
}

func (r *Runner) labelsOf(req runner.Request) map[string]string {
	return map[string]string{runLabel: req.ID, objectLabel: req.JobRun.Subject, operatorLabel: r.operator(), "app.kubernetes.io/managed-by": "rolewright"}
}

// job returns the Job of a run.
func (r *Runner) job(req runner.Request) (*batchv1.Job, error) {
	template, err := watches.PodTemplate(req.JobRun.Template)
	if err != nil {
		return nil, err
	}
	pod, labels := &template.Spec, r.labelsOf(req)
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	maps.Copy(template.Labels, labels)
	pod.RestartPolicy = corev1.RestartPolicyNever
	if pod.AutomountServiceAccountToken == nil {
		pod.AutomountServiceAccountToken = new(false)
	}
	pod.EnableServiceLinks = new(false)
	pod.TerminationGracePeriodSeconds = new(int64(graceOf(req) / time.Second))
	if len(pod.Containers) == 0 {
		pod.Containers = []corev1.Container{{Name: watches.JobContainer}}
	}
	r.fill(pod, req)
	digest := sha256.Sum256([]byte(req.JobRun.Token))
	job := &batchv1.Job{
		ObjectMeta: r.meta(req),
		Spec: batchv1.JobSpec{
			Template: template, BackoffLimit: new(int32(0)), Completions: new(int32(1)), Parallelism: new(int32(1)),
			TTLSecondsAfterFinished: new(int32(kept / time.Second)), PodReplacementPolicy: new(batchv1.Failed),
		},
	}
	job.Annotations = map[string]string{digestAnnotation: hex.EncodeToString(digest[:])}
	for name, value := range template.Labels { // Kueue looks at the labels of the Job
		job.Labels[name] = value
	}
	if req.JobRun.Timeout > 0 {
		job.Spec.ActiveDeadlineSeconds = new(int64((2*req.JobRun.Timeout + backstop) / time.Second))
	}
	return job, nil
}

// Preview returns a Job as it is made with a Pod template, to check whether the cluster admits it.
func Preview(opts Options, template []byte) (*batchv1.Job, error) {
	const name = "rolewright-doctor"
	r := &Runner{opts: opts}
	return r.job(runner.Request{ID: name, Dir: "/tmp/" + name + "/run", JobRun: &runner.JobRun{Template: template, Subject: name}})
}

// fill adds to a Pod what every run needs.
func (r *Runner) fill(pod *corev1.PodSpec, req runner.Request) {
	const files, input, program = "rolewright-run", "rolewright-input", "rolewright-program"
	c := &pod.Containers[0]
	work := filepath.Dir(req.Dir)
	pod.Volumes = append(pod.Volumes,
		corev1.Volume{Name: files, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		corev1.Volume{Name: input, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: req.ID, Items: []corev1.KeyToPath{{Key: inputKey, Path: inputKey}},
		}}})
	c.VolumeMounts = append(c.VolumeMounts,
		corev1.VolumeMount{Name: files, MountPath: work},
		corev1.VolumeMount{Name: input, MountPath: inputDir, ReadOnly: true})
	command := r.opts.Program
	c.Image = cmp.Or(c.Image, r.opts.Image)
	if c.Image != r.opts.Image {
		mount := corev1.VolumeMount{Name: program, MountPath: programDir}
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: program, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		pod.InitContainers = slices.Insert(pod.InitContainers, 0, corev1.Container{
			Name: program, Image: r.opts.Image, Command: []string{r.opts.Program, InstallName, programDir},
			VolumeMounts: []corev1.VolumeMount{mount}, SecurityContext: restricted(pod), Resources: c.Resources,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			// A writable directory, which the library for local clusters needs when a process starts.
			Env: []corev1.EnvVar{{Name: "XDG_CACHE_HOME", Value: programDir}},
		})
		mount.ReadOnly = true
		c.VolumeMounts = append(c.VolumeMounts, mount)
		command = filepath.Join(programDir, "rolewright")
	}
	c.Command = []string{command, CommandName, "--input=" + filepath.Join(inputDir, inputKey)}
	if r.opts.AnsibleRunner != "" {
		c.Command = append(c.Command, "--ansible-runner="+r.opts.AnsibleRunner)
	}
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "ROLEWRIGHT_POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
		corev1.EnvVar{Name: "TMPDIR", Value: work},
		corev1.EnvVar{Name: "XDG_CACHE_HOME", Value: work}) // the home directory of an image may not be writable
	// The logs are for a process that could not begin: a run writes its own termination message.
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	if c.SecurityContext == nil {
		c.SecurityContext = restricted(pod)
	}
}

// restricted returns the security context that Pod security admission requires on its strictest
// level. The user is the image's, unless the Pod has a security context.
func restricted(pod *corev1.PodSpec) *corev1.SecurityContext {
	c := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	if pod.SecurityContext == nil {
		c.RunAsNonRoot = new(true)
	}
	return c
}
