package remote

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
)

// operator is the side of the operator, without a cluster.
type operator struct {
	*Hub

	url              string
	certificate, key []byte
	// api is what the run finds in place of the API server.
	api    http.HandlerFunc
	server *http.Server
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{api: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }}
	var err error
	if o.certificate, o.key, err = NewCertificate(ServerName); err != nil {
		t.Fatal(err)
	}
	l := listen(t, "127.0.0.1:0")
	o.url = "https://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return o
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// start starts an operator that knows nothing.
func (o *operator) start(t *testing.T) {
	t.Helper()
	pair, err := tls.X509KeyPair(o.certificate, o.key)
	if err != nil {
		t.Fatal(err)
	}
	hub := NewHub()
	o.Hub = hub
	o.server = &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: silent(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, Root) {
			hub.ServeHTTP(w, r)
			return
		}
		o.api(w, r)
	})}
	listener := tls.NewListener(listen(t, strings.TrimPrefix(o.url, "https://")), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	server := o.server
	served := make(chan struct{})
	go func() {
		_ = server.Serve(listener) // until it is closed
		close(served)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
}

// request is that of a playbook, for a directory of the container.
func newRequest(t *testing.T, playbook string) runner.Request {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "playbook.yml")
	if err := os.WriteFile(file, []byte(playbook), 0o600); err != nil {
		t.Fatal(err)
	}
	id := uuid.NewString()
	return runner.Request{
		ID: id, Dir: filepath.Join(dir, id), Content: runner.Content{Playbook: file}, Executor: runner.ExecutorJob,
		Apart: &runner.Apart{Token: "token-of-" + id, Server: "https://127.0.0.1:1", CA: []byte("an authority")},
		Files: map[string][]byte{"kubeconfig": []byte("server: https://127.0.0.1:1\nca: " + base64.StdEncoding.EncodeToString([]byte("an authority")))},
	}
}

// inside makes the run, as the container does.
func (o *operator) inside(t *testing.T, req runner.Request) <-chan error {
	t.Helper()
	data, err := Encode(req, o.url, o.certificate)
	if err != nil {
		t.Fatal(err)
	}
	input := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(input, data, 0o600); err != nil {
		t.Fatal(err)
	}
	r := runner.New(runner.Options{})
	t.Cleanup(r.Close)
	ended := make(chan error, 1)
	ctx := t.Context()
	go func() {
		ended <- Inside(ctx, Options{Input: input, Pod: "this", Runner: r, Say: func(text string) { t.Log(text) }, Patience: time.Minute})
	}()
	return ended
}

// admit receives the run into a new directory.
func (o *operator) admit(t *testing.T, req runner.Request, pod string) (*Session, runner.Request) {
	t.Helper()
	req.Dir, req.Files = filepath.Join(t.TempDir(), req.ID), nil
	if err := runner.CreateMirror(req); err != nil {
		t.Fatal(err)
	}
	s, err := o.Admit(req, pod)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, req
}

// The operator goes in the middle of a run, with its disk; the run goes on, and the next one
// gets all of it, the same events as the container has.
func TestInside_LosesNothingWhenTheOperatorStartsAgain(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	gate := filepath.Join(t.TempDir(), "gate")
	req := newRequest(t, `
- hosts: localhost
  gather_facts: false
  tasks:
    - ansible.builtin.debug: {msg: first}
    - ansible.builtin.wait_for: {path: `+gate+`, sleep: 1}
    - ansible.builtin.debug: {msg: "{{ item }}"}
      loop: [1, 2, 3]
`)
	o.start(t)
	first, one := o.admit(t, req, "")
	ended := o.inside(t, req)
	for event, err := range jobevent.Follow(t.Context(), filepath.Join(one.Dir, "artifacts", req.ID, "job_events"), first.Done) {
		if err != nil {
			t.Fatalf("event of the first operator: %v", err)
		}
		if event.Kind == jobevent.RunnerOK {
			break
		}
	}
	if err := o.server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.start(t)
	o.Expect(req.Apart.Token)
	second, two := o.admit(t, req, "this")
	res, err := runner.Mirrored(t.Context(), two, second.Done)
	if err != nil || !res.Verdict().Success || res.Executor() != runner.ExecutorJob {
		t.Errorf("the run has ended with %v, %+v as %s; want a success as %s", err, res.Verdict(), res.Executor(), runner.ExecutorJob)
	}
	equalFiles(t, filepath.Join(req.Dir, "artifacts", req.ID), filepath.Join(two.Dir, "artifacts", req.ID))
	// This operator ends, too, before it has recorded the end.
	if err := o.server.Close(); err != nil {
		t.Fatal(err)
	}
	o.start(t)
	o.Expect(req.Apart.Token)
	third, three := o.admit(t, req, "this")
	if res, err := runner.Mirrored(t.Context(), three, third.Done); err != nil || !res.Verdict().Success {
		t.Errorf("for an operator that adopts it then, the run has ended with %v, %+v; want a success", err, res.Verdict())
	}
	third.Close()
	select {
	case err := <-ended:
		t.Fatalf("the container ends with %v before the end of its run is recorded", err)
	case <-time.After(2 * firstPause):
	}
	o.Recorded(req.ID)
	if err := <-ended; err != nil {
		t.Errorf("the container ends with %v, want nil: the operator has all", err)
	}
	equalFiles(t, filepath.Join(req.Dir, "artifacts", req.ID), filepath.Join(three.Dir, "artifacts", req.ID))
}

