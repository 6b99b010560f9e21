package e2e

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/api"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

const recordedRole = `- name: Create
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: it, namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {size: "{{ size }}"}
- name: Skipped
  ansible.builtin.debug: {msg: never}
  when: false
- block:
    - name: Rescued
      ansible.builtin.fail: {msg: "with never-shown-text in it"}
  rescue:
    - name: Rescue
      ansible.builtin.debug: {msg: saved}
- name: Repeat
  ansible.builtin.debug: {msg: "{{ item }}"}
  loop: [1, 2, 3]
- name: Wait
  ansible.builtin.wait_for: {path: "{{ gate }}", timeout: 600}
- name: Fail
  ansible.builtin.fail: {msg: "the size is too large"}
  when: size == "large"
`

// serviceAccount creates a service account, which may get the objects of k if reads is true. It returns the argument that
// makes a command read as that account.
func (s *stage) serviceAccount(name string, k kind, reads bool) string {
	s.t.Helper()
	client := must.Get(kubernetes.NewForConfig(s.cfg))(s.t)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must.Get(client.CoreV1().ServiceAccounts(s.namespace).Create(s.t.Context(), sa, metav1.CreateOptions{}))(s.t)
	if reads {
		rule := rbacv1.PolicyRule{APIGroups: []string{k.gvk.Group}, Resources: []string{strings.ToLower(k.gvk.Kind) + "s"}, Verbs: []string{"get"}}
		role := &rbacv1.Role{ObjectMeta: sa.ObjectMeta, Rules: []rbacv1.PolicyRule{rule}}
		must.Get(client.RbacV1().Roles(s.namespace).Create(s.t.Context(), role, metav1.CreateOptions{}))(s.t)
		must.Get(client.RbacV1().RoleBindings(s.namespace).Create(s.t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: sa.ObjectMeta, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: s.namespace, Name: name}},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		}, metav1.CreateOptions{}))(s.t)
		awaitAllowed(s.t, client, "system:serviceaccount:"+s.namespace+":"+name, rule, s.namespace)
	}
	return "--service-account=" + s.namespace + "/" + name
}

// looks reads a failed run like a browser, and as a report, as a reader with the given flags.
func (s *stage) looks(failed history.Brief, as []string) {
	s.t.Helper()
	address, end := s.ui(as)
	object := url.Values{"group": {failed.Group}, "kind": {failed.Kind}, "namespace": {failed.Namespace}, "name": {failed.Name}}
	for path, wants := range map[string][]string{
		"":                           {"failing", "recorded : Fail"},
		"object?" + object.Encode():  {"Its last 2 runs", "Ready", "TaskFailed", "created", "spec.size"},
		"run?id=" + failed.ID:        {"the size is too large", "- name: Fail", "data.size", "Compare with the last success"},
		"trends":                     {"2 runs in 7 days", "recorded : Fail"},
		"report?id=" + failed.ID[:8]: {"the size is too large"},
	} {
		said := get(s.t, address+path)
		for _, want := range wants {
			if !strings.Contains(said, want) {
				s.t.Errorf("%s says\n%s\nwant %q", path, said, want)
			}
		}
	}
	if said := s.tool(0, append([]string{"report", failed.ID}, as...)...); !strings.Contains(said, "<!DOCTYPE html>") || !strings.Contains(said, "- name: Fail") {
		s.t.Errorf("the report says\n%s", said)
	}
	end()
}

