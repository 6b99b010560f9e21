package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// clientOf reads back what the launcher wrote into the kubeconfig.
func clientOf(t *testing.T, kubeconfig string) apiClient {
	t.Helper()
	data, err := os.ReadFile(kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) []byte {
		match := regexp.MustCompile(name + `: (\S+)`).FindSubmatch(data)
		if match == nil {
			t.Fatalf("no %s in the kubeconfig", name)
		}
		return match[1]
	}
	decoded := func(name string) []byte {
		text, err := base64.StdEncoding.DecodeString(string(field(name)))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	admin := identity{cert: decoded("client-certificate-data"), key: decoded("client-key-data")}
	client, err := newAPIClient(string(field("server")), decoded("certificate-authority-data"), admin)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// startKwok starts a control plane with kwok, which has to leave nothing.
func startKwok(t *testing.T, flag string) (client apiClient, dir string) {
	t.Helper()
	assets(t, "kube-scheduler", "kwok", "kwok-stages.yaml")
	dir = filepath.Join(t.TempDir(), "state")
	r := startRun(t, dir, flag)
	t.Cleanup(func() {
		if err := errors.Join(r.cmd.Process.Signal(os.Interrupt), r.cmd.Wait()); err != nil {
			t.Errorf("run: %v\n%s", err, r.stderr)
		}
		wantNothingLeft(t, dir)
	})
	return clientOf(t, r.kubeconfig), dir
}

// await asks until the answer is the one that is wanted.
func await(t *testing.T, client apiClient, path string, wanted func([]byte) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("out of patience"))
	defer cancel()
	for {
		data, err := client.do(ctx, http.MethodGet, path, nil)
		if err == nil && wanted(data) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is %s, %v", path, data, err)
		}
		time.Sleep(pollInterval)
	}
}

func TestRun_WithKwokMakesDeploymentsAvailable(t *testing.T) {
	t.Parallel()
	client, _ := startKwok(t, "--kwok")
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	labels := map[string]string{"app": "web"}
	_, err := client.do(t.Context(), http.MethodPost, deployments, map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"replicas": 3,
			"selector": map[string]any{"matchLabels": labels},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec":     map[string]any{"containers": []map[string]any{{"name": "web", "image": "web"}}},
			},
		},
	})
	if err != nil {
		t.Fatalf("create a Deployment: %v", err)
	}
	await(t, client, deployments+"/web", func(data []byte) bool {
		var deployment struct {
			Status struct{ AvailableReplicas int }
		}
		return json.Unmarshal(data, &deployment) == nil && deployment.Status.AvailableReplicas == 3
	})
}

func TestRun_WithPodsExecAnswersForPods(t *testing.T) {
	t.Parallel()
	client, dir := startKwok(t, "--pods-exec")
	const pods = "/api/v1/namespaces/default/pods"
	_, err := client.do(t.Context(), http.MethodPost, pods, map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "web"},
		"spec": map[string]any{"nodeName": nodeName, "containers": []map[string]any{{"name": "web", "image": "web"}}},
	})
	if err != nil {
		t.Fatalf("create a Pod: %v", err)
	}
	line := "2026-01-01T00:00:00.000000000Z stdout F hello\n"
	if err := os.WriteFile(filepath.Join(dir, "pods", "log"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, client, pods+"/web/log", func(data []byte) bool { return string(data) == "hello\n" })
}
