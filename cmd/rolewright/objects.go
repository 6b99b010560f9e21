package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// selectOptions say which objects a command applies to.
type selectOptions struct {
	namespace     string
	allNamespaces bool
	selector      string
	all           bool
}

func (o *selectOptions) bind(cmd *cobra.Command, does string) {
	fs := cmd.Flags()
	cmd.ValidArgsFunction = kindsAndNames(false, &o.namespace)
	fs.StringVarP(&o.namespace, "namespace", "n", "", "The namespace of the objects. The default is that of the kubeconfig.")
	fs.BoolVarP(&o.allNamespaces, "all-namespaces", "A", false, does+" the objects of all namespaces.")
	fs.StringVarP(&o.selector, "selector", "l", "", does+" the objects with these labels, such as app=web.")
}

// bindAll is bind for commands that require --all if all objects of a kind are meant.
func (o *selectOptions) bindAll(cmd *cobra.Command, does string) {
	o.bind(cmd, does)
	cmd.Flags().BoolVar(&o.all, "all", false, does+" all objects of the kind.")
}

// parseObjects reads KIND, KIND NAME… or KIND/NAME….
func parseObjects(args []string) (kind string, names []string, err error) {
	if len(args) == 0 {
		return "", nil, usage(errors.New("give objects, such as memcached/sample"))
	}
	if !strings.Contains(args[0], "/") {
		kind, names = args[0], args[1:]
		args = nil
	}
	for _, arg := range args {
		of, name, named := strings.Cut(arg, "/")
		if !named || of == "" || kind != "" && of != kind {
			return "", nil, usage(fmt.Errorf("%q: give objects of one kind, such as memcached/sample memcached/other", arg))
		}
		kind, names = of, append(names, name)
	}
	for _, name := range names {
		if name == "" || strings.Contains(name, "/") {
			return "", nil, usage(fmt.Errorf("%q is not a name of an object", name))
		}
	}
	return kind, names, nil
}

// objectClient reads and changes the objects of a kind.
type objectClient struct {
	kind      schema.GroupVersionKind
	resource  schema.GroupVersionResource
	client    dynamic.NamespaceableResourceInterface
	namespace string // of the objects; empty for all, or if the kind is cluster-scoped
}

// of returns the client for a namespace.
func (c *objectClient) of(namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.client
	}
	return c.client.Namespace(namespace)
}

// called returns kubectl's name for an object of the kind.
func (c *objectClient) called(name string) string { return calledBy(c.kind.Kind, c.kind.Group, name) }

// shown is called for people: if objects of all namespaces are meant, it adds the object's
// namespace.
func (c *objectClient) shown(obj *unstructured.Unstructured) string {
	name := c.called(obj.GetName())
	if c.namespace == "" && obj.GetNamespace() != "" {
		name += " in " + obj.GetNamespace()
	}
	return plaintext.Plain(name)
}

func calledBy(kind, group, name string) string {
	return strings.Trim(strings.ToLower(kind)+"."+group, ".") + "/" + name
}

// objects returns a client for a kind. The kind is given in any of kubectl's ways: as memcached,
// memcacheds, a short name, Memcached, memcached.cache.example.com or with the version.
func (o *selectOptions) objects(kind string) (*objectClient, error) {
	found, err := findCluster(os.LookupEnv)
	if err != nil {
		return nil, unreachable(err)
	}
	return o.objectsIn(found, kind)
}

func (o *selectOptions) objectsIn(found cluster, kind string) (*objectClient, error) {
	disco, err := discovery.NewDiscoveryClientForConfig(found.config)
	if err != nil {
		return nil, unreachable(err)
	}
	client, err := dynamic.NewForConfig(found.config)
	if err != nil {
		return nil, unreachable(err)
	}
	mapping, err := mappingOf(memory.NewMemCacheClient(disco), kind)
	if meta.IsNoMatchError(err) {
		return nil, usage(fmt.Errorf("the cluster has no kind %.100q", kind))
	}
	if is := (codedError{}); errors.As(err, &is) {
		return nil, err
	}
	if err != nil {
		return nil, unreachable(err)
	}
	c := &objectClient{kind: mapping.GroupVersionKind, resource: mapping.Resource, client: client.Resource(mapping.Resource)}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace && !o.allNamespaces {
		c.namespace = cmp.Or(o.namespace, found.namespace, metav1.NamespaceDefault)
	}
	return c, nil
}

