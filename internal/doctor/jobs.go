package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/rbac"
)

// checkJobs is the name of the checks of runs as Jobs.
const checkJobs = "Jobs"

// Jobs lists the permissions that runs as Jobs need in a namespace.
func Jobs(namespace string) Service {
	return Service{Name: "runs as Jobs", Flag: "the executor job", On: true, Role: "jobs/role.yaml", Namespace: namespace, Needs: rbac.Jobs()}
}

// CheckAdmission asks by dry runs whether a Job and its Pod would be admitted. kind is the kind whose runs the Job would
// make.
func CheckAdmission(ctx context.Context, c kubernetes.Interface, kind string, job *batchv1.Job) Finding {
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	f := Finding{Check: checkJobs, State: Failed, Remedy: "change job of the watch, or what the namespace " + job.Namespace + " allows"}
	if _, err := c.BatchV1().Jobs(job.Namespace).Create(ctx, job, dry); err != nil {
		f.Found = fmt.Sprintf("a Job of %s is not admitted: %v", kind, err)
		return f
	}
	review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: job.Namespace, Verb: "create", Resource: "pods"}},
	}, metav1.CreateOptions{})
	if err != nil || !review.Status.Allowed {
		f.State, f.Found = Note, fmt.Sprintf("a Job of %s is admitted; whether its Pod is admitted cannot be checked without the permission to create Pods, which the operator does not need", kind)
		f.Remedy = "run doctor without --as, as a user who may create Pods in this namespace"
		return f
	}
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: job.Spec.Template.Spec}
	pod.Name, pod.Namespace = job.Name, job.Namespace
	if _, err := c.CoreV1().Pods(job.Namespace).Create(ctx, pod, dry); err != nil {
		f.Found = fmt.Sprintf("the Pod of a Job of %s is not admitted: %v", kind, err)
		return f
	}
	return Finding{Check: checkJobs, State: OK, Found: "a Job of " + kind + ", and its Pod, are admitted"}
}

// dialTimeout bounds the attempt to connect to the operator.
const dialTimeout = 5 * time.Second

// CheckAnswer checks whether an operator answers Pods of runs at a URL, with a certificate in PEM for a name. If none
// answers, that is only a note: only an operator that leads does.
func CheckAnswer(ctx context.Context, at string, certificate []byte, name string) Finding {
	f := Finding{Check: checkJobs, State: Failed, Found: fmt.Sprintf("--job-url %q is not an address of an operator", at), Remedy: "give https:// with a host and a port"}
	u, err := url.Parse(at)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return f
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "443")
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificate) {
		f.Found, f.Remedy = "the certificate of the operator cannot be read", "delete the Secret "+name+", and restart the operator"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	var wrong *tls.CertificateVerificationError
	switch {
	case errors.As(err, &wrong):
		f.Found = fmt.Sprintf("%s answers with another certificate than that of the Secret %s, which Pods of runs trust: %v", address, name, err)
		f.Remedy = "set --job-url to the Service of this operator; if it is that, restart the operator"
	case err != nil:
		f.State, f.Found = Note, fmt.Sprintf("no operator answers at %s: %v", address, err)
		f.Remedy = "an operator answers only while it leads; check the Service, and whether a NetworkPolicy blocks the connection"
	default:
		_ = conn.Close() // the connection is not needed any more
		f.State, f.Found, f.Remedy = OK, "an operator answers at "+address, ""
	}
	return f
}