// equalFiles compares the events and what else is sent.
func equalFiles(t *testing.T, want, got string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(want, "job_events", "*.json"))
	if err != nil || len(names) < 10 {
		t.Fatalf("%d events in the container: %v", len(names), err)
	}
	for _, name := range append(names, filepath.Join(want, "stdout"), filepath.Join(want, "rc"), filepath.Join(want, "status")) {
		base, err := filepath.Rel(want, name)
		if err != nil {
			t.Fatal(err)
		}
		original, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if sent, err := os.ReadFile(filepath.Join(got, base)); err != nil || string(sent) != string(original) {
			t.Errorf("%s is not as in the container: %v", base, err)
		}
	}
}

// A run that the operator does not know ends; so does a second Pod of a run, which never starts it.
func TestInside_EndsWhatTheOperatorHasGivenUp(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.start(t)
	unknown := newRequest(t, "- hosts: localhost\n")
	if err := <-o.inside(t, unknown); !errors.Is(err, ErrGivenUp) {
		t.Errorf("a run that the operator does not know ends with %v, want %v", err, ErrGivenUp)
	}
	taken := newRequest(t, "- hosts: localhost\n")
	o.admit(t, taken, "another")
	if err := <-o.inside(t, taken); !errors.Is(err, ErrGivenUp) {
		t.Errorf("a second Pod of a run ends with %v, want %v", err, ErrGivenUp)
	}
	if _, err := os.Stat(taken.Dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a second Pod has begun the run: %v", err)
	}
	going := newRequest(t, "- hosts: localhost\n  gather_facts: false\n  tasks:\n    - ansible.builtin.wait_for: {timeout: 600}\n")
	s, _ := o.admit(t, going, "")
	ended := o.inside(t, going)
	<-s.Started
	s.Close()
	if err := <-ended; !errors.Is(err, ErrGivenUp) {
		t.Errorf("a run that is given up ends with %v, want %v", err, ErrGivenUp)
	}
}

// The run's requests wait for an operator, and one that has no answer is counted.
func TestGateway_WaitsForTheOperator(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	req := newRequest(t, "")
	in := Input{URL: o.url, CA: o.certificate, Server: req.Apart.Server, ServerCA: req.Apart.CA}
	g, err := newGateway(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.close)
	kubeconfig := string(g.kubeconfig(req.Files["kubeconfig"], in))
	if !strings.Contains(kubeconfig, g.listener.Addr().String()) || !strings.Contains(kubeconfig, base64.StdEncoding.EncodeToString(g.ca)) {
		t.Errorf("the kubeconfig of the run is\n%s\nwant the server and the authority of the gateway", kubeconfig)
	}
	config, err := clientConfig(g.ca)
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName = "localhost"
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	ask := func(ctx context.Context) (string, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+g.listener.Addr().String()+"/api", strings.NewReader("{}"))
		if err != nil {
			return "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		data, err := io.ReadAll(resp.Body)
		return string(data), err
	}
	type answer struct {
		text string
		err  error
	}
	answers := make(chan answer, 1)
	go func() {
		text, err := ask(t.Context())
		answers <- answer{text, err}
	}()
	o.start(t)
	if a := <-answers; a.err != nil || a.text != "served" || g.cut.Load() != 0 {
		t.Errorf("a request from before the operator gets %q, %v, with %d cut; want an answer", a.text, a.err, g.cut.Load())
	}
	o.api = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	if text, err := ask(t.Context()); err != nil || !strings.Contains(text, "cannot be reached") || g.cut.Load() != 1 {
		t.Errorf("a request without an answer gets %q, %v, with %d cut; want 1", text, err, g.cut.Load())
	}
	o.api = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(LaterHeader, "true")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if _, err := ask(t.Context()); err != nil || g.cut.Load() != 2 {
		t.Errorf("after a request that came before the run was found, %d are cut, %v; want 2", g.cut.Load(), err)
	}
}
