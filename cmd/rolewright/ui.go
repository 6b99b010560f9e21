package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/rolewright/rolewright/controller/act"
	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/page"
)

func newUICommand() *cobra.Command {
	var o readerOptions
	port, acts := 0, false
	cmd := &cobra.Command{
		Use:   "ui",
		Short: "Show objects and runs in a browser, on this machine",
		Long: `Serve a page with the objects of an operator and their runs on 127.0.0.1, until the
command is interrupted, and print its address. The page reads with your rights: your
token stays in this command, and does not reach the browser. The address contains a
secret: anyone on this machine who has it can see what you can see, and with --ui-actions
do to objects what you can do. See "rolewright get runs --help" for how the operator is
found.`,
		Example: `  rolewright ui --operator-namespace operators -A
  rolewright ui --server http://127.0.0.1:6791 -n default --port 8080`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if port < 0 || port > 65535 {
				return usage(fmt.Errorf("--port %d is not a port: give 1 to 65535, or 0 for one that is free", port))
			}
			return o.serveUI(cmd, port, acts)
		},
	}
	o.bind(cmd.Flags())
	cmd.Flags().IntVar(&port, "port", 0, "The port of the page on 127.0.0.1; 0 for one that is free.")
	cmd.Flags().BoolVar(&acts, "ui-actions", false, "Show buttons that reconcile, suspend and resume an object, and cancel its run, with the rights of your kubeconfig.")
	return cmd
}

func (o *readerOptions) serveUI(cmd *cobra.Command, port int, acts bool) error {
	ctx := cmd.Context()
	r := &reconnected{options: o}
	if err := r.connect(ctx, nil); err != nil {
		return err
	}
	defer func() { r.reader.close() }()
	objects := clusterObjects()
	source := &page.Remote{Ask: r.ask, Get: objects.Get, Namespace: r.reader.namespace}
	if _, _, err := source.Runs(ctx); err != nil { // otherwise the first page would report it
		return err
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return usage(fmt.Errorf("listen for the browser: %w; choose another port with --port", err))
	}
	host, base := listener.Addr().String(), "/"+rand.Text()+"/"
	options := page.Options{Source: source, Base: base, Hosts: []string{host}, Flags: o.flags()}
	if acts {
		options.Act = objects.Act
	}
	server := &http.Server{
		Handler:           page.New(options),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10, BaseContext: func(net.Listener) context.Context { return ctx }, // which ends the streams
	}
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s%s\n", host, base)
	fmt.Fprintln(cmd.ErrOrStderr(), "Open this address in a browser. Ctrl-C ends it.")
	if err := serveUntil(ctx, server, listener); err != nil {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// flags returns the flags with which another command reads the same objects.
func (o *readerOptions) flags() string {
	flags := ""
	for _, f := range [][2]string{{"--operator-namespace", o.operatorNamespace}, {"--operator-pod", o.operatorPod}, {"--server", o.server}, {"--service-account", o.serviceAccount}} {
		if f[1] != "" {
			flags += f[0] + " " + f[1] + " "
		}
	}
	switch {
	case o.allNamespaces:
		flags += "-A"
	case o.namespace != "":
		flags += "-n " + o.namespace
	}
	return flags
}

// reconnectTimeout is how long reconnecting to an operator may take.
const reconnectTimeout = 20 * time.Second

// reconnected is a reader that finds the operator again if the connection is lost: its Pod has
// ended, or the token has expired.
type reconnected struct {
	options *readerOptions

	mu     sync.Mutex
	reader *reader
}

// connect finds the operator again, unless another request has done so since the reader since was used.
func (r *reconnected) connect(ctx context.Context, since *reader) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reader != since {
		return nil
	}
	is, err := r.options.connect(ctx)
	if err != nil {
		return err
	}
	if r.reader != nil {
		r.reader.close()
	}
	r.reader = is
	return nil
}

func (r *reconnected) current() *reader {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reader
}

// ask sends a request. If the operator cannot be reached, it finds it again and repeats the request once.
func (r *reconnected) ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	used := r.current()
	resp, err := used.ask(ctx, path, query)
	var coded codedError
	if errors.As(err, &coded) && coded.code == exitUnreachable && ctx.Err() == nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), reconnectTimeout) // others wait for it, too
		defer cancel()
		if connectErr := r.connect(limited, used); connectErr != nil {
			return nil, connectErr
		}
		resp, err = r.current().ask(ctx, path, query)
	}
	if errors.As(err, &coded) && coded.code == exitNothing {
		return nil, fmt.Errorf("%w: %w", page.ErrNotFound, err)
	}
	return resp, err
}

// clusterObjects returns the objects of the cluster, accessed with the user's permissions.
func clusterObjects() act.Objects {
	type clients struct {
		mapper  meta.RESTMapper
		objects dynamic.Interface
	}
	connect := sync.OnceValues(func() (c clients, err error) {
		found, err := findCluster(os.LookupEnv)
		if err != nil {
			return c, err
		}
		httpClient, err := rest.HTTPClientFor(found.config)
		if err != nil {
			return c, err
		}
		if c.mapper, err = apiutil.NewDynamicRESTMapper(found.config, httpClient); err != nil {
			return c, err
		}
		c.objects, err = dynamic.NewForConfigAndClient(found.config, httpClient)
		return c, err
	})
	return func(o history.Object) (dynamic.ResourceInterface, error) {
		c, err := connect()
		if err != nil {
			return nil, err
		}
		is, err := c.mapper.RESTMapping(schema.GroupKind{Group: o.Group, Kind: o.Kind}, o.Version)
		if meta.IsNoMatchError(err) {
			return nil, fmt.Errorf("%w: %w", page.ErrNotFound, err)
		}
		if err != nil {
			return nil, fmt.Errorf("look for the kind: %w", err)
		}
		if is.Scope.Name() == meta.RESTScopeNameNamespace {
			return c.objects.Resource(is.Resource).Namespace(o.Namespace), nil
		}
		return c.objects.Resource(is.Resource), nil
	}
}

func newReportCommand() *cobra.Command {
	o := readerOptions{several: true}
	output := "html"
	cmd := &cobra.Command{
		Use:   "report ID",
		Short: "Print a run as one HTML document",
		Long: `Print a run as one HTML document that stands alone: it has no script and loads nothing,
so that it can be attached to a ticket or kept by a pipeline. A unique prefix of an ID is
enough. See "rolewright get runs --help" for how the operator is found.`,
		Example: `  rolewright report 8c51a3f0 --operator-namespace operators > run.html`,
		Args:    oneArgument("give the ID of a run, as rolewright get runs shows it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "html" {
				return usage(fmt.Errorf("--output must be html, not %q; rolewright describe run has others", output))
			}
			r, err := o.connect(cmd.Context())
			if err != nil {
				return err
			}
			defer r.close()
			answer, err := r.run(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return page.Report(cmd.OutOrStdout(), answer.Run, time.Now())
		},
	}
	o.bind(cmd.Flags())
	cmd.ValidArgsFunction = onlyFirst(o.completeRunIDs)
	cmd.Flags().StringVarP(&output, "output", "o", output, "How to print the run: html.")
	return cmd
}
