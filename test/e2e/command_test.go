package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
)

// script creates an executable file in the project.
func (s *stage) script(path, content string) {
	s.t.Helper()
	s.write(path, content)
	must.Do(s.t, os.Chmod(filepath.Join(s.dir, path), 0o700))
}

// bashCommand creates a ConfigMap, and makes every kind of report.
const bashCommand = `#!/usr/bin/env bash
set -euo pipefail
report() { printf '%s\n' "$1" >&3; }
if [[ $ROLEWRIGHT_ACTION = finalize ]]; then
  touch "$FAREWELL/$ROLEWRIGHT_NAME"
  exit
fi
size=$(sed 's/.*"spec":{"size":\([0-9]*\).*/\1/' "$ROLEWRIGHT_OBJECT")
report '{"type":"progress","step":"Write the ConfigMap"}'
kubectl create configmap "$ROLEWRIGHT_NAME" -n "$ROLEWRIGHT_NAMESPACE" --from-literal="size=$size" --dry-run=client -o json | kubectl apply -f -
if [[ $size = 0 ]]; then echo 'the password correct-horse is refused' >&2; report '{"type":"redact","value":"correct-horse"}'; exit 1; fi
if [[ $size = 7 ]]; then echo 'one of seven' >&2; exit 75; fi
report '{"type":"condition","conditionType":"DatabaseReady","status":"True","reason":"Up","message":"It answers"}'
report '{"type":"condition","conditionType":"Ready","status":"True","reason":"Mine","message":"m"}'
report "{\"type\":\"status\",\"patch\":{\"size\":$size}}"
report '{"type":"event","reason":"Written","message":"It is there"}'
report '{"type":"metric","name":"cups_size","description":"Size.","gauge":{"set":3},"labels":{"tier":"gold"}}'
report '{"type":"requeue","after":"1h"}'
report '{"type":"result","verdict":"ok","changed":true}'
`

