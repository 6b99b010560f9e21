// Package testenv gives Go tests a real API server, with the controllers that collect garbage and delete namespaces.
//
// It knows where the development control plane of tools/ is and how tests of several packages share one without
// conflicts: every namespace and every API group is new. It does not know Ansible or Rolewright, and no program imports
// it.
//
// The server is the one that ROLEWRIGHT_TEST_KUBECONFIG names, which `make test` starts once for all packages. Without
// the variable the first call of Config starts one for the test process, and the end of the process ends it.
//
// Garbage collection of owner references to a custom resource works, but not at once: the collector of Kubernetes looks
// for new kinds every 30 seconds, and before it has found a kind it does not see that an owner of it is gone.
package testenv