// What runs did is listed, described and followed, across a restart, by users who may get their objects.
func TestHistory(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	k := s.kind()
	s.role("recorded", recordedRole)
	s.watch(k, "role: recorded", "reconcilePeriod: 0s", "retry: {maxAttempts: 1}")
	_, port, err := net.SplitHostPort(testenv.Address(t))
	must.Do(t, err)
	gate, closed := filepath.Join(t.TempDir(), "gate"), filepath.Join(t.TempDir(), "closed")
	must.Do(t, os.WriteFile(gate, nil, 0o600))
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	must.Get(client.CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "it"}, StringData: map[string]string{"text": "never-shown-text"},
	}, metav1.CreateOptions{}))(t)
	s.write("roles/recorded/tasks/main.yml", "- kubernetes.core.k8s_info: {kind: Secret, namespace: \"{{ ansible_operator_meta.namespace }}\", name: it}\n"+recordedRole)
	o := s.start("--api-port=" + port)
	object := k.gvk.Kind + "." + k.gvk.Group + "/it"
	as := []string{"--server=http://localhost:" + port, "-n", s.namespace, s.serviceAccount("reader", k, true)}
	tool := func(want int, args ...string) string {
		t.Helper()
		return s.tool(want, append(args, as...)...)
	}
	runs := func() (list api.RunList) {
		t.Helper()
		must.Do(t, json.Unmarshal([]byte(tool(0, "get", "runs", object, "-o", "json")), &list))
		return list
	}
	if out := tool(5, "get", "runs"); !strings.Contains(out, "no runs found") {
		t.Errorf("before the first run it says\n%s", out)
	}
	k.create("it", map[string]any{"size": "small", "gate": gate})
	k.awaitReady("it")
	is := runs().Items
	if len(is) != 1 || is[0].Result != "Succeeded" || is[0].Cause != "created" || is[0].Counts.Rescued != 1 || is[0].Counts.Changed != 1 {
		t.Fatalf("runs: %+v", is)
	}
	said := tool(0, "describe", "run", is[0].ID[:8])
	for _, want := range []string{"created", "generation 1", "Succeeded", "created configmaps " + s.namespace + "/it  by recorded : Create", "slowest", "rescued 1"} {
		if !strings.Contains(said, want) {
			t.Errorf("describe says\n%s\nwant %q", said, want)
		}
	}
	if newest := tool(0, "describe", "run", object); !strings.Contains(newest, is[0].ID) {
		t.Errorf("of the newest run describe says\n%s", newest)
	}
	logged := tool(0, "logs", object)
	for _, want := range []string{"changed", "skipped", "rescued", "recorded : Repeat", "roles/recorded/tasks/main.yml:2\n", "Succeeded after "} {
		if !strings.Contains(logged, want) {
			t.Errorf("logs says\n%s\nwant %q", logged, want)
		}
	}
	if strings.Contains(said+logged+tool(0, "describe", "run", is[0].ID, "-o", "json"), "never-shown-text") {
		t.Error("the value of a Secret is shown")
	}

	if out := tool(2, "get", "runs", "--result", "broken"); !strings.Contains(out, "one of Succeeded, Failed, Interrupted") {
		t.Errorf("for a result that there is not it says\n%s", out)
	}
	tool(5, "get", "runs", "--result", "failed")

	// Another run is followed while it is in progress.
	follow := process(t, binary(t), append([]string{"logs", object, "-f"}, as...)...)
	follow.Dir, follow.Env = s.dir, s.env
	path := filepath.Join(t.TempDir(), "followed")
	out := must.Get(os.Create(path))(t)
	follow.Stdout, follow.Stderr = out, out
	must.Do(t, follow.Start())
	t.Cleanup(func() { _ = follow.Process.Kill(); _ = follow.Wait() })
	followed := func(want string) {
		t.Helper()
		testenv.Eventually(t, "logs -f says "+want, func(context.Context) error {
			if text := string(must.Get(os.ReadFile(path))(t)); !strings.Contains(text, want) {
				return errors.New(text)
			}
			return nil
		})
	}
	followed("Succeeded after")
	k.patch("it", fmt.Sprintf(`{"spec":{"size":"large","gate":%q}}`, closed))
	followed(": changed")
	testenv.Eventually(t, "it waits", func(context.Context) error {
		if is := runs().Items; is[0].Task == nil || is[0].Task.Name != "Wait" {
			return fmt.Errorf("%+v", is)
		}
		return nil
	})
	if out := tool(0, "get", "runs"); !strings.Contains(out, "Running") {
		t.Errorf("get runs says\n%s", out)
	}
	must.Do(t, os.WriteFile(closed, nil, 0o600))
	followed("the size is too large")
	followed("TaskFailed after")
	must.Do(t, follow.Process.Signal(syscall.SIGINT))
	_ = follow.Wait()
	text := string(must.Get(os.ReadFile(path))(t))
	for _, task := range []string{"recorded : Create", "recorded : Skipped", "recorded : Rescued", "recorded : Rescue ", "recorded : Repeat", "recorded : Wait"} {
		if n := strings.Count(text, task); n != 2 {
			t.Errorf("logs -f has %q %d times, want it once for each run:\n%s", task, n, text)
		}
	}

	o.stop()
	s.start("--api-port="+port, "--ui", "--ui-actions", "--ui-hosts=localhost:"+port)
	is = runs().Items
	if len(is) != 2 || is[0].Result != "Failed" || is[0].Task == nil || is[0].Task.Name != "Fail" || !strings.HasSuffix(is[0].Task.Path, "main.yml:23") {
		t.Fatalf("runs after a restart: %+v", is)
	}
	if said := tool(0, "describe", "run", is[0].ID); !strings.Contains(said, "failed") || !strings.Contains(said, "the size is too large") || !strings.Contains(said, "changed configmaps "+s.namespace+"/it: data.size  by recorded : Create") {
		t.Errorf("of the failed run describe says\n%s", said)
	}

	s.looks(is[0], as)

	for _, run := range is { // the first run is a cold start, the second one may be forked
		var answer api.Run
		must.Do(t, json.Unmarshal([]byte(tool(0, "describe", "run", run.ID, "-o", "json")), &answer))
		if r := answer.Run; r.CPU < 0.01 || r.CPU > 60 {
			t.Errorf("a run by %s has taken %v s of CPU", r.Executor, r.CPU)
		}
	}

	differs := tool(1, "diff", is[1].ID[:8], is[0].ID[:8])
	for _, want := range []string{"generation", "recorded : Fail", "skipped", "failed: the size is too large", "changed: data.size"} {
		if !strings.Contains(differs, want) {
			t.Errorf("diff says\n%s\nwant %q", differs, want)
		}
	}
	tool(0, "diff", is[0].ID, is[0].ID)
	if said := tool(0, "top", "--by=object"); !strings.Contains(said, "it     2      1        ") {
		t.Errorf("top says\n%s", said)
	}

	testenv.Eventually(t, "the Event of the failed run", func(ctx context.Context) error {
		list, err := kubernetes.NewForConfigOrDie(s.cfg).CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{})
		if err == nil && !slices.ContainsFunc(list.Items, func(e corev1.Event) bool { return strings.Contains(e.Message, "the size is too large") }) {
			err = errors.New("it is not there")
		}
		return err
	})
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	must.Be(t, "path of the bundle is said", true, strings.Contains(tool(0, "support-bundle", "--file", bundle), bundle+"\n"))
	if info := must.Get(os.Stat(bundle))(t); info.Mode().Perm() != 0o600 {
		t.Errorf("the bundle has mode %s", info.Mode())
	}
	files := unpack(t, bundle)
	for name, want := range map[string]string{
		"doctor.json": `"check": "Ansible"`, "watches.json": "recorded\"", "versions.json": `"server"`, "events.json": "the size is too large",
		"objects-" + k.gvk.Kind + "." + k.gvk.Group + ".json": `"reason": "TaskFailed"`, "runs.json": `"action": "ansible.builtin.fail"`, "queue.json": `"items": []`, "problems.txt": "\n",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("of the bundle, %s is\n%s\nwant %q", name, files[name], want)
		}
	}
	for name, text := range files {
		if strings.Contains(text, "never-shown-text") {
			t.Errorf("%s of the bundle has the value of a Secret", name)
		}
	}
	s.tool(2, "support-bundle", "--file", bundle) // which exists

	// A user who may not get the object learns nothing.
	other := []string{as[0], as[1], as[2], s.serviceAccount("other", k, false)}
	for want, args := range map[int][]string{3: {"get", "runs"}, 5: {"describe", "run", is[0].ID}} {
		if out := s.tool(want, append(args, other...)...); strings.Contains(out, "large") {
			t.Errorf("%v says\n%s", args, out)
		}
	}
	s.tool(3, "get", "runs", "-A", as[0], as[3])
	s.acts(k, is[0], port, as)
}

// unpack reads the files of a support bundle.
func unpack(t *testing.T, path string) map[string]string {
	t.Helper()
	f := must.Get(os.Open(path))(t)
	defer f.Close()
	files := map[string]string{}
	for from := tar.NewReader(must.Get(gzip.NewReader(f))(t)); ; {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.Do(t, err)
		files[filepath.Base(header.Name)] = string(must.Get(io.ReadAll(from))(t))
	}
}
