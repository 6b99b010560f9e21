package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// forgery is what a user can do who may write Secrets in the namespace of a release.
type forgery struct {
	*stage
	client kubernetes.Interface
	// victims is another namespace, with the Secret victim.
	victims string
}

// in makes a release name objects that do not belong to it: one that exists, one that does not exist, and hooks.
func (f forgery) in(release map[string]any) {
	release["namespace"] = f.victims
	release["manifest"] = fmt.Sprint(release["manifest"]) + fmt.Sprintf(`
---
{apiVersion: v1, kind: Secret, metadata: {name: victim, namespace: %s}, stringData: {key: forged}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: %s-forged},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: me}]}
`, f.victims, f.namespace)
	var hooks []any
	for _, event := range []string{"pre-upgrade", "post-upgrade", "pre-rollback", "post-rollback", "pre-delete", "post-delete"} {
		hooks = append(hooks, map[string]any{
			"name": event, "kind": "ConfigMap", "path": "forged.yaml", "events": []string{event},
			"manifest": fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, namespace: %s}}", event, f.victims),
		})
	}
	release["hooks"] = hooks
}

// record returns the Secret of a revision of the release, with a status.
func (f forgery) record(status string) *corev1.Secret {
	f.t.Helper()
	list := must.Get(f.client.CoreV1().Secrets(f.namespace).List(f.t.Context(), metav1.ListOptions{LabelSelector: "owner=helm,name=it,status=" + status}))(f.t)
	if len(list.Items) != 1 {
		f.t.Fatalf("%d revisions are %s", len(list.Items), status)
	}
	return &list.Items[0]
}

// forge forges the deployed revision.
func (f forgery) forge() { f.change(f.in) }

// smuggle appends an object to the first one, which is in JSON. Helm's YAML reader then finds two objects, others find
// one.
func (f forgery) smuggle() {
	f.change(func(release map[string]any) {
		first, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(fmt.Sprint(release["manifest"])), "---\n"), "\n---\n")
		release["manifest"] = string(must.Get(yaml.YAMLToJSON([]byte(first)))(f.t)) + fmt.Sprintf(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %s-forged}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: me}]
