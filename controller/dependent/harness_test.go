package dependent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
)

// lookup finds resources of these tests without an API server.
func lookup(_ context.Context, r schema.GroupVersionResource) (discovery.Resource, error) {
	kind := map[string]string{"configmaps": "ConfigMap", "deployments": "Deployment", "widgets": "Widget"}[r.Resource]
	if kind == "" {
		return discovery.Resource{}, errors.New("no such resource")
	}
	return discovery.Resource{GVR: r, Kind: kind, Namespaced: true}, nil
}

// discover returns a function that looks resources up in the API server.
func discover(t *testing.T, cfg *rest.Config) func(context.Context, schema.GroupVersionResource) (discovery.Resource, error) {
	t.Helper()
	transport := must.Get(rest.TransportFor(cfg))(t)
	server, _, err := rest.DefaultServerUrlFor(cfg)
	must.Do(t, err)
	return discovery.New(transport, server, logr.Discard()).LookupAnyVersion
}

// world is a namespace with owners, and a registry that watches it.
type world struct {
	t         *testing.T
	cfg       *rest.Config
	namespace string
	gvk       schema.GroupVersionKind
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	registry  *Registry
	kind      *Kind

	mu             sync.Mutex
	told           []string // names of owners, in order
	uids           []types.UID
	otherNamespace bool     // of the last one
	lines          []string // of the log
}

// setting changes how a world is created.
type setting func(*world, *Options, *OwnerKind)

func withStatus(_ *world, _ *Options, k *OwnerKind)        { k.Status = true }
func withClusterScoped(_ *world, _ *Options, k *OwnerKind) { k.ClusterScoped = true }
func everywhere(_ *world, o *Options, _ *OwnerKind)        { o.Namespaces = nil }

// as makes the registry use another configuration for its requests.
func as(cfg *rest.Config) setting {
	return func(w *world, o *Options, _ *OwnerKind) {
		client, err := metadata.NewForConfig(cfg)
		if err != nil {
			w.t.Fatalf("make a client for metadata: %v", err)
		}
		o.Client = client
	}
}

func newWorld(t *testing.T, gvk schema.GroupVersionKind, settings ...setting) *world {
	t.Helper()
	cfg := testenv.Config(t)
	w := &world{
		t: t, cfg: cfg, namespace: testenv.Namespace(t, cfg), gvk: gvk,
		client: kubernetes.NewForConfigOrDie(cfg), dynamic: dynamic.NewForConfigOrDie(cfg),
	}
	options := Options{
		Client: metadata.NewForConfigOrDie(cfg), Content: w.dynamic, Lookup: discover(t, cfg),
		Namespaces: []string{w.namespace}, Idle: time.Hour, Log: w.log(),
	}
	spec := OwnerKind{GVK: gvk, Namespaced: true, Changed: func(owner types.NamespacedName, uid types.UID, _ string, otherNamespace bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.told, w.uids, w.otherNamespace = append(w.told, owner.Name), append(w.uids, uid), otherNamespace
	}}
	for _, set := range settings {
		set(w, &options, &spec)
	}
	w.registry = New(options)
	w.registry.denied = time.Second
	w.registry.readers = 1 // in order, so that the answer to one event shows that all earlier events were handled
	w.kind = w.registry.Subscribe(spec)
	w.start()
	return w
}

// marks returns the UIDs that were reported.
func (w *world) marks() []types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.uids)
}

// log keeps the lines: they are part of the contract.
func (w *world) log() logr.Logger {
	return funcr.New(func(_, line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.lines = append(w.lines, line)
	}, funcr.Options{Verbosity: 1})
}

func (w *world) start() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error)
	go func() { done <- w.registry.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Start returned %v", err)
		}
	})
}

// owner creates a custom resource, so that what it owns is not garbage-collected.
func (w *world) owner(name string) *unstructured.Unstructured {
	w.t.Helper()
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(w.gvk)
	o.SetName(name)
	resource := w.gvk.GroupVersion().WithResource("widgets")
	made, err := w.dynamic.Resource(resource).Namespace(w.namespace).Create(w.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatalf("create owner %s: %v", name, err)
	}
	return made
}

