package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// The layout that operator-sdk creates for helm-operator runs unchanged: its files in the working directory, the
// entrypoint named helm-operator, the arguments of its Deployment.
func TestChart_LayoutOfHelmOperator(t *testing.T) {
	t.Parallel()
	program := binary(t)
	must.Do(t, charts())
	s := newStage(t)
	s.temp()
	must.Do(t, os.CopyFS(s.dir, os.DirFS(absolute(t, "cmd/rolewright/testdata/migrate/helm"))))
	entrypoint := filepath.Join(t.TempDir(), "helm-operator")
	must.Do(t, os.Symlink(program, entrypoint))
	k := s.kind(testenv.WithKind("Shop"))
	s.replace("watches.yaml", "shops.example.com", k.gvk.Group) // in that group, what a failed test leaves would hinder the next one
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	o := s.launchWith(func(o *operator) {
		o.cmd.Path, o.cmd.Args[0] = entrypoint, entrypoint
		o.cmd.Env = append(o.cmd.Env, "HOME="+s.dir, "PATH=/usr/bin:/bin")
	}, append(longLease(), "--watches-file=./watches.yaml", "--leader-elect", "--leader-election-id=shop-operator", "--leader-election-namespace="+s.namespace, "--suppress-override-values")...)

	k.create("corner", map[string]any{"image": "nginx"})
	is := k.await("corner", "released", func(is object) bool { return is.condition("Deployed").Reason == "InstallSuccessful" })
	name, _, _ := unstructured.NestedString(is.Object, "status", "deployedRelease", "name")
	if name != "corner" || is.condition("ReleaseFailed").Type != "" || is.condition("Irreconcilable").Type != "" ||
		strings.Join(is.GetFinalizers(), " ") != "helm.sdk.operatorframework.io/uninstall-release" {
		t.Errorf("finalizers %v, status %v", is.GetFinalizers(), is.Object["status"])
	}
	made := must.Get(client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "corner", metav1.GetOptions{}))(t)
	release := must.Get(client.CoreV1().Secrets(s.namespace).Get(t.Context(), "sh.helm.release.v1.corner.v1", metav1.GetOptions{}))(t)
	// The record stays for the finalizer, even in a foreground deletion.
	if owners := made.OwnerReferences; len(owners) != 1 || owners[0].UID != is.GetUID() || len(release.OwnerReferences) > 0 {
		t.Errorf("the owners of what was made: %v, of its record: %v", owners, release.OwnerReferences)
	}
	if made.Labels["helm.sdk.operatorframework.io/chart"] != "shop" {
		t.Errorf("labels %v", made.Labels)
	}
	events := must.Get(client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=OverrideValuesInUse"}))(t)
	if len(events.Items) != 1 || events.Items[0].Message != `Chart value "image" overridden to "****" by operator's watches.yaml` {
		t.Errorf("the Events of overrideValues: %v", events.Items)
	}
	k.delete("corner")
	k.awaitGone("corner")
	if _, err := client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "corner", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ConfigMap: %v", err)
	}
	o.stop()
}