---
`, f.namespace) + rest
	})
}

// change changes the deployed revision.
func (f forgery) change(change func(release map[string]any)) {
	f.t.Helper()
	secret := f.record("deployed")
	secret.Data["release"] = changedRelease(f.t, secret.Data["release"], change)
	must.Get(f.client.CoreV1().Secrets(f.namespace).Update(f.t.Context(), secret, metav1.UpdateOptions{}))(f.t)
}

// reached fails the test if the forgery has affected something.
func (f forgery) reached(when string) {
	f.t.Helper()
	victim, err := f.client.CoreV1().Secrets(f.victims).Get(f.t.Context(), "victim", metav1.GetOptions{})
	if err != nil || string(victim.Data["key"]) != "theirs" || len(victim.Annotations) > 0 {
		f.t.Errorf("%s: the Secret of another namespace: %v, %v %v", when, err, victim.Annotations, victim.Data)
	}
	if _, err := f.client.RbacV1().ClusterRoleBindings().Get(f.t.Context(), f.namespace+"-forged", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		f.t.Errorf("%s: the forged ClusterRoleBinding: %v", when, err)
	}
	if _, err := f.client.RbacV1().ClusterRoles().Get(f.t.Context(), f.victims+"-it", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		f.t.Errorf("%s: the chart was rendered for another namespace: %v", when, err)
	}
	for _, is := range must.Get(f.client.CoreV1().ConfigMaps(f.victims).List(f.t.Context(), metav1.ListOptions{}))(f.t).Items {
		if is.Name != "kube-root-ca.crt" {
			f.t.Errorf("%s: the forged hook %s has run", when, is.Name)
		}
	}
}

// What is only in a forged release is not created, changed, restored, run or deleted. The release itself continues.
func TestChart_ForgedRelease(t *testing.T) {
	t.Parallel()
	s, k, o, client := chartStage(t)
	f := forgery{s, client, testenv.Namespace(t, s.cfg)}
	must.Get(client.CoreV1().Secrets(f.victims).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "victim"}, StringData: map[string]string{"key": "theirs"}}, metav1.CreateOptions{}))(t)
	maps := client.CoreV1().ConfigMaps(s.namespace)
	size := func(want string) {
		t.Helper()
		testenv.Eventually(t, "size "+want, func(ctx context.Context) error {
			made, err := maps.Get(ctx, "it", metav1.GetOptions{})
			if err == nil && made.Data["size"] != want {
				err = fmt.Errorf("data %v", made.Data)
			}
			return err
		})
	}
	k.create("it", map[string]any{"size": int64(3)})
	k.awaitReady("it")

	// Drift is corrected to what the chart renders.
	drift := func() {
		t.Helper()
		made := must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t)
		made.Data["size"] = "5"
		must.Get(maps.Update(t.Context(), made, metav1.UpdateOptions{}))(t)
		size("3")
		k.awaitReady("it")
	}
	f.forge()
	drift()
	f.reached("drift")

	// An object in the text of another object, where only Helm finds it, is not taken over either.
	f.smuggle()
	drift()
	drift()
	f.reached("the run after the forgery was taken over")

	// An upgrade removes objects that belong to the release. A failed upgrade does not restore what was forged.
	k.patch("it", `{"spec": {"size": 4, "extra": true}}`)
	k.awaitReady("it")
	size("4")
	f.forge()
	k.patch("it", `{"spec": {"extra": false, "port": 70000}}`)
	is := k.await("it", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
	if c := is.condition("ReleaseFailed"); !strings.Contains(c.Message, "is not restored") {
		t.Errorf("a failed upgrade of a forged release: %+v", c)
	}
	f.reached("a failed upgrade")
	k.patch("it", `{"spec": {"port": 81, "size": 6}}`)
	k.awaitReady("it")
	f.reached("upgrade")
	if _, err := maps.Get(t.Context(), "it-extra", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what has left the chart: %v", err)
	}
	upgraded := must.Get(client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=ReleaseUpgraded"}))(t)
	said := fmt.Sprint(upgraded.Items)
	if !strings.Contains(said, "ConfigMap it-extra") || strings.Contains(said, "Secret "+f.victims) || strings.Contains(said, "-forged") {
		t.Errorf("the Events claim an upgrade of what was left: %s", said)
	}

	// A release that others have written takes over nothing that others have created.
	theirs := must.Get(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Data: map[string]string{"size": "theirs"}}, metav1.CreateOptions{}))(t)
	secret := f.record("deployed")
	copied := &corev1.Secret{Type: secret.Type, ObjectMeta: metav1.ObjectMeta{Name: "sh.helm.release.v1.new.v1", Labels: map[string]string{
		"owner": "helm", "name": "new", "status": "deployed", "version": "1",
	}}}
	copied.Data = map[string][]byte{"release": changedRelease(t, secret.Data["release"], func(release map[string]any) {
		release["name"], release["version"] = "new", 1
		release["manifest"] = strings.NewReplacer("name: it", "name: new", "app: it", "app: new", "-it\n", "-new\n").Replace(release["manifest"].(string))
	})}
	must.Get(client.CoreV1().Secrets(s.namespace).Create(t.Context(), copied, metav1.CreateOptions{}))(t)
	k.create("new", map[string]any{"size": int64(6), "port": int64(81), "extra": false})
	is = k.await("new", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
	if c := is.condition("Irreconcilable"); !strings.Contains(c.Message, "ConfigMap "+s.namespace+"/new exists and carries no mark of the release new") {
		t.Errorf("a forged release of what others have made: %+v", c)
	}
	if now := must.Get(maps.Get(t.Context(), "new", metav1.GetOptions{}))(t); now.ResourceVersion != theirs.ResourceVersion {
		t.Errorf("what others have made: %v", now)
	}

	// A forged revision above the deployed one has no effect, whatever it contains.
	version := must.Get(strconv.Atoi(secret.Labels["version"]))(t) + 1
	forged := &corev1.Secret{Type: secret.Type, ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("sh.helm.release.v1.it.v%d", version), Labels: map[string]string{
		"owner": "helm", "name": "it", "status": "failed", "version": strconv.Itoa(version),
	}}}
	forged.Data = map[string][]byte{"release": changedRelease(t, secret.Data["release"], func(release map[string]any) {
		f.in(release)
		release["version"], release["info"].(map[string]any)["status"] = version, "failed"
	})}
	must.Get(client.CoreV1().Secrets(s.namespace).Create(t.Context(), forged, metav1.CreateOptions{}))(t)
	k.delete("it")
	k.awaitGone("it")
	f.reached("deletion")
	if _, err := client.RbacV1().ClusterRoles().Get(t.Context(), s.namespace+"-it", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the ClusterRole of the release: %v", err)
	}
	if got := s.revisions(client, "it"); got != "" {
		t.Errorf("revisions are left: %s", got)
	}
	o.stop()
}

// A record that cannot be read does not count as missing. If it may be the record of the deployed revision, nothing is
// done until it is restored or deleted. An older record is left alone.
func TestChart_UnreadableRelease(t *testing.T) {
	t.Parallel()
	s, k, o, client := chartStage(t)
	secrets := client.CoreV1().Secrets(s.namespace)
	write := func(name, release string) {
		t.Helper()
		secret := must.Get(secrets.Get(t.Context(), name, metav1.GetOptions{}))(t)
		secret.Data["release"] = []byte(release)
		must.Get(secrets.Update(t.Context(), secret, metav1.UpdateOptions{}))(t)
	}
	history := func(want string) {
		t.Helper()
		if got := s.revisions(client, "it"); got != want {
			t.Errorf("revisions: %s, not %s", got, want)
		}
	}
	size := int64(2)
	next := func() {
		size++
		k.patch("it", fmt.Sprintf(`{"spec": {"size": %d}}`, size))
	}
	refused := func(record string) {
		t.Helper()
		next()
		is := k.await("it", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
		if c := is.condition("Irreconcilable"); !strings.Contains(c.Message, "Secret "+record+"; restore it") || is.condition("Stalled").Status == "True" {
			t.Errorf("status: %v", is.Object["status"])
		}
	}
	const first, second = "sh.helm.release.v1.it.v1", "sh.helm.release.v1.it.v2"
	k.create("it", map[string]any{"size": size})
	k.awaitReady("it")
	next()
	k.awaitReady("it")
	good := string(must.Get(secrets.Get(t.Context(), second, metav1.GetOptions{}))(t).Data["release"])

	for _, bad := range []string{"", "%", good[:len(good)/2], base64.StdEncoding.EncodeToString([]byte(`{}`)), base64.StdEncoding.EncodeToString([]byte(`{"version": 2}`))} {
		write(second, bad)
		refused(second)
		history("1 superseded, 2 deployed")
	}
	write(second, good)
	next()
	k.awaitReady("it")
	history("1 superseded, 2 superseded, 3 deployed")

	// Without that record, the previous revision counts, and older records do not matter.
	must.Do(t, secrets.Delete(t.Context(), "sh.helm.release.v1.it.v3", metav1.DeleteOptions{}))
	write(first, "%")
	next()
	k.awaitReady("it")
	history("1 superseded, 2 superseded, 3 deployed")
	k.delete("it")
	k.awaitGone("it")
	o.stop()
}
