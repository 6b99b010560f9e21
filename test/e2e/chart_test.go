package e2e

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// charts builds the program that runs charts, next to the operator's.
var charts = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program.dir, ".")
	build.Dir = filepath.Join(repository, "cmd", "rolewright-helm")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build rolewright-helm: %w\n%s", err, out)
	}
	return nil
})

// chartStage returns a stage with a watch of the test's chart.
func chartStage(t *testing.T, lines ...string) (*stage, kind, *operator, kubernetes.Interface) {
	t.Helper()
	binary(t)
	must.Do(t, charts())
	s := newStage(t)
	s.temp()
	k := s.kind()
	s.watch(k, append([]string{"chart: " + absolute(t, "test/e2e/testdata/kettle"), "retry: {initial: 1h, max: 1h}"}, lines...)...)
	return s, k, s.start("--ansible-runner=/not/there", "--watch-content"), must.Get(kubernetes.NewForConfig(s.cfg))(t)
}

// revisions returns the revisions of a release, with their statuses.
func (s *stage) revisions(client kubernetes.Interface, name string) string {
	s.t.Helper()
	list := must.Get(client.CoreV1().Secrets(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=" + name}))(s.t)
	var is []string
	for _, secret := range list.Items {
		is = append(is, secret.Labels["version"]+" "+secret.Labels["status"])
	}
	return strings.Join(is, ", ")
}

// A chart is released for its object: it is installed, upgraded if that changes something, kept as it is, rolled back and
// uninstalled, with Helm's storage and helm-operator's conditions.
func TestChart_Lifecycle(t *testing.T) {
	t.Parallel()
	s, k, o, client := chartStage(t, "overrideValues: {from: '{{ \"WATCH\" | lower }}'}")
	maps := client.CoreV1().ConfigMaps(s.namespace)
	reason := func(is object, of string) string { return is.condition(of).Status + " " + is.condition(of).Reason }

	k.create("it", map[string]any{"size": int64(3)})
	is := k.awaitReady("it")
	made := must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t)
	if owners := made.OwnerReferences; len(owners) != 1 || owners[0].UID != is.GetUID() || !*owners[0].Controller || owners[0].BlockOwnerDeletion != nil ||
		made.Data["size"] != "3" || made.Data["from"] != "watch" || made.Labels["helm.sdk.operatorframework.io/chart"] != "kettle" {
		t.Errorf("%v, data %v", made.ObjectMeta, made.Data)
	}
	kept := must.Get(maps.Get(t.Context(), "it-kept", metav1.GetOptions{}))(t)
	role := must.Get(client.RbacV1().ClusterRoles().Get(t.Context(), s.namespace+"-it", metav1.GetOptions{}))(t)
	for _, meta := range []metav1.ObjectMeta{kept.ObjectMeta, role.ObjectMeta} {
		if len(meta.OwnerReferences) > 0 || meta.Annotations["operator-sdk/primary-resource"] != s.namespace+"/it" {
			t.Errorf("%s: owners %v, annotations %v", meta.Name, meta.OwnerReferences, meta.Annotations)
		}
	}
	manifest, _, _ := unstructured.NestedString(is.Object, "status", "deployedRelease", "manifest")
	if reason(is, "Deployed") != "True InstallSuccessful" || is.condition("Deployed").Message != "The kettle has 3 litres.\n" ||
		reason(is, "Initialized") != "True Initialized" || !strings.Contains(manifest, "# Source: kettle/templates/all.yaml") || strings.Contains(manifest, "correct-horse") ||
		strings.Join(is.GetFinalizers(), " ") != "helm.sdk.operatorframework.io/uninstall-release" {
		t.Errorf("finalizers %v, status: %v", is.GetFinalizers(), is.Object["status"])
	}
	for _, want := range []string{"OverrideValuesInUse", "ReleaseInstalled"} {
		events := must.Get(client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + want}))(t)
		if len(events.Items) != 1 || events.Items[0].InvolvedObject.UID != is.GetUID() {
			t.Errorf("Events %s: %+v", want, events.Items)
		}
	}

	// A change of the spec is an upgrade. A change that renders the same objects is none, and neither is a run without a
	// change.
	k.patch("it", `{"spec": {"size": 4}}`)
	is = k.awaitReady("it")
	if got := s.revisions(client, "it"); got != "1 superseded, 2 deployed" || reason(is, "Deployed") != "True UpgradeSuccessful" {
		t.Errorf("after a change: revisions %s, %s", got, reason(is, "Deployed"))
	}
	k.patch("it", `{"spec": {"unused": true}}`)
	k.awaitReady("it")

	// Changes by others in an object of the release are reverted.
	made = must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t)
	made.Data["size"], made.Data["theirs"] = "5", "kept"
	must.Get(maps.Update(t.Context(), made, metav1.UpdateOptions{}))(t)
	must.Do(t, client.CoreV1().Services(s.namespace).Delete(t.Context(), "it", metav1.DeleteOptions{}))
	testenv.Eventually(t, "the drift corrected", func(ctx context.Context) error {
		_, err := client.CoreV1().Services(s.namespace).Get(ctx, "it", metav1.GetOptions{})
		if made, mapErr := maps.Get(ctx, "it", metav1.GetOptions{}); err == nil {
			if err = mapErr; err == nil && (made.Data["size"] != "4" || made.Data["theirs"] != "kept") {
				err = fmt.Errorf("data %v", made.Data)
			}
		}
		return err
	})
	if got := s.revisions(client, "it"); got != "1 superseded, 2 deployed" {
		t.Errorf("after no change and drift: revisions %s", got)
	}

	// An upgrade that the API server refuses is rolled back, and the condition says why.
	k.patch("it", `{"spec": {"port": 70000, "size": 9}}`)
	is = k.await("it", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
	made = must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t)
	if c := is.condition("ReleaseFailed"); c.Status+c.Reason != "TrueUpgradeError" || !strings.Contains(c.Message, "revision 2 was restored") ||
		!strings.Contains(c.Message, "70000") || made.Data["size"] != "4" || reason(is, "Deployed") != "True UpgradeSuccessful" {
		t.Errorf("after a failed upgrade: data %v, status %v", made.Data, is.Object["status"])
	}
	if got := s.revisions(client, "it"); got != "1 superseded, 2 superseded, 3 failed, 4 deployed" {
		t.Errorf("after a failed upgrade: revisions %s", got)
	}
	k.patch("it", `{"spec": {"port": 81}}`)
	if is = k.awaitReady("it"); is.condition("ReleaseFailed").Type != "" {
		t.Errorf("ReleaseFailed is left: %v", is.Object["status"])
	}

	k.delete("it")
	k.awaitGone("it")
	if _, err := client.RbacV1().ClusterRoles().Get(t.Context(), s.namespace+"-it", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ClusterRole: %v", err)
	}
	must.Get(maps.Get(t.Context(), "it-kept", metav1.GetOptions{}))(t)
	if got := s.revisions(client, "it"); got != "" {
		t.Errorf("revisions are left: %s", got)
	}
	if strings.Contains(o.output(), "correct-horse") {
		t.Error("the log has a secret")
	}
	o.stop()
}

