package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// moduleTasks use each module of kubernetes.core that writes, and read right after it. Their objects are rewritten in
// every run.
const moduleTasks = `
- name: Create what there is not
  kubernetes.core.k8s:
    definition:
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: changed, namespace: "{{ ns }}", labels: {set: one}}, data: {size: "1"}}
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: replaced, namespace: "{{ ns }}", labels: {set: one}}, data: {size: "1"}}
      - {apiVersion: v1, kind: Secret, metadata: {name: removed, namespace: "{{ ns }}"}, stringData: {size: "1"}}
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: remote, namespace: "{{ other }}"}, data: {size: "1"}}
      - {apiVersion: v1, kind: ConfigMap, metadata: {name: free, namespace: "{{ ns }}", annotations: {rolewright.dev/owner: none}}}
      - apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRole
        metadata: {name: "{{ ns }}-reader"}
        rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
      - apiVersion: apps/v1
        kind: Deployment
        metadata: {name: web, namespace: "{{ ns }}", annotations: {written: "{{ now(fmt='%f') }}"}}
        spec:
          replicas: 1
          selector: {matchLabels: {app: web}}
          template:
            metadata: {labels: {app: web}}
            spec: {containers: [{name: web, image: web}]}
- name: See it at once, by its label
  kubernetes.core.k8s_info: {kind: ConfigMap, namespace: "{{ ns }}", label_selectors: [set = one]}
  register: labelled
  failed_when: labelled.resources | map(attribute='metadata.name') | sort != ['changed', 'replaced']
- name: Change one
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: changed, namespace: "{{ ns }}"}, data: {size: "{{ now(fmt='%f') }}"}}
  register: change
- name: See the change at once, by its name
  kubernetes.core.k8s_info: {kind: ConfigMap, namespace: "{{ ns }}", field_selectors: [metadata.name=changed]}
  register: found
  failed_when: found.resources | map(attribute='data.size') | list != [change.result.data.size]
- name: Replace one
  kubernetes.core.k8s:
    force: true
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: replaced, namespace: "{{ ns }}"}, data: {size: "{{ now(fmt='%f') }}"}}
- name: Apply
  kubernetes.core.k8s:
    apply: true
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: applied, namespace: "{{ ns }}"}, data: {size: "{{ item }}"}}
  loop: ["1", "2"]
- name: Apply on the server's side
  kubernetes.core.k8s:
    apply: true
    server_side_apply: {field_manager: role}
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: served, namespace: "{{ ns }}"}, data: {size: "{{ item }}"}}
  loop: ["1", "2"]
- name: Let the server choose a name
  kubernetes.core.k8s:
    generate_name: chosen-
    namespace: "{{ ns }}"
    definition: {apiVersion: v1, kind: ConfigMap}
- name: Delete one
  kubernetes.core.k8s: {api_version: v1, kind: Secret, name: removed, namespace: "{{ ns }}", state: absent}
- name: Patch
  kubernetes.core.k8s_json_patch:
    kind: ConfigMap
    name: changed
    namespace: "{{ ns }}"
    patch: [{op: add, path: /data/patched, value: "{{ now(fmt='%f') }}"}]
  environment: {PYTHONPATH: "{{ role_path }}/files/python"}
- name: Scale, and wait for the controller
  kubernetes.core.k8s_scale: {api_version: apps/v1, kind: Deployment, name: web, namespace: "{{ ns }}", replicas: 2, wait_timeout: 120}
- name: Install a chart
  kubernetes.core.helm:
    name: chart
    chart_ref: "{{ role_path }}/files/chart"
    release_namespace: "{{ ns }}"
    release_values: {size: "{{ now(fmt='%f') }}"}
- name: Ask who this is
  ansible.builtin.shell: |
    kubectl auth whoami -o json > "$NOTES/whoami"
    kubectl config view --raw -o json > "$NOTES/kubeconfig"
    env > "$NOTES/env"
    cp "$KUBECONFIG" "$NOTES/token"
  changed_when: false
`