// begin begins a run of an owner, whose UID is derived from its name.
func (w *world) begin(owner string) *Run { return w.kind.Begin(w.name(owner), runUID(owner)) }

func runUID(owner string) types.UID { return types.UID("run of " + owner) }

func (w *world) name(owner string) types.NamespacedName {
	return types.NamespacedName{Namespace: w.namespace, Name: owner}
}

// ownedBy returns the metadata of an object that belongs to an owner.
func ownedBy(owner *unstructured.Unstructured, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: []metav1.OwnerReference{{
		APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(),
	}}}
}

// configMap creates a ConfigMap.
func (w *world) configMap(meta metav1.ObjectMeta) *corev1.ConfigMap {
	w.t.Helper()
	made, err := w.client.CoreV1().ConfigMaps(w.namespace).Create(w.t.Context(),
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"key": "first"}}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatalf("create ConfigMap %s: %v", meta.Name, err)
	}
	return made
}

// metadataOfConfigMaps returns what a list of ConfigMaps shows now.
func (w *world) metadataOfConfigMaps() *metav1.PartialObjectMetadataList {
	w.t.Helper()
	list, err := metadata.NewForConfigOrDie(w.cfg).Resource(configMaps).Namespace(w.namespace).List(w.t.Context(), metav1.ListOptions{})
	if err != nil {
		w.t.Fatalf("list ConfigMaps: %v", err)
	}
	list.APIVersion, list.Kind = "meta.k8s.io/v1", "PartialObjectMetadataList" // the client leaves out these fields
	return list
}

