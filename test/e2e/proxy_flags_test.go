package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// ask sends a request as curl does, and returns the status and the body of the answer.
func ask(t *testing.T, method, url, user, body string) (int, string) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	if user != "" {
		req.SetBasicAuth(user, "unused")
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return res.StatusCode, string(data)
}

// userTag returns the user name in which clients of ansible-operator name the owner of what they create.
func userTag(t *testing.T, o object) string {
	t.Helper()
	data := must.Get(json.Marshal(map[string]string{
		"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName(), "uid": string(o.GetUID()), "namespace": o.GetNamespace(),
	}))(t)
	return base64.URLEncoding.EncodeToString(data)
}

func TestProxy_LetsClientsWithoutATokenInOnlyWhereToldTo(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("one", "- ansible.builtin.debug: {msg: done}\n")
	s.watch(k, "role: one")
	_, port, err := net.SplitHostPort(testenv.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	configMaps := "http://localhost:" + port + "/api/v1/namespaces/" + s.namespace + "/configmaps"

	o := s.start("--proxy-port="+port, "--proxy-anonymous")
	if status, body := ask(t, http.MethodGet, configMaps, "", ""); status != http.StatusOK || !strings.Contains(body, `"ConfigMapList"`) {
		t.Errorf("a read without credentials: %d: %s", status, body)
	}
	k.create("it", nil)
	it := k.awaitReady("it")
	for name, user := range map[string]string{"tagged": userTag(t, it), "free": ""} {
		if status, body := ask(t, http.MethodPost, configMaps, user, `{"metadata":{"name":"`+name+`"}}`); status != http.StatusCreated {
			t.Errorf("create %s: %d: %s", name, status, body)
		}
	}
	cs := s.children()
	cs.owned(it, child{"configmaps.v1.", s.namespace, "tagged"})
	cs.unowned(child{"configmaps.v1.", s.namespace, "free"})
	if _, metrics := ask(t, http.MethodGet, o.metrics, "", ""); !strings.Contains(metrics, "\nrolewright_proxy_anonymous 1\n") ||
		!strings.Contains(metrics, "\nrolewright_proxy_anonymous_requests_total 3\n") {
		t.Error("the metrics say nothing of three requests without a token")
	}
	if log := o.output(); !strings.Contains(log, "Warning: the API proxy lets every process of this machine act as the operator") {
		t.Error("the log has no warning")
	}
	// What such a client creates is watched like what a run creates.
	o.awaitChildrenWatched("/v1, Kind=ConfigMap")
	cs.delete(child{"configmaps.v1.", s.namespace, "tagged"})
	k.await("it", "run for the dependent", func(o object) bool { return o.ready() && o.lastRun().Cause == "dependent" })
	o.stop()

	o = s.start("--proxy-port=" + port)
	for _, user := range []string{"", userTag(t, it)} {
		if status, body := ask(t, http.MethodGet, configMaps, user, ""); status != http.StatusUnauthorized || !strings.Contains(body, "K8S_AUTH_KUBECONFIG") {
			t.Errorf("a read without a token, user %q: %d: %s", user, status, body)
		}
	}
	if _, metrics := ask(t, http.MethodGet, o.metrics, "", ""); !strings.Contains(metrics, "\nrolewright_proxy_anonymous 0\n") {
		t.Error("the metrics do not say that no client is let in without a token")
	}

	late := s.launch("--proxy-port=" + port)
	if code := late.exit(); code != 1 {
		t.Errorf("exit code where the port is taken = %d, want 1", code)
	}
	if log := late.output(); !strings.Contains(log, "choose another port with --proxy-port") {
		t.Errorf("output where the port is taken:\n%s", log)
	}
}

func TestProxy_OwnsNothingWhereToldSo_AndTakesMetricsOfRoles(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	address := testenv.Address(t)
	// This is what the module osdk_metric posts: keys that are not given are null.
	s.role("one", fmt.Sprintf(`
- name: Make a child
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: child, namespace: "{{ ansible_operator_meta.namespace }}"}}
- name: Count
  ansible.builtin.uri:
    url: http://%s/metrics
    method: POST
    body_format: json
    body: {name: backups, description: Backups taken., counter: {increment: true, add: null}, gauge: null, histogram: null, summary: null}
  loop: [1, 2]
`, address))
	k := s.kind()
	s.watch(k, "role: one")
	o := s.start("--inject-owner-ref=false", "--user-metrics-bind-address="+address)
	k.create("it", nil)
	k.awaitReady("it")
	s.children().unowned(child{"configmaps.v1.", s.namespace, "child"})
	if _, metrics := ask(t, http.MethodGet, o.metrics, "", ""); !strings.Contains(metrics, "\n# HELP backups Backups taken.\n# TYPE backups counter\nbackups 2\n") {
		t.Errorf("the operator's metrics do not have what the role has counted")
	}
}
