package main

import (
	"fmt"
)

// The programs and their flags. These functions are pure except for looking up the programs.

// layout says where the parts of one control plane are.
type layout struct {
	dir      stateDir
	assets   string
	etcd     port
	api      port
	auditLog string // absolute; empty: none
	podsExec bool   // the node has a kubelet's endpoints
	kubelet  port   // its port, once kwok has started
	node     bool   // there is a real node
}

func (l layout) pki(file string) string { return l.dir.join("pki/" + file) }

func (l layout) component(name string, args ...string) (*component, error) {
	path, err := find(name, l.assets)
	if err != nil {
		return nil, err
	}
	return &component{name: name, path: path, args: args}, nil
}

func (l layout) newEtcd() (*component, error) {
	// The peer address is never used: there is one member. Port 0 lets the kernel choose.
	const peer = "https://127.0.0.1:0"
	return l.component("etcd",
		"--name=rolewright",
		"--data-dir="+l.dir.join("etcd"),
		"--log-level=warn",
		// The data lives as long as the processes. Waiting for the disk would protect nothing.
		"--unsafe-no-fsync",
		"--listen-client-urls="+l.etcd.url(),
		"--advertise-client-urls="+l.etcd.url(),
		"--socket-reuse-port=true",
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=rolewright="+peer,
		// etcd holds every Secret, so it requires a certificate, too: other users of the machine can reach the port.
		"--cert-file="+l.pki("server.crt"), "--key-file="+l.pki("server.key"),
		"--client-cert-auth=true", "--trusted-ca-file="+l.pki("ca.crt"),
		"--peer-cert-file="+l.pki("server.crt"), "--peer-key-file="+l.pki("server.key"),
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file="+l.pki("ca.crt"),
	)
}

func (l layout) newAPIServer() (*component, error) {
	args := []string{
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", l.api.number),
		"--permit-port-sharing=true",
		"--etcd-servers=" + l.etcd.url(),
		"--etcd-cafile=" + l.pki("ca.crt"),
		"--etcd-certfile=" + l.pki("etcd-client.crt"), "--etcd-keyfile=" + l.pki("etcd-client.key"),
		"--tls-cert-file=" + l.pki("server.crt"), "--tls-private-key-file=" + l.pki("server.key"),
		"--client-ca-file=" + l.pki("ca.crt"),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.pki("service-account.crt"),
		"--service-account-signing-key-file=" + l.pki("service-account.key"),
		"--service-cluster-ip-range=" + serviceRange,
		// A loopback address is not a valid endpoint, so nothing can keep the Service "kubernetes" up to date.
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true",
		"--profiling=false",
		// CBOR is the one encoding of requests that an API server may accept and does not by default. It is on so that
		// tests can send every encoding that exists. Custom resources are then stored in CBOR, which no client notices.
		// ShardedListAndWatch sends a replica only the objects of its shards.
		"--feature-gates=CBORServingAndStorage=true,ShardedListAndWatch=true",
	}
	if l.auditLog != "" {
		args = append(args,
			"--audit-policy-file="+l.dir.join("audit-policy.yaml"),
			"--audit-log-path="+l.auditLog,
			"--audit-log-mode=blocking",  // the log has what a request did by the time of its answer
			"--audit-log-maxsize=100000", // in MB: never rotated, so that readers see one file
		)
	}
	if l.podsExec || l.node {
		args = append(args,
			"--kubelet-preferred-address-types=InternalIP", // nothing resolves the node's name
			"--kubelet-certificate-authority="+l.pki("ca.crt"),
		)
	}
	if l.node {
		args = append(args,
			"--advertise-address="+nodeIP, // a network namespace without a default route cannot determine it
			"--kubelet-client-certificate="+l.pki("etcd-client.crt"), "--kubelet-client-key="+l.pki("etcd-client.key"),
		)
	}
	return l.component("kube-apiserver", args...)
}

// The two below run as a single instance and serve no one: no leader election, and no port (0).

func (l layout) newControllerManager() (*component, error) {
	return l.component("kube-controller-manager",
		"--kubeconfig="+l.pki("controller-manager.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--root-ca-file="+l.pki("ca.crt"),
		"--service-account-private-key-file="+l.pki("service-account.key"),
		"--service-cluster-ip-range="+serviceRange,
		// Tests wait for namespaces and dependents to be removed; the defaults are for large clusters.
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

func (l layout) newScheduler() (*component, error) {
	return l.component("kube-scheduler",
		"--kubeconfig="+l.pki("scheduler.kubeconfig"),
		"--leader-elect=false",
		"--secure-port=0",
		"--kube-api-qps=200", "--kube-api-burst=400",
	)
}

// auditPolicy keeps what tests count: requests for resources, except those of the API server itself and reads of the other
// components; custom resources with request and response. Custom resources are everything in none of the named groups.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    nonResourceURLs: ["*"]
  - level: None
    users: ["system:apiserver"]
  - level: None
    users: ["system:kube-controller-manager", "system:kube-scheduler", "system:kwok", "system:node:rolewright-0"]
    verbs: [get, list, watch]
  - level: Metadata
    resources:
      - group: ""
      - group: admissionregistration.k8s.io
      - group: apiextensions.k8s.io
      - group: apiregistration.k8s.io
      - group: apps
      - group: authentication.k8s.io
      - group: authorization.k8s.io
      - group: autoscaling
      - group: batch
      - group: certificates.k8s.io
      - group: coordination.k8s.io
      - group: discovery.k8s.io
      - group: events.k8s.io
      - group: flowcontrol.apiserver.k8s.io
      - group: networking.k8s.io
      - group: node.k8s.io
      - group: policy
      - group: rbac.authorization.k8s.io
      - group: resource.k8s.io
      - group: scheduling.k8s.io
      - group: storage.k8s.io
      - group: storagemigration.k8s.io
  - level: RequestResponse
`
