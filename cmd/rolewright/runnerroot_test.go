package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// An operator does not remove the runs of another cluster's objects, and adds nothing to their history. It uses another
// directory for its own cluster's runs, and cleans up only there.
func TestRun_LeavesTheRunsOfAnotherClusterAlone(t *testing.T) {
	cfg := testenv.Config(t)
	root := filepath.Join(t.TempDir(), "runner")
	gvk := testenv.CRD(t, cfg)
	watches := filepath.Join(t.TempDir(), "watches.yaml")
	write(t, watches, fmt.Sprintf("- {group: %s, version: %s, kind: %s, command: [/bin/true]}\n", gvk.Group, gvk.Version, gvk.Kind))
	const uid, id = "0f0f0f0f-0000-4000-8000-000000000001", "0f0f0f0f-0000-4000-8000-000000000002"
	system := must.Get(kubernetes.NewForConfigOrDie(cfg).CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{}))(t)
	own := filepath.Join(root, ".clusters", string(system.UID))
	others, run := filepath.Join(root, ".runs", uid, id), filepath.Join(own, ".runs", uid, id)
	for _, dir := range []string{others, run} {
		must.Do(t, os.MkdirAll(dir, 0o700))
		write(t, filepath.Join(dir, "ticket.json"), fmt.Sprintf(`{"Run":%q,"UID":%q,"Group":%q,"Version":%q,"Kind":%q,"Namespace":"gone","Name":"it"}`, id, uid, gvk.Group, gvk.Version, gvk.Kind))
	}
	note := filepath.Join(root, ".runs", ".cluster")
	write(t, note, "another\n")
	there := func(path string) bool {
		_, err := os.Lstat(path)
		return !errors.Is(err, fs.ErrNotExist)
	}

	operator := startRun(t, []string{kubeconfigEnv(t, cfg)}, "--watches-file="+watches, "--runner-root="+root)
	operator.eventuallyLogs(t, "The runner root has runs of another cluster")
	removed := func(path string) func(context.Context) error {
		return func(context.Context) error {
			if there(path) {
				return errors.New("it is there")
			}
			return nil
		}
	}
	testenv.Eventually(t, "the run of an object that is gone to be removed", removed(run))
	must.Do(t, operator.cmd.Process.Signal(syscall.SIGTERM))
	must.Be(t, "exit code", exitOK, operator.exit())
	must.Be(t, "the run of the other cluster is there, and a history of each", []bool{true, false, true},
		[]bool{there(others), there(filepath.Join(root, ".history")), there(filepath.Join(own, ".history"))})

	must.Do(t, os.Remove(note))
	startRun(t, []string{kubeconfigEnv(t, cfg)}, "--watches-file="+watches, "--runner-root="+root)
	testenv.Eventually(t, "the run of an object that is gone to be removed", removed(others))
	must.Be(t, "the note", string(system.UID)+"\n", string(must.Get(os.ReadFile(note))(t)))
	must.Be(t, "a history", true, there(filepath.Join(root, ".history")))
}

// If the operator may not read the namespace kube-system, it uses the runner root as it is, and notes no cluster in it.
func TestRunnerRoot_WithoutRights(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	must.Be(t, "root", root, must.Get(assembly.RunnerRoot(t.Context(), testenv.User(t, testenv.Config(t), nil), root, logr.Discard()))(t))
	must.Be(t, "files", 0, len(must.Get(os.ReadDir(root))(t)))
}
