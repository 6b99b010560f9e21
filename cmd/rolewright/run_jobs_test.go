package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// The operator refuses options that do not go with runs as Jobs, at the start and when it reads the watches again. dev
// runs the content of such watches on this machine.
func TestCheckJobs(t *testing.T) {
	t.Parallel()
	const url = "https://runs:8444"
	for want, o := range map[string]runOptions{
		"needs --job-url":                  {},
		`--job-url "http://runs"`:          {jobOptions: jobOptions{jobURL: "http://runs"}},
		"does not go with --watch-content": {watchContent: true},
		"":                                 {jobOptions: jobOptions{jobURL: url}},
	} {
		err := o.checkJobs([]watches.Watch{{Executor: watches.ExecutorJob}})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("the error is %v, want %q", err, want)
		}
		if err := o.checkJobs([]watches.Watch{{}}); err != nil {
			t.Errorf("without such runs the error is %v", err)
		}
	}
	watched := []watches.Watch{{Executor: watches.ExecutorJob}}
	o := runOptions{follow: func(schema.GroupVersionKind, types.NamespacedName, string) controller.Follower { return nil }}
	if err := o.checkJobs(watched); err != nil || watched[0].Executor != watches.ExecutorAuto {
		t.Errorf("dev makes runs by %s, %v", watched[0].Executor, err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "shop.yml"), "- hosts: localhost\n  tasks: []\n")
	write(t, filepath.Join(dir, "watches.yaml"), "- {version: v1, group: example.com, kind: Shop, playbook: "+filepath.Join(dir, "shop.yml")+", executor: job}\n")
	r := reload{op: &operator{runOptions: &runOptions{watchContent: true, watchesFile: filepath.Join(dir, "watches.yaml"), maxConcurrent: 1, executor: "auto"}}}
	if _, err := r.load(); err == nil || !strings.Contains(err.Error(), "--watch-content") {
		t.Errorf("when the watches are read again the error is %v", err)
	}
}

// The Pods of runs use the image of the operator's container, whatever other containers its Pod has.
func TestOwnImage(t *testing.T) {
	t.Parallel()
	name := must.Get(os.Hostname())(t)
	for want, containers := range map[string][]corev1.Container{
		"operator:1":             {{Name: "sidecar", Image: "mesh:1"}, {Name: "manager", Image: "operator:1"}},
		"operator:2":             {{Name: "operator", Image: "operator:2"}},
		`no container "manager"`: {{Name: "sidecar", Image: "mesh:1"}, {Name: "operator", Image: "operator:1"}},
	} {
		client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "system"}, Spec: corev1.PodSpec{Containers: containers}})
		got, err := ownImage(client, "system")
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("the image is %s, want %s", got, want)
		}
	}
	if _, err := ownImage(fake.NewClientset(), ""); err == nil || !strings.Contains(err.Error(), "--job-image") {
		t.Errorf("outside of a Pod the error is %v, want the flag", err)
	}
}

// The time comes from the API server's last answer, whatever this machine's clock says.
func TestServerClock(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", time.Now().Add(-3*time.Hour).UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	clock := &serverClock{}
	if off := time.Since(clock.now()); off > time.Minute {
		t.Errorf("before an answer, the time is off by %s", off)
	}
	res, err := (&http.Client{Transport: clock}).Get(server.URL)
	must.Do(t, err)
	_ = res.Body.Close()
	if off := time.Since(clock.now()); off < 179*time.Minute || off > 181*time.Minute {
		t.Errorf("after an answer, the time is off by %s, want three hours", off)
	}
}
