package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

// A Pod with restricted security: a user without an entry in passwd, in group 0, with no capabilities and no way to get
// any, no home directory, and only one writable volume, from which nothing can be executed.
func TestOperator_AsARestrictedPod(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	volume := filepath.Join(t.TempDir(), "volume")
	must.Do(t, os.Mkdir(volume, 0o755))
	s.role("main", `- name: Look at oneself
  ansible.builtin.shell: "echo $(id -u):$(id -g) $(grep -c . /proc/self/status) $(sed -n 's/^CapBnd:[[:space:]]*//p; s/^NoNewPrivs:[[:space:]]*/n/p' /proc/self/status)"
  register: me
- name: Be restricted
  ansible.builtin.assert:
    that: ["'1000660000:0 ' in me.stdout", "'0000000000000000' in me.stdout", "'n1' in me.stdout"]
    fail_msg: "{{ me.stdout }}"
- name: Find nowhere else to write
  ansible.builtin.command: touch {{ item }}/x
  loop: [/, /var/tmp, /tmp, "{{ role_path }}"]
  register: touched
  failed_when: touched.rc == 0
- name: Use files
  ansible.builtin.copy: {content: "{{ 'x' * 1000 }}", dest: "{{ lookup('env', 'TMPDIR') }}/x", mode: "0600"}
- name: Use the cluster
  kubernetes.core.k8s:
    definition: {apiVersion: v1, kind: ConfigMap, metadata: {name: made, namespace: "{{ ansible_operator_meta.namespace }}"}}
`)
	k := s.kind()
	s.watch(k, "role: main")
	s.env = slices.DeleteFunc(s.env, func(e string) bool { return strings.HasPrefix(e, "HOME=") || strings.HasPrefix(e, "TMPDIR=") })
	s.env = append(s.env, "TMPDIR="+volume)
	if os.Getenv("TEST_EXECUTOR") == "warm" {
		s.env = append(s.env, "HOME=/") // a fork server needs one; it need not be writable
	}
	must.Do(t, os.Chmod(filepath.Dir(s.dir), 0o755))
	for _, path := range []string{s.dir, strings.TrimPrefix(slices.DeleteFunc(slices.Clone(s.env), func(e string) bool {
		return !strings.HasPrefix(e, "KUBECONFIG=")
	})[0], "KUBECONFIG=")} {
		if out, err := exec.Command("chown", "-R", "1000660000:0", path).CombinedOutput(); err != nil {
			t.Skipf("not permitted to give files to another user: %v: %s", err, out)
		}
	}
	s.root = filepath.Join(volume, "runner")
	// All mounts become read-only except the volume.
	const script = `set -e
mount --make-rprivate /
mount -t tmpfs -o noexec,nosuid,nodev,mode=1777 tmpfs "$VOLUME"
awk '{ print $5 }' /proc/self/mountinfo | grep -v -e '^/proc' -e '^/dev' -e "^$VOLUME\$" | while read -r at; do mount -o remount,bind,ro "$at" 2>/dev/null || true; done
exec setpriv --reuid 1000660000 --regid 0 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all -- "$@"`
	needAnsible(t)
	o := s.launchWith(func(o *operator) {
		o.cmd.Env = append(o.cmd.Env, "VOLUME="+volume)
		o.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWNS
		o.cmd.Args = append([]string{"sh", "-c", script, "sh"}, o.cmd.Args...)
		o.cmd.Path = "/bin/sh"
	})
	k.create("it", nil)
	k.awaitReady("it")
	o.awaitOutput("ansible-runner is ready")
	k.delete("it")
	k.awaitGone("it")
	o.stop()
}
