package e2e

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
)

// naming reports the ConfigMap that the object names, and references that it may not report.
const naming = `#!/usr/bin/env bash
set -euo pipefail
source=$(sed 's/.*"spec":{"source":"\([a-z]*\)".*/\1/' "$ROLEWRIGHT_OBJECT")
report() { printf '{"type":"reference","apiVersion":"v1","kind":"%s","namespace":"%s","name":"%s"}\n' "$1" "$2" "$3" >&3; }
report ConfigMap "" "$source"
report Secret "" "$source"
report ConfigMap kube-system "$source"
report ConfigMap "" ../x
if [[ $source = broken ]]; then report ConfigMap "" other; exit 1; fi
printf '{"type":"result","verdict":"ok"}\n' >&3
`

// A change of what a command has reported runs its object once, even after a restart. What the last successful run has
// not reported starts nothing.
func TestCommand_ReportsReferences(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	maps := must.Get(kubernetes.NewForConfig(s.cfg))(t).CoreV1().ConfigMaps(s.namespace)
	for _, name := range []string{"first", "second", "other"} {
		must.Get(maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}))(t)
	}
	k := s.kind()
	s.script("reconcile.sh", naming)
	s.watch(k, "command: [./reconcile.sh]", "ownNamespaceOnly: true", "retry: {initial: 1h, max: 1h}", "references: [{version: v1, kind: ConfigMap, reported: true}]")
	o := s.start("--ansible-runner=/not/there", "--executor=runner")
	change := func(name, data string) {
		t.Helper()
		must.Get(maps.Patch(t.Context(), name, types.MergePatchType, []byte(`{"data":{"is":"`+data+`"}}`), metav1.PatchOptions{}))(t)
	}
	runs := func(want int, after string) {
		t.Helper()
		must.Be(t, "runs after "+after, want, len(s.runs()))
	}
	last := ""
	ranFor := func(name string) {
		t.Helper()
		trigger := "configmaps " + s.namespace + "/" + name + " was changed"
		last = k.await("it", "run because "+trigger, func(is object) bool {
			return is.ready() && is.lastRun().ID != last && is.lastRun().Cause == "reference" && is.lastRun().Trigger == trigger
		}).lastRun().ID
	}

	k.create("it", map[string]any{"source": "first"})
	warnings := k.awaitReady("it").status.Ansible.Warnings
	if said := strings.Join(warnings, "\n"); len(warnings) != 3 || !strings.Contains(said, "the report in line 2 (reference) has no effect: the watch has no references of /v1, Kind=Secret") ||
		!strings.Contains(said, "line 3 (reference) has no effect") || !strings.Contains(said, "line 4 (reference) has no effect") {
		t.Errorf("warnings: %q", warnings)
	}
	change("second", "a")
	change("first", "a")
	ranFor("first")
	runs(2, "a change of the reference")

	o.stop()
	change("first", "b")
	o = s.start("--ansible-runner=/not/there", "--executor=runner")
	ranFor("first")
	runs(3, "a change while there was no operator")
	o.stop()
	o = s.start("--ansible-runner=/not/there", "--executor=runner")
	o.awaitDecided(k, 1)
	runs(3, "a restart")

	k.patch("it", `{"spec":{"source":"second"}}`)
	k.await("it", "run with another reference", func(is object) bool { return is.lastRun().Generation == 2 && is.ready() })
	change("first", "c")
	change("second", "c")
	ranFor("second")
	runs(5, "changes of the former reference, and of the one that is")

	// A failed run adds nothing to what is watched, and removes nothing.
	k.patch("it", `{"spec":{"source":"broken"}}`)
	k.await("it", "failed", func(is object) bool { return is.lastRun().Result == "Failed" && is.settled() })
	change("other", "d")
	change("second", "d")
	k.await("it", "failed for what it knew", func(is object) bool { return is.lastRun().Cause == "reference" && is.settled() })
	runs(7, "a run that failed")
	o.stop()
}
