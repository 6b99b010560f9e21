package remote

import (
	"context"
	"crypto/sha256"
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
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/jobevent"
	"github.com/rolewright/rolewright/runner/selfsigned"
	"github.com/rolewright/rolewright/test/must"
)

// operator stands for the operator, without a cluster. It serves from start to stop; at other times it closes connections.
type operator struct {
	*Hub

	url              string
	certificate, key []byte
	// api answers the run in place of the API server.
	api http.HandlerFunc

	mu sync.Mutex
	// now is the Hub from start to stop, else nil.
	now         *Hub
	connections map[net.Conn]bool
	expects     bool // an unknown run will be admitted later, or belongs to another operator
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{api: func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }, connections: map[net.Conn]bool{}}
	var err error
	if o.certificate, o.key, err = selfsigned.New(ServerName); err != nil {
		t.Fatal(err)
	}
	pair := must.Get(tls.X509KeyPair(o.certificate, o.key))(t)
	var lc net.ListenConfig
	l := must.Get(lc.Listen(t.Context(), "tcp", "127.0.0.1:0"))(t)
	o.url = "https://" + l.Addr().String()
	server := &http.Server{ReadHeaderTimeout: time.Minute, ErrorLog: silent(), Handler: o, ConnState: o.track}
	served := make(chan struct{})
	go func() {
		_ = server.Serve(tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})) // until it is closed
		close(served)
	}()
	t.Cleanup(func() {
		o.stop()
		_ = server.Close()
		<-served
	})
	return o
}

// track closes new connections while the operator is stopped.
func (o *operator) track(c net.Conn, state http.ConnState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case state == http.StateClosed:
		delete(o.connections, c)
	case o.now == nil:
		_ = c.Close()
	default:
		o.connections[c] = true
	}
}

// ServeHTTP answers the requests of runs.
func (o *operator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	hub := o.now
	o.mu.Unlock()
	switch {
	case hub == nil:
		panic(http.ErrAbortHandler)
	case strings.HasPrefix(r.URL.Path, Root):
		hub.ServeHTTP(w, r)
	default:
		o.api(w, r)
	}
}

// expect says whether unknown runs are told to come back later.
func (o *operator) expect(is bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expects = is
}

// start starts an operator that knows no runs.
func (o *operator) start() {
	hub := NewHub(func([sha256.Size]byte) Place {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.expects {
			return Later
		}
		return Nowhere
	})
	o.mu.Lock()
	defer o.mu.Unlock()
	o.Hub, o.now = hub, hub
}

// stop ends the operator, as if it was killed.
func (o *operator) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.now = nil
	for c := range o.connections {
		_ = c.Close()
	}
}

// newRequest returns a request for a run of a playbook, in a directory of the container.
func newRequest(t *testing.T, playbook string) runner.Request {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "playbook.yml")
	must.Do(t, os.WriteFile(file, []byte(playbook), 0o600))
	id := uuid.NewString()
	return runner.Request{
		ID: id, Dir: filepath.Join(dir, id), Content: runner.Content{Playbook: file}, Executor: runner.ExecutorJob,
		JobRun: &runner.JobRun{Token: "token-of-" + id, Server: "https://127.0.0.1:1", CA: []byte("an authority")},
		Files:  map[string][]byte{"kubeconfig": []byte("server: https://127.0.0.1:1\nca: " + base64.StdEncoding.EncodeToString([]byte("an authority")))},
	}
}

// inside makes the run, as the container does.
func (o *operator) inside(t *testing.T, req runner.Request) <-chan error {
	t.Helper()
	return o.insideUntil(t.Context(), t, req)
}

// insideUntil makes the run until ctx ends, as when its Pod is deleted.
func (o *operator) insideUntil(ctx context.Context, t *testing.T, req runner.Request) <-chan error {
	t.Helper()
	data := must.Get(Encode(req, o.url, o.certificate))(t)
	input := filepath.Join(t.TempDir(), "input")
	must.Do(t, os.WriteFile(input, data, 0o600))
	r := runner.New(runner.Options{})
	t.Cleanup(r.Close)
	ended := make(chan error, 1)
	go func() {
		ended <- Inside(ctx, Options{Input: input, Pod: "this", Runner: r, Say: func(text string) { t.Log(text) }, Patience: time.Minute})
	}()
	return ended
}

