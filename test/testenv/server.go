package testenv

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/rolewright/rolewright/test/leaktest"
	"github.com/rolewright/rolewright/test/testenv/parts"
)

// The variables by which `make test` hands its control plane to the tests.
const (
	kubeconfigVariable = "ROLEWRIGHT_TEST_KUBECONFIG"
	auditLogVariable   = "ROLEWRIGHT_TEST_AUDIT_LOG"
)

// server is a control plane that tests use. The zero value finds or starts it at the first use.
type server struct {
	once       sync.Once
	err        error // why there is none
	kubeconfig string
	auditLog   string       // empty: it writes none
	stop       func() error // nil: it is not ours to stop
}

// shared is the control plane of this test process. The tests of a process share nothing else in which it could be kept.
var shared server //nolint:gochecknoglobals // as said above

func (s *server) get() error {
	s.once.Do(func() {
		s.kubeconfig, s.auditLog = os.Getenv(kubeconfigVariable), os.Getenv(auditLogVariable)
		if s.kubeconfig == "" {
			s.err = s.launch("--audit-log=audit.log")
		}
	})
	return s.err
}

// Main runs the tests of a package, waits until a control plane that they have started is gone, and fails if goroutines
// are left. TestMain should do nothing else, because Main exits the process. TMPDIR is a directory of the package's own,
// for all that programs leave there, such as the discovery cache of Kubernetes' Python client; Main removes it. Without
// Main the control plane ends a moment after the process.
func Main(m *testing.M) {
	temp, err := os.MkdirTemp("", "t") // the path of a socket in it is short
	if err == nil {
		err = errors.Join(os.Chmod(temp, 0o777|os.ModeSticky), os.Setenv("TMPDIR", temp)) // as /tmp is
	}
	code := 1
	if err == nil {
		code = m.Run()
	}
	if shared.stop != nil {
		err = shared.stop()
	}
	if err = errors.Join(err, os.RemoveAll(temp)); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Connections of clients are kept for the clients of other tests.
	kept := []goleak.Option{
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
	}
	if code == 0 {
		if err := leaktest.Goroutines(kept...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code) //nolint:forbidigo // TestMain is the main of a test program
}

// Config returns the administrator's client configuration, without a limit on the request rate. The caller may change the
// value. It fails the test if there is no control plane.
func Config(t testing.TB) *rest.Config {
	t.Helper()
	if err := shared.get(); err != nil {
		missing(t, err)
	}
	return shared.config(t)
}

// errNotBuilt is the error if there is no control plane to start.
var errNotBuilt = errors.New("no control plane is built")

// missing ends a test that has no control plane.
func missing(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errNotBuilt) {
		parts.Missing(t, err)
	}
	t.Fatalf("get a control plane: %v", err)
}

func (s *server) config(t testing.TB) *rest.Config {
	t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", s.kubeconfig)
	if err != nil {
		t.Fatalf("read the kubeconfig of the control plane: %v", err)
	}
	cfg.QPS = -1 // tests wait for the server, not for their own client
	return cfg
}

// Own starts a control plane for one test that would disturb others, and returns the administrator's client configuration.
// It stops when the test ends. The arguments are added to those of the launcher, such as --kwok.
func Own(t testing.TB, args ...string) *rest.Config {
	t.Helper()
	var own server
	if err := own.launch(args...); err != nil {
		missing(t, err)
	}
	t.Cleanup(func() {
		if err := own.stop(); err != nil {
			t.Error(err)
		}
	})
	return own.config(t)
}

// launch starts a control plane that lives for as long as the pipe to its standard input is open, which is at most as
// long as this process.
func (s *server) launch(args ...string) error {
	root, err := repository()
	if err != nil {
		return err
	}
	launcher := filepath.Join(root, "bin", "tools", "controlplane")
	if _, err := os.Stat(launcher); err != nil {
		return fmt.Errorf("%w: run `make cluster-tools`: %w", errNotBuilt, err)
	}
	cmd := exec.Command(launcher, append([]string{"run", "--die-with-parent"}, args...)...)
	cmd.Stderr = os.Stderr // progress: it takes some seconds
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("make a pipe to the control plane: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("make a pipe from the control plane: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the control plane: %w", err)
	}
	s.stop = func() error {
		if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
			return fmt.Errorf("stop the control plane: %w", err)
		}
		return nil
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		return fmt.Errorf("wait for the control plane: %w", err)
	}
	path, found := strings.CutPrefix(strings.TrimSpace(line), "export KUBECONFIG=")
	if !found {
		return fmt.Errorf("wait for the control plane: unexpected answer %q", line)
	}
	s.kubeconfig = strings.Trim(path, "'") // quoted for a shell
	s.auditLog = filepath.Join(filepath.Dir(s.kubeconfig), "audit.log")
	return nil
}

// repository is the top of the repository: tests run in the directory of their package.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("find the repository: no go.mod in any parent directory")
		}
		dir = parent
	}
}
