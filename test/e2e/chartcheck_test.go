package e2e

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/rolewright/rolewright/test/must"
)

// A check says what an installation, an upgrade and a correction of drift would change, without Secrets, and changes
// nothing.
func TestChart_Check(t *testing.T) {
	t.Parallel()
	s, k, o, client := chartStage(t, "mode: check")
	maps := client.CoreV1().ConfigMaps(s.namespace)
	for name, size := range map[string]string{"upgrade": "3", "drift": "4"} {
		helm := process(t, absolute(t, "bin/tools/helm"), "install", name, absolute(t, "test/e2e/testdata/kettle"), "--set", "size="+size, "--namespace", s.namespace)
		helm.Env = s.env
		if out, err := helm.CombinedOutput(); err != nil {
			t.Fatalf("helm: %v\n%s", err, out)
		}
	}
	changed := must.Get(maps.Get(t.Context(), "drift", metav1.GetOptions{}))(t)
	changed.Data["size"] = "9"
	must.Get(maps.Update(t.Context(), changed, metav1.UpdateOptions{}))(t)
	for name, want := range map[string][]string{
		"new":     {"The chart would be installed", "ConfigMap new:\n", `+  size: "4"`},
		"upgrade": {"The release would be upgraded: ConfigMap upgrade", `-  size: "3"`, `+  size: "4"`},
		"drift":   {"Drift would be corrected: ", `-  size: "9"`, `+  size: "4"`},
	} {
		k.create(name, map[string]any{"size": int64(4)})
		is := k.await(name, "checked", func(is object) bool { return is.condition("Drifted").Status == "True" })
		for _, text := range want {
			if !strings.Contains(is.condition("Drifted").Message, text) {
				t.Errorf("%s: no %q in %s", name, text, is.condition("Drifted").Message)
			}
		}
		if strings.Contains(is.condition("Drifted").Message, "correct-horse") {
			t.Errorf("%s: a Secret is shown: %s", name, is.condition("Drifted").Message)
		}
	}
	if got := s.revisions(client, "new") + s.revisions(client, "upgrade") + s.revisions(client, "drift"); got != "1 deployed1 deployed" {
		t.Errorf("revisions: %s", got)
	}
	if is := must.Get(maps.Get(t.Context(), "drift", metav1.GetOptions{}))(t); is.Data["size"] != "9" || len(is.OwnerReferences) > 0 {
		t.Errorf("the check has changed an object: %v", is)
	}
	o.stop()
}

// The tests of a chart run for a revision whose objects are ready. They run again if one has failed, but not once all
// have succeeded.
func TestChart_Tests(t *testing.T) {
	t.Parallel()
	s, k, o, client := chartStage(t, "test: true", "timeout: 60s")
	maps := client.CoreV1().ConfigMaps(s.namespace)
	k.create("slow", map[string]any{"testPod": true}) // it takes until its timeout
	k.create("it", map[string]any{"test": "No Name"})
	is := k.await("it", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
	if c := is.condition("ReleaseFailed"); c.Reason != "ChartTestError" || !strings.Contains(c.Message, "No Name") || is.condition("Deployed").Status != "True" {
		t.Errorf("a test that cannot be made: %v", is.Object["status"])
	}
	k.patch("it", `{"spec": {"test": "tested", "size": 2}}`)
	if is = k.awaitReady("it"); is.condition("ReleaseFailed").Type != "" {
		t.Errorf("ReleaseFailed is left: %v", is.Object["status"])
	}
	made := must.Get(maps.Get(t.Context(), "tested", metav1.GetOptions{}))(t)
	must.Do(t, maps.Delete(t.Context(), "it", metav1.DeleteOptions{}))
	k.await("it", "corrected", func(object) bool {
		_, err := maps.Get(t.Context(), "it", metav1.GetOptions{})
		return err == nil
	})
	k.awaitReady("it")
	if again := must.Get(maps.Get(t.Context(), "tested", metav1.GetOptions{}))(t); again.UID != made.UID {
		t.Error("a test that has succeeded was run again")
	}

	// The Pod of a test that does not end was looked at before it went.
	is = k.await("slow", "failed", func(is object) bool { return is.settled() && is.lastRun().Result == "Failed" })
	if text := fmt.Sprint(is.Object["status"]); is.condition("ReleaseFailed").Reason != "ChartTestError" || !strings.Contains(text, "of Pod slow-test, container try,") {
		t.Errorf("a test that does not end: %s", text)
	}
	if _, err := client.CoreV1().Pods(s.namespace).Get(t.Context(), "slow-test", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Pod of the test: %v", err)
	}
	o.stop()
}
