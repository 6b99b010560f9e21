package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestRun_IsConfiguredAsDocumented(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	dump := t.TempDir()
	s.env = append(s.env, "DUMP="+dump, "ANSIBLE_INVENTORY="+s.dir+"/hosts", "MY_SETTING=inherited")
	s.write("hosts", "localhost\nother\n[all:vars]\nansible_connection=local\nansible_python_interpreter={{ ansible_playbook_python }}\n")
	s.write("content/ansible_collections/acme/ops/roles/dump/tasks/main.yml",
		dumpTasks+"  tags: a\n- name: Stay away\n  ansible.builtin.fail:\n  tags: c\n")
	s.watch(k, "role: acme.ops.dump", `vars:
  names: [ansible_verbosity, tags, hosts, kubeconfigs, setting, facts]
  tags: "{{ ansible_run_tags | sort }}"
  hosts: "{{ groups['all'] }}"
  kubeconfigs: "{{ [lookup('env', 'KUBECONFIG'), lookup('env', 'K8S_AUTH_KUBECONFIG')] | unique }}"
  setting: "{{ lookup('env', 'MY_SETTING') }}"
  facts: "{{ ansible_facts | length }}"`)
	s.start("--ansible-collections-path="+s.dir+"/content", "--ansible-args=--tags \"a,b\"")
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.gvk)
	u.SetName("it")
	u.SetAnnotations(map[string]string{"ansible.sdk.operatorframework.io/verbosity": "3"})
	must.Get(k.objects.Create(t.Context(), u, metav1.CreateOptions{}))(t)
	o := k.awaitReady("it")

	dir := filepath.Join(s.root, ".runs", string(o.GetUID()), o.lastRun().ID)
	got := readDump(t, filepath.Join(dump, "it.json"))
	got["facts"] = fmt.Sprint(got["facts"]) // text up to ansible-core 2.18
	want := map[string]any{
		"ansible_verbosity": 3.0, "tags": []any{"a", "b"}, "hosts": []any{"localhost", "other"},
		"kubeconfigs": []any{dir + "/kubeconfig"}, "setting": "inherited", "facts": "0",
	}
	must.Be(t, "what the run was given", want, got)
	// The paths that ansible-operator documents.
	documented := filepath.Join(s.root, k.gvk.Group, k.gvk.Version, k.gvk.Kind, s.namespace, "it")
	for _, path := range []string{"inventory/hosts", "artifacts/latest/stdout", "artifacts/latest/job_events"} {
		if _, err := os.Stat(filepath.Join(documented, path)); err != nil {
			t.Errorf("look at the documented path: %v", err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, dir + "/artifacts": 0o700, dir + "/outcome.json": 0o600} {
		if info, err := os.Stat(path); err != nil {
			t.Errorf("look at the run's directory: %v", err)
		} else if info.Mode().Perm() != mode {
			t.Errorf("mode of %s = %v, want %v", path, info.Mode(), mode)
		}
	}
	for _, secret := range []string{"kubeconfig", "env"} {
		if _, err := os.Stat(filepath.Join(dir, secret)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s outlives the run: %v", secret, err)
		}
	}
	k.delete("it")
	k.awaitGone("it")
	testenv.Eventually(t, "the directories of a deleted object gone", func(ctx context.Context) error {
		for _, path := range []string{filepath.Dir(dir), documented} {
			if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s is there: %w", path, err)
			}
		}
		return nil
	})
}

func TestWatchNamespace_BoundsWhatIsRun(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	group := testenv.Random("scope") + ".rolewright.test"
	k := s.kind(testenv.WithGroup(group), testenv.WithKind("Inside"))
	wide := s.kind(testenv.WithGroup(group), testenv.WithKind("Wide"), testenv.ClusterScoped())
	wide.objects = dynamic.NewForConfigOrDie(s.cfg).Resource(wide.gvk.GroupVersion().WithResource("wides"))
	s.role("one", "- name: Look\n  ansible.builtin.assert:\n    that: ansible_operator_meta.namespace == ns\n    quiet: true\n")
	s.watch(k, "role: one")
	s.watch(wide, "role: one")
	in := func(namespace string) kind {
		other := k
		other.objects = dynamic.NewForConfigOrDie(s.cfg).Resource(k.gvk.GroupVersion().WithResource("insides")).Namespace(namespace)
		return other
	}
	second, third := testenv.Namespace(t, s.cfg), testenv.Namespace(t, s.cfg)
	outside := in(third).create("it", map[string]any{"ns": third})
	k.create("it", map[string]any{"ns": s.namespace})
	in(second).create("it", map[string]any{"ns": second})
	wide.create("it", map[string]any{"ns": ""})

	s.env = append(s.env, "WATCH_NAMESPACE="+s.namespace+", "+second)
	o := s.start()
	inside := []object{k.awaitReady("it"), in(second).awaitReady("it"), wide.awaitReady("it")}
	o.stop()
	if ran := s.runs(outside); len(ran) != 0 || in(third).get("it").Object["status"] != nil {
		t.Errorf("%d runs outside of the watched namespaces", len(ran))
	}

	s.env = append(s.env, "WATCH_NAMESPACE=")
	o = s.start()
	in(third).awaitReady("it")
	o.awaitDecided(k, 2)
	o.awaitDecided(wide, 1)
	o.stop()
	for _, is := range append(inside, outside) {
		if ran := s.runs(is); len(ran) != 1 {
			t.Errorf("%s %s/%s has %d runs, want 1", is.GetKind(), is.GetNamespace(), is.GetName(), len(ran))
		}
	}
}
