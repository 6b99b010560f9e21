// Command controlplane starts a real Kubernetes control plane on this machine, for development and for tests: etcd,
// kube-apiserver and kube-controller-manager, and on request kube-scheduler and kwok, so that Deployments become
// Available on a node that exists in name only, or containerd and a kubelet, whose Pods really run.
//
// It knows the flags of those programs, the order in which they start, and how to leave none of them behind. It does not
// know Rolewright, and nothing of Rolewright imports it: people, make and the tests use it as a program.
//
// Everything it makes (certificates, etcd's data, logs, the kubeconfig) is in one directory, which is removed when it
// stops. It listens only on the loopback address, and requires a client certificate or a token, except
// on one port that --pods-exec opens: kwok authenticates no client.
// for one port that --pods-exec opens: kwok authenticates no client.
package main
