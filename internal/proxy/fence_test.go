package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// errFollower is the reason that these tests give for refusing writes.
var errFollower = errors.New("another replica leads")

// fenced returns requests of every kind that can change something.
func fenced() [][2]string {
	const n = "/api/v1/namespaces/n/"
	return [][2]string{
		{"POST", n + "configmaps"}, {"PUT", n + "configmaps/x"}, {"PATCH", n + "configmaps/x"}, {"DELETE", n + "configmaps/x"}, {"DELETE", n + "configmaps"},
		{"POST", n + "pods/p/eviction"}, {"PUT", n + "pods/p/status"}, {"POST", "/api/v1/namespaces"}, {"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"},
		{"POST", n + "pods/p/exec?command=rm"}, {"GET", n + "pods/p/exec?command=rm"}, {"POST", n + "pods/p/attach"}, {"GET", n + "pods/p/attach"},
		{"POST", n + "pods/p/portforward"}, {"GET", n + "pods/p/portforward?ports=1"}, {"POST", n + "services/s/proxy/x"}, {"DELETE", n + "pods/p/proxy/x"},
		{"POST", "/some/where"}, {"DELETE", "/healthz"}, {"TRACE", n + "configmaps"}, {"MOVE", n + "configmaps/x"},
	}
}

// unfenced returns requests that only read.
func unfenced() [][2]string {
	const n = "/api/v1/namespaces/n/"
	return [][2]string{
		{"GET", n + "configmaps"}, {"GET", n + "configmaps/x"}, {"HEAD", n + "configmaps/x"}, {"GET", n + "configmaps?watch=true"}, {"GET", n + "pods/p/log?follow=true"},
		{"GET", "/version"}, {"OPTIONS", n + "configmaps"}, {"GET", "/api/v1"}, {"GET", n + "services/s/proxy/x"},
	}
}

func TestFence_WritesAreRefusedAndReadsAreNot(t *testing.T) {
	for name, bar := range map[string]func(*Access, *atomic.Value){
		"not leading": func(_ *Access, may *atomic.Value) { may.Store(errFollower) },
		"refused":     func(a *Access, _ *atomic.Value) { a.Refuse(errFollower.Error()) },
	} {
		t.Run(name, func(t *testing.T) {
			api := script(t, nil, plainly)
			var may atomic.Value
			p := startProxy(t, api.config(), func(o *Options) {
				o.MayWrite = func() error { err, _ := may.Load().(error); return err }
			})
			a, client, _ := admit(t, p, Grant{Inject: true, Owner: Owner{Namespace: "n", Name: "o", UID: "u"}})
			for _, r := range fenced() { // they pass until something bars them
				if code, body, err := send(t.Context(), client, r[0], p.URL()+r[1], "{}"); err != nil || code != http.StatusOK {
					t.Errorf("before: %s %s: %d %s %v", r[0], r[1], code, body, err)
				}
			}
			bar(a, &may)
			before := len(api.seen())
			for _, r := range fenced() {
				code, body, err := send(t.Context(), client, r[0], p.URL()+r[1], "{}")
				if err != nil || code != http.StatusServiceUnavailable {
					t.Errorf("%s %s: %d %v", r[0], r[1], code, err)
					continue
				}
				var status metav1.Status
				if err := json.Unmarshal([]byte(body), &status); err != nil || !strings.Contains(status.Message, errFollower.Error()) || status.Reason != metav1.StatusReasonServiceUnavailable {
					t.Errorf("%s %s: %s, %v", r[0], r[1], body, err)
				}
			}
			for _, seen := range api.seen()[before:] {
				// The proxy looks up the owner before it asks the fence; that changes nothing.
				if seen.Method != http.MethodGet || seen.URI != "/api/v1/namespaces/n/configmaps/x" {
					t.Errorf("%s %s has arrived", seen.Method, seen.URI)
				}
			}
			for _, r := range unfenced() {
				if code, body, err := send(t.Context(), client, r[0], p.URL()+r[1], ""); err != nil || code != http.StatusOK {
					t.Errorf("%s %s: %d %s %v", r[0], r[1], code, body, err)
				}
			}
		})
	}
}

