package e2e

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/test/testenv"
)

// dev starts rolewright dev in the project.
func (s *stage) dev() *operator {
	s.t.Helper()
	crds := dynamic.NewForConfigOrDie(s.cfg).Resource(schema.GroupVersionResource{
		Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
	})
	s.t.Cleanup(func() { // after the operator has ended
		for path := range s.texts() {
			if group, name, found := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(path, "config/crd/bases/"), ".yaml"), "_"); found {
				_ = crds.Delete(context.Background(), name+"."+group, metav1.DeleteOptions{}) // what dev has not applied does not exist
			}
		}
	})
	return s.launchWith(func(o *operator) {
		o.cmd.Args = []string{o.cmd.Args[0], "dev", "--runner-root=" + s.root}
	})
}

// replace replaces a text in a file of the project.
func (s *stage) replace(path, old, text string) {
	s.t.Helper()
	data, err := os.ReadFile(s.dir + "/" + path)
	if err != nil || !strings.Contains(string(data), old) {
		s.t.Fatalf("%s: %v; %q is not in it", path, err, old)
	}
	s.write(path, strings.Replace(string(data), old, text, 1))
}

// A saved change takes effect, a file that cannot be read is named, and the operator continues.
func TestDev_WhatIsSavedTakesEffect(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	s.tool(0, "init", "--domain", testenv.Random("d")+".example.com", "--name", "web-operator")
	s.tool(0, "create", "api", "--group", "web", "--version", "v1", "--kind", "Site")
	d := s.dev()
	d.awaitOutput("Site/site-sample  succeeded in ")

	const tasks, sample = "roles/site/tasks/main.yml", "config/samples/web_v1_site.yaml"
	s.replace(tasks, "- name: Write a ConfigMap", "- name: Write it again")
	d.awaitOutput("Site/site-sample  run starts: content")
	d.awaitOutput("Write it again  " + tasks + ":")
	s.replace(sample, "text: Hello", "text: Bye")
	d.awaitOutput(sample + ": Site/site-sample applied")
	d.awaitOutput("Site/site-sample  run starts: changed")

	s.replace(tasks, "  kubernetes.core.k8s:\n", "  kubernetes.core.k8s: [\n")
	d.awaitOutput("the previous state stays in use")
	s.replace(sample, "  name: site-sample", "  name: site-sample\n  annotations: {rolewright.dev/reconcile-at: now}")
	d.awaitOutput("Site/site-sample  run starts: manual")
	testenv.Eventually(t, "the run of the state before", func(context.Context) error {
		if _, after, ok := strings.Cut(d.output(), "run starts: manual"); !ok || !strings.Contains(after, "Site/site-sample  succeeded in ") {
			return errors.New("it has not succeeded")
		}
		return nil
	})
	s.replace(tasks, "  kubernetes.core.k8s: [\n", "  no_such_module:\n")
	d.awaitOutput("Site/site-sample  failed after ")
	s.replace(tasks, "  no_such_module:\n", "  kubernetes.core.k8s:\n")

	s.replace("watches.yaml", "role: site", "role: sit")
	d.awaitOutput("role: sit was not found")
	d.awaitOutput("the previous watches file stays in use")
	s.replace("watches.yaml", "role: sit", "role: site")
	s.tool(0, "create", "api", "--group", "web", "--version", "v1", "--kind", "Page")
	d.awaitOutput("Page/page-sample  succeeded in ")
	d.signal(syscall.SIGINT)
	if code := d.exit(); code != 0 {
		t.Errorf("exit code after Ctrl-C: %d", code)
	}
	for line := range strings.Lines(d.output()) {
		if regexp.MustCompile(`\b(ERROR|panic|DATA RACE)\b`).MatchString(line) {
			t.Errorf("the console says %s", line)
		}
	}
}

// A cluster that is not on this machine must be requested explicitly, because dev writes to it.
func TestDev_RefusesAClusterElsewhere(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tool(0, "init", "--domain", "example.com", "--name", "op")
	elsewhere := *s.cfg
	elsewhere.Host = "https://192.0.2.1:6443"
	s.env = append(s.env, "KUBECONFIG="+testenv.Kubeconfig(t, &elsewhere))
	if out := s.tool(2, "dev"); !strings.Contains(out, "--allow-remote") {
		t.Error(out)
	}
}
