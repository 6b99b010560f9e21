package e2e

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// samovar is a watch of the chart of that name, whose crds/ has a kind that no other watch uses.
type samovar struct {
	kind

	s    *stage
	dir  string
	cups schema.GroupResource
}

func (s *stage) samovar(name string, lines ...string) samovar {
	s.t.Helper()
	m := samovar{s.kind(), s, filepath.Join("charts", name), schema.GroupResource{Group: name + "." + s.namespace + ".example.com", Resource: "cups"}}
	must.Do(s.t, os.CopyFS(filepath.Join(s.dir, m.dir), os.DirFS(absolute(s.t, "test/e2e/testdata/samovar"))))
	m.define("a cup")
	s.watch(m.kind, append([]string{"chart: " + m.dir, "retry: {initial: 1h, max: 1h}", "reconcilePeriod: 0s", "values: {group: " + m.cups.Group + "}"}, lines...)...)
	return m
}

// define writes crds/.
func (m samovar) define(description string) {
	m.s.write(filepath.Join(m.dir, "crds/cups.yaml"), fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s}
spec:
  group: %s
  names: {kind: Cup, plural: cups}
  scope: Namespaced
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: %q}}}]
`, m.cups, m.cups.Group, description))
}

// definition returns the description in the kind's definition; "none" if there is no definition.
func (m samovar) definition() string {
	m.t.Helper()
	crds := must.Get(dynamic.NewForConfig(m.s.cfg))(m.t).Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd, err := crds.Get(context.WithoutCancel(m.t.Context()), m.cups.String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "none"
	}
	must.Do(m.t, err)
	m.t.Cleanup(func() { _ = crds.Delete(context.Background(), m.cups.String(), metav1.DeleteOptions{}) })
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	text, _, _ := unstructured.NestedString(versions[0].(map[string]any), "schema", "openAPIV3Schema", "description")
	return text
}

// awaitData waits until a ConfigMap has a value, or does not have it.
func (s *stage) awaitData(client kubernetes.Interface, name, key, want string) {
	s.t.Helper()
	testenv.Eventually(s.t, name+" has "+key+" "+want, func(ctx context.Context) error {
		is, err := client.CoreV1().ConfigMaps(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && is.Data[key] != want {
			err = fmt.Errorf("data %v", is.Data)
		}
		return err
	})
}

// foreign writes something into a ConfigMap that the chart does not set.
func (s *stage) foreign(client kubernetes.Interface, name string) {
	s.t.Helper()
	must.Get(client.CoreV1().ConfigMaps(s.namespace).Patch(s.t.Context(), name, types.MergePatchType, []byte(`{"data": {"theirs": "kept"}}`), metav1.PatchOptions{}))(s.t)
}

// Hooks, definitions and lookups of a chart work, and so do the annotations of helm-operator.
func TestChart_HooksAndAnnotations(t *testing.T) {
	t.Parallel()
	binary(t)
	must.Do(t, charts())
	s := newStage(t)
	s.temp()
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	maps, jobs := client.CoreV1().ConfigMaps(s.namespace), client.BatchV1().Jobs(s.namespace)
	m := s.samovar("create")
	o := s.start("--ansible-runner=/not/there")

	// The definition exists before its object. Each hook ends before the next one by weight begins, and all end before
	// the rest.
	m.create("it", map[string]any{"cup": true})
	is := m.awaitReady("it")
	if m.definition() != "a cup" {
		t.Errorf("the definition: %s", m.definition())
	}
	cups := must.Get(dynamic.NewForConfig(s.cfg))(t).Resource(m.cups.WithVersion("v1")).Namespace(s.namespace)
	if owners := must.Get(cups.Get(t.Context(), "it", metav1.GetOptions{}))(t).GetOwnerReferences(); len(owners) != 1 || owners[0].UID != is.GetUID() {
		t.Errorf("the owners of the object of the chart's kind: %v", owners)
	}
	first := must.Get(jobs.Get(t.Context(), "it-z-first", metav1.GetOptions{}))(t)
	second := must.Get(maps.Get(t.Context(), "it-a-second", metav1.GetOptions{}))(t)
	made := must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t)
	version := func(of metav1.ObjectMeta) int { return must.Get(strconv.Atoi(of.ResourceVersion))(t) }
	if first.Status.Succeeded != 1 || version(first.ObjectMeta) > version(second.ObjectMeta) || version(second.ObjectMeta) > version(made.ObjectMeta) ||
		len(second.OwnerReferences) != 1 || second.OwnerReferences[0].UID != is.GetUID() {
		t.Errorf("the hooks: %d succeeded; versions %d, %d, and of the release %d; owners %v", first.Status.Succeeded,
			version(first.ObjectMeta), version(second.ObjectMeta), version(made.ObjectMeta), second.OwnerReferences)
	}
	if _, err := maps.Get(t.Context(), "it-succeeded", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a hook that is to go when it has succeeded: %v", err)
	}
	if _, err := jobs.Get(t.Context(), "it-upgraded", metav1.GetOptions{}); !apierrors.IsNotFound(err) || made.Data["found"] != "true" {
		t.Errorf("before an upgrade: its hook %v, data %v", err, made.Data)
	}

	// Here, only the annotation causes periodic runs, which write nothing. Random values cause no upgrade, and what
	// lookup finds stays found.
	m.patch("it", `{"metadata": {"annotations": {"helm.sdk.operatorframework.io/reconcile-period": "1s"}}}`)
	s.awaitMoreRuns(is, 2) // a run that had already begun could still have reported something
	before := s.written()
	s.awaitMoreRuns(is, 3)
	if after := s.written(); len(after) > len(before) {
		t.Errorf("written by periodic runs that change nothing: %v", after[len(before):])
	}
	m.patch("it", `{"metadata": {"annotations": {"helm.sdk.operatorframework.io/reconcile-period": null}}}`)
	s.awaitEvent(client, is, "NonDeterministicChart", "Secret it-random")
	if got := s.revisions(client, "it"); got != "1 deployed" {
		t.Errorf("after runs without a change: revisions %s", got)
	}

	// An upgrade keeps what others have added, unless it is forced. So does a rollback.
	s.foreign(client, "it")
	m.patch("it", `{"spec": {"size": 2}}`)
	m.awaitReady("it")
	if made = must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t); made.Data["size"] != "2" || made.Data["theirs"] != "kept" {
		t.Errorf("after an upgrade: data %v", made.Data)
	}
	if job := must.Get(jobs.Get(t.Context(), "it-upgraded", metav1.GetOptions{}))(t); job.Status.Succeeded != 1 || job.Labels["size"] != "2" {
		t.Errorf("the hook after the upgrade: labels %v, status %v", job.Labels, job.Status)
	}
	m.patch("it", `{"spec": {"size": 3}, "metadata": {"annotations": {"helm.sdk.operatorframework.io/upgrade-force": "true"}}}`)
	m.awaitReady("it")
	if made = must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t); made.Data["size"] != "3" || made.Data["theirs"] != "" {
		t.Errorf("after a forced upgrade: data %v", made.Data)
	}
	for force, kept := range map[string]string{"false": "kept", "true": ""} {
		s.foreign(client, "it")
		m.patch("it", fmt.Sprintf(`{"spec": {"badHook": true, "size": 4%d}, "metadata": {"annotations": {
			"helm.sdk.operatorframework.io/upgrade-force": null, "helm.sdk.operatorframework.io/rollback-force": %q}}}`, len(force), force))
		is = m.await("it", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
		if c := is.condition("ReleaseFailed"); c.Reason != "UpgradeError" || !strings.Contains(c.Message, "post-upgrade") || !strings.Contains(c.Message, "70000") {
			t.Errorf("ReleaseFailed of a hook: %v", c)
		}
		if made = must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t); made.Data["size"] != "3" || made.Data["theirs"] != kept {
			t.Errorf("after a rollback with force %s: data %v", force, made.Data)
		}
	}

	// A chart that no longer renders leaves everything as it is.
	m.patch("it", `{"spec": {"badHook": false, "broken": true}}`)
	is = m.await("it", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
	if c := is.condition("Irreconcilable"); c.Reason != "ReconcileError" || !strings.Contains(c.Message, "it is broken") || is.condition("Deployed").Status != "True" {
		t.Errorf("a chart that does not render: %v", is.Object["status"])
	}

	// If uninstall-wait is set, the deletion waits until the release is gone. By then the pre-delete hook has ended, and
	// the definition stays.
	must.Get(maps.Patch(t.Context(), "it", types.MergePatchType, []byte(`{"metadata": {"finalizers": ["example.com/hold"]}}`), metav1.PatchOptions{}))(t)
	m.patch("it", `{"metadata": {"annotations": {"helm.sdk.operatorframework.io/uninstall-wait": "true"}}}`)
	m.delete("it")
	testenv.Eventually(t, "the ConfigMap deleted, and held", func(ctx context.Context) error {
		is, err := maps.Get(ctx, "it", metav1.GetOptions{})
		if err == nil && is.DeletionTimestamp == nil {
			err = errors.New("not deleted yet")
		}
		return err
	})
	must.Get(maps.Get(t.Context(), "it-farewell", metav1.GetOptions{}))(t)
	if is = m.get("it"); len(is.GetFinalizers()) != 1 {
		t.Errorf("while something is left: finalizers %v", is.GetFinalizers())
	}
	m.await("it", "waiting", func(is object) bool {
		return strings.HasPrefix(is.condition("Deployed").Message, "Waiting until all resources")
	})
	must.Get(maps.Patch(t.Context(), "it", types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{}))(t)
	m.awaitGone("it")
	if m.definition() != "a cup" {
		t.Errorf("the definition after the release: %s", m.definition())
	}

	// No record is patched: operators of charts do not have the permission for that.
	for _, request := range s.written() {
		if strings.HasPrefix(request, "patch ") && strings.Contains(request, "/secrets/sh.helm.release.") {
			t.Errorf("a record is patched: %s", request)
		}
	}

	// A hook that does not end does not stop a deletion, and nothing of it is left.
	m.create("hung", map[string]any{"node": "none"})
	testenv.Eventually(t, "the hook started", func(ctx context.Context) error {
		_, err := jobs.Get(ctx, "hung-z-first", metav1.GetOptions{})
		return err
	})
	m.delete("hung")
	m.awaitGone("hung")
	if got := s.revisions(client, "hung"); got != "" {
		t.Errorf("revisions of what was stopped are left: %s", got)
	}
	o.stop()
}

// awaitMoreRuns waits until an object has run this many more times.
func (s *stage) awaitMoreRuns(is object, more int) {
	s.t.Helper()
	want := len(s.runs(is)) + more
	testenv.Eventually(s.t, "more runs", func(context.Context) error {
		if made := len(s.runs(is)); made < want {
			return fmt.Errorf("%d, and not %d", made, want)
		}
		return nil
	})
}

// written returns the requests to change something in the namespace, except the control plane's.
func (s *stage) written() (requests []string) {
	s.t.Helper()
	for _, e := range testenv.AuditEvents(s.t, s.namespace, func(e testenv.AuditEvent) bool {
		return e.Writes() && e.ObjectRef.Namespace == s.namespace && !strings.HasPrefix(e.User.Username, "system:k")
	}) {
		requests = append(requests, e.Verb+" "+e.RequestURI)
	}
	return requests
}

// awaitEvent waits for an Event with a text, and checks that there is no other Event with this reason for the object.
func (s *stage) awaitEvent(client kubernetes.Interface, about object, reason, text string) {
	s.t.Helper()
	testenv.Eventually(s.t, "the Event "+reason, func(ctx context.Context) error {
		list, err := client.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reason + ",involvedObject.uid=" + string(about.GetUID())})
		if err == nil && (len(list.Items) != 1 || !strings.Contains(list.Items[0].Message, text)) {
			err = fmt.Errorf("%d: %v", len(list.Items), list.Items)
		}
		return err
	})
}

// The options of a watch for its chart: whether runs wait, take over existing objects, look into the cluster and watch
// what they have made, and what happens to crds/.
func TestChart_OptionsOfTheWatch(t *testing.T) {
	t.Parallel()
	binary(t)
	must.Do(t, charts())
	s := newStage(t)
	s.temp()
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	waits := s.samovar("apply", "wait: true", "takeOwnership: true", "crds: apply", "dryRunOption: client", "watchDependentResources: false")
	looks := s.samovar("skip", "crds: skip")
	must.Get(client.CoreV1().ConfigMaps(s.namespace).Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Data: map[string]string{"theirs": "kept"}}, metav1.CreateOptions{}))(t)
	o := s.start("--ansible-runner=/not/there", "--watch-content")

	// No node has room for a Pod yet: one run waits for it, the other one ends.
	waits.create("waits", map[string]any{"deploy": true, "label": s.namespace})
	looks.create("looks", map[string]any{"deploy": true, "label": s.namespace})
	is := looks.await("looks", "not ready", func(is object) bool { return is.settled() })
	if c := is.condition("Ready"); c.Status != "False" || !strings.Contains(c.Message, "Deployment "+s.namespace+"/looks") {
		t.Errorf("Ready of what is not: %v", c)
	}
	waits.await("waits", "running", func(is object) bool { return is.status.Ansible.ActiveRun != nil })
	nodes := client.CoreV1().Nodes()
	node := must.Get(nodes.List(t.Context(), metav1.ListOptions{}))(t).Items[0].Name
	label := func(value any) []byte {
		return must.Get(json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{s.namespace: value}}}))(t)
	}
	must.Get(nodes.Patch(t.Context(), node, types.MergePatchType, label("here"), metav1.PatchOptions{}))(t)
	t.Cleanup(func() {
		_, _ = nodes.Patch(context.Background(), node, types.MergePatchType, label(nil), metav1.PatchOptions{})
	})
	is = waits.awaitReady("waits")
	if runs := s.runs(is); len(runs) != 1 {
		t.Errorf("the one that waits has made %d runs", len(runs))
	}
	looks.awaitReady("looks")
	s.awaitData(client, "waits", "size", "1")
	s.awaitData(client, "waits", "theirs", "kept")
	if waits.definition() != "a cup" || looks.definition() != "none" {
		t.Errorf("definitions: %s, %s", waits.definition(), looks.definition())
	}

	// If objects are not watched, changes by others start no run; another run reverts them. The chart is rendered without
	// the cluster.
	must.Get(client.CoreV1().ConfigMaps(s.namespace).Patch(t.Context(), "waits", types.MergePatchType, []byte(`{"data": {"size": "9"}}`), metav1.PatchOptions{}))(t)
	waits.patch("waits", `{"metadata": {"annotations": {"rolewright.dev/reconcile-at": "now"}}}`)
	is = waits.await("waits", "run by hand", func(is object) bool { return is.settled() && is.status.Ansible.LastHandledReconcileAt == "now" })
	if runs := s.runs(is); len(runs) != 2 || is.lastRun().Cause != "manual" {
		t.Errorf("after a change of what is not watched: %d runs, the last one %v", len(runs), is.lastRun())
	}
	s.awaitData(client, "waits", "size", "1")
	s.awaitEvent(client, is, "NonDeterministicChart", "ConfigMap waits")

	// A definition changes with its chart, without another revision.
	waits.define("a large cup")
	testenv.Eventually(t, "the definition as in the chart", func(context.Context) error {
		if is := waits.definition(); is != "a large cup" {
			return errors.New(is)
		}
		return nil
	})
	if got := s.revisions(client, "waits"); got != "1 deployed" {
		t.Errorf("after another definition: revisions %s", got)
	}
	// A refused definition is reported, and nothing is undone.
	s.write(filepath.Join(waits.dir, "crds/cups.yaml"), strings.ReplaceAll(string(must.Get(os.ReadFile(filepath.Join(s.dir, waits.dir, "crds/cups.yaml")))(t)), "plural: cups", "plural: mugs"))
	is = waits.await("waits", "failed", func(is object) bool { return is.condition("Irreconcilable").Status == "True" })
	if c := is.condition("Irreconcilable"); !strings.Contains(c.Message, "crds/cups.yaml of the chart: ") {
		t.Errorf("a definition that is refused: %v", c)
	}
	s.awaitData(client, "waits", "size", "1")
	waits.delete("waits")
	waits.awaitGone("waits")
	if _, err := client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "waits", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what was taken over: %v", err)
	}
	o.stop()
}

// Helm keeps a release in one Secret. A release that does not fit is refused with a message that says what to do. Nothing
// is changed or left behind.
func TestChart_TooLarge(t *testing.T) {
	t.Parallel()
	binary(t)
	must.Do(t, charts())
	s := newStage(t)
	s.temp()
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	m := s.samovar("large", "crds: skip")
	o := s.start("--ansible-runner=/not/there", "--watch-content")
	m.create("grows", nil)
	m.awaitReady("grows")
	large := make([]byte, 1<<20)
	_, _ = rand.Read(large) // compressible data would fit
	s.write(filepath.Join(m.dir, "files/large"), string(large))
	m.await("grows", "run with it", func(is object) bool { return is.settled() && is.lastRun().Cause == "content" })
	m.patch("grows", `{"spec": {"size": 2}}`)
	m.create("large", nil)
	for name, tt := range map[string]struct{ revisions, reason string }{"grows": {"1 deployed", "UpgradeError"}, "large": {"", "InstallError"}} {
		is := m.await(name, "stalled", func(is object) bool { return is.condition("Stalled").Status == "True" })
		if c := is.condition("ReleaseFailed"); c.Reason != tt.reason || !strings.Contains(c.Message, "does not fit into a Secret") || !strings.Contains(c.Message, ".helmignore") {
			t.Errorf("%s: ReleaseFailed %v", name, c)
		}
		if got := s.revisions(client, name); got != tt.revisions {
			t.Errorf("%s: revisions %s", name, got)
		}
	}
	s.awaitData(client, "grows", "size", "1")
	if _, err := client.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "large", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("something is left of what was refused: %v", err)
	}
	for _, name := range []string{"grows", "large"} {
		m.delete(name)
		m.awaitGone(name)
	}
	o.stop()
}
