// Package cluster tests what users take home: the image in a real Pod, on a node with containerd and a kubelet, installed
// with the manifests of config/. `make e2e` builds the images, starts the node and runs it; the build tag keeps it out of
// `go test ./...`, because it needs root and the node.
//
// Everything is done with kubectl, as a person would. What was said and answered is written down: docs/in-a-cluster.md
// is such a transcript.
package cluster
