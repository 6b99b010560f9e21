package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// A real node: containerd, runc, the bridge plugin of CNI, and a kubelet. It runs in namespaces of its own (isolate.go).
//
// There is no kube-proxy, and no DNS except what a test answers at the node's address. The only Service with an address is
// "kubernetes": a forwarder listens on it, so that a Pod's in-cluster configuration works unchanged.

const (
	// nodeIP is the node's address on the bridge, the gateway of its Pods.
	nodeIP     = "10.244.0.1"
	podRange   = "10.244.0.0/24"
	nodeBridge = "rolewright0"
	// pauseImage is made from this very program, because there is no registry to pull one from.
	pauseImage = "docker.io/rolewright/pause:1"
)

func (l layout) containerd() string { return l.dir.join("containerd.sock") }

const containerdConfig = `version = 2
root = %[1]q
state = %[2]q
[grpc]
address = %[3]q
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %[4]q
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = %[5]q
conf_dir = %[6]q
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.internal.v1.opt"]
path = %[7]q
`

const networkConfig = `{"cniVersion": "0.4.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": %[1]q, "isGateway": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": %[2]q, "ranges": [[{"subnet": %[3]q, "gateway": %[4]q}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`

// The address is in the API server's certificate for this server. Anyone with a certificate of the authority may do
// everything. Eviction begins late, so that a full disk of the machine does not count as the node's.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %[1]s
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: %[2]q}}
authorization: {mode: AlwaysAllow}
tlsCertFile: %[3]q
tlsPrivateKeyFile: %[4]q
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: %[5]q
failSwapOn: false
containerRuntimeEndpoint: "unix://%[6]s"
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
resolvConf: ""
clusterDNS: [%[1]s]
clusterDomain: cluster.local
`

// hideFixedPlaces gives the node directories of its own in the places where containerd, the network plugins and the kubelet
// write whatever their configuration. They are removed with the mount namespace.
func hideFixedPlaces() error {
	for _, dir := range []string{"/run/containerd", "/run/netns", "/var/lib/cni", "/var/log/containers", "/var/log/pods"} {
		err := os.MkdirAll(dir, 0o755)
		if err == nil {
			err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "")
		}
		if err != nil {
			return fmt.Errorf("mount %s for the node: %w", dir, err)
		}
	}
	return nil
}

// prepareNode makes the network and writes the files that containerd and the kubelet read.
func (c *cluster) prepareNode() error {
	devices, err := net.Interfaces()
	if err != nil {
		return fmt.Errorf("list the network devices: %w", err)
	}
	for _, device := range devices {
		// Some devices (tunnels) appear by themselves; those are down.
		if device.Flags&(net.FlagLoopback|net.FlagUp) == net.FlagUp {
			return fmt.Errorf("a node is for a network namespace of its own, and this one has the device %s", device.Name)
		}
	}
	for _, command := range []string{
		"link set lo up",
		"addr add " + serviceIP + "/32 dev lo",
		// With an address of its own. Otherwise the bridge has the lowest address of its Pods' interfaces, and gets another
		// one when that Pod goes, which the other Pods only learn half a minute later.
		"link add " + nodeBridge + " address 02:00:0a:f4:00:01 type bridge",
		"addr add " + nodeIP + "/24 dev " + nodeBridge,
		"link set " + nodeBridge + " up",
	} {
		if err := c.tool("ip", strings.Fields(command)...); err != nil {
			return err
		}
	}
	if err := hideFixedPlaces(); err != nil {
		return err
	}
	plugins, err := networkPlugins()
	if err != nil {
		return err
	}
	at := c.dir.join
	for _, dir := range []string{"cni", "kubelet"} {
		if err := os.Mkdir(at(dir), 0o700); err != nil {
			return fmt.Errorf("make a directory of the node: %w", err)
		}
	}
	for name, text := range map[string]string{
		"containerd.toml": fmt.Sprintf(containerdConfig, at("containerd"), at("containerd-state"), c.layout.containerd(), pauseImage,
			plugins, at("cni"), at("opt")),
		"cni/10-pods.conflist": fmt.Sprintf(networkConfig, nodeBridge, at("ipam"), podRange, nodeIP),
		"kubelet.yaml": fmt.Sprintf(kubeletConfig, nodeIP, c.layout.pki("ca.crt"), c.layout.pki("server.crt"), c.layout.pki("server.key"),
			controlGroup(c.dir.path), c.layout.containerd()),
	} {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("write the configuration of the node: %w", err)
		}
	}
	return nil
}

// networkPlugins returns where the plugins of CNI are: Debian's directory, or the one of the plugins' authors.
func networkPlugins() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin"} {
		if _, err := os.Stat(dir + "/bridge"); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("no network plugins in /usr/lib/cni or /opt/cni/bin: install them with `make setup-node`")
}

// tool runs a program that does not keep running.
func (c *cluster) tool(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s (`make setup-node` installs what a node needs)", cmd, err, bytes.TrimSpace(output))
	}
	return nil
}

func (l layout) newContainerd() (*component, error) {
	path, err := exec.LookPath("containerd")
	if err != nil {
		return nil, fmt.Errorf("find containerd, which `make setup-node` installs: %w", err)
	}
	return &component{name: "containerd", path: path, args: []string{"--config=" + l.dir.join("containerd.toml")}}, nil
}

func (l layout) newKubelet() (*component, error) {
	return l.component("kubelet",
		"--config="+l.dir.join("kubelet.yaml"),
		"--kubeconfig="+l.pki("kubelet.kubeconfig"),
		"--root-dir="+l.dir.join("kubelet"),
		"--cert-dir="+l.dir.join("kubelet/pki"),
		"--hostname-override="+nodeName,
		"--node-ip="+nodeIP,
	)
}

// startRealNode adds a scheduler and one node that has these images.
func (c *cluster) startRealNode(ctx context.Context, images []string) error {
	c.report("starting kube-scheduler, containerd and a kubelet")
	forwarder, err := forward(serviceIP+":443", c.layout.api.address())
	if err != nil {
		return err
	}
	c.forwarder = forwarder
	if err := c.launch(c.layout.newScheduler, c.layout.newContainerd); err != nil {
		return err
	}
	if err := c.await(ctx, "containerd", func(context.Context) error { return c.ctr("version") }); err != nil {
		return err
	}
	archive := c.dir.join("pause.tar")
	if err := writePauseImage(archive); err != nil {
		return err
	}
	for _, image := range append([]string{archive}, images...) {
		if err := c.ctr("--namespace=k8s.io", "images", "import", image); err != nil {
			return err
		}
	}
	if err := c.launch(c.layout.newKubelet); err != nil {
		return err
	}
	return c.await(ctx, "the node", func(ctx context.Context) error { return c.client.nodeReady(ctx, nodeName) })
}

func (c *cluster) ctr(args ...string) error {
	return c.tool("ctr", append([]string{"--address=" + c.layout.containerd()}, args...)...)
}