// A release that Helm itself made before continues without another revision, however it was made. What a crash has left
// unfinished is repaired.
func TestChart_TakesOver(t *testing.T) {
	t.Parallel()
	s, k, o, client := chartStage(t, "valuesFrom: [{secretRef: {name: from}}]", "reconcilePeriod: 10s")
	secrets := client.CoreV1().Secrets(s.namespace)
	must.Get(secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "from"}, StringData: map[string]string{"from": "the-secret"}}, metav1.CreateOptions{}))(t)
	helm := func(args ...string) {
		t.Helper()
		cmd := process(t, absolute(t, "bin/tools/helm"), append(args, "--namespace", s.namespace)...)
		cmd.Env = s.env
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("helm %v: %v\n%s", args, err, out)
		}
	}
	chart := absolute(t, "test/e2e/testdata/kettle")
	helm("install", "it", chart, "--set", "size=3,from=the-secret")

	k.create("it", map[string]any{"size": int64(3)})
	is := k.awaitReady("it")
	made := must.Get(client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "it", metav1.GetOptions{}))(t)
	if owners := made.OwnerReferences; s.revisions(client, "it") != "1 deployed" || len(owners) != 1 || owners[0].UID != is.GetUID() {
		t.Errorf("taken over: revisions %s, owners %v", s.revisions(client, "it"), owners)
	}
	if seal, _, _ := unstructured.NestedString(is.Object, "status", "deployedRelease", "seal"); seal == "" {
		t.Errorf("taken over: no seal in the status: %v", is.Object["status"])
	}
	// The spec overrides a manual upgrade, including objects that the spec does not have. The pause lasts until that
	// upgrade has ended, because an unfinished one would count as left by a crash.
	k.patch("it", `{"metadata": {"annotations": {"rolewright.dev/paused": "true"}}}`)
	helm("upgrade", "it", chart, "--set", "size=7,from=the-secret,extra=true")
	k.patch("it", `{"metadata": {"annotations": {"rolewright.dev/paused": null}}}`)
	testenv.Eventually(t, "the upgrade by hand undone", func(ctx context.Context) error {
		made, err := client.CoreV1().ConfigMaps(s.namespace).Get(ctx, "it", metav1.GetOptions{})
		if err == nil && made.Data["size"] != "3" {
			err = fmt.Errorf("data %v", made.Data)
		}
		if _, extra := client.CoreV1().ConfigMaps(s.namespace).Get(ctx, "it-extra", metav1.GetOptions{}); err == nil && !apierrors.IsNotFound(extra) {
			err = fmt.Errorf("the object of the upgrade by hand: %w", extra)
		}
		return err
	})
	k.await("it", "settled", object.ready)

	// A crash leaves a record whose status is pending.
	list := must.Get(secrets.List(t.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=it,status=deployed"}))(t)
	pending := list.Items[0].DeepCopy()
	version := must.Get(strconv.Atoi(pending.Labels["version"]))(t) + 1
	pending.ObjectMeta = metav1.ObjectMeta{Name: fmt.Sprintf("sh.helm.release.v1.it.v%d", version), Labels: map[string]string{
		"owner": "helm", "name": "it", "status": "pending-upgrade", "version": strconv.Itoa(version),
	}}
	pending.Data["release"] = changedRelease(t, pending.Data["release"], func(release map[string]any) {
		release["version"], release["info"].(map[string]any)["status"] = version, "pending-upgrade"
	})
	must.Get(secrets.Create(t.Context(), pending, metav1.CreateOptions{}))(t)
	k.patch("it", `{"spec": {"size": 8}}`)
	k.awaitReady("it")
	if got := s.revisions(client, "it"); strings.Contains(got, "pending") || !strings.HasSuffix(got, " deployed") {
		t.Errorf("after a crash: revisions %s", got)
	}
	// A changed secret value is a change.
	must.Get(secrets.Update(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "from"}, StringData: map[string]string{"from": "another-secret"}}, metav1.UpdateOptions{}))(t)
	testenv.Eventually(t, "the new value of the Secret", func(ctx context.Context) error {
		made, err := client.CoreV1().ConfigMaps(s.namespace).Get(ctx, "it", metav1.GetOptions{})
		if err == nil && made.Data["from"] != "another-secret" {
			err = fmt.Errorf("data %v", made.Data)
		}
		return err
	})
	k.delete("it")
	k.awaitGone("it")
	o.stop()
}

