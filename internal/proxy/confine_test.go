package proxy

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/test/must"
)

// A run that is confined to its owner's namespace reaches nothing else, whatever permissions the operator has and however the
// run asks.
func TestConfine_ReachesTheOwnNamespaceOnly(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	namespaced := Owner{GVK: schema.GroupVersionKind{Group: "cache.example.com", Version: "v1", Kind: "Memcached"}, Namespace: "own", Name: "it"}
	cluster := Owner{GVK: schema.GroupVersionKind{Group: "", Version: "v1", Kind: "Namespace"}, Name: "it"}
	for _, tt := range []struct {
		owner           Owner
		method, path    string
		reached, anyway bool
	}{
		{namespaced, "GET", "/api/v1/namespaces/own/configmaps/x", true, true},
		{namespaced, "POST", "/api/v1/namespaces/own/configmaps", true, true},
		{namespaced, "PATCH", "/apis/cache.example.com/v1/namespaces/own/memcacheds/it/status", true, true},
		{namespaced, "GET", "/api/v1/namespaces/own/pods/p/log", true, true},
		{namespaced, "GET", "/version", true, true},
		{namespaced, "GET", "/api/v1", true, true},
		{namespaced, "GET", "/openapi/v3/apis/apps/v1", true, true},
		{namespaced, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", true, true},

		{namespaced, "GET", "/api/v1/namespaces/other/configmaps/x", false, true},
		{namespaced, "GET", "/api/v1/namespaces/other/secrets", false, true},
		{namespaced, "DELETE", "/api/v1/namespaces/other/configmaps/x", false, true},
		{namespaced, "POST", "/api/v1/namespaces/other/pods/p/exec?command=id", false, true},
		{namespaced, "GET", "/api/v1/namespaces/other/services/s/proxy/", false, true},
		{namespaced, "GET", "/api/v1/proxy/namespaces/other/services/s/", false, true},
		{namespaced, "GET", "/api/v1/watch/namespaces/other/secrets", false, true},
		{namespaced, "GET", "/api/v1/configmaps", false, true},
		{namespaced, "GET", "/api/v1/secrets?fieldSelector=metadata.namespace%3Down", false, true},
		{namespaced, "GET", "/api/v1/namespaces", false, true},
		{namespaced, "POST", "/api/v1/namespaces", false, true},
		{namespaced, "GET", "/api/v1/namespaces/own", false, true},
		{namespaced, "PATCH", "/api/v1/namespaces/own", false, true},
		{namespaced, "PUT", "/api/v1/namespaces/own", false, true},
		{namespaced, "DELETE", "/api/v1/namespaces/own", false, true},
		{namespaced, "PUT", "/api/v1/namespaces/own/finalize", false, true},
		{namespaced, "PATCH", "/api/v1/namespaces/own/status", false, true},
		{namespaced, "GET", "/api/v1/watch/namespaces/own", false, true},
		{namespaced, "GET", "/api/v1/nodes", false, true},
		{namespaced, "PATCH", "/api/v1/nodes/n", false, true},
		{namespaced, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", false, true},
		{namespaced, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", false, true},
		{namespaced, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", false, true},
		{namespaced, "GET", "/metrics", false, true},
		{namespaced, "GET", "/logs/kube-apiserver.log", false, true},
		{namespaced, "POST", "/api", false, true},
		{namespaced, "GET", "/api/v1/namespaces/own/../other/secrets", false, false},
		{namespaced, "GET", "/api/v1/namespaces/own%2f..%2fother/secrets", false, false},

		{cluster, "GET", "/api/v1/nodes/it", false, true},
		{cluster, "PATCH", "/api/v1/namespaces/other", false, true},
		{cluster, "GET", "/api/v1/namespaces/it/configmaps/x", false, true},
		{cluster, "GET", "/api/v1/namespaces/other/configmaps/x", false, true},
	} {
		for _, only := range []bool{true, false} {
			_, client, _ := admit(t, p, Grant{Owner: tt.owner, OwnNamespaceOnly: only})
			before := len(api.seen())
			code, body, err := send(t.Context(), client, tt.method, p.URL()+tt.path, "")
			if err != nil {
				t.Fatalf("%s %s: %v", tt.method, tt.path, err)
			}
			want := tt.reached
			if !only {
				want = tt.anyway
			}
			refused := code == http.StatusForbidden || code == http.StatusBadRequest || code == http.StatusNotFound
			if refused == want {
				t.Errorf("%s %s, ownNamespaceOnly %t: %d %s", tt.method, tt.path, only, code, body)
			}
			if passed := len(api.seen()) > before; passed && !want {
				t.Errorf("%s %s, ownNamespaceOnly %t, was passed on", tt.method, tt.path, only)
			}
			if only && !want && tt.anyway && !strings.Contains(body, "ownNamespaceOnly") {
				t.Errorf("%s %s: the refusal does not say why: %s", tt.method, tt.path, body)
			}
		}
	}
}

// No run, not even one whose owner is in the operator's namespace, reaches the objects of runs as Jobs there, neither by name
// nor by label. A run reaches the other objects of that namespace.
func TestKeepOff_WhatOtherRunsHave(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	p.opts.JobNamespace = "system"
	const id, own = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
	for _, namespace := range []string{"system", "own"} {
		_, client, _ := admit(t, p, Grant{RunID: own, Owner: Owner{GVK: schema.GroupVersionKind{Group: "cache.example.com", Version: "v1", Kind: "Memcached"}, Namespace: namespace, Name: "it"}})
		for _, tt := range []struct {
			method, path string
			reached      bool
		}{
			{"GET", "/api/v1/namespaces/system/secrets/" + id, false},
			{"GET", "/api/v1/namespaces/system/secrets/rolewright-runs", false},
			{"DELETE", "/apis/batch/v1/namespaces/system/jobs/" + id, false},
			{"POST", "/api/v1/namespaces/system/pods/" + id + "-x7k2p/exec?command=id", false},
			{"GET", "/api/v1/namespaces/system/secrets?fieldSelector=metadata.name%3D" + id, false},
			{"GET", "/api/v1/secrets?fieldSelector=metadata.name%3D" + id, false},
			{"GET", "/api/v1/namespaces/system/secrets?labelSelector=rolewright.dev%2Frun", false},
			{"GET", "/api/v1/secrets?watch=1&labelSelector=rolewright.dev%2Frun", false},
			{"DELETE", "/apis/batch/v1/namespaces/system/jobs?labelSelector=rolewright.dev%2Fobject%3Dx", false},

			{"POST", "/api/v1/namespaces/system/secrets " + id, false},
			{"POST", "/api/v1/namespaces/system/pods  " + id + "-", false},
			{"POST", "/apis/batch/v1/namespaces/system/jobs  mine-", true},
			{"POST", "/apis/batch/v1/namespaces/system/jobs  " + id[:31], false},
			{"GET", "/api/v1/namespaces/system/secrets/" + own, false},
			{"POST", "/api/v1/namespaces/system/serviceaccounts/operator/token", false},

			{"DELETE", "/apis/batch/v1/namespaces/system/jobs/" + own + "?propagationPolicy=Orphan", false},
			{"PATCH", "/apis/batch/v1/namespaces/system/jobs/" + own, false},
			{"DELETE", "/api/v1/namespaces/system/pods/" + own + "-x7k2p?gracePeriodSeconds=0", false},
			{"POST", "/api/v1/namespaces/system/pods/" + own + "-x7k2p/eviction", false},

			{"GET", "/api/v1/namespaces/system/pods/" + own + "-x7k2p", true},
			{"POST", "/api/v1/namespaces/system/secrets mine", true},
			{"GET", "/api/v1/namespaces/system/secrets/pull", true},
			{"GET", "/api/v1/namespaces/other/secrets/" + id, true},
			{"POST", "/api/v1/namespaces/other/serviceaccounts/operator/token", true},
			{"GET", "/api/v1/namespaces/system/configmaps/" + id, true},
		} {
			before := len(api.seen())
			path, name, creates := strings.Cut(tt.path, " ")
			body := ""
			if creates {
				field := "name"
				if name[0] == ' ' {
					field = "generateName"
				}
				body = `{"metadata":{"` + field + `":"` + strings.TrimSpace(name) + `"}}`
			}
			code, _, err := send(t.Context(), client, tt.method, p.URL()+path, body)
			if passed := len(api.seen()) > before; err != nil || passed != tt.reached || (code == http.StatusForbidden) == tt.reached {
				t.Errorf("%s %s, for an object in %s: %d, %v", tt.method, tt.path, namespace, code, err)
			}
		}
	}
}

// No run can write the Leases of the leader election, by any kind of request. Runs can read these Leases, and write other
// Leases.
func TestKeepLeases_OfTheElection(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	_, client, _ := admit(t, p, Grant{Owner: Owner{GVK: schema.GroupVersionKind{Group: "cache.example.com", Version: "v1", Kind: "Memcached"}, Namespace: "system", Name: "it"}})
	const leases = "/apis/coordination.k8s.io/v1/namespaces/system/leases"
	packed := func(name string) string {
		lease := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
		raw := must.Get(lease.Marshal())(t)
		return "k8s\x00" + string(must.Get((&runtime.Unknown{Raw: raw}).Marshal())(t))
	}
	for _, tt := range []struct {
		method, path, contentType, body string
		reached                         bool
	}{
		{"PUT", leases + "/op", "application/json", `{"metadata":{"name":"op"}}`, false},
		{"PATCH", leases + "/op", "application/merge-patch+json", `{"spec":{"holderIdentity":""}}`, false},
		{"PATCH", leases + "/op-shard-0?fieldManager=it&force=true", "application/apply-patch+yaml", `{"metadata":{"name":"op-shard-0"}}`, false},
		{"PATCH", "/apis/coordination.k8s.io/v1beta1/namespaces/system/leases/op-shard-0", "application/merge-patch+json", `{}`, false},
		{"DELETE", leases + "/op-shard-11/", "", "", false},
		{"DELETE", leases + "/op-replica-0123456789abcdef", "", "", false},
		{"DELETE", leases, "", "", false},
		{"DELETE", leases + "?labelSelector=a%3Db", "", "", false},
		{"POST", leases, "application/json", `{"metadata":{"name":"op-replica-0123456789abcdef"}}`, false},
		{"POST", leases, "", `{"metadata":{"name":"mine","name":"op"}}`, false},
		{"POST", leases, "application/json", `{"metadata":{"generateName":"op-shard-"}}`, false},
		{"POST", leases, "application/vnd.kubernetes.protobuf", packed("op"), false},
		{"POST", leases, "application/yaml", "metadata: {name: op}", false},

		{"GET", leases + "/op", "", "", true},
		{"GET", leases, "", "", true},
		{"PUT", leases + "/mine", "application/json", `{"metadata":{"name":"mine"}}`, true},
		{"POST", leases, "application/json", `{"metadata":{"name":"op2"}}`, true},
		{"POST", leases, "application/vnd.kubernetes.protobuf", packed("mine"), true},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/other/leases/op", "application/json", `{"metadata":{"name":"op"}}`, true},
		{"DELETE", "/apis/coordination.k8s.io/v1/namespaces/other/leases", "", "", true},
		{"DELETE", "/api/v1/namespaces/system/configmaps/op", "", "", true},
	} {
		for _, elects := range []bool{true, false} {
			if p.opts.Election = (types.NamespacedName{}); elects {
				p.opts.Election = types.NamespacedName{Namespace: "system", Name: "op"}
			}
			before := len(api.seen())
			code, body, err := sendAs(t.Context(), client, tt.method, p.URL()+tt.path, tt.contentType, tt.body)
			if err != nil {
				t.Fatalf("%s %s: %v", tt.method, tt.path, err)
			}
			reached := tt.reached || !elects
			if passed := len(api.seen()) > before; passed != reached || !passed && (code != http.StatusForbidden || !strings.Contains(body, "take another name")) {
				t.Errorf("%s %s %q, with an election: %t: %d %s", tt.method, tt.path, tt.body, elects, code, body)
			}
		}
	}
}

// The proxy adds selectors to lists, watches and collection deletes, so that the API server leaves out the objects of runs as
// Jobs.
func TestKeepOff_ListsLeaveOutWhatRunsHave(t *testing.T) {
	api := script(t, nil, plainly)
	p := startProxy(t, api.config())
	p.opts.JobNamespace = "system"
	_, client, _ := admit(t, p, Grant{Owner: Owner{GVK: schema.GroupVersionKind{Group: "cache.example.com", Version: "v1", Kind: "Memcached"}, Namespace: "own", Name: "it"}})
	const label, name = "!rolewright.dev/run", "metadata.name!=rolewright-runs"
	for _, tt := range []struct{ method, path, labels, fields string }{
		{"GET", "/api/v1/namespaces/system/secrets", label, name},
		{"GET", "/api/v1/secrets?watch=true&labelSelector=a%3Db&fieldSelector=type%3DOpaque", label + ",a=b", name + ",type=Opaque"},
		{"GET", "/api/v1/watch/namespaces/system/secrets", label, name},
		{"GET", "/api/v1/secrets?labelSelector=&labelSelector=rolewright.dev%2Frun", label, name},
		{"GET", "/api/v1/watch/namespaces/system/secrets/pull", label, ""},
		{"GET", "/api/v1/namespaces/system/secrets?fieldSelector=metadata.name%3Dpull", label, "metadata.name=pull"},
		{"DELETE", "/api/v1/namespaces/system/secrets", label, name},
		{"DELETE", "/api/v1/namespaces/system/pods", label, ""},
		{"DELETE", "/apis/batch/v1/namespaces/system/jobs?labelSelector=a", label + ",a", ""},

		{"GET", "/api/v1/namespaces/system/pods", "", ""},
		{"GET", "/api/v1/namespaces/other/secrets", "", ""},
	} {
		if _, _, err := send(t.Context(), client, tt.method, p.URL()+tt.path, ""); err != nil {
			t.Fatalf("%s %s: %v", tt.method, tt.path, err)
		}
		seen := api.seen()
		query := must.Get(url.Parse(seen[len(seen)-1].URI))(t).Query()
		if labels, fields := strings.Join(query["labelSelector"], "|"), strings.Join(query["fieldSelector"], "|"); labels != tt.labels || fields != tt.fields {
			t.Errorf("%s %s is sent with the selectors %q and %q, want %q and %q", tt.method, tt.path, labels, fields, tt.labels, tt.fields)
		}
	}
}