// admit receives the run into a new directory.
func (o *operator) admit(t *testing.T, req runner.Request, pod string) (*Session, runner.Request) {
	t.Helper()
	req.Dir, req.Files = filepath.Join(t.TempDir(), req.ID), nil
	must.Do(t, runner.CreateMirror(req))
	s := must.Get(o.Admit(req, pod))(t)
	t.Cleanup(s.Close)
	return s, req
}

// The operator ends in the middle of a run and loses its disk. The run goes on, and the next operator receives all of it,
// with the same events as in the container.
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
	o.start()
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
	o.stop()
	must.Do(t, os.WriteFile(gate, nil, 0o600))
	o.expect(true)
	o.start()
	second, two := o.admit(t, req, "this")
	res, err := runner.Mirrored(t.Context(), two, second.Told, second.Done)
	if err != nil || !res.Verdict().Success || res.Executor() != runner.ExecutorJob {
		t.Errorf("the run has ended with %v, %+v as %s; want a success as %s", err, res.Verdict(), res.Executor(), runner.ExecutorJob)
	}
	equalFiles(t, filepath.Join(req.Dir, "artifacts", req.ID), filepath.Join(two.Dir, "artifacts", req.ID))
	// This operator also ends, before it has recorded the end of the run.
	o.stop()
	o.start()
	third, three := o.admit(t, req, "this")
	if res, err := runner.Mirrored(t.Context(), three, third.Told, third.Done); err != nil || !res.Verdict().Success {
		t.Errorf("for an operator that adopts it then, the run has ended with %v, %+v; want a success", err, res.Verdict())
	}
	third.Close()
	select {
	case err := <-ended:
		t.Fatalf("the container ends with %v before the end of its run is recorded", err)
	case <-time.After(2 * firstPause):
	}
	o.expect(false) // its Job is gone
	o.Recorded(req.ID, "")
	if err := <-ended; err != nil {
		t.Errorf("the container ends with %v, want nil: the operator has all", err)
	}
	equalFiles(t, filepath.Join(req.Dir, "artifacts", req.ID), filepath.Join(three.Dir, "artifacts", req.ID))
}

// equalFiles compares the events and the other files that are sent.
func equalFiles(t *testing.T, want, got string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(want, "job_events", "*.json"))
	if err != nil || len(names) < 10 {
		t.Fatalf("%d events in the container: %v", len(names), err)
	}
	for _, name := range append(names, filepath.Join(want, "stdout"), filepath.Join(want, "rc"), filepath.Join(want, "status")) {
		base := must.Get(filepath.Rel(want, name))(t)
		original := must.Get(os.ReadFile(name))(t)
		if sent, err := os.ReadFile(filepath.Join(got, base)); err != nil || string(sent) != string(original) {
			t.Errorf("%s is not as in the container: %v", base, err)
		}
	}
}

// A run that the operator does not know ends. A second Pod of a run also ends, without starting the run.
func TestInside_EndsWhatTheOperatorHasGivenUp(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	o.start()
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

// The run's requests wait for an operator. A request without an answer is counted.
func TestGateway_WaitsForTheOperator(t *testing.T) {
	t.Parallel()
	o := newOperator(t)
	req := newRequest(t, "")
	in := Input{URL: o.url, CA: o.certificate, Server: req.JobRun.Server, ServerCA: req.JobRun.CA}
	g := must.Get(newGateway(t.Context(), in))(t)
	t.Cleanup(g.close)
	kubeconfig := string(g.kubeconfig(req.Files["kubeconfig"], in))
	if !strings.Contains(kubeconfig, g.listener.Addr().String()) || !strings.Contains(kubeconfig, base64.StdEncoding.EncodeToString(g.ca)) {
		t.Errorf("the kubeconfig of the run is\n%s\nwant the server and the authority of the gateway", kubeconfig)
	}
	config := must.Get(clientConfig(g.ca))(t)
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
	o.start()
	if a := <-answers; a.err != nil || a.text != "served" || g.cut.Load() != 0 {
		t.Errorf("a request from before the operator gets %q, %v, with %d cut; want an answer", a.text, a.err, g.cut.Load())
	}
	o.api = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	if text, err := ask(t.Context()); err != nil || !strings.Contains(text, "cannot be reached") || g.cut.Load() != 1 {
		t.Errorf("a request without an answer gets %q, %v, with %d cut; want 1", text, err, g.cut.Load())
	}
}