// A bash program runs instead of a role. The object owns what the program creates, its reports are written, and the
// object is deleted after its finalizer has run.
func TestCommand_Bash(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.temp()
	farewell := t.TempDir()
	s.env = append(s.env, "FAREWELL="+farewell)
	k := s.kind()
	s.script("reconcile.sh", bashCommand)
	s.watch(k, "command: [./reconcile.sh]", "inheritEnv: [FAREWELL]", "finalizer: {name: "+finalizerName+"}", "retry: {initial: 1h, max: 1h}")
	o := s.start("--ansible-runner=/not/there", "--executor=runner", "--watch-content")
	client := must.Get(kubernetes.NewForConfig(s.cfg))(t)
	maps := client.CoreV1().ConfigMaps(s.namespace)

	k.create("it", map[string]any{"size": int64(3)})
	is := k.awaitReady("it")
	made := must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t)
	if owners := made.OwnerReferences; len(owners) != 1 || owners[0].UID != is.GetUID() || made.Data["size"] != "3" {
		t.Errorf("owners %v, data %v", owners, made.Data)
	}
	size, _, _ := unstructured.NestedInt64(is.Object, "status", "size")
	if c := is.condition("DatabaseReady"); c.Status != "True" || c.ObservedGeneration != 1 || size != 3 || is.lastRun().RequeueAfter != "1h0m0s" {
		t.Errorf("status: %v", is.Object["status"])
	}
	if w := is.status.Ansible.Warnings; len(w) != 1 || !strings.Contains(w[0], "the operator writes the condition Ready") {
		t.Errorf("warnings: %q", w)
	}
	o.awaitMetric(3, "cups_size", `tier="gold"`)
	events := must.Get(client.CoreV1().Events(s.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=Written"}))(t)
	if len(events.Items) != 1 || events.Items[0].InvolvedObject.UID != is.GetUID() {
		t.Errorf("Events: %+v", events.Items)
	}

	// As with roles, a change by others of a dependent starts a run.
	made.Data["size"] = "4"
	must.Get(maps.Update(t.Context(), made, metav1.UpdateOptions{}))(t)
	k.await("it", "run for its dependent", func(is object) bool { return is.lastRun().Cause == "dependent" && is.settled() })

	// So does a change of the executable.
	k.patch("it", `{"spec": {"size": 0}}`)
	is = k.await("it", "failed", func(is object) bool { return is.condition("Failure").Status == "True" && is.settled() })
	if r := is.lastRun(); r.Reason != "CommandFailed" || !strings.HasPrefix(r.Message, "the password [masked] is refused\ntask \"Write the ConfigMap\"") {
		t.Errorf("failed run: %+v", r)
	}
	s.script("reconcile.sh", strings.Replace(bashCommand, "$size = 0", "$size = none", 1))
	k.await("it", "run for its content", func(is object) bool { return is.lastRun().Cause == "content" && is.ready() })

	k.patch("it", `{"spec": {"size": 7}}`)
	is = k.await("it", "waiting", func(is object) bool { return is.condition("Reconciling").Reason == "Waiting" })
	if ready := is.condition("Ready"); ready.Status != "False" || ready.Message != "one of seven" || is.lastRun().RequeueAfter != "10s" {
		t.Errorf("an object that is not as wanted yet: %v", is.Object["status"])
	}

	k.delete("it")
	k.awaitGone("it")
	if _, err := os.Stat(filepath.Join(farewell, "it")); err != nil {
		t.Errorf("the finalizer: %v", err)
	}
	if log := o.output(); strings.Contains(log, "correct-horse") || strings.Contains(log, "ansible-runner is ready") {
		t.Error("the log has a secret, or says that Ansible is there")
	}
	o.stop()
}

// pythonCommand reports its input, and creates a Secret, even in check mode.
const pythonCommand = `#!/usr/bin/env python3
import json, os, subprocess, sys
doc = json.load(sys.stdin)
def report(**fields):
    with open(os.environ["ROLEWRIGHT_EVENTS"], "a") as events:
        print(json.dumps(fields), file=events)
name, namespace = os.environ["ROLEWRIGHT_NAME"], os.environ["ROLEWRIGHT_NAMESPACE"]
report(type="progress", step="Apply", done=0, total=1)
print("the password is", open(os.environ["ROLEWRIGHT_SECRETS_DIR"] + "/pw").read())
made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        "data": {"cause": doc["run"]["cause"], "big": json.dumps(doc["object"]["spec"]), "env": " ".join(sorted(os.environ)),
                 "level": os.environ["LEVEL"], "password": open(os.environ["ROLEWRIGHT_SECRETS_DIR"] + "/pw").read(),
                 "previous": json.dumps(doc.get("previousSpec"))}}
subprocess.run(["kubectl", "apply", "-f", "-"], input=json.dumps(made).encode(), check=True)
report(type="status", patch={"action": doc["run"]["action"]})
report(type="result", verdict="ok", changed=doc["run"]["action"] == "check")
`

// A Python program gets its object as it is, and little else. In check mode nothing that it does lasts.
func TestCommand_Python(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.temp()
	s.env = append(s.env, "CLOUD_TOKEN=of-the-operator", "CLOUD_REGION=north", "KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=1")
	k := s.kind()
	s.script("handlers/reconcile.py", pythonCommand)
	s.watch(k, "command: [python3, handlers/reconcile.py]", "inheritEnv: [CLOUD_REGION]", "env: {LEVEL: '{{ x }} $(id)'}",
		"secrets: [{name: db, key: password, file: pw}, {name: db, key: none, optional: true}]")
	o := s.start()
	const odd = "{{ lookup('pipe', 'id') }} $(id) \u202e\n'\""
	k.create("it", map[string]any{"n": int64(9007199254740993), "s": odd})
	k.await("it", "without its Secret", func(is object) bool { return is.lastRun().Reason == "ReferenceNotFound" && is.settled() })
	core := must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1()
	maps, secrets := core.ConfigMaps(s.namespace), core.Secrets(s.namespace)
	secret := must.Get(secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "db"}, StringData: map[string]string{"password": "correct-horse", "other": "battery-staple"},
	}, metav1.CreateOptions{}))(t)
	is := k.await("it", "run with its Secret", func(is object) bool { return is.lastRun().Cause == "reference" && is.ready() })
	made := func() *corev1.ConfigMap { return must.Get(maps.Get(t.Context(), "it", metav1.GetOptions{}))(t) }
	data := made().Data
	if data["cause"] != "reference" || data["level"] != "{{ x }} $(id)" || data["password"] != "correct-horse" || !strings.Contains(data["big"], "9007199254740993") || !strings.Contains(data["big"], `{{ lookup('pipe', 'id') }} $(id) \u202e`) {
		t.Errorf("what the command was given: %v", data)
	}
	if !strings.Contains(data["env"], "CLOUD_REGION") {
		t.Error("the command has not got CLOUD_REGION")
	}
	for _, name := range []string{"CLOUD_TOKEN", "KUBERNETES_SERVICE_HOST", "ANSIBLE_GATHERING", "WATCH_NAMESPACE"} {
		if strings.Contains(data["env"], name) {
			t.Errorf("the command has %s of the operator's environment", name)
		}
	}
	if action, _, _ := unstructured.NestedString(is.Object, "status", "action"); action != "reconcile" {
		t.Errorf("status: %v", is.Object["status"])
	}

	// A changed Secret runs the object.
	secret.Data["password"] = []byte("rotated-horse")
	must.Get(secrets.Update(t.Context(), secret, metav1.UpdateOptions{}))(t)
	k.await("it", "run for its Secret", func(is object) bool {
		return made().Data["password"] == "rotated-horse" && is.lastRun().Cause == "reference" && is.ready()
	})
	for _, run := range s.runs(is) {
		dir := filepath.Join(s.root, ".runs", string(is.GetUID()), run)
		out := string(must.Get(os.ReadFile(filepath.Join(dir, "artifacts", run, "stdout")))(t))
		if _, err := os.Stat(filepath.Join(dir, "env")); !os.IsNotExist(err) || !strings.Contains(out, "the password is") {
			t.Errorf("%s: the files of the Secret are there: %v; %q", run, err, out)
		}
	}

	k.patch("it", `{"metadata": {"annotations": {"ansible.sdk.operatorframework.io/mode": "check", "rolewright.dev/mode": "check"}}, "spec": {"n": 1}}`)
	is = k.await("it", "checked", func(is object) bool { return is.lastRun().Mode == "check" && is.status.Ansible.ActiveRun == nil })
	if is.condition("Drifted").Status != "True" || strings.Contains(made().Data["big"], `"n": 1}`) {
		t.Errorf("after a check: %v, %v", is.Object["status"], made().Data)
	}
	o.stop()
}

