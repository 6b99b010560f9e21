package proxy

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// told records the values that the proxy has reported from Secrets.
type told struct {
	mu       sync.Mutex
	values   []string
	withheld bool
}

func (t *told) Add(_ context.Context, values ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.values = append(t.values, values...)
}

func (t *told) Withhold() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.withheld = true
}

// take returns the values since the last call, and whether the output was withheld.
func (t *told) take() (values []string, withheld bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	values, withheld = t.values, t.withheld
	t.values, t.withheld = nil, false
	return values, withheld
}

const (
	asJSON     = "application/json"
	asYAML     = "application/yaml"
	asProtobuf = "application/vnd.kubernetes.protobuf"
	asMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	asTable    = "application/json;as=Table;g=meta.k8s.io;v=v1"
)

// TestSecrets_ValuesAreKnownWhenTheAnswerIs reads and writes Secrets of a real API server with every kind of request.
func TestSecrets_ValuesAreKnownWhenTheAnswerIs(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	direct := kubernetes.NewForConfigOrDie(cfg).CoreV1().Secrets(ns)
	stored := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: "stored", Annotations: map[string]string{
				"kubectl.kubernetes.io/last-applied-configuration": `{"stringData":{"old":"value of before"}}`,
			},
		},
		StringData: map[string]string{"password": "value as stored"},
	}
	must.Get(direct.Create(t.Context(), stored, metav1.CreateOptions{}))(t)
	p := startProxy(t, cfg)
	secrets := &told{}
	_, client, token := admit(t, p, Grant{Secrets: secrets})
	if values, _ := secrets.take(); !slices.Equal(values, []string{token}) {
		t.Errorf("told at first: %q, want the run's own token", values)
	}
	all := p.URL() + "/api/v1/namespaces/" + ns + "/secrets"
	one := all + "/stored"
	for _, tc := range []struct {
		name, method, url, accept, contentType, body string
		want                                         []string // empty if no values are expected
	}{
		{name: "get", url: one, accept: asJSON, want: []string{"value as stored", "value of before"}},
		{name: "get packed", url: one, accept: asJSON, want: []string{"value as stored"}},
		{name: "get YAML", url: one, accept: asYAML},
		{name: "get protobuf or JSON", url: one, accept: asProtobuf + "," + asJSON, want: []string{"value as stored", "value of before"}},
		{name: "list", url: all, accept: asJSON, want: []string{"value as stored"}},
		{name: "list everywhere", url: p.URL() + "/api/v1/secrets", accept: asJSON, want: []string{"value as stored"}},
		{name: "table of objects", url: all + "?includeObject=Object", accept: asTable, want: []string{"value as stored"}},
		{name: "metadata", url: one, accept: asMetadata, want: []string{"value of before"}},
		{name: "no such Secret", url: all + "/missing", accept: asJSON},
		{name: "a ConfigMap", url: strings.Replace(all, "secrets", "configmaps", 1), accept: asJSON},
		{name: "create", method: "POST", url: all, contentType: asJSON, want: []string{"value as sent"},
			body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"made"},"stringData":{"a":"value as sent"}}`},
		{name: "create what is there", method: "POST", url: all, contentType: asYAML, want: []string{"value as refused"},
			body: "{apiVersion: v1, kind: Secret, metadata: {name: made}, data: {a: dmFsdWUgYXMgcmVmdXNlZA==}}"},
		{name: "merge patch", method: "PATCH", url: one, contentType: "application/merge-patch+json", want: []string{"value as merged", "value as stored"},
			body: `{"stringData":{"b":"value as merged"}}`},
		{name: "JSON patch", method: "PATCH", url: one, contentType: "application/json-patch+json", want: []string{"value as patched"},
			body: `[{"op":"add","path":"/data/c","value":"dmFsdWUgYXMgcGF0Y2hlZA=="}]`},
		{name: "apply", method: "PATCH", url: one + "?fieldManager=x&force=true", contentType: "application/apply-patch+yaml", want: []string{"value as applied"},
			body: "{apiVersion: v1, kind: Secret, metadata: {name: stored}, stringData: {d: value as applied}}"},
		{name: "delete", method: "DELETE", url: all + "/made"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			req := must.Get(http.NewRequestWithContext(t.Context(), cmp.Or(tc.method, http.MethodGet), tc.url, strings.NewReader(tc.body)))(t)
			req.Header.Set("Accept", tc.accept)
			if tc.contentType != "" {
				req.Header.Set("Content-Type", tc.contentType)
			}
			if strings.Contains(tc.name, "packed") {
				req.Header.Set("Accept-Encoding", "gzip")
			}
			resp, err := client.Do(req)
			must.Do(t, err)
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if err != nil || len(body) == 0 {
				t.Fatalf("answer of %d bytes: %v", len(body), err)
			}
			got, withheld := secrets.take()
			if withheld || len(tc.want) == 0 && len(got) > 0 && tc.name != "delete" {
				t.Errorf("told %q, withheld %t", got, withheld)
			}
			for _, value := range tc.want {
				if !slices.Contains(got, value) {
					t.Errorf("%d: not told %q, but %q", resp.StatusCode, value, got)
				}
			}
		})
	}
}

// TestSecrets_ValuesThatAreNotReadAreInTheAnswerOrWithheld writes Secrets in protobuf: the proxy reads only the answer.
func TestSecrets_ValuesThatAreNotReadAreInTheAnswerOrWithheld(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	secrets := &told{}
	a, _, _ := admit(t, startProxy(t, cfg), Grant{Secrets: secrets})
	secrets.take()
	through := configOf(t, a)
	through.ContentType = asProtobuf
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "x"}, StringData: map[string]string{"a": "value as sent"}}
	create := func() error {
		_, err := kubernetes.NewForConfigOrDie(through).CoreV1().Secrets(ns).Create(t.Context(), secret, metav1.CreateOptions{})
		return err
	}
	must.Do(t, create())
	if got, withheld := secrets.take(); withheld || !slices.Equal(got, []string{"value as sent"}) {
		t.Errorf("told %q, withheld %t", got, withheld)
	}
	if err := create(); !apierrors.IsAlreadyExists(err) {
		t.Fatalf("create again: %v", err)
	}
	withheld := func(context.Context) error { // the exchange ends after the answer
		if got, withheld := secrets.take(); !withheld {
			return fmt.Errorf("told %q", got)
		}
		return nil
	}
	testenv.Eventually(t, "the output is withheld after a refusal", withheld)
	secret.Name, through.AcceptContentTypes = "y", asMetadata
	_ = create() // the client expects the Secret, and gets only its metadata
	testenv.Eventually(t, "the output is withheld after an answer without values", withheld)
}

func TestDeletesNothing(t *testing.T) {
	encoded := func(options metav1.DeleteOptions) string {
		raw := must.Get(options.Marshal())(t)
		body := must.Get((&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Raw: raw}).Marshal())(t)
		return "k8s\x00" + string(body)
	}
	for body, want := range map[string]bool{
		`{}`: false, `{"propagationPolicy":"Background"}`: false, `{"dryRun":["All"]}`: true, "kind: DeleteOptions": true,
		encoded(metav1.DeleteOptions{}): false, encoded(metav1.DeleteOptions{DryRun: []string{"All"}}): true, "k8s\x00?": true,
	} {
		if got := deletesNothing([]byte(body)); got != want {
			t.Errorf("%q: %t, want %t", body, got, want)
		}
	}
}

// TestSecrets_ValuesOfAWatchAreKnownWithEachEvent reads the stream of a watch in JSON and in protobuf.
func TestSecrets_ValuesOfAWatchAreKnownWithEachEvent(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	direct := kubernetes.NewForConfigOrDie(cfg).CoreV1().Secrets(ns)
	p := startProxy(t, cfg)
	secrets := &told{}
	a, client, _ := admit(t, p, Grant{Secrets: secrets})
	secrets.take()
	req := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, p.URL()+"/api/v1/namespaces/"+ns+"/secrets?watch=true", nil))(t)
	req.Header.Set("Accept", asJSON)
	resp, err := client.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	through := configOf(t, a)
	through.ContentType = asProtobuf
	watch := must.Get(kubernetes.NewForConfigOrDie(through).CoreV1().Secrets(ns).Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		value := fmt.Sprintf("value number %d", i)
		must.Get(direct.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s%d", i)}, StringData: map[string]string{"a": value},
		}, metav1.CreateOptions{}))(t)
		must.Get(lines.ReadString('\n'))(t)
		if event := <-watch.ResultChan(); event.Object.(*corev1.Secret).Name != fmt.Sprintf("s%d", i) {
			t.Errorf("event: %v", event)
		}
		got, withheld := secrets.take()
		if want := []string{value, value}; withheld || !slices.Equal(got, want) {
			t.Errorf("told %q, want %q; withheld %t", got, want, withheld)
		}
	}
}

// TestSecrets_RequestedTokensAreKnownWhenTheAnswerIs requests tokens of a service account from a real API server.
func TestSecrets_RequestedTokensAreKnownWhenTheAnswerIs(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	ns := testenv.Namespace(t, cfg)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "asked"}}
	must.Get(kubernetes.NewForConfigOrDie(cfg).CoreV1().ServiceAccounts(ns).Create(t.Context(), account, metav1.CreateOptions{}))(t)
	p := startProxy(t, cfg)
	secrets := &told{}
	a, _, _ := admit(t, p, Grant{Secrets: secrets})
	for _, encoding := range []string{asJSON, asProtobuf} {
		secrets.take()
		through := configOf(t, a)
		through.ContentType = encoding
		answer := must.Get(kubernetes.NewForConfigOrDie(through).CoreV1().ServiceAccounts(ns).CreateToken(t.Context(), "asked",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{}))(t)
		if got, withheld := secrets.take(); withheld || !slices.Equal(got, []string{answer.Status.Token}) {
			t.Errorf("%s: told %d values, withheld %t; want the token", encoding, len(got), withheld)
		}
	}
}

// blocked receives values and returns only when its context ends.
type blocked struct {
	told
	begun chan struct{}
}

func (b *blocked) Add(ctx context.Context, values ...string) {
	if len(values) > 0 && values[0] == "value" {
		close(b.begun)
		<-ctx.Done()
	}
}

// TestRevoke_DoesNotWaitForSecretsToBeTold: Secrets in an answer or a body do not delay the end of a run or of the proxy.
func TestRevoke_DoesNotWaitForSecretsToBeTold(t *testing.T) {
	t.Parallel()
	const secret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"},"data":{"a":"dmFsdWU="}}`
	for name, method := range map[string]string{"of an answer": http.MethodGet, "of a body": http.MethodPost} {
		t.Run(name, func(t *testing.T) {
			api := script(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", asJSON)
				_, _ = io.WriteString(w, secret)
			}, (*httptest.Server).Start)
			p := startProxy(t, api.config())
			secrets := &blocked{begun: make(chan struct{})}
			a, client, _ := admit(t, p, Grant{Secrets: secrets})
			req := must.Get(http.NewRequestWithContext(t.Context(), method, p.URL()+"/api/v1/namespaces/x/secrets", strings.NewReader(secret)))(t)
			req.Header.Set("Content-Type", asJSON)
			done := make(chan struct{})
			go func() {
				defer close(done)
				if resp, err := client.Do(req); err == nil {
					_ = resp.Body.Close()
					t.Errorf("answer %d, want none", resp.StatusCode)
				}
			}()
			<-secrets.begun
			a.Revoke()
			<-done
		})
	}
}