// chart returns a Helm chart of one ConfigMap, with a value size.
func (s *stage) chart(dir string) {
	s.t.Helper()
	s.write(dir+"/Chart.yaml", "apiVersion: v2\nname: tiny\nversion: 0.1.0\nappVersion: \"1\"\n")
	s.write(dir+"/values.yaml", "size: \"0\"\n")
	s.write(dir+"/templates/it.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: \"{{ .Release.Name }}-it\"}\ndata: {size: {{ .Values.size | quote }}}\n")
}

// clients adds kubectl and Helm, which the repository builds, to the environment of what the stage starts.
func (s *stage) clients() {
	s.t.Helper()
	tools := absolute(s.t, "bin", "tools")
	for _, name := range []string{"kubectl", "helm"} {
		if _, err := os.Stat(filepath.Join(tools, name)); err != nil {
			s.t.Fatalf("%v: run `make client-tools`", err)
		}
	}
	home := s.t.TempDir()
	s.env = append(s.env, "PATH="+tools+":"+os.Getenv("PATH"), "HOME="+home,
		"HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
}

// everything contains the permissions for an operator whose roles may do anything. It is not an administrator, so that it
// has its own name.
func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
	}
}

func TestProxy_KubernetesCoreModules(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	needKwok(t, s)
	note := s.notes()
	s.clients()
	other := testenv.Namespace(t, s.cfg)
	user := testenv.User(t, s.cfg, everything())
	s.env = append(s.env, "KUBECONFIG="+testenv.Kubeconfig(t, user), "WATCH_NAMESPACE="+s.namespace+","+other)
	s.write("roles/modules/files/python/jsonpatch.py", "__version__ = '1.32'\n") // used only in check mode, but always imported
	s.chart("roles/modules/files/chart")
	s.role("modules", moduleTasks)
	k := s.kind()
	s.watch(k, "role: modules", "vars: {ns: '{{ ansible_operator_meta.namespace }}'}", "pruneOnDelete: true", "watchClusterScopedResources: true")
	o := s.start("--zap-log-level=debug")
	k.create("it", map[string]any{"other": other})
	it := k.awaitReady("it")

	cs := s.children()
	core := func(resource, name string) child { return child{resource + ".v1.", s.namespace, name} }
	remote := child{"configmaps.v1.", other, "remote"}
	global := child{"clusterroles.v1.rbac.authorization.k8s.io", "", s.namespace + "-reader"}
	local := []child{
		core("configmaps", "changed"), core("configmaps", "replaced"), core("configmaps", "applied"),
		core("configmaps", "served"), core("configmaps", "chart-it"), core("secrets", "sh.helm.release.v1.chart.v1"),
		{"deployments.v1.apps", s.namespace, "web"},
	}
	chosen := cs.named(core("configmaps", ""), "chosen-")
	if len(chosen) != 1 {
		t.Errorf("objects with a name of the server's choice: %v, want one", chosen)
	}
	cs.owned(it, append(append(local, remote, global), chosen...)...)
	cs.unowned(core("configmaps", "free"))
	cs.absent(core("secrets", "removed"))
	expectIdentity(t, note, user, it)
	t.Run("kubeconfig goes with the run", func(t *testing.T) {
		if _, err := os.Stat(filepath.Join(s.root, ".runs", string(it.GetUID()), it.lastRun().ID, "kubeconfig")); !os.IsNotExist(err) {
			t.Errorf("kubeconfig of the ended run: %v, want that there is none", err)
		}
		s.write("ended.kubeconfig", note("token"))
		if out, err := s.command(filepath.Join(s.dir, "ended.kubeconfig"), "kubectl", "get", "configmaps", "-n", s.namespace); err == nil {
			t.Errorf("the kubeconfig of an ended run still works: %s", out)
		} else if !strings.Contains(out, "must be logged in") && !strings.Contains(out, "token of a run") {
			t.Errorf("kubectl with the kubeconfig of an ended run: %s", out)
		}
	})

	// Everything that the run has written was its own, and the Deployment has become available meanwhile. The first thing
	// that is noticed is what another client does.
	o.awaitChildrenWatched("/v1, Kind=ConfigMap", "/v1, Kind=Secret", "apps/v1, Kind=Deployment", "rbac.authorization.k8s.io/v1, Kind=ClusterRole")
	if noticed := o.noticed(); len(noticed) > 0 {
		t.Errorf("noticed of the run's own writes:\n%s", strings.Join(noticed, "\n"))
	}
	cs.delete(remote)
	cs.await(remote, "back", func(*unstructured.Unstructured) bool { return true })
	k.await("it", "run for the dependent", func(o object) bool { return o.ready() && o.lastRun().Cause == "dependent" })
	o.expectRuns(it, 2, "one for the object, one for the child that another client has deleted")
	cs.owned(it, remote)

	k.delete("it")
	k.awaitGone("it")
	for _, c := range append(local, remote, global) {
		cs.awaitGone(c)
	}
	cs.unowned(core("configmaps", "free"))
	o.stop()
}

