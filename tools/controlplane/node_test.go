package main

import (
	"crypto/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// able skips a test if this machine cannot run a node, and says why.
func able(t *testing.T) {
	t.Helper()
	assets(t, "kube-scheduler", "kubelet")
	reasons, err := exec.Command("../node/able.sh").CombinedOutput()
	if err == nil {
		err = exec.Command("../node/install.sh").Run()
	}
	if err != nil {
		t.Skipf("NOT RUN: this machine cannot run a node: %v: %s", err, reasons)
	}
}

// nodeDir returns a directory for a control plane with a node. The node's control groups have the same name. The name is
// short, because it is part of the paths of sockets.
func nodeDir(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "n-"+rand.Text()[:6])
}

// wantNoNodeLeft fails the test if something of a node is left: processes, directories, control groups, or mounts.
func wantNoNodeLeft(t *testing.T, dir string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		left, _ := filepath.Glob("/sys/fs/cgroup/*/" + filepath.Base(dir) + "*")
		mounts, err := os.ReadFile("/proc/self/mounts")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(mounts), dir) {
			left = append(left, "mounts in "+dir)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", left)
		}
		time.Sleep(pollInterval)
	}
	wantNothingLeft(t, dir)
}

// A Pod of the pause image, which is the only image, really runs: its process exists.
const pauseTwice = `kubectl run one --image=docker.io/rolewright/pause:1 --image-pull-policy=Never >/dev/null &&
	kubectl wait --for=condition=Ready --timeout=120s pod/one >/dev/null && pgrep --count --exact --full '/pause pause'`

func TestExec_WithANodeRunsPodsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	able(t)
	dir := nodeDir(t)
	// The launcher starts the command when the namespace's service account exists and the node is ready.
	cmd := command(t, dir, "exec", "--node", "--", "sh", "-c", pauseTwice+" && ls /run/netns")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, cmd.Stderr)
	}
	count, namespaces, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if count != "2" { // the Pod's container, and the one that holds its namespaces
		t.Errorf("%q processes of the pause image, want 2", count)
	}
	if namespaces == "" {
		t.Error("the Pod has no network namespace")
	}
	for _, name := range strings.Fields(namespaces) {
		if _, err := os.Lstat("/run/netns/" + name); err == nil {
			t.Errorf("left behind: the network namespace %s", name)
		}
	}
	wantNoNodeLeft(t, dir)
}

func TestExec_WithANodeKilledLeavesNothing(t *testing.T) {
	t.Parallel()
	able(t)
	dir := nodeDir(t)
	ready := filepath.Join(t.TempDir(), "ready")
	cmd := command(t, dir, "exec", "--node", "--", "sh", "-c", pauseTwice+" >/dev/null && touch "+ready+" && sleep 600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(pollInterval) {
		if _, err := os.Stat(ready); err == nil {
			break
		}
		if time.Now().After(deadline) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			t.Fatalf("no Pod runs:\n%s", cmd.Stderr)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	wantNoNodeLeft(t, dir)
}