// mappingOf looks a kind up as kubectl does: first as a resource, then as a kind. If several
// groups have it, it is ambiguous.
func mappingOf(disco discovery.CachedDiscoveryInterface, kind string) (*meta.RESTMapping, error) {
	var ambiguous string
	mapper := restmapper.NewShortcutExpander(restmapper.NewDeferredDiscoveryRESTMapper(disco), disco, func(message string) { ambiguous = message })
	full, resource := schema.ParseResourceArg(kind)
	var kinds []schema.GroupVersionKind
	if full != nil {
		kinds, _ = mapper.KindsFor(*full) // an unknown kind is reported below
	}
	if len(kinds) == 0 {
		var err error
		if kinds, err = mapper.KindsFor(resource.WithVersion("")); err != nil && !meta.IsNoMatchError(err) {
			return nil, err
		}
	}
	var groups []string
	for _, gvk := range kinds {
		if name := gvk.Kind + "." + gvk.Group; !slices.Contains(groups, name) {
			groups = append(groups, name)
		}
	}
	switch {
	case ambiguous != "":
		return nil, usage(fmt.Errorf("%s: give the kind with its group", plaintext.Plain(ambiguous)))
	case len(groups) > 1:
		return nil, usage(fmt.Errorf("%q is a kind of several groups: give one of %s", kind, strings.Join(groups, ", ")))
	case len(groups) == 1:
		return mapper.RESTMapping(kinds[0].GroupKind(), kinds[0].Version)
	}
	fullKind, groupKind := schema.ParseKindArg(kind)
	if fullKind != nil {
		if mapping, err := mapper.RESTMapping(fullKind.GroupKind(), fullKind.Version); err == nil {
			return mapping, nil
		}
	}
	return mapper.RESTMapping(groupKind)
}

// list reads the named objects, or the selected ones.
func (c *objectClient) list(ctx context.Context, o *selectOptions, names []string) (found []unstructured.Unstructured, err error) {
	if _, err := labels.Parse(o.selector); err != nil {
		return nil, usage(fmt.Errorf("--selector: %w", err))
	}
	if len(names) > 0 && (o.selector != "" || o.all || o.allNamespaces) {
		return nil, usage(errors.New("give names, or select objects with --selector, --all or --all-namespaces, and not both"))
	}
	for _, name := range names {
		obj, err := c.of(c.namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil, coded(fmt.Errorf("%w in namespace %q", err, c.namespace), exitNothing)
		}
		if err != nil {
			return nil, unreachable(err)
		}
		found = append(found, *obj)
	}
	if len(names) > 0 {
		return found, nil
	}
	list, err := c.of(c.namespace).List(ctx, metav1.ListOptions{LabelSelector: o.selector})
	if err != nil {
		return nil, unreachable(err)
	}
	slices.SortFunc(list.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return list.Items, nil
}

// chosen is list for commands that act on the objects: without names it requires a selection,
// and it fails if there are no objects.
func (c *objectClient) chosen(ctx context.Context, o *selectOptions, names []string) ([]unstructured.Unstructured, error) {
	if len(names) == 0 && o.selector == "" && !o.all {
		return nil, usage(errors.New("give names of objects, --selector or --all"))
	}
	found, err := c.list(ctx, o, names)
	if err == nil && len(found) == 0 {
		err = nothingFound("objects", c.namespace)
	}
	return found, err
}

// nothingFound says that a list is empty, and in which namespace it looked.
func nothingFound(things, namespace string) error {
	where := ""
	if namespace != "" {
		where = fmt.Sprintf(" in namespace %q", namespace)
	}
	return coded(fmt.Errorf("no %s found%s", things, where), exitNothing)
}