// endingCommand ends in the way that the name of the object says.
const endingCommand = `#!/usr/bin/env bash
set -euo pipefail
echo '{"type":"progress","step":"Try"}' >&3
if [[ $ROLEWRIGHT_ACTION = finalize && ! -e open ]]; then echo 'the door is locked' >&2; exit 75; fi
if [[ $# = 1 ]]; then test "$1 $ROLEWRIGHT_ACTION" = '--dry-run check'; echo '{"type":"result","verdict":"ok","changed":true}' >&3; fi
[[ $ROLEWRIGHT_ACTION = reconcile ]] || exit 0
case $ROLEWRIGHT_NAME in
  hangs) trap '' TERM; trap 'touch interrupted' INT; while :; do sleep 1000; done ;;
  refuses) echo 'spec.size is too small' >&2; exit 78 ;;
  removes) cd /; rm -rf "$ROLEWRIGHT_DIR" ;;
  babbles) echo not-json >&3 ;;
  forks) setsid sleep 1000 >/dev/null 2>&1 & sleep 0.3 ;;
  floods) head -c 200000000 /dev/zero; head -c 20000000 /dev/urandom >&2 ;;
esac
`

// However a command ends, its object says how, and no process of it is left. The next run does what has to follow.
func TestCommand_Ends(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.temp()
	k := s.kind()
	s.script("handler", endingCommand)
	s.watch(k, "command: [./handler]", "check: {command: [./handler, --dry-run]}", "timeout: 60s", "stop: {signal: SIGINT, grace: 10s}", "finalizer: {name: "+finalizerName+"}", "retry: {initial: 1h, max: 1h}")
	o := s.start("--ansible-runner=/not/there")
	k.create("hangs", nil) // it takes until its timeout
	for _, name := range []string{"refuses", "removes", "babbles", "forks", "floods", "hangs"} {
		reason := map[string]string{
			"hangs": "TimedOut", "refuses": "InputRefused", "removes": "ProtocolError", "babbles": "ProtocolError", "forks": "LeftProcesses", "floods": "Succeeded",
		}[name]
		if name != "hangs" {
			k.create(name, nil)
		}
		is := k.await(name, "ended", object.settled)
		r := is.lastRun()
		if stalled := is.condition("Stalled").Status == "True"; r.Reason != reason || stalled != (reason == "InputRefused") {
			t.Errorf("%s: %+v, Stalled: %v", name, r, stalled)
		}
		if left := processesOf(t, s.runs(is)...); len(left) > 0 {
			t.Errorf("%s has left %v", name, left)
		}
		if reason == "TimedOut" && (r.FailedTask == nil || r.FailedTask.Name != "Try") {
			t.Errorf("the step that ran is not said: %+v", r)
		}
	}
	if _, err := os.Stat(filepath.Join(s.dir, "interrupted")); err != nil {
		t.Errorf("the signal of the watch: %v", err)
	}

	k.patch("floods", `{"metadata": {"annotations": {"rolewright.dev/mode": "check"}}}`)
	is := k.await("floods", "checked", func(is object) bool { return is.lastRun().Mode == "check" && is.settled() })
	if is.condition("Drifted").Status != "True" {
		t.Errorf("a check by a command of its own: %v", is.Object["status"])
	}

	must.Do(t, os.Remove(filepath.Join(s.dir, "handler")))
	k.create("missing", nil)
	if r := k.await("missing", "ended", object.settled).lastRun(); r.Reason != "CommandNotRunnable" || r.Attempts != 0 || !strings.Contains(r.Message, "chmod +x") {
		t.Errorf("a command that is gone: %+v", r)
	}
	s.script("handler", endingCommand)

	k.delete("babbles")
	k.await("babbles", "waiting for the door", func(is object) bool { return is.lastRun().Reason == "NotYet" })
	s.write("open", "")
	k.awaitGone("babbles")
	o.stop()

	// Another process of the operator does not repeat a run that only other inputs can help.
	refused := k.get("refuses").lastRun().ID
	o = s.start("--ansible-runner=/not/there")
	k.create("later", nil)
	k.await("later", "ended", object.settled)
	if is := k.get("refuses"); is.lastRun().ID != refused || is.condition("Stalled").Status != "True" {
		t.Errorf("after a restart: %+v", is.lastRun())
	}
	o.stop()
}
