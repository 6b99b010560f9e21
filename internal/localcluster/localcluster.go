// Package localcluster runs an API server on this machine, for development: etcd,
// kube-apiserver and, if it is installed, kube-controller-manager, which
// deletes dependents and namespaces. It knows the directories of envtest's
// programs, and nothing about operators.
package localcluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// The programs. The controller manager is not part of envtest.
const (
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
)

// execPatience is how long a command may take to end after SIGTERM.
const execPatience = 30 * time.Second

// ErrNoPrograms says that etcd or kube-apiserver is not installed.
var ErrNoPrograms = errors.New("etcd and kube-apiserver are not installed")

// Options say where the programs are.
type Options struct {
	// Download fetches envtest's programs if they are missing.
	Download bool
	// Dir is the directory for files of the cluster. It has to exist, and others must not have access.
	Dir string
}

// Cluster is a running cluster. It lives until [Cluster.Stop].
type Cluster struct {
	// Kubeconfig is the administrator's kubeconfig.
	Kubeconfig []byte
	// Collects is true if dependents and namespaces are deleted, which takes a
	// controller manager.
	Collects bool

	env     *envtest.Environment
	manager *exec.Cmd
}

// Start starts a cluster, and returns when it answers. The error wraps
// [ErrNoPrograms] if the programs are missing.
func Start(o Options) (*Cluster, error) {
	dir, err := programs()
	if err != nil {
		return nil, err
	}
	existing := false // whatever USE_EXISTING_CLUSTER says: the commands promise a cluster of their own
	env := &envtest.Environment{BinaryAssetsDirectory: dir, UseExistingCluster: &existing}
	if dir == "" {
		if !o.Download {
			return nil, fmt.Errorf("%w: no KUBEBUILDER_ASSETS, nothing from setup-envtest, none in PATH", ErrNoPrograms)
		}
		if env.BinaryAssetsDirectory, err = envtest.SetupEnvtestDefaultBinaryAssetsDirectory(); err != nil {
			return nil, err
		}
		env.DownloadBinaryAssets = true
	}
	if _, err := env.Start(); err != nil {
		return nil, errors.Join(err, env.Stop())
	}
	c := &Cluster{Kubeconfig: env.KubeConfig, env: env}
	if err := c.startManager(o.Dir, filepath.Join(dir, controllerManager)); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// Kept is a cluster with its kubeconfig in a temporary directory.
type Kept struct {
	*Cluster
	// Path is the path of the administrator's kubeconfig.
	Path string
}

// StartKept starts a cluster as [Start] does; o.Dir is not used. [Kept.Stop] removes
// the directory.
func StartKept(o Options) (*Kept, error) {
	var err error
	if o.Dir, err = os.MkdirTemp("", "rolewright-cluster-"); err != nil {
		return nil, err
	}
	c, err := Start(o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(o.Dir))
	}
	k := &Kept{c, filepath.Join(o.Dir, kubeconfigFile)}
	if err := os.WriteFile(k.Path, c.Kubeconfig, 0o600); err != nil {
		return nil, errors.Join(err, k.Stop())
	}
	return k, nil
}

// Stop ends the processes of the cluster, and removes the directory.
func (k *Kept) Stop() error {
	return errors.Join(k.Cluster.Stop(), os.RemoveAll(filepath.Dir(k.Path)))
}

// Streams are the standard streams of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// Exec runs a command with KUBECONFIG set, and returns its exit code. When ctx is
// done, the command gets SIGTERM, and SIGKILL after execPatience.
func (k *Kept) Exec(ctx context.Context, s Streams, command string, args ...string) (int, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = execPatience
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.Path)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = s.In, s.Out, s.Err
	err := cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		return ended.ExitCode(), nil
	}
	return 0, err
}

// controllers are the manager's controllers that remove objects without an owner or namespace, and what these need.
// Other controllers would note in a Deployment's status that it has no Pods, and so overwrite the status that scenarios set.
const controllers = "garbage-collector-controller,namespace-controller,persistentvolumeclaim-protection-controller," +
	"serviceaccount-controller,serviceaccount-token-controller"

// startManager starts the controller manager, if there is one.
func (c *Cluster) startManager(dir, program string) error {
	if _, err := os.Stat(program); err != nil {
		return nil //nolint:nilerr // it is optional
	}
	kubeconfig := filepath.Join(dir, "controller-manager.kubeconfig")
	if err := os.WriteFile(kubeconfig, c.Kubeconfig, 0o600); err != nil {
		return err
	}
	c.manager = exec.Command(program, "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0", "--controllers="+controllers,
		"--kube-api-qps=200", "--kube-api-burst=400")
	c.manager.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt at the terminal is only for this process
	if err := c.manager.Start(); err != nil {
		c.manager = nil
		return err
	}
	c.Collects = true
	return nil
}

// Stop ends the processes of the cluster. Its objects are lost.
func (c *Cluster) Stop() error {
	if c.manager != nil {
		_ = c.manager.Process.Kill()
		_ = c.manager.Wait() // it was killed
	}
	return c.env.Stop()
}

// programs returns the directory of etcd and kube-apiserver: KUBEBUILDER_ASSETS,
// setup-envtest's newest directory, or the one in PATH. It is empty if there is none.
func programs() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		if !hasPrograms(dir) {
			return "", fmt.Errorf("%w: they are not in KUBEBUILDER_ASSETS=%s", ErrNoPrograms, dir)
		}
		return dir, nil
	}
	if store, err := envtest.SetupEnvtestDefaultBinaryAssetsDirectory(); err == nil {
		found, _ := filepath.Glob(filepath.Join(store, "*")) // the pattern is right
		found = slices.DeleteFunc(found, func(dir string) bool { return !hasPrograms(dir) })
		if len(found) > 0 {
			return slices.MaxFunc(found, byVersion), nil
		}
	}
	if path, err := exec.LookPath(apiServer); err == nil && hasPrograms(filepath.Dir(path)) {
		return filepath.Dir(path), nil
	}
	if hasPrograms("/usr/local/kubebuilder/bin") {
		return "/usr/local/kubebuilder/bin", nil
	}
	return "", nil
}

// byVersion compares the versions in directory names such as 1.36.0-linux-amd64.
func byVersion(a, b string) int {
	parse := func(dir string) *version.Version {
		number, _, _ := strings.Cut(filepath.Base(dir), "-")
		v, err := version.ParseGeneric(number)
		if err != nil {
			return version.MustParseGeneric("0.0")
		}
		return v
	}
	if va, vb := parse(a), parse(b); va.LessThan(vb) {
		return -1
	} else if vb.LessThan(va) {
		return 1
	}
	return cmp.Compare(a, b)
}

func hasPrograms(dir string) bool {
	for _, name := range []string{"etcd", apiServer} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.IsDir() {
			return false
		}
	}
	return true
}
