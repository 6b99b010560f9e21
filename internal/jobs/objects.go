// Package jobs makes runs as Jobs of the cluster: each in a Pod of its own, which
// [remote.Inside] is the main program of. It knows Jobs, Pods and Secrets, and nothing of what
// a run is for.
//
// A Job has the ID of its run for its name, so that there is one Job of a run, whatever an
// operator has forgotten. It makes one Pod. The Pod starts the run when the operator lets it,
// and the operator lets one.
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

// Labels of Jobs, Pods and Secrets: the run, the UID of the object that it is for, and the operator that has made it.
const (
	runLabel      = "rolewright.dev/run"
	objectLabel   = "rolewright.dev/object"
	operatorLabel = "rolewright.dev/operator"
)

// digestAnnotation is on a Job: the digest of the run's token, by which operators know whose a Pod is that asks.
const digestAnnotation = "rolewright.dev/token-digest"

// The keys of a run's Secret.
const (
	inputKey  = "input"
	tokenKey  = "token"
	ticketKey = "ticket"
)

// Where things are in the Pod.
const (
	inputDir   = "/var/run/rolewright"
	programDir = "/opt/rolewright"
)

// CommandName is the hidden subcommand that the Pod runs, and InstallName the one that brings the
// program into a Pod of another image.
const (
	CommandName = "job-run"
	InstallName = "job-install"
)

// grace is how long a Pod has to end its run and to send what it has achieved.
const grace = 60 * time.Second

// graceOf is the grace of a run's Pod: a command may want longer than a role to end.
func graceOf(req runner.Request) time.Duration {
	if c := req.Content.Command; c != nil {
		return grace + c.Grace
	}
	return grace
}

// backstop is by how much the deadline of a Job is behind the end of its run, which may wait for its timeout, and takes it once more then.
const backstop = 10 * time.Minute

// kept is how long a Job may stay that has ended and that no operator has removed.
const kept = time.Hour

// maxInput is what a Secret can have, less what it has beside the input.
const maxInput = corev1.MaxSecretSize - 16<<10

// secret is what the Pod of a run gets, and what a later operator has to know.
func (e *Executor) secret(req runner.Request) (*corev1.Secret, error) {
	template, err := watches.PodTemplate(req.JobRun.Template)
	if err != nil {
		return nil, err
	}
	if req.Content.Command != nil {
		req.Content.Command = inherited(*req.Content.Command, template)
	} else {
		req.Env = e.environment(req.Env, template)
	}
	input, err := remote.Encode(req, e.opts.URL, e.certificate)
	if err != nil {
		return nil, err
	}
	if len(input) > maxInput {
		return nil, fmt.Errorf("the input of the run takes %d bytes packed, and a Secret holds %d: let the object, or varsFrom, say less", len(input), maxInput)
	}
	return &corev1.Secret{
		ObjectMeta: e.meta(req),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{inputKey: input, tokenKey: []byte(req.JobRun.Token), ticketKey: req.JobRun.Ticket},
	}, nil
}

// environment is that of a run, with the settings of Ansible that runs of this process have from
// its environment, where the template says nothing of them.
func (e *Executor) environment(of map[string]string, template corev1.PodTemplateSpec) map[string]string {
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

// inherited is a command with the variables of this process that it inherits, where the template
// says nothing of them.
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

// variablesOf are the names of the variables that a template sets.
func variablesOf(template corev1.PodTemplateSpec) (names []string) {
	for _, c := range template.Spec.Containers {
		for _, v := range c.Env {
			names = append(names, v.Name)
		}
	}
	return names
}

func (e *Executor) meta(req runner.Request) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: req.ID, Namespace: e.opts.Namespace, Labels: e.labelsOf(req)}
}

func (e *Executor) labelsOf(req runner.Request) map[string]string {
	return map[string]string{runLabel: req.ID, objectLabel: req.JobRun.Subject, operatorLabel: e.operator(), "app.kubernetes.io/managed-by": "rolewright"}
}

// job is the Job of a run.
func (e *Executor) job(req runner.Request) (*batchv1.Job, error) {
	template, err := watches.PodTemplate(req.JobRun.Template)
	if err != nil {
		return nil, err
	}
	pod, labels := &template.Spec, e.labelsOf(req)
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
	e.fill(pod, req)
	digest := sha256.Sum256([]byte(req.JobRun.Token))
	job := &batchv1.Job{
		ObjectMeta: e.meta(req),
		Spec: batchv1.JobSpec{
			Template: template, BackoffLimit: new(int32(0)), Completions: new(int32(1)), Parallelism: new(int32(1)),
			TTLSecondsAfterFinished: new(int32(kept / time.Second)), PodReplacementPolicy: new(batchv1.Failed),
		},
	}
	job.Annotations = map[string]string{digestAnnotation: hex.EncodeToString(digest[:])}
	for name, value := range template.Labels { // Kueue looks at those of the Job
		job.Labels[name] = value
	}
	if req.JobRun.Timeout > 0 {
		job.Spec.ActiveDeadlineSeconds = new(int64((2*req.JobRun.Timeout + backstop) / time.Second))
	}
	return job, nil
}

// Preview is a Job as it is made with a Pod template, for those who ask whether the cluster admits it.
func Preview(opts Options, template []byte) (*batchv1.Job, error) {
	const name = "rolewright-doctor"
	e := &Executor{opts: opts}
	return e.job(runner.Request{ID: name, Dir: "/tmp/" + name + "/run", JobRun: &runner.JobRun{Template: template, Subject: name}})
}

// fill adds to a Pod what every run has.
func (e *Executor) fill(pod *corev1.PodSpec, req runner.Request) {
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
	command := e.opts.Program
	c.Image = cmp.Or(c.Image, e.opts.Image)
	if c.Image != e.opts.Image {
		mount := corev1.VolumeMount{Name: program, MountPath: programDir}
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: program, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		pod.InitContainers = slices.Insert(pod.InitContainers, 0, corev1.Container{
			Name: program, Image: e.opts.Image, Command: []string{e.opts.Program, InstallName, programDir},
			VolumeMounts: []corev1.VolumeMount{mount}, SecurityContext: restricted(pod), Resources: c.Resources,
			TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			// A directory that can be written, which the local cluster's library wants at the start of each process.
			Env: []corev1.EnvVar{{Name: "XDG_CACHE_HOME", Value: programDir}},
		})
		mount.ReadOnly = true
		c.VolumeMounts = append(c.VolumeMounts, mount)
		command = filepath.Join(programDir, "rolewright")
	}
	c.Command = []string{command, CommandName, "--input=" + filepath.Join(inputDir, inputKey)}
	if e.opts.AnsibleRunner != "" {
		c.Command = append(c.Command, "--ansible-runner="+e.opts.AnsibleRunner)
	}
	c.Env = append(c.Env,
		corev1.EnvVar{Name: "ROLEWRIGHT_POD", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.uid"}}},
		corev1.EnvVar{Name: "TMPDIR", Value: work},
		corev1.EnvVar{Name: "XDG_CACHE_HOME", Value: work}) // the home directory of an image may not be writable
	// What the process says that could not even begin: what it says of a run is in the file.
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	if c.SecurityContext == nil {
		c.SecurityContext = restricted(pod)
	}
}

// restricted is what Pod security admission wants of a container where it wants most. The user is
// the image's, unless the Pod says something of it.
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
