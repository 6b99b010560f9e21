package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/runstore"
	"github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/internal/webhookserver"
	"github.com/rolewright/rolewright/runner/supervise"
)

// webhookOptions are the flags of the server that answers the API server.
type webhookOptions struct {
	webhookPort    int
	webhookService string
	webhookCertDir string
}

func (o *webhookOptions) bindWebhooks(fs *pflag.FlagSet) {
	fs.IntVar(&o.webhookPort, "webhook-port", 9443, "The port on which commands and conversions of webhooks are served, where a watch has any; 0 for none.")
	fs.StringVar(&o.webhookService, "webhook-service", "", "The Service by which the API server reaches --webhook-port, as NAMESPACE/NAME: the operator makes a certificate for it, keeps it in the Secret NAME-cert, and has the API server trust it. An address such as https://127.0.0.1:9443 is for an operator outside the cluster.")
	fs.StringVar(&o.webhookCertDir, "webhook-cert-dir", "", "A directory with tls.crt and tls.key for --webhook-port, such as a Secret of cert-manager, instead of a certificate that the operator makes.")
}

// validateWebhooks reports flags that contradict each other.
func (o *webhookOptions) validateWebhooks() (problems []error) {
	if o.webhookPort < 0 || o.webhookPort > 65535 {
		problems = append(problems, fmt.Errorf("--webhook-port %d is not a port: give 1 to 65535, or 0 for none", o.webhookPort))
	}
	if o.webhookService != "" && o.webhookCertDir != "" {
		problems = append(problems, errors.New("--webhook-service and --webhook-cert-dir are two ways to a certificate: give one"))
	}
	if o.webhookService != "" {
		if _, err := admission.ParseReach(o.webhookService); err != nil {
			problems = append(problems, fmt.Errorf("--webhook-service %q: %w", o.webhookService, err))
		}
	}
	return problems
}

// newWebhooks returns the servers that answer the API server until their context ends, and a
// check of whether they can. It returns nothing if no watch needs them.
func (op *operator) newWebhooks(log logr.Logger) (servers []func(context.Context) error, ready func(*http.Request) error, err error) {
	if !admission.NeedServer(op.watched) {
		return nil, nil, nil
	}
	if op.webhookPort == 0 {
		log.Info("Commands and conversions of webhooks are not served")
		return nil, nil, nil
	}
	if op.webhookService == "" && op.webhookCertDir == "" {
		return nil, nil, fmt.Errorf("%s has commands or conversions in webhooks, for which the API server asks the operator: give --webhook-service or --webhook-cert-dir (docs/webhooks.md)", op.watchesFile)
	}
	dir, err := runstore.Dir(op.runnerRoot, ".webhooks")
	if err != nil {
		return nil, nil, err
	}
	if err := removeLeft(dir); err != nil {
		return nil, nil, err
	}
	discovered, err := discovery.NewDiscoveryClientForConfig(op.cluster.config)
	if err != nil {
		return nil, nil, fmt.Errorf("client for schemas: %w", err)
	}
	supervisor := supervise.NewLauncher()
	options := webhookserver.Options{
		Watches: op.watches, Port: op.webhookPort, CertDir: op.webhookCertDir, Dir: dir, Supervisor: supervisor, Log: log,
		Schemas: &webhookserver.Schemas{Client: discovered.RESTClient()}, Metrics: op.Recorder,
	}
	if op.webhookCertDir == "" {
		if options.Certificates, err = op.certificates(log); err != nil {
			return nil, nil, err
		}
		if ip := net.ParseIP(options.Certificates.Reach.Host()); ip != nil && ip.IsLoopback() {
			options.Host = ip.String()
		}
		servers = append(servers, options.Certificates.Keep)
	}
	server := webhookserver.New(options)
	return append(servers, func(ctx context.Context) error {
		defer supervisor.Close()
		return server.Serve(ctx)
	}), server.Ready(), nil
}

func (op *operator) certificates(log logr.Logger) (*webhookserver.Certificates, error) {
	reach, err := admission.ParseReach(op.webhookService)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	c, err := client.New(op.cluster.config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("client for certificates: %w", err)
	}
	return &webhookserver.Certificates{Client: c, Reach: reach, Watches: op.watches, Log: log}, nil
}

// ownWebhooks makes the API server on this machine ask this process, on a free port.
func (o *webhookOptions) ownWebhooks() error {
	l, err := net.Listen("tcp", "127.0.0.1:0") // returns at once
	if err != nil {
		return err
	}
	o.webhookPort = l.Addr().(*net.TCPAddr).Port
	o.webhookService = fmt.Sprintf("https://%s", l.Addr())
	return l.Close()
}

// awaitWebhooks waits until the API server gets answers from this process: the certificate is
// served once the API server has been told to trust it.
func (o *webhookOptions) awaitWebhooks(ctx context.Context) {
	address := strings.TrimPrefix(o.webhookService, "https://")
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} // it only checks whether there is an answer
	for ctx.Err() == nil {
		if conn, err := d.DialContext(ctx, "tcp", address); err == nil {
			_ = conn.Close()
			return
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// watches returns the watches in use. It never blocks: the holder of the operator's lock may be
// reading objects that have to be converted.
func (op *operator) watches() []watches.Watch { return *op.answered.Load() }

// callPatience is more than a call takes.
const callPatience = time.Minute

// removeLeft removes what calls of an operator that was killed have left. Other replicas may use the same
// directory, so it leaves what may be a call in progress.
func removeLeft(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if info, statErr := e.Info(); statErr == nil && time.Since(info.ModTime()) > callPatience {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}
