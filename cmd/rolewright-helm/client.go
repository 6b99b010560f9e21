package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"helm.sh/helm/v4/pkg/storage"
	"helm.sh/helm/v4/pkg/storage/driver"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/resource"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// getter gives Helm its clients. They use the run's kubeconfig, and so go through the API
// proxy. A run asks once what the API server serves; the proxy has the answer cached.
type getter struct {
	config    clientcmd.ClientConfig
	rest      *rest.Config
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.ResettableRESTMapper
}

func newGetter(namespace string) (*getter, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: os.Getenv("KUBECONFIG")}
	g := &getter{config: clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: namespace},
	})}
	var err error
	if g.rest, err = g.config.ClientConfig(); err != nil {
		return nil, fmt.Errorf("KUBECONFIG: %w", err)
	}
	g.rest.QPS = -1
	g.rest.ContentType = runtime.ContentTypeJSON // the API proxy finds secret values in JSON, and then withholds nothing
	client, err := discovery.NewDiscoveryClientForConfig(g.rest)
	if err != nil {
		return nil, err
	}
	g.discovery = memory.NewMemCacheClient(client)
	g.mapper = restmapper.NewDeferredDiscoveryRESTMapper(g.discovery)
	return g, nil
}

func (g *getter) ToRESTConfig() (*rest.Config, error)           { return rest.CopyConfig(g.rest), nil }
func (g *getter) ToRESTMapper() (meta.RESTMapper, error)        { return g.mapper, nil }
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig { return g.config }
func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

// connect makes the clients and the configuration of Helm's actions.
func (h *handler) connect() error {
	g, err := newGetter(h.in.Object.GetNamespace())
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(g.rest)
	if err != nil {
		return err
	}
	kubeClient := kube.New(g)
	kubeClient.Namespace = h.in.Object.GetNamespace()
	h.rest, h.discovery, h.mapper = g.rest, g.discovery, g.mapper
	h.kube = &marking{Client: kubeClient, h: h}
	h.config = action.NewConfiguration()
	h.config.RESTClientGetter, h.config.KubeClient = g, h.kube
	listed := &listing{SecretInterface: client.CoreV1().Secrets(h.in.Object.GetNamespace())}
	h.records = &records{inMemory: &inMemory{}, secrets: driver.NewSecrets(listed), listed: listed}
	h.config.Releases = storage.Init(h.records)
	h.config.HookOutputFunc = func(string, string, string) io.Writer { return os.Stderr }
	return nil
}

// Marks of objects that belong to a release.
const (
	labelChart          = annotationPrefix + "chart"
	annotationOwner     = "operator-sdk/primary-resource"
	annotationOwnerType = "operator-sdk/primary-resource-type"
	annotationPolicy    = "helm.sh/resource-policy"
	annotationName      = "meta.helm.sh/release-name"
	annotationNamespace = "meta.helm.sh/release-namespace"
	labelManagedBy      = "app.kubernetes.io/managed-by"
	managedByHelm       = "Helm"
)

// marking is Helm's client, but marks the objects that it builds from a manifest as helm-operator does.
// Manifests in the storage have no marks.
type marking struct {
	*kube.Client
	h *handler
}

func (m *marking) Build(reader io.Reader, validate bool) (kube.ResourceList, error) {
	list, err := m.Client.Build(reader, validate)
	if err != nil {
		return nil, err
	}
	for _, info := range list {
		if err := m.h.mark(info); err != nil {
			return nil, fmt.Errorf("%s: %w", describe(info), err)
		}
	}
	return list, nil
}

// Delete is Helm's, with two differences. It keeps the errors, since Helm's uninstallation only says that it has failed. And
// Helm would delete any object with the name of a hook: if an object carries no mark of the release, Delete deletes nothing.
func (m *marking) Delete(resources kube.ResourceList, policy metav1.DeletionPropagation) (*kube.Result, []error) {
	if err := m.h.deletable(resources); err != nil {
		m.h.undeleted = err
		return nil, []error{err}
	}
	m.h.deleted = append(m.h.deleted, resources...)
	result, errs := m.Client.Delete(resources, policy)
	m.h.undeleted = errors.Join(errs...)
	return result, errs
}

// deletable returns an error for objects that others have made. Without an operator, objects carry no marks. A hook may have
// been left behind by an earlier object of that kind and name.
func (h *handler) deletable(list kube.ResourceList) error {
	if h.in.settings.TakeOwnership || h.in.Object.GetUID() == "" {
		return nil
	}
	return h.adoptable(list.Filter(func(info *resource.Info) bool {
		live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
		if err != nil {
			return true
		}
		is, err := meta.Accessor(live)
		return err != nil || is.GetDeletionTimestamp() == nil && !slices.ContainsFunc(is.GetOwnerReferences(), h.refersToName)
	}))
}

// refersToName reports whether an owner reference names the kind and name of the run's object.
func (h *handler) refersToName(ref metav1.OwnerReference) bool {
	owner, gv := &h.in.Object, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	return gv.GroupKind() == owner.GroupVersionKind().GroupKind() && ref.Name == owner.GetName()
}

