package assembly

import (
	"context"
	"errors"
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

// OwnRoot tells whether the runs below the runner root are of the cluster, and notes there that
// they are. A cluster is known by the UID of its namespace kube-system; where that cannot be
// read, nothing is noted, and they are taken for the cluster's.
func OwnRoot(ctx context.Context, config *rest.Config, runnerRoot string, log logr.Logger) (bool, error) {
	uid, err := clusterOf(ctx, config)
	if err != nil {
		log.Info("It is not known whether the runner root has the runs of another cluster", "error", err.Error())
	}
	if uid == "" {
		return true, nil
	}
	err = runstore.Claim(runnerRoot, uid)
	if errors.Is(err, runstore.ErrOtherCluster) {
		log.Info("There is no history of runs, so that --api-port and --ui serve none, and what is left of objects that are gone stays", "error", err.Error())
		return false, nil
	}
	return err == nil, err
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
