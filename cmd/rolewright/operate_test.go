package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// program is a rolewright process.
type program struct {
	cmd     *exec.Cmd
	output  lockedBuffer // stdout and stderr
	ended   chan struct{}
	health  string // base URL
	metrics string // URL
}

// lockedBuffer can be read while a process writes to it.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startRun starts "rolewright run" on free ports and stops it at the end of the test. The entries of env have the form
// NAME=value.
func startRun(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	health, metrics := testenv.Address(t), testenv.Address(t)
	scheme := "http"
	if strings.Contains(strings.Join(args, " "), "--metrics-secure") {
		scheme = "https"
	}
	p := &program{
		cmd: exec.Command(os.Args[0], append([]string{"run",
			"--health-probe-bind-address=" + health, "--metrics-bind-address=" + metrics,
			"--proxy-port=0", "--user-metrics-bind-address=0",
			"--runner-root=" + filepath.Join(t.TempDir(), "runner")}, args...)...),
		ended:   make(chan struct{}),
		health:  "http://" + health,
		metrics: scheme + "://" + metrics + "/metrics",
	}
	p.cmd.Env = append(append(os.Environ(), asProgram+"=1", "WATCH_NAMESPACE="), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	must.Do(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // its result is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("output of the program:\n%s", p.output.String())
		}
		_ = p.cmd.Process.Kill() // fails if the process has ended
		<-p.ended
	})
	return p
}

// exit waits until the program has ended and returns its exit code.
func (p *program) exit() int {
	<-p.ended
	return p.cmd.ProcessState.ExitCode()
}

// eventuallyLogs waits until the program's log contains the text.
func (p *program) eventuallyLogs(t *testing.T, text string) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("log line with %q", text), func(context.Context) error {
		if !strings.Contains(p.output.String(), text) {
			return errors.New("not there yet")
		}
		return nil
	})
}

// eventuallyAnswers waits until url answers with status.
func (p *program) eventuallyAnswers(t *testing.T, url string, status int) {
	t.Helper()
	testenv.Eventually(t, fmt.Sprintf("%s answers %d", url, status), func(ctx context.Context) error {
		select {
		case <-p.ended:
			t.Fatalf("the program has ended with code %d", p.exit())
		default:
		}
		got, body, err := fetch(ctx, url, "")
		if err == nil && got != status {
			err = fmt.Errorf("it answers %d: %s", got, body)
		}
		return err
	})
}

func fetch(ctx context.Context, url, token string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(data), err
}

// watchesFor writes a watches file for a new kind, with a playbook that says hello.
func watchesFor(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	gvk := testenv.CRD(t, cfg)
	dir := t.TempDir()
	playbook := filepath.Join(dir, "playbook.yml")
	write(t, playbook, "- hosts: localhost\n  gather_facts: false\n  tasks:\n"+
		"  - name: greet\n    debug: {msg: \"hello {{ who }}\"}\n")
	file := filepath.Join(dir, "watches.yaml")
	write(t, file, fmt.Sprintf("- group: %s\n  version: %s\n  kind: %s\n  playbook: %s\n",
		gvk.Group, gvk.Version, gvk.Kind, playbook))
	return file
}

func write(t *testing.T, file, content string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(content), 0o600))
}

// kubeconfigEnv returns the environment variable that leads a program to the test's API server.
func kubeconfigEnv(t *testing.T, cfg *rest.Config) string {
	t.Helper()
	return "KUBECONFIG=" + testenv.Kubeconfig(t, cfg)
}

func TestRun_ServesHealthAndMetricsAndEndsInOrder(t *testing.T) {
	cfg := testenv.Config(t)
	p := startRun(t, []string{kubeconfigEnv(t, cfg)}, "--watches-file="+watchesFor(t, cfg))
	for _, check := range []string{
		"/healthz", "/healthz/healthz", "/healthz/ping",
		"/readyz", "/readyz/readyz", "/readyz/ansible-runner", "/readyz/caches", "/readyz/webhooks",
	} {
		p.eventuallyAnswers(t, p.health+check, http.StatusOK)
	}
	status, body, err := fetch(t.Context(), p.metrics, "")
	if err != nil || status != http.StatusOK {
		t.Fatalf("metrics answer %d, %v", status, err)
	}
	for _, series := range []string{"ansible_operator_build_info{", "rolewright_kind_ready{", "workqueue_", "go_", "process_"} {
		if !strings.Contains(body, "\n"+series) {
			t.Errorf("metrics lack %s", series)
		}
	}
	p.eventuallyLogs(t, "ansible-runner is ready")

	must.Do(t, p.cmd.Process.Signal(syscall.SIGTERM))
	if code := p.exit(); code != exitOK {
		t.Errorf("exit code after SIGTERM = %d, want %d", code, exitOK)
	}
	for _, line := range []string{
		`"msg":"Version","Go Version":"go`, `"GOOS":"linux"`, `"ansible-operator":"`, `"commit":"`,
		`"msg":"Watching all namespaces"`, `"msg":"Exiting."`, plainMetricsMessage,
	} {
		if !strings.Contains(p.output.String(), line) {
			t.Errorf("log lacks %s", line)
		}
	}
}