// changedRelease returns one of Helm's records with a change in it.
func changedRelease(t *testing.T, record []byte, change func(release map[string]any)) []byte {
	t.Helper()
	unzip := must.Get(gzip.NewReader(bytes.NewReader(must.Get(base64.StdEncoding.DecodeString(string(record)))(t))))(t)
	var release map[string]any
	must.Do(t, json.NewDecoder(unzip).Decode(&release))
	change(release)
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	must.Do(t, json.NewEncoder(zip).Encode(release))
	must.Do(t, zip.Close())
	return []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))
}

// If a chart cannot be released, a condition says what to do. If only another object, chart or watch can help, it is not
// retried; everything else is.
func TestChart_BadInput(t *testing.T) {
	t.Parallel()
	s, k, o, client := chartStage(t)
	maps := client.CoreV1().ConfigMaps(s.namespace)
	must.Get(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "taken"}}, metav1.CreateOptions{}))(t)
	s.write("other/Chart.yaml", "apiVersion: v2\nname: other\nversion: 0.1.0\n")
	s.write("other/templates/a.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: others}}\n")
	helm := process(t, absolute(t, "bin/tools/helm"), "install", "clash", filepath.Join(s.dir, "other"), "--namespace", s.namespace)
	helm.Env = s.env
	if out, err := helm.CombinedOutput(); err != nil {
		t.Fatalf("helm: %v\n%s", err, out)
	}
	long := strings.Repeat("a", 54)
	for name, tt := range map[string]struct {
		spec    map[string]any
		stalled bool
		message string
	}{
		"schema": {map[string]any{"size": int64(-1)}, true, "the spec does not match values.schema.json of the chart"},
		"broken": {map[string]any{"broken": true}, false, "it is broken"},
		"taken":  {nil, false, `ConfigMap "taken" in namespace`},
		"clash":  {nil, false, `duplicate release name: found existing release with name "clash" for chart "other"`},
		"port":   {map[string]any{"port": int64(70000)}, false, "failed to install release: "},
		long:     {nil, true, "Helm allows 53 characters"},
	} {
		k.create(name, tt.spec)
		is := k.await(name, "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
		c := is.condition("ReleaseFailed")
		if name == "clash" {
			c = is.condition("Irreconcilable")
			if c.Type == "" {
				c = is.condition("ReleaseFailed")
			}
		}
		if stalled := is.condition("Stalled").Status == "True"; stalled != tt.stalled || !strings.Contains(c.Message, tt.message) {
			t.Errorf("%s: Stalled %t, status: %v", name, stalled, is.Object["status"])
		}
		if got := s.revisions(client, name); name != "clash" && got != "" {
			t.Errorf("%s: revisions are left: %s", name, got)
		}
		k.delete(name)
		k.awaitGone(name)
	}
	must.Get(maps.Get(t.Context(), "taken", metav1.GetOptions{}))(t)
	must.Get(maps.Get(t.Context(), "others", metav1.GetOptions{}))(t)
	if got := s.revisions(client, "clash"); got != "1 deployed" {
		t.Errorf("the release of another chart: %s", got)
	}
	o.stop()
}
