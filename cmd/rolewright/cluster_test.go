package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
)

const kubeconfigTemplate = `apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {server: %q}
contexts:
- name: c
  context: {cluster: c, user: u}
users:
- name: u
  user: {token: t}
current-context: %s
`

// writeKubeconfig writes a kubeconfig for server and returns its path.
func writeKubeconfig(t *testing.T, server, currentContext string) string {
	t.Helper()
	return writeFile(t, fmt.Sprintf(kubeconfigTemplate, server, currentContext))
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	must.Do(t, os.WriteFile(file, []byte(content), 0o600))
	return file
}

func TestFindCluster_LooksWhereAnsibleOperatorLooks(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "") // not in a Pod
	good := writeKubeconfig(t, "https://good.example:6443", "c")
	home := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(home, ".kube"), 0o700))
	inHome := filepath.Join(home, ".kube", "config")
	must.Do(t, os.WriteFile(inHome, fmt.Appendf(nil, kubeconfigTemplate, "https://home.example", "c"), 0o600))
	tests := []struct {
		name       string
		kubeconfig string // KUBECONFIG
		home       string
		host       string
		wantErr    []string // parts of the error message
	}{
		{name: "KUBECONFIG", kubeconfig: good, home: home, host: "https://good.example:6443"},
		{name: "a list with a missing file in it", kubeconfig: "/does/not/exist:" + good, home: home, host: "https://good.example:6443"},
		{name: "the home directory", home: home, host: "https://home.example"},
		{
			name: "KUBECONFIG that points nowhere", kubeconfig: "/does/not/exist", home: home,
			wantErr: []string{"KUBECONFIG=/does/not/exist", "no such file", "make KUBECONFIG name an existing file"},
		},
		{
			name: "nothing anywhere", home: "/does/not",
			wantErr: []string{"/does/not/.kube/config", "set KUBECONFIG to a kubeconfig file"},
		},
		{
			name: "not YAML", kubeconfig: writeFile(t, "\tnot yaml"), home: home,
			wantErr: []string{"read kubeconfig (KUBECONFIG=", "error loading config file"},
		},
		{
			name: "an empty file", kubeconfig: writeFile(t, ""), home: home,
			wantErr: []string{"names no cluster", "kubectl config use-context"},
		},
		{
			name: "a context that does not exist", kubeconfig: writeKubeconfig(t, "https://x", "other"), home: home,
			wantErr: []string{"read kubeconfig (KUBECONFIG=", "other"},
		},
		{
			name: "a directory", kubeconfig: t.TempDir(), home: home,
			wantErr: []string{"read kubeconfig (KUBECONFIG=", "is a directory"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.kubeconfig)
			t.Setenv("HOME", tt.home)
			c, err := findCluster(os.LookupEnv)
			if len(tt.wantErr) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if c.config.Host != tt.host {
					t.Errorf("host = %q, want %q", c.config.Host, tt.host)
				}
				return
			}
			if err == nil {
				t.Fatalf("no error, but a cluster at %s", c.config.Host)
			}
			for _, part := range tt.wantErr {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

// hasty is a patience that makes tests wait little.
func hasty() patience { return patience{tries: 3, timeout: time.Minute, pause: time.Millisecond} }

func TestWaitForServer_TriesAgainWhatMayPass(t *testing.T) {
	tests := []struct {
		name     string
		statuses []int // status codes of the answers in order; the last one repeats
		asked    int32 // how often the server is asked
		wantErr  string
	}{
		{"answers", []int{200}, 1, ""},
		{"starts", []int{503, 500, 200}, 3, ""},
		{"never starts", []int{503}, 3, "no answer in 3 tries"},
		{"wrong credentials", []int{401}, 1, "renew them"},
		{"no permission", []int{403}, 1, "does not allow it to get"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var asked atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				n := int(asked.Add(1))
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(tt.statuses[min(n, len(tt.statuses))-1])
				fmt.Fprint(w, `{"gitVersion": "v1.37.2"}`)
			}))
			defer server.Close()
			c := cluster{config: &rest.Config{Host: server.URL}, source: "test"}
			err := c.waitForServer(t.Context(), hasty())
			if asked.Load() != tt.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), tt.asked)
			}
			if tt.wantErr == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) || !strings.Contains(err.Error(), server.URL+" (from test)") {
				t.Errorf("error = %v, want %q and the server in it", err, tt.wantErr)
			}
		})
	}
}

func TestWaitForServer_DoesNotInsistOnAWrongCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail here
	server.StartTLS()
	defer server.Close()
	c := cluster{config: &rest.Config{Host: server.URL}, source: "test"}
	err := c.waitForServer(t.Context(), hasty())
	if err == nil || !strings.Contains(err.Error(), "check certificate-authority-data") {
		t.Errorf("error = %v, want one about the certificate", err)
	}
}

func TestWaitForServer_StopsWithItsContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	defer server.Close()
	c := cluster{config: &rest.Config{Host: server.URL}, source: "test"}
	ctx, cancel := contextWithCause(t)
	stop := errors.New("stopped")
	time.AfterFunc(10*time.Millisecond, func() { cancel(stop) })
	p := patience{tries: 1000, timeout: time.Minute, pause: time.Minute}
	if err := c.waitForServer(ctx, p); !errors.Is(err, stop) {
		t.Errorf("error = %v, want the cause", err)
	}
}

func contextWithCause(t *testing.T) (context.Context, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	t.Cleanup(func() { cancel(nil) })
	return ctx, cancel
}
