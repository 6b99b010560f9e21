package main

import (
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/rolewright/rolewright/internal/doctor"
	"github.com/rolewright/rolewright/internal/jobs"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner/remote"
	"github.com/rolewright/rolewright/runner/selfsigned"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// doctor finds what runs as Jobs lack before the first Job is made: permissions, a namespace that admits their Pods, and an
// operator that they can reach.
func TestDoctor_LooksAtJobs(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	namespace := testenv.Namespace(t, cfg)
	client := must.Get(kubernetes.NewForConfig(cfg))(t)
	is := must.Get(client.CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{}))(t)
	is.Labels["pod-security.kubernetes.io/enforce"] = "restricted"
	must.Get(client.CoreV1().Namespaces().Update(t.Context(), is, metav1.UpdateOptions{}))(t)
	certificate, key, err := selfsigned.New(remote.ServerName)
	must.Do(t, err)
	must.Get(client.CoreV1().Secrets(namespace).Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: jobs.IdentityName}, Data: map[string][]byte{corev1.TLSCertKey: certificate},
	}, metav1.CreateOptions{}))(t)
	at := answer(t, certificate, key)
	other := answer(t)

	plain := watches.Watch{GVK: schema.GroupVersionKind{Kind: "Plain"}, Executor: watches.ExecutorJob}
	root := watches.Watch{GVK: schema.GroupVersionKind{Kind: "Root"}, Executor: watches.ExecutorJob, Job: []byte(`{"spec":{"securityContext":{"runAsUser":0},"containers":[{"name":"run","image":"ee:1"}]}}`)}
	command := watches.Watch{GVK: schema.GroupVersionKind{Kind: "Command"}, Executor: watches.ExecutorJob, Content: watches.Content{Command: &watches.Command{Path: "/bin/true"}}}
	limited := must.Get(kubernetes.NewForConfig(testenv.User(t, cfg, []rbacv1.PolicyRule{
		{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"get", "list", "watch", "create", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list", "watch", "delete"}},
	})))(t)
	for name, tt := range map[string]struct {
		client kubernetes.Interface
		watch  watches.Watch
		url    string
		want   []string
	}{
		"all is there": {client, plain, at, []string{
			"ok: those for runs as Jobs", "ok: a Job of Plain, and its Pod, are admitted", "note: whether the image operator:1 has ansible-core", "ok: an operator answers at 127.0.0.1:"}},
		"root is refused, and there is another server": {client, root, other, []string{
			"failed: the Pod of a Job of Root is not admitted: ", `violates PodSecurity "restricted`, "note: whether the image ee:1", "failed: 127.0.0.1:"}},
		"no Secrets may be read, and none answers": {limited, plain, "https://127.0.0.1:1", []string{
			`failed: get, list, create, patch, delete on secrets in the core group are missing`, "config/jobs/role.yaml", "note: a Job of Plain is admitted; whether its Pod is", "left out: the certificate"}},
		"none answers": {client, plain, "https://127.0.0.1:1", []string{"note: no operator answers at 127.0.0.1:1"}},
		"no URL":       {client, command, "", []string{"note: whether the image operator:1 has the program and the files of Command", "failed: --job-url is not set"}},
	} {
		o := doctorOptions{jobOptions: jobOptions{jobURL: tt.url, jobNamespace: namespace, jobImage: "operator:1"}}
		got := said(o.checkJobs(t.Context(), tt.client, []watches.Watch{tt.watch}))
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%s: it finds\n%swant %s", name, got, want)
			}
		}
	}
	if found := (&doctorOptions{}).checkJobs(t.Context(), nil, []watches.Watch{{}}); len(found) != 0 {
		t.Errorf("without Jobs it finds %v", found)
	}
}

func said(found []doctor.Finding) string {
	var b strings.Builder
	for _, f := range found {
		fmt.Fprintf(&b, "%s: %s\n", f.State, f)
	}
	return b.String()
}

// answer serves TLS with the given certificate, or with a new one, and returns its URL.
func answer(t *testing.T, pair ...[]byte) string {
	t.Helper()
	if len(pair) == 0 {
		certificate, key, err := selfsigned.New(remote.ServerName)
		must.Do(t, err)
		pair = [][]byte{certificate, key}
	}
	own := must.Get(tls.X509KeyPair(pair[0], pair[1]))(t)
	listener := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}))(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if c, ok := conn.(*tls.Conn); ok {
				_ = c.HandshakeContext(t.Context()) // fails if the client trusts another certificate
			}
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-served
	})
	return "https://" + listener.Addr().String()
}
