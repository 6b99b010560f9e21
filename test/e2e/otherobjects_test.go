package e2e

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
)

// reads is a role that reports what it gets of other objects: of the Secret only a digest.
const reads = `
- ansible.builtin.debug: {msg: "The password is {{ db_password }}"}
- kubernetes.core.k8s_info: {kind: ConfigMap, name: "{{ settings }}", namespace: "{{ ansible_operator_meta.namespace }}"}
  register: found
- rolewright.operator.trigger_info:
  register: why
- rolewright.operator.status:
    fields: {digest: "{{ db_password | hash('sha256') }}", color: "{{ found.resources[0].data.color }}", why: "{{ why.cause }}: {{ why.trigger }}"}
`

// Objects run once for each change of what they name, or of what triggers them, with the new values. The values of a
// Secret are nowhere outside the run.
func TestOtherObjects_AChangeRunsTheObjectsOnce(t *testing.T) {
	t.Parallel()
	const first, second = "CanaryOfAPassword", "CanaryOfAnotherPassword"
	s := newStage(t)
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	secrets, configMaps := client.CoreV1().Secrets(s.namespace), client.CoreV1().ConfigMaps(s.namespace)
	must.Get(secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "database"}, StringData: map[string]string{"password": first}}, metav1.CreateOptions{}))(t)
	for name, labels := range map[string]map[string]string{"one": nil, "two": nil, "shared": {"shared": "yes"}, "listed": {"listed": "yes"}} {
		must.Get(configMaps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Data: map[string]string{"color": "green"},
		}, metav1.CreateOptions{}))(t)
	}
	s.role("reads", reads)
	k := s.kind()
	s.watch(k, "role: reads", "references: [{version: v1, kind: ConfigMap, fromField: spec.settings}]",
		"varsFrom: [{secretRef: {nameField: spec.secret}, prefix: db_}]",
		"triggers:", "- {version: v1, kind: ConfigMap, selector: {matchLabels: {shared: 'yes'}}}",
		"- {version: v1, kind: ConfigMap, selector: {matchLabels: {listed: 'yes'}}, namespaceSelector: {matchLabels: {team: a}}, on: [create, delete]}")
	o := s.start()
	for _, name := range []string{"one", "two"} {
		k.create(name, map[string]any{"secret": "database", "settings": name})
	}
	for _, name := range []string{"one", "two"} {
		k.awaitReady(name)
	}

	patch := func(resource, name, data string) {
		t.Helper()
		result := client.CoreV1().RESTClient().Patch(types.MergePatchType).Namespace(s.namespace).Resource(resource).Name(name).Body([]byte(data)).Do(t.Context())
		must.Do(t, result.Error())
	}
	var statuses string
	for _, change := range []struct {
		resource, name, data string
		ran                  []string // the objects
		cause                string
		password, color      string // of the object one
	}{
		{"configmaps", "one", `{"data":{"color":"red"}}`, []string{"one"}, "reference", first, "red"},
		{"secrets", "database", `{"stringData":{"password":"` + second + `"}}`, []string{"one", "two"}, "reference", second, "red"},
		{"configmaps", "shared", `{"data":{"color":"blue"}}`, []string{"one", "two"}, "trigger", second, "red"},
	} {
		before := len(s.runs())
		patch(change.resource, change.name, change.data)
		why := change.cause + ": " + change.resource + " " + s.namespace + "/" + change.name + " was changed"
		for _, name := range change.ran {
			is := k.await(name, "run for "+why, func(o object) bool { return o.ready() && o.lastRun().Cause+": "+o.lastRun().Trigger == why })
			told, _, _ := unstructured.NestedString(is.Object, "status", "why")
			must.Be(t, "what the role is told", why, told)
			digest, _, _ := unstructured.NestedString(is.Object, "status", "digest")
			must.Be(t, "digest of the password", fmt.Sprintf("%x", sha256.Sum256([]byte(change.password))), digest)
			color, _, _ := unstructured.NestedString(is.Object, "status", "color")
			must.Be(t, "color", map[string]string{"one": change.color, "two": "green"}[name], color)
			statuses += encoded(t, is.Object)
		}
		must.Be(t, "runs for "+why, len(change.ran), len(s.runs())-before)
	}

	// The namespace starts to match. After that an update starts nothing, and a deletion starts a run.
	started := func(trigger string) {
		t.Helper()
		for _, name := range []string{"one", "two"} {
			k.await(name, "run because "+trigger, func(o object) bool {
				return o.ready() && o.lastRun().Cause == "trigger" && o.lastRun().Trigger == trigger
			})
		}
	}
	must.Get(client.CoreV1().Namespaces().Patch(t.Context(), s.namespace, types.MergePatchType, []byte(`{"metadata":{"labels":{"team":"a"}}}`), metav1.PatchOptions{}))(t)
	started("namespaces " + s.namespace + " was changed")
	patch("configmaps", "listed", `{"data":{"color":"blue"}}`)
	must.Do(t, configMaps.Delete(t.Context(), "listed", metav1.DeleteOptions{}))
	started("configmaps " + s.namespace + "/listed was deleted")
	must.Be(t, "runs so far", 11, len(s.runs()))
	events := must.Get(client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{}))(t)
	o.stop()
	if !strings.Contains(o.output(), "The password is [masked]") {
		t.Error("the log does not show that the role has printed the password")
	}
	for where, text := range map[string]string{"log": o.output(), "objects": statuses, "events": encoded(t, events)} {
		for _, form := range hits(text, first, second) {
			t.Errorf("%s: %q is there", where, form)
		}
	}

	o = s.start()
	o.awaitDecided(k, 2)
	must.Be(t, "runs, with those after a restart", 11, len(s.runs()))
}