const plainMetricsMessage = "metrics are served without encryption and authentication"

func TestRun_IsNotReadyWithoutAnsibleRunner(t *testing.T) {
	cfg := testenv.Config(t)
	p := startRun(t, []string{kubeconfigEnv(t, cfg)},
		"--watches-file="+watchesFor(t, cfg), "--ansible-runner=/does/not/exist/ansible-runner")
	p.eventuallyLogs(t, "not ready: Ansible cannot be run")
	p.eventuallyAnswers(t, p.health+"/readyz", http.StatusInternalServerError)
	p.eventuallyAnswers(t, p.health+"/readyz/ansible-runner", http.StatusInternalServerError)
	p.eventuallyAnswers(t, p.health+"/healthz", http.StatusOK)
}

func TestRun_GivesMetricsOnlyToWhomRBACAllows(t *testing.T) {
	cfg := testenv.Config(t)
	p := startRun(t, []string{kubeconfigEnv(t, cfg)},
		"--watches-file="+watchesFor(t, cfg), "--metrics-secure", "--metrics-require-rbac")
	p.eventuallyAnswers(t, p.metrics, http.StatusUnauthorized)

	refused := testenv.User(t, cfg, nil).BearerToken
	allowed := testenv.User(t, cfg, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}).BearerToken
	if status, body, err := fetch(t.Context(), p.metrics, refused); err != nil || status != http.StatusForbidden {
		t.Errorf("without permission: %d %s, %v; want 403", status, body, err)
	}
	if status, body, err := fetch(t.Context(), p.metrics, allowed); err != nil || status != http.StatusOK {
		t.Errorf("with permission: %d %s, %v; want 200", status, body, err)
	}
	if strings.Contains(p.output.String(), plainMetricsMessage) {
		t.Error("secure metrics are called open in the log")
	}
}

func TestRun_LeaderHandsOverAtItsEnd(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	// The Lease lasts an hour, so another replica can only take it after its release.
	args := []string{
		"--watches-file=" + watchesFor(t, cfg), "--leader-elect", "--leader-election-id=op",
		"--leader-election-namespace=" + namespace, "--leader-elect-lease-duration=1h", "--leader-elect-renew-deadline=30m",
	}
	env := []string{kubeconfigEnv(t, cfg)}
	first := startRun(t, env, args...)
	first.eventuallyLogs(t, "Serving kind")
	second := startRun(t, env, args...)
	second.eventuallyAnswers(t, second.health+"/readyz", http.StatusOK) // a standby replica is ready
	if strings.Contains(second.output.String(), "Serving kind") {
		t.Error("two instances serve the kind at the same time")
	}

	must.Do(t, first.cmd.Process.Signal(syscall.SIGTERM))
	if code := first.exit(); code != exitOK {
		t.Errorf("exit code of the leader = %d, want %d", code, exitOK)
	}
	second.eventuallyLogs(t, "Serving kind")
	second.eventuallyAnswers(t, second.health+"/readyz", http.StatusOK)
}

func TestRun_RefusesToStartAndSaysWhy(t *testing.T) {
	cfg := testenv.Config(t)
	busy := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer busy.Close()
	unreachable := testenv.Address(t)
	good := watchesFor(t, cfg)

	tests := []struct {
		name string
		env  string
		args []string
		want []string // parts of the output
	}{
		{
			name: "kubeconfig that does not exist",
			env:  "KUBECONFIG=/does/not/exist",
			args: []string{"--watches-file=" + good},
			want: []string{"Error: read kubeconfig (KUBECONFIG=/does/not/exist)", "make KUBECONFIG name an existing file"},
		},
		{
			name: "server that does not answer",
			env:  "KUBECONFIG=" + writeKubeconfig(t, "https://"+unreachable, "c"),
			args: []string{"--watches-file=" + good},
			want: []string{"the API server does not answer, trying again", "Error: connect to the API server https://" + unreachable + " (from KUBECONFIG=", "connection refused", "check that the server runs"},
		},
		{
			name: "metrics address in use",
			env:  kubeconfigEnv(t, cfg),
			args: []string{"--watches-file=" + good, "--metrics-bind-address=" + busy.Addr().String()},
			want: []string{"Error: run the operator: ", busy.Addr().String(), "address already in use"},
		},
		{
			name: "health address in use",
			env:  kubeconfigEnv(t, cfg),
			args: []string{"--watches-file=" + good, "--health-probe-bind-address=" + busy.Addr().String()},
			want: []string{"Error: prepare the operator: ", busy.Addr().String(), "address already in use"},
		},
		{
			name: "no namespace for the Lease",
			env:  kubeconfigEnv(t, cfg),
			args: []string{"--watches-file=" + good, "--leader-elect", "--leader-election-id=op"},
			want: []string{"Error: --leader-elect needs a namespace for the Lease: outside of a Pod, set --leader-election-namespace"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := startRun(t, []string{tt.env}, tt.args...)
			if code := p.exit(); code != exitFailed {
				t.Errorf("exit code = %d, want %d", code, exitFailed)
			}
			for _, part := range tt.want {
				if !strings.Contains(p.output.String(), part) {
					t.Errorf("output lacks %q", part)
				}
			}
		})
	}
}