func TestFence_AnUpgradeThroughAProxySubresourceIsAWrite(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config(), func(o *Options) { o.MayWrite = func() error { return errFollower } })
	_, _, token := admit(t, p, Grant{})
	for way, dial := range dialers(t, p) {
		code, err := exchangeRaw(t, dial, "GET /api/v1/nodes/n/proxy/exec/ns/pod/c?command=rm HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "+token+
			"\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\r\n")
		if err != nil || code != http.StatusServiceUnavailable {
			t.Errorf("%s: %d %v", way, code, err)
		}
	}
	if n := len(api.seen()); n != 0 {
		t.Errorf("%d have arrived", n)
	}
}

func TestFence_IsAskedAfterTheBodyIsThere(t *testing.T) {
	api := script(t, nil, plainly)
	var asked, lost atomic.Bool
	p := startProxy(t, api.config(), func(o *Options) {
		o.MayWrite = func() error {
			asked.Store(true)
			if lost.Load() {
				return errFollower
			}
			return nil
		}
	})
	_, client, _ := admit(t, p, Grant{Inject: true})
	body, sink := io.Pipe()
	done := make(chan int, 1)
	go func() {
		defer close(done)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL()+"/api/v1/namespaces/n/configmaps", body)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close()
		done <- resp.StatusCode
	}()
	must.Get(io.WriteString(sink, `{"kind":"ConfigMap",`))(t)
	if asked.Load() {
		t.Error("the fence is asked before the body is there")
	}
	lost.Store(true)
	must.Get(io.WriteString(sink, `"apiVersion":"v1","metadata":{"name":"late"}}`))(t)
	_ = sink.Close()
	if code := <-done; code != http.StatusServiceUnavailable {
		t.Errorf("answered %d", code)
	}
	if n := len(api.seen()); n != 0 {
		t.Errorf("%d have arrived", n)
	}
}