// TestSecrets_WhatCannotBeReadWithholdsTheOutput scripts answers that the API server of the tests does not give. The proxy
// passes them on unchanged.
func TestSecrets_WhatCannotBeReadWithholdsTheOutput(t *testing.T) {
	t.Parallel()
	large := `{"kind":"SecretList","items":[` + strings.Repeat(" ", maxSecrets) + `]}`
	for name, tc := range map[string]struct {
		header, body string
		withheld     bool
	}{
		"of another type": {"text/plain", "?", true},
		"damaged":         {asJSON, `{"data":`, true},
		"too large":       {asJSON, large, true},
		"of no Secret":    {asJSON, `{"kind":"Status"}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			api := script(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.header)
				_, _ = io.WriteString(w, tc.body)
			}, (*httptest.Server).Start)
			p := startProxy(t, api.config())
			secrets := &told{}
			_, client, _ := admit(t, p, Grant{Secrets: secrets})
			_, body, err := get(t.Context(), client, p.URL()+"/api/v1/namespaces/x/secrets")
			if err != nil || body != tc.body {
				t.Errorf("answer of %d bytes, want %d: %v", len(body), len(tc.body), err)
			}
			if _, withheld := secrets.take(); withheld != tc.withheld {
				t.Errorf("withheld %t, want %t", withheld, tc.withheld)
			}
		})
	}
}
