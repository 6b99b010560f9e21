package assembly

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller/runstore"
)

// rootPatience bounds how long the API server may take to say which cluster it is.
const rootPatience = 30 * time.Second

// RunnerRoot returns the directory below which the runs of the cluster are: the runner root, and
// notes there that it is this cluster's, or a directory in it where it is another's. A cluster
// is known by the UID of its namespace kube-system; where that cannot be read, nothing is noted,
// and the runner root is taken for the cluster's.
func RunnerRoot(ctx context.Context, config *rest.Config, runnerRoot string, log logr.Logger) (string, error) {
	uid, err := clusterOf(ctx, config)
	if err != nil {
		log.Info("It is not known whether the runner root has the runs of another cluster", "error", err.Error())
	}
	if uid == "" {
		return runnerRoot, nil
	}
	root, err := runstore.Claim(runnerRoot, uid)
	if err == nil && root != runnerRoot {
		log.Info("The runner root has the runs of another cluster; those of this one are in a directory below it", "runnerRoot", root)
	}
	return root, err
}

// clusterOf returns the UID of the namespace kube-system; empty if it may not be read, or is not made yet.
func clusterOf(ctx context.Context, config *rest.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, rootPatience)
	defer cancel()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("client for the UID of the cluster: %w", err)
	}
	// It is asked first, so that no audit log has a request that was refused.
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "namespaces", Namespace: metav1.NamespaceSystem, Name: metav1.NamespaceSystem,
		}},
	}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || err == nil && !review.Status.Allowed {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("ask whether the UID of the cluster may be read: %w", err)
	}
	namespace, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // it is made soon after the first start of a cluster
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the UID of the cluster: %w", err)
	}
	return string(namespace.UID), nil
}