// Clients keep what they have discovered about the API from run to run: the second run of an object makes no discovery
// requests.
func TestProxy_RunsShareWhatIsDiscovered(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	needAnsible(t)
	s.temp()
	s.role("one", `
- kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: one, namespace: "{{ ansible_operator_meta.namespace }}"}, data: {size: "{{ size }}"}}
`)
	k := s.kind()
	s.watch(k, "role: one")
	o := s.start()
	asked := func() float64 {
		t.Helper()
		all := must.Get(o.metric(t.Context(), "rolewright_proxy_requests_total", `kind=""`, `verb="get"`))(t)
		return all
	}
	k.create("it", map[string]any{"size": "1"})
	k.awaitReady("it")
	first := asked()
	k.patch("it", `{"spec": {"size": "2"}}`)
	k.await("it", "run again", func(o object) bool { return o.ready() && o.lastRun().Cause == "changed" })
	if second := asked() - first; first == 0 || second > 0 {
		t.Errorf("%v requests for discovery by the first run, %v by the second; want some, and none", first, second)
	}
}

// expectIdentity checks what a role has found out about its connection to the API server.
func expectIdentity(t *testing.T, note func(string) string, operator *rest.Config, it object) {
	t.Helper()
	var who struct {
		Status struct {
			UserInfo struct{ Username string }
		}
	}
	if err := json.Unmarshal([]byte(note("whoami")), &who); err != nil {
		t.Fatalf("read who the run is: %v", err)
	}
	if name := who.Status.UserInfo.Username; !strings.HasPrefix(name, "system:serviceaccount:test-") || !strings.Contains(name, ":user-") {
		t.Errorf("the run is %q for the API server, want the operator's service account", name)
	}
	var config struct {
		Clusters []struct{ Cluster struct{ Server string } }
		Users    []struct{ User map[string]string }
	}
	if err := json.Unmarshal([]byte(note("kubeconfig")), &config); err != nil {
		t.Fatalf("read the run's kubeconfig: %v", err)
	}
	if len(config.Clusters) != 1 || !strings.HasPrefix(config.Clusters[0].Cluster.Server, "https://127.0.0.1:") || config.Clusters[0].Cluster.Server == operator.Host {
		t.Errorf("the run's clusters = %+v, want the proxy alone", config.Clusters)
	}
	if len(config.Users) != 1 || len(config.Users[0].User) != 1 || config.Users[0].User["token"] == "" {
		t.Errorf("the run's users have something else than one token: %d users", len(config.Users))
	}
	for _, name := range []string{"kubeconfig", "env", "token"} {
		if strings.Contains(note(name), operator.BearerToken) {
			t.Errorf("the run knows the operator's token: it stands in its %s", name)
		}
	}
	var ways []string
	for line := range strings.Lines(note("env")) {
		if name, value, _ := strings.Cut(strings.TrimSpace(line), "="); name == "KUBECONFIG" || name == "K8S_AUTH_KUBECONFIG" {
			if !strings.Contains(value, it.lastRun().ID) {
				t.Errorf("%s=%s is not of the run %s", name, value, it.lastRun().ID)
			}
			ways = append(ways, name)
		}
	}
	slices.Sort(ways)
	if !slices.Equal(ways, []string{"K8S_AUTH_KUBECONFIG", "KUBECONFIG"}) {
		t.Errorf("variables that name the kubeconfig: %v", ways)
	}
}
