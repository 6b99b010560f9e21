// Command controlplane starts a real Kubernetes control plane on this machine, for development and for tests: etcd,
// kube-apiserver and kube-controller-manager, and on request kube-scheduler and kwok, so that Deployments become
// Available on a node that exists in name only, or containerd and a kubelet, whose Pods really run.
//
// It knows the flags of those programs, in which order they start, and how none of them is ever left behind. It does not
// know Rolewright, and nothing of Rolewright imports it: people, make and the tests use it as a program.
//
// Everything it makes (certificates, etcd's data, logs, the kubeconfig) lies in one directory, which goes when it stops.
// Nothing listens on anything but the loopback address, and nothing answers without a client certificate or a token, but
// for one port that --pods-exec opens: kwok authenticates no client.
package main