// set changes the data of a ConfigMap.
func (w *world) set(name, value string) *corev1.ConfigMap {
	w.t.Helper()
	made, err := w.client.CoreV1().ConfigMaps(w.namespace).Patch(w.t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"data":{"key":%q}}`, value), metav1.PatchOptions{FieldManager: "another"})
	if err != nil {
		w.t.Fatalf("change ConfigMap %s: %v", name, err)
	}
	return made
}

func (w *world) deleteConfigMap(name string) {
	w.t.Helper()
	if err := w.client.CoreV1().ConfigMaps(w.namespace).Delete(w.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.t.Fatalf("delete ConfigMap %s: %v", name, err)
	}
}

// child returns what the proxy reports of an object.
func child(resource schema.GroupVersionResource, o metav1.Object) proxy.Child {
	return proxy.Child{
		Resource: resource, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(),
	}
}

// restore makes owners own objects of a resource, and waits for the watch.
func (w *world) restore(resource schema.GroupVersionResource, owners ...string) {
	w.t.Helper()
	for _, owner := range owners {
		w.kind.Restore(w.name(owner), []schema.GroupVersionResource{resource})
	}
	w.await(resource)
}

// await waits until the watch works.
func (w *world) await(resource schema.GroupVersionResource) {
	w.t.Helper()
	testenv.Eventually(w.t, "a watch of "+resource.Resource, func(context.Context) error {
		for _, r := range w.registry.Watching() {
			if r == resource {
				return nil
			}
		}
		return fmt.Errorf("only %v are watched", w.registry.Watching())
	})
}

// awaitSeen waits until a version of an object was handled.
func (w *world) awaitSeen(resource schema.GroupVersionResource, o metav1.Object) {
	w.t.Helper()
	testenv.Eventually(w.t, "the event of "+o.GetName(), func(context.Context) error {
		w.registry.mu.Lock()
		defer w.registry.mu.Unlock()
		f := w.registry.feeds[resource.GroupResource()]
		if f == nil || !f.seen(idOf(o), o.GetResourceVersion()) {
			return errors.New("not seen")
		}
		return nil
	})
}

// awaitTold waits until an owner was reported, and returns how often each owner was until then.
func (w *world) awaitTold(owner string) map[string]int {
	w.t.Helper()
	testenv.Eventually(w.t, "a change for "+owner, func(context.Context) error {
		if w.tally()[owner] == 0 {
			return errors.New("not told")
		}
		return nil
	})
	return w.tally()
}

func (w *world) tally() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	tally := map[string]int{}
	for _, owner := range w.told {
		tally[owner]++
	}
	return tally
}

// holdLists holds back the answers to lists until the returned function is called.
func (wi *wire) holdLists() (release func()) {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.hold = make(chan struct{})
	hold := wi.hold
	return func() {
		wi.mu.Lock()
		defer wi.mu.Unlock()
		wi.hold = nil
		close(hold)
	}
}

// wire is a connection that a test can cut.
type wire struct {
	next http.RoundTripper
	// kept receives a value for every answer that is held back.
	kept chan struct{}

	mu sync.Mutex
	// refuse is the code with which watch requests are answered; 0 lets them through.
	refuse int
	// refusals counts the refused watch requests.
	refusals int
	// forgotten are the resource versions that were refused as gone. They stay refused.
	forgotten map[string]bool
	open      []io.Closer
	// hold holds back the answers to lists until it is closed; nil lets them through.
	hold chan struct{}
	// old is the answer to the next lists instead of the real one, and oldLists how many lists get it.
	old      []byte
	oldLists int
}

// answer makes the next lists show what an earlier list has shown, like a faulty API server: a correct one shows nothing
// older than what the client has seen. The returned function waits until that was done.
func (wi *wire) answer(t *testing.T, old []byte, lists int) (done func()) {
	t.Helper()
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.old, wi.oldLists = old, lists
	return func() {
		testenv.Eventually(t, "lists that are answered with an old one", func(context.Context) error {
			wi.mu.Lock()
			defer wi.mu.Unlock()
			if wi.oldLists > 0 {
				return fmt.Errorf("%d are still to come", wi.oldLists)
			}
			return nil
		})
	}
}

// wired returns a copy of cfg whose requests go through a wire.
func wired(cfg *rest.Config) (*rest.Config, *wire) {
	wi := &wire{kept: make(chan struct{}), forgotten: map[string]bool{}}
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
		wi.next = next
		return wi
	})
	return cfg, wi
}

func (wi *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	watches, version := query.Get("watch") == "true", query.Get("resourceVersion")
	wi.mu.Lock()
	refuse := wi.refuse
	if watches && refuse == http.StatusGone {
		wi.forgotten[version] = true
	} else if watches && wi.forgotten[version] {
		refuse = http.StatusGone
	}
	if watches && refuse != 0 {
		wi.refusals++
	}
	hold := wi.hold
	var old []byte
	if !watches && wi.oldLists > 0 {
		old = wi.old
		wi.oldLists--
	}
	wi.mu.Unlock()
	if old != nil {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(old)), Request: req,
		}, nil
	}
	if watches && refuse != 0 {
		return &http.Response{
			StatusCode: refuse, Header: http.Header{"Content-Type": {"text/plain"}}, Body: http.NoBody, Request: req,
		}, nil
	}
	resp, err := wi.next.RoundTrip(req)
	if hold != nil && !watches {
		select {
		case wi.kept <- struct{}{}:
		case <-hold:
		}
		<-hold
	}
	if err == nil && watches {
		wi.mu.Lock()
		wi.open = append(wi.open, resp.Body)
		wi.mu.Unlock()
	}
	return resp, err
}

// cut ends all watches, and answers new ones with a code. 0 lets them through again.
func (wi *wire) cut(code int) {
	wi.mu.Lock()
	defer wi.mu.Unlock()
	wi.refuse = code
	for _, body := range wi.open {
		_ = body.Close() // what is cut has an error to say
	}
	wi.open = nil
}

func (wi *wire) restore() { wi.cut(0) }

// awaitRefusal waits until another watch was refused.
func (wi *wire) awaitRefusal(t *testing.T) {
	t.Helper()
	count := func() int {
		wi.mu.Lock()
		defer wi.mu.Unlock()
		return wi.refusals
	}
	before := count()
	testenv.Eventually(t, "a refused watch", func(context.Context) error {
		if count() == before {
			return errors.New("there was none")
		}
		return nil
	})
}

// Owned is owned with the lock.
func (k *Kind) Owned(name types.NamespacedName) []schema.GroupVersionResource {
	k.registry.mu.Lock()
	defer k.registry.mu.Unlock()
	return k.owned(name)
}
