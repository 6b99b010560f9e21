package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/watches"
)

// proxyOptions are the settings of the proxy command.
type proxyOptions struct {
	watchesFile string
	owner       string
	namespace   string
	kubeconfig  string
	port        int
	logOptions
}

func newProxyCommand() *cobra.Command {
	var o proxyOptions
	cmd := &cobra.Command{
		Use:   "proxy --owner KIND/NAME",
		Short: "Talk to the cluster as a run for one object would",
		Long: "Start the operator's API proxy for one custom resource, as a run for it would use it: the\n" +
			"resource owns what is created through the proxy. Print a kubeconfig for the proxy, and\n" +
			"serve until a signal stops it.",
		Example: "  rolewright proxy --owner Memcached/sample --kubeconfig /tmp/sample.kubeconfig &\n" +
			"  K8S_AUTH_KUBECONFIG=/tmp/sample.kubeconfig ansible-playbook try.yml",
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.completeLog(cmd.Flags()); err != nil {
				return usage(err)
			}
			return o.serve(logr.NewContext(cmd.Context(), o.logger(cmd.ErrOrStderr())), cmd.OutOrStdout())
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.owner, "owner", "", "The object, as KIND/NAME or KIND.GROUP/NAME. Its kind is one that the watches file names.")
	fs.StringVarP(&o.namespace, "namespace", "n", "", "The object's namespace; that of the current context if empty. Of no meaning for cluster-scoped kinds.")
	fs.StringVar(&o.watchesFile, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "Write the kubeconfig to this file, which only its owner can read, instead of printing it.")
	fs.IntVar(&o.port, "proxy-port", 0, "The port of the proxy on the loopback addresses; 0 for any free one.")
	o.bindLog(fs)
	return cmd
}

// serve runs the proxy until ctx is done.
func (o *proxyOptions) serve(ctx context.Context, stdout io.Writer) error {
	log := logr.FromContextOrDiscard(ctx).WithName("proxy")
	all, name, err := o.findWatches()
	if err != nil {
		return usage(err)
	}
	cluster, err := findCluster(os.LookupEnv)
	if err != nil {
		return unreachable(err)
	}
	if err := cluster.waitForServer(logr.NewContext(ctx, log), startPatience()); err != nil {
		return unreachable(endOf(ctx, err))
	}
	objects, err := newApplier(cluster, nil)
	if err != nil {
		return unreachable(err)
	}
	objects.namespace = cmp.Or(o.namespace, objects.namespace)
	watch, owner, err := findOwner(ctx, objects, all, name)
	if err != nil {
		return err
	}
	p, err := proxy.New(ctx, proxy.Options{Config: cluster.config, Port: o.port, Log: log})
	if err != nil {
		return err
	}
	access := p.Admit(proxy.Grant{
		RunID: "by hand", Owner: owner, Inject: true, OwnNamespaceOnly: watch.OwnNamespaceOnly,
		AdoptUnowned: watch.Adopt == watches.AdoptIfUnowned, Blacklist: watch.Blacklist,
	})
	remove, err := o.handOut(access, stdout)
	if err != nil {
		return err
	}
	defer remove()
	log.Info("Acting for the object; stop with an interrupt", "kind", owner.GVK.Kind, "namespace", owner.Namespace, "name", owner.Name)
	return assembly.WithServers(ctx, func(ctx context.Context) error { return followOwner(ctx, objects.client, owner, access) }, p.Start)
}

// findWatches reads --owner and finds the watches of its kind in the watches file.
func (o *proxyOptions) findWatches() ([]watches.Watch, string, error) {
	kind, name, ok := strings.Cut(o.owner, "/")
	if !ok || kind == "" || name == "" {
		return nil, "", fmt.Errorf("--owner %q: give the object as KIND/NAME, such as Memcached/sample", o.owner)
	}
	watched, err := usableWatches(o.watchesFile, os.LookupEnv)
	if err != nil {
		return nil, "", err
	}
	found, err := kindOf(watched, kind)
	if err != nil {
		return nil, "", fmt.Errorf("--owner %s: %s: %w", o.owner, o.watchesFile, err)
	}
	return found, name, nil
}

// findOwner reads the object, and finds the watch that runs it among the watches of its kind.
func findOwner(ctx context.Context, objects *applier, all []watches.Watch, name string) (watches.Watch, proxy.Owner, error) {
	all = servedOf(objects.client, all)
	obj, err := objects.read(ctx, all[0].GVK, name)
	if err != nil {
		return watches.Watch{}, proxy.Owner{}, err
	}
	watch, err := watches.For(all, obj)
	return watch, proxy.Owner{GVK: watch.GVK, Namespace: obj.GetNamespace(), Name: name, UID: obj.GetUID()}, usage(err)
}

// handOut gives the kubeconfig to the user; remove removes the file.
func (o *proxyOptions) handOut(access *proxy.Access, stdout io.Writer) (remove func(), err error) {
	data, err := access.Kubeconfig()
	if err != nil {
		return nil, err
	}
	if o.kubeconfig == "" {
		_, err := stdout.Write(data)
		return func() {}, err
	}
	path, err := filepath.Abs(o.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", o.kubeconfig, err)
	}
	const ownerOnly = 0o600
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownerOnly)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("--kubeconfig %s exists; name another file, or remove it", path)
	}
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	_, err = file.Write(data)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	fmt.Fprintf(stdout, "export KUBECONFIG=%[1]s K8S_AUTH_KUBECONFIG=%[1]s\n", path)
	return func() { _ = os.Remove(path) }, nil
}

// ownerPollInterval is how often the object is looked up: someone who has
// deleted it should not write on its behalf for much longer.
const ownerPollInterval = 2 * time.Second

// followOwner takes away the right to write once the object is gone. It returns
// when ctx is done.
func followOwner(ctx context.Context, c client.Client, owner proxy.Owner, access *proxy.Access) error {
	defer access.Revoke()
	for ctx.Err() == nil {
		obj := &unstructured.Unstructured{}
		obj.SetGroupVersionKind(owner.GVK)
		err := c.Get(ctx, client.ObjectKey{Namespace: owner.Namespace, Name: owner.Name}, obj)
		switch {
		case apierrors.IsNotFound(err), err == nil && obj.GetUID() != owner.UID:
			access.Refuse("the object is gone")
		case err == nil && obj.GetDeletionTimestamp() != nil:
			access.Refuse("the object is being deleted")
		}
		sleep(ctx, ownerPollInterval)
	}
	return nil
}
