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

// rootPatience limits how long the API server may take to identify its cluster.
const rootPatience = 30 * time.Second

// RunnerRoot returns the directory below which the runs of this cluster are stored. That is
// runnerRoot, and RunnerRoot notes there that it belongs to this cluster; if it belongs to another
// one, it is a directory in runnerRoot. The UID of the namespace kube-system identifies a cluster.
// If that cannot be read, RunnerRoot returns runnerRoot and notes nothing.
func RunnerRoot(ctx context.Context, config *rest.Config, runnerRoot string, log logr.Logger) (string, error) {
	uid, err := clusterOf(ctx, config)
	if err != nil {
		log.Info("Cannot determine whether the runner root has runs of another cluster", "error", err.Error())
	}
	if uid == "" {
		return runnerRoot, nil
	}
	root, err := runstore.Claim(runnerRoot, uid)
	if err == nil && root != runnerRoot {
		log.Info("The runner root has runs of another cluster; runs of this cluster are kept in a subdirectory of it", "runnerRoot", root)
	}
	return root, err
}

// clusterOf returns the UID of the namespace kube-system; empty if it may not be read, or does not exist yet.
func clusterOf(ctx context.Context, config *rest.Config) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, rootPatience)
	defer cancel()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", fmt.Errorf("client for the UID of the cluster: %w", err)
	}
	// Ask first, so that no refused request appears in an audit log.
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
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) { // a new cluster creates it soon
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the UID of the cluster: %w", err)
	}
	return string(namespace.UID), nil
}
