package main

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/doctor"
	"github.com/rolewright/rolewright/internal/jobs"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner/remote"
)

// unknownImage stands for the operator's image if that is not known.
const unknownImage = "the-operators-own"

// jobsLeftOut is the finding that a check of Jobs was left out.
func jobsLeftOut(found, remedy string) doctor.Finding {
	return doctor.Finding{Check: "Jobs", State: doctor.LeftOut, Found: found, Remedy: remedy}
}

// checkJobs checks what runs as Jobs need, if some watch makes such runs.
func (o *doctorOptions) checkJobs(ctx context.Context, client kubernetes.Interface, watched []watches.Watch) []doctor.Finding {
	if !makesJobs(watched) {
		return nil
	}
	namespace := cmp.Or(o.jobNamespace, o.leaseNamespace())
	if namespace == "" {
		return []doctor.Finding{jobsLeftOut("the namespace of Jobs is not known", "name it with --job-namespace")}
	}
	found, err := doctor.Jobs(namespace).Check(ctx, client)
	if err != nil {
		return append(found, jobsLeftOut(err.Error(), ""))
	}
	image := o.jobImage
	if image == "" {
		if image, err = ownImage(client, podNamespace()); err != nil {
			image = unknownImage
		}
	}
	for _, w := range watched {
		if w.Executor != watches.ExecutorJob {
			continue
		}
		job, err := jobs.Preview(jobs.Options{Namespace: namespace, Image: image, Program: "/usr/local/bin/rolewright"}, w.Job)
		if err != nil {
			found = append(found, doctor.Finding{Check: "Jobs", State: doctor.Failed, Found: err.Error()})
			continue
		}
		in := "the image " + job.Spec.Template.Spec.Containers[0].Image
		if job.Spec.Template.Spec.Containers[0].Image == unknownImage {
			in = "the operator's image (name it with --job-image)"
		}
		needs := "ansible-core, ansible-runner and the content"
		if !w.Content.Ansible() {
			needs = "the program and the files"
		}
		found = append(found, doctor.CheckAdmission(ctx, client, w.GVK.Kind, job), doctor.Finding{
			Check: "Jobs", State: doctor.Note, Remedy: "see docs/jobs.md for what the image needs",
			Found: fmt.Sprintf("whether %s has %s of %s cannot be seen from here", in, needs, w.GVK.Kind),
		})
	}
	return append(found, o.checkJobURL(ctx, client, namespace))
}

// checkJobURL checks whether Pods of runs can reach the operator.
func (o *doctorOptions) checkJobURL(ctx context.Context, client kubernetes.Interface, namespace string) doctor.Finding {
	if o.jobURL == "" {
		remedy := "give the operator and doctor --job-url with the Service of config/jobs, such as https://my-operator-runs." + namespace + ".svc:8444"
		if inPod() {
			return jobsLeftOut("whether Pods of runs find the operator: doctor does not see the operator's --job-url", remedy)
		}
		return doctor.Finding{
			Check: "Jobs", State: doctor.Failed, Found: "--job-url is not set: the operator does not start without it, because Pods of runs have to reach the operator",
			Remedy: remedy,
		}
	}
	secret, err := client.CoreV1().Secrets(namespace).Get(ctx, jobs.IdentityName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return doctor.Finding{Check: "Jobs", State: doctor.OK, Found: "there is no certificate for Pods of runs yet: the operator makes it when it leads"}
	case err != nil:
		return jobsLeftOut("the certificate for Pods of runs: "+err.Error(), "grant the permissions above")
	}
	return doctor.CheckAnswer(ctx, o.jobURL, secret.Data[corev1.TLSCertKey], remote.ServerName)
}

// inPod tells whether this process runs in a Pod, perhaps beside an operator whose flags it does not see.
func inPod() bool {
	_, err := rest.InClusterConfig()
	return err == nil
}