// Update is Helm's, which deletes objects that only the previous revision has; Update spares those that bear another
// release's marks by now. What to remove from an object is known from the previous revision; if that is not trusted, labels,
// annotations and finalizers stay.
func (m *marking) Update(originals, targets kube.ResourceList, options ...kube.ClientUpdateOption) (*kube.Result, error) {
	originals = m.h.withoutTaken(originals, targets)
	if m.h.trusted {
		return m.update(originals, targets, options...)
	}
	for _, info := range originals {
		target := targets.Get(info)
		if target == nil {
			continue
		}
		was, err := meta.Accessor(info.Object)
		if err != nil {
			return &kube.Result{}, err
		}
		is, err := meta.Accessor(target.Object)
		if err != nil {
			return &kube.Result{}, err
		}
		was.SetLabels(is.GetLabels())
		was.SetAnnotations(is.GetAnnotations())
		was.SetFinalizers(is.GetFinalizers())
	}
	return m.update(originals, targets, options...)
}

// update is Helm's, and remembers the objects that it has made.
func (m *marking) update(originals, targets kube.ResourceList, options ...kube.ClientUpdateOption) (*kube.Result, error) {
	result, err := m.Client.Update(originals, targets, options...)
	if result != nil {
		m.h.made = append(m.h.made, result.Created...)
	}
	return result, err
}

// withoutTaken returns the originals, leaving out objects that leave the release and belong to another one by now. In a
// rollback, it also leaves out those that the upgrade may not have made: objects that it took over have the same marks. What
// another run made is not known.
func (h *handler) withoutTaken(originals, targets kube.ResourceList) kube.ResourceList {
	var left kube.ResourceList
	var taken, found, unread []string
	for _, info := range originals {
		if targets.Get(info) == nil {
			live, err := resource.NewHelper(info.Client, info.Mapping).Get(info.Namespace, info.Name)
			switch {
			case apierrors.IsNotFound(err):
				continue
			case err != nil: // Helm reads it again, and might delete it
				unread = append(unread, describe(info)+": "+cause(err).Error())
				continue
			case h.otherRelease(live) != "":
				taken = append(taken, describe(info))
				continue
			case h.restoring && (h.in.settings.TakeOwnership && h.made.Get(info) == nil || !h.carriesMarks(live)):
				found = append(found, describe(info))
				continue
			}
		}
		left = append(left, info)
	}
	h.leave(taken, "Objects that are no longer part of the release belong to another release by now; they are kept")
	h.leave(unread, "Objects that are no longer part of the release cannot be read, and may belong to another release by now; they are kept")
	h.leave(found, "Objects that may have existed before the failed upgrade are kept")
	return left
}

// otherRelease returns the release whose marks an object carries, if it is not this one; empty otherwise.
func (h *handler) otherRelease(live runtime.Object) string {
	obj, err := meta.Accessor(live)
	if err != nil {
		return ""
	}
	is := obj.GetAnnotations()
	if is[annotationName] == "" || is[annotationName] == h.name() && is[annotationNamespace] == h.in.Object.GetNamespace() {
		return ""
	}
	return is[annotationNamespace] + "/" + is[annotationName]
}

// mark puts the chart's label and the owner's mark on an object: an owner reference if
// that is allowed and the object is not to be kept, annotations otherwise.
func (h *handler) mark(info *resource.Info) error {
	obj, err := meta.Accessor(info.Object)
	if err != nil {
		return err
	}
	if h.chartName != "" {
		obj.SetLabels(with(obj.GetLabels(), map[string]string{labelChart: h.chartName}))
	}
	owner := &h.in.Object
	if owner.GetUID() == "" {
		return nil // the object is not in the cluster: a run without an operator
	}
	if info.Namespaced() && info.Namespace == owner.GetNamespace() && !kept(obj) {
		obj.SetOwnerReferences([]metav1.OwnerReference{h.in.owner()})
		return nil
	}
	obj.SetAnnotations(with(obj.GetAnnotations(), map[string]string{
		annotationOwner:     owner.GetNamespace() + "/" + owner.GetName(),
		annotationOwnerType: owner.GroupVersionKind().GroupKind().String(),
	}))
	return nil
}

func kept(obj metav1.Object) bool {
	return strings.EqualFold(strings.TrimSpace(obj.GetAnnotations()[annotationPolicy]), "keep")
}

// helmMarks puts Helm's own marks on an object, as Helm does in installs and upgrades.
func (h *handler) helmMarks(info *resource.Info) error {
	obj, err := meta.Accessor(info.Object)
	if err != nil {
		return err
	}
	obj.SetLabels(with(obj.GetLabels(), map[string]string{labelManagedBy: managedByHelm}))
	obj.SetAnnotations(with(obj.GetAnnotations(), map[string]string{
		annotationName: h.name(), annotationNamespace: h.in.Object.GetNamespace(),
	}))
	return nil
}

func with(is, more map[string]string) map[string]string {
	out := maps.Clone(is)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, more)
	return out
}

// describe names an object for people.
func describe(info *resource.Info) string {
	kind := "object"
	if info.Mapping != nil {
		kind = info.Mapping.GroupVersionKind.Kind
	}
	if info.Namespace == "" {
		return kind + " " + info.Name
	}
	return kind + " " + info.Namespace + "/" + info.Name
}

// cause returns an error without the address of the API proxy, which means nothing to people.
func cause(err error) error {
	if of, ok := err.(*url.Error); ok { //nolint:errorlint // the outermost only
		return of.Err
	}
	return err
}
