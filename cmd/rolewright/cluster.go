package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rolewright/rolewright/internal/version"
)

// cluster says how to reach the API server, and where that is configured.
type cluster struct {
	config *rest.Config
	// namespace is the namespace of the kubeconfig's context. It is only used for what a
	// person asks for.
	namespace string
	// source is for messages: which file or variable the user has to look at.
	source string
}

// findCluster looks for a kubeconfig where ansible-operator does: KUBECONFIG, the
// Pod's service account, ~/.kube/config. It sends no request.
func findCluster(lookupEnv func(string) (string, bool)) (cluster, error) {
	if list, _ := lookupEnv(clientcmd.RecommendedConfigPathEnvVar); list != "" {
		source := clientcmd.RecommendedConfigPathEnvVar + "=" + list
		return loadKubeconfig(filepath.SplitList(list), source,
			"make KUBECONFIG name an existing file, or unset it")
	}
	config, err := rest.InClusterConfig()
	if err == nil {
		return newCluster(config, "the service account of the Pod"), nil
	}
	if !errors.Is(err, rest.ErrNotInCluster) {
		return cluster{}, fmt.Errorf("read the service account of the Pod: %w; check that the Pod mounts its token (automountServiceAccountToken)", err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return cluster{}, fmt.Errorf("no cluster is configured: KUBECONFIG is not set, this is not a Pod, and %w; set KUBECONFIG to a kubeconfig file", err)
	}
	file := filepath.Join(home, clientcmd.RecommendedHomeDir, clientcmd.RecommendedFileName)
	return loadKubeconfig([]string{file}, file,
		"set KUBECONFIG to a kubeconfig file: it is not set, and this is not a Pod")
}

// loadKubeconfig merges the files that exist, as kubectl does. At least one must exist.
func loadKubeconfig(files []string, source, remedy string) (cluster, error) {
	var missing error
	found := false
	for _, file := range files {
		if _, err := os.Stat(file); err == nil {
			found = true
		} else if missing == nil {
			missing = err
		}
	}
	if !found {
		return cluster{}, fmt.Errorf("read kubeconfig (%s): %w; %s", source, missing, remedy)
	}
	merged, err := (&clientcmd.ClientConfigLoadingRules{Precedence: files}).Load()
	if err != nil {
		return cluster{}, fmt.Errorf("read kubeconfig (%s): %w", source, err)
	}
	current := clientcmd.NewDefaultClientConfig(*merged, &clientcmd.ConfigOverrides{})
	config, err := current.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return cluster{}, fmt.Errorf("read kubeconfig (%s): it names no cluster for its current context; choose one with kubectl config use-context", source)
	}
	if err != nil {
		return cluster{}, fmt.Errorf("read kubeconfig (%s): %w", source, err)
	}
	c := newCluster(config, source)
	if c.namespace, _, err = current.Namespace(); err != nil {
		return cluster{}, fmt.Errorf("read kubeconfig (%s): %w", source, err)
	}
	return c, nil
}

func newCluster(config *rest.Config, source string) cluster {
	// The API server's own priority and fairness sets the limit.
	config.QPS = -1
	config.UserAgent = programName + "/" + version.Read().Version
	return cluster{config: config, source: source}
}

// patience bounds how long an API server may take to answer at the start. A
// server that is restarting is worth a few tries. After that, an error message helps
// more, and in a cluster a restart by the kubelet.
type patience struct {
	tries   int
	timeout time.Duration // of one try
	pause   time.Duration // between two tries
}

// startPatience gives up after about ten seconds.
func startPatience() patience {
	return patience{tries: 4, timeout: 2 * time.Second, pause: time.Second}
}

// within returns a configuration whose requests time out after timeout.
func (c cluster) within(timeout time.Duration) *rest.Config {
	config := rest.CopyConfig(c.config)
	config.Timeout = timeout
	return config
}

// waitForServer returns when the API server has answered. It reports a failure that
// waiting does not cure at once.
func (c cluster) waitForServer(ctx context.Context, p patience) error {
	config := c.within(p.timeout)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", c, err)
	}
	log := logr.FromContextOrDiscard(ctx)
	for try := 1; ; try++ {
		answer, err := client.ServerVersionWithContext(ctx)
		if err == nil {
			log.Info("connected to the API server", "server", config.Host, "version", answer.GitVersion)
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("connect to %s: %w", c, context.Cause(ctx))
		}
		if remedy := certainFailure(err); remedy != "" {
			return fmt.Errorf("connect to %s: %w; %s", c, err, remedy)
		}
		if try >= p.tries {
			return fmt.Errorf("connect to %s: no answer in %d tries: %w; check that the server runs and that its address is right", c, try, err)
		}
		log.Info("the API server does not answer, trying again", "server", config.Host, "try", try, "tries", p.tries, "cause", err.Error())
		sleep(ctx, p.pause)
	}
}

func (c cluster) String() string {
	return fmt.Sprintf("the API server %s (from %s)", c.config.Host, c.source)
}

// certainFailure says what to do about an error that waiting does not cure.
// It is empty for other errors.
func certainFailure(err error) string {
	var unverified *tls.CertificateVerificationError
	var unknownCA x509.UnknownAuthorityError
	switch {
	case apierrors.IsUnauthorized(err):
		return "the server refuses these credentials: renew them"
	case apierrors.IsForbidden(err):
		return "the server knows this user, but does not allow it to get /version"
	case errors.As(err, &unverified), errors.As(err, &unknownCA):
		return "the server's certificate is not signed by the configured CA: check certificate-authority-data and the server's address"
	}
	return ""
}

// sleep returns after d, or as soon as ctx is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// localCluster returns the current cluster. It has to be on this machine unless the user
// allowed a remote one.
func (o *devOptions) localCluster() (cluster, error) {
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		return cluster{}, unreachable(fmt.Errorf("%w; or start one: %s", err, startCluster))
	}
	if !o.remote && !onThisMachine(found.config.Host) {
		return cluster{}, usage(fmt.Errorf("%s is not on this machine: to use it anyway, set --allow-remote", found))
	}
	return found, nil
}

// onThisMachine tells whether the address of an API server is a loopback address.
func onThisMachine(server string) bool {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		u = &url.URL{Host: server}
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