func TestFence_IsAskedAfterTheObjectHasBeenLookedAt(t *testing.T) {
	var lost atomic.Bool
	api := script(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			lost.Store(true) // while the proxy looks up the owner of the object
			w.WriteHeader(http.StatusNotFound)
		}
	}, plainly)
	p := startProxy(t, api.config(), func(o *Options) {
		o.MayWrite = func() error {
			if lost.Load() {
				return errFollower
			}
			return nil
		}
	})
	_, client, _ := admit(t, p, Grant{Inject: true, Owner: Owner{Namespace: "n", Name: "o", UID: "u"}})
	code, body, err := send(t.Context(), client, http.MethodPut, p.URL()+"/api/v1/namespaces/n/configmaps/x", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"x"}}`)
	if err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("answered %d %s %v", code, body, err)
	}
	var methods []string
	for _, a := range api.seen() {
		methods = append(methods, a.Method)
	}
	must.Be(t, "arrived", []string{"GET"}, methods)
}

func TestFence_WatchesOutliveTheLeadership(t *testing.T) {
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	direct := must.Get(kubernetes.NewForConfig(cfg))(t)
	var lost atomic.Bool
	p := startProxy(t, cfg, func(o *Options) {
		o.MayWrite = func() error {
			if lost.Load() {
				return errFollower
			}
			return nil
		}
	})
	a, _, _ := admit(t, p, Grant{})
	proxied := clientOf(t, a)
	w := must.Get(proxied.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=seen"}))(t)
	defer w.Stop()
	lost.Store(true)
	seen := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}
	if _, err := proxied.CoreV1().ConfigMaps(namespace).Create(t.Context(), seen, metav1.CreateOptions{}); err == nil || !strings.Contains(err.Error(), errFollower.Error()) {
		t.Errorf("a write is answered %v", err)
	}
	must.Get(direct.CoreV1().ConfigMaps(namespace).Create(t.Context(), seen, metav1.CreateOptions{}))(t)
	if e, ok := <-w.ResultChan(); !ok || e.Object.(*corev1.ConfigMap).Name != "seen" {
		t.Errorf("the watch says %v", e)
	}
}

// clientOf returns a client like those that runs use.
func clientOf(t testing.TB, a *Access) kubernetes.Interface {
	t.Helper()
	client := must.Get(kubernetes.NewForConfig(configOf(t, a)))(t)
	return client
}

func configOf(t testing.TB, a *Access) *rest.Config {
	t.Helper()
	return &rest.Config{Host: a.p.URL(), BearerToken: a.token, TLSClientConfig: rest.TLSClientConfig{CAData: a.p.ca}, QPS: -1}
}

func TestRevoke_NothingIsSentAfterIt(t *testing.T) {
	api := script(t, nil, plainly)
	var over atomic.Bool
	var late atomic.Int64
	cfg := api.config()
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if over.Load() {
				late.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	p := startProxy(t, cfg)
	a, client, _ := admit(t, p, Grant{Inject: true})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var served, refused atomic.Int64
	for range 10 {
		wg.Go(func() {
			for ctx.Err() == nil {
				code, body, err := send(ctx, client, http.MethodPost, p.URL()+"/api/v1/namespaces/n/configmaps", `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"generateName":"x"}}`)
				switch {
				case err != nil: // it was cut off
				case code == http.StatusOK && strings.Contains(body, "ConfigMap"):
					served.Add(1)
				case code == http.StatusUnauthorized:
					refused.Add(1)
				default:
					t.Errorf("answered %d %q", code, body)
				}
			}
		})
	}
	testenv.Eventually(t, "writes to be in progress", func(context.Context) error { return atLeast(&served, 100) })
	a.Revoke()
	over.Store(true)
	testenv.Eventually(t, "writes to be refused", func(context.Context) error { return atLeast(&refused, 100) })
	stop()
	wg.Wait()
	if n := late.Load(); n != 0 {
		t.Errorf("%d requests were sent after the end of the run", n)
	}
	a.Revoke() // a second call does no harm
}

// errFewer means that the test waits for more requests.
var errFewer = errors.New("fewer than wanted")

func atLeast(n *atomic.Int64, want int64) error {
	if n.Load() < want {
		return errFewer
	}
	return nil
}

func TestRevoke_WhatItCutsIsNeverTakenForAnAnswer(t *testing.T) {
	held := make(chan struct{})
	var arrived atomic.Int64
	api := script(t, func(_ http.ResponseWriter, r *http.Request) {
		arrived.Add(1)
		select {
		case <-r.Context().Done():
		case <-held:
		}
	}, plainly)
	defer close(held)
	p := withPatience(t, api, patient)
	const n = 200
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		arrived.Store(0)
		a, client, _ := admit(t, p, Grant{})
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() {
				code, body, err := send(t.Context(), client, method, p.URL()+"/api/v1/namespaces/n/configmaps", "{}")
				if err == nil && code != http.StatusUnauthorized { // the second try of a GET gets 401
					t.Errorf("%s: what was cut is answered %d %q", method, code, body)
				}
			})
		}
		testenv.Eventually(t, "all requests to be in progress", func(context.Context) error { return atLeast(&arrived, n) })
		a.Revoke()
		wg.Wait()
	}
}

func TestRevoke_LeavesNoAnswerBehindThatNobodyGave(t *testing.T) {
	arrived := make(chan struct{})
	api := script(t, func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-r.Context().Done() }, plainly)
	p := startProxy(t, api.config())
	a, _, token := admit(t, p, Grant{})
	// A recorder has no connection that net/http could close first.
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "http://localhost/api/v1/namespaces/n/configmaps/x", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	ended := make(chan any, 1)
	go func() {
		defer func() { ended <- recover() }()
		p.ServeHTTP(w, r)
	}()
	<-arrived
	a.Revoke()
	got := <-ended
	if err, _ := got.(error); !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("the handler ends with %v: net/http makes %d of it", got, w.Code)
	}
}
