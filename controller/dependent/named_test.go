package dependent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/rolewright/rolewright/internal/discovery"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// follower receives what is reported to someone who follows a resource by name.
type follower struct {
	*Named
	w *world

	mu    sync.Mutex
	known int
	told  []string
}

// follow follows a resource until the test ends.
func (w *world) follow(resource schema.GroupVersionResource) *follower {
	fo := &follower{w: w}
	named := w.registry.Named(resource, NamedOptions{
		Changed: func(id types.NamespacedName, v Version, exists bool) { fo.tell(id.Name, v, exists) },
		Known: func() {
			fo.mu.Lock()
			defer fo.mu.Unlock()
			fo.known++
		},
	})
	fo.Named = named
	w.t.Cleanup(named.Close)
	testenv.Eventually(w.t, "all objects known", func(context.Context) error {
		fo.mu.Lock()
		defer fo.mu.Unlock()
		if fo.known != 1 {
			return fmt.Errorf("told so %d times", fo.known)
		}
		return nil
	})
	return fo
}

func (fo *follower) tell(name string, v Version, exists bool) {
	if name == "kube-root-ca.crt" {
		return // the cluster creates it in each namespace
	}
	fo.mu.Lock()
	defer fo.mu.Unlock()
	what := name + " gone"
	if exists {
		what = name + " " + v.Labels["a"]
	}
	fo.told = append(fo.told, what)
}

// await waits until this many changes were reported, and fails if they are others. They are sorted, because a list has no
// order.
func (fo *follower) await(want ...string) {
	fo.w.t.Helper()
	var told []string
	testenv.Eventually(fo.w.t, "changes told", func(context.Context) error {
		fo.mu.Lock()
		defer fo.mu.Unlock()
		if told = slices.Sorted(slices.Values(fo.told)); len(told) < len(want) {
			return fmt.Errorf("told of %v", told)
		}
		return nil
	})
	must.Be(fo.w.t, "changes", want, told)
}

// label changes the label a of a ConfigMap.
func (w *world) label(name, value string) {
	w.t.Helper()
	if _, err := w.client.CoreV1().ConfigMaps(w.namespace).Patch(w.t.Context(), name, types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"labels":{"a":%q}}}`, value), metav1.PatchOptions{}); err != nil {
		w.t.Fatalf("label ConfigMap %s: %v", name, err)
	}
}

func TestNamed_TellsOfChangesAfterTheFirstListOnly(t *testing.T) {
	t.Parallel()
	cfg, wire := wired(testenv.Config(t))
	w := newWorld(t, testenv.CRD(t, cfg), as(cfg))
	for _, name := range []string{"there", "removed"} {
		w.configMap(metav1.ObjectMeta{Name: name})
	}
	all := w.follow(configMaps)
	if _, exists, known := all.Version(w.name("there")); !exists || !known {
		t.Errorf("what was there: exists %v, known %v", exists, known)
	}
	w.await(configMaps)
	w.configMap(metav1.ObjectMeta{Name: "new", Labels: map[string]string{"a": "1"}})
	w.label("new", "2")
	w.deleteConfigMap("new")
	all.await("new 1", "new 2", "new gone")

	second := w.follow(configMaps) // with the same watch
	wire.cut(http.StatusGone)
	w.label("there", "3")
	w.deleteConfigMap("removed")
	wire.awaitRefusal(t)
	wire.restore()
	second.await("removed gone", "there 3")
	second.Close()
	w.label("there", "4")
	all.await("new 1", "new 2", "new gone", "removed gone", "there 3", "there 4")
	second.await("removed gone", "there 3")
}

// A kind that is not installed has no objects. Objects that are created after its installation are reported.
func TestNamed_FollowsAKindThatIsInstalledLater(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	installed := true // when it is looked up the first time
	w := newWorld(t, testenv.CRD(t, cfg), func(_ *world, o *Options, _ *OwnerKind) {
		later := o.Lookup
		o.Lookup = func(ctx context.Context, r schema.GroupVersionResource) (discovery.Resource, error) {
			if installed {
				installed = false
				return lookup(ctx, r)
			}
			return later(ctx, r)
		}
	})
	group := testenv.Random("later-") + ".example.com"
	widgets := schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: "widgets"}
	all := w.follow(widgets)
	gvk := testenv.CRD(t, cfg, testenv.WithGroup(group))
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(gvk)
	o.SetName("object")
	o.SetLabels(map[string]string{"a": "1"})
	if _, err := w.dynamic.Resource(gvk.GroupVersion().WithResource("widgets")).Namespace(w.namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the object: %v", err)
	}
	all.await("object 1")
}

// If the resource is removed while the watch is broken, all its objects are reported as gone.
func TestNamed_ObjectsGoWithTheirKind(t *testing.T) {
	r := New(Options{})
	var told []string
	n := r.Named(configMaps, NamedOptions{
		Changed: func(id types.NamespacedName, _ Version, exists bool) { told = append(told, fmt.Sprint(id, exists)) }, Known: func() {},
	})
	s := n.feed.begin("ConfigMap", true)[0]
	id := types.NamespacedName{Namespace: "ns", Name: "it"}
	must.Do(t, s.take(found{all: map[types.NamespacedName]Version{id: {UID: "u", ResourceVersion: "1"}}}, n.feed.wanted))
	s.deny(apierrors.NewForbidden(configMaps.GroupResource(), "", nil))
	if _, exists, known := n.Version(id); !exists || !known {
		t.Errorf("without permission: exists %v, known %v", exists, known)
	}
	s.deny(apierrors.NewNotFound(configMaps.GroupResource(), ""))
	if _, exists, known := n.Version(id); exists || !known {
		t.Errorf("without the kind: exists %v, known %v", exists, known)
	}
	must.Be(t, "what is told", []string{"ns/it false"}, told)
}

// A namespace that may not be listed blocks only those who ask for its objects.
func TestNamed_ANamespaceThatMayNotBeListed(t *testing.T) {
	for name, deniedFirst := range map[string]bool{"denied before the other is listed": true, "denied after it": false} {
		t.Run(name, func(t *testing.T) {
			r := New(Options{Namespaces: []string{"a", "b"}})
			known := 0
			n := r.Named(configMaps, NamedOptions{Changed: func(types.NamespacedName, Version, bool) {}, Known: func() { known++ }})
			streams := n.feed.begin("ConfigMap", true)
			list := func(s *stream) {
				id := types.NamespacedName{Namespace: s.namespace, Name: "it"}
				must.Do(t, s.take(found{all: map[types.NamespacedName]Version{id: {UID: "u", ResourceVersion: "1"}}}, n.feed.wanted))
			}
			check := func(want int, a, b bool) {
				t.Helper()
				must.Be(t, "how often it is told that all are known", want, known)
				for namespace, want := range map[string]bool{"a": a, "b": b} {
					_, exists, is := n.Version(types.NamespacedName{Namespace: namespace, Name: "it"})
					must.Be(t, "what is known of "+namespace, []bool{want, want, want}, []bool{exists, is, n.Knows(namespace)})
				}
			}
			steps := []func(){func() { streams[1].deny(apierrors.NewForbidden(configMaps.GroupResource(), "", nil)) }, func() { list(streams[0]) }}
			if !deniedFirst {
				slices.Reverse(steps)
			}
			steps[0]()
			must.Be(t, "how often it is told too early", 0, known)
			steps[1]()
			check(1, true, false)
			list(streams[1])
			check(2, true, true)
		})
	}
}

// If the API server fails to list objects, what waits for them is told why, and learns when they are known.
func TestNamed_TellsThatListsFail(t *testing.T) {
	r := New(Options{Namespaces: []string{"a", "b"}})
	refusals, known := 0, 0
	n := r.Named(configMaps, NamedOptions{
		Changed: func(types.NamespacedName, Version, bool) {}, Known: func() { known++ }, Refused: func() { refusals++ },
	})
	streams := n.feed.begin("ConfigMap", true)
	must.Do(t, streams[0].take(found{all: map[types.NamespacedName]Version{}}, n.feed.wanted))
	s := streams[1]
	s.judge(t.Context(), apierrors.NewInternalError(errors.New("no\nanswer")))
	must.Be(t, "why, at first", "", n.Refused())
	s.failing = s.failing.Add(-settled)
	s.judge(t.Context(), apierrors.NewInternalError(errors.New("no\nanswer")))
	s.judge(t.Context(), apierrors.NewInternalError(errors.New("another")))
	must.Be(t, "why", "the API server cannot list or watch them; the log of the operator says why", n.Refused())
	must.Be(t, "how often it is told", []int{1, 0}, []int{refusals, known})
	must.Do(t, s.take(found{all: map[types.NamespacedName]Version{}}, n.feed.wanted))
	s.opened(configMaps, n.feed.wanted)
	must.Be(t, "why, once the list works", "", n.Refused())
	must.Be(t, "how often it is told then", []int{2, 1}, []int{refusals, known})
	s.failing = time.Now().Add(-settled)
	s.judge(t.Context(), apierrors.NewInternalError(errors.New("an outage")))
	must.Be(t, "why, of known objects", "", n.Refused())
}

// Answers that there is no such resource change nothing for some seconds: an API server that has just started may give them.
func TestNamed_AKindIsGoneAfterAWhile(t *testing.T) {
	served := true
	r := New(Options{Lookup: func(ctx context.Context, gvr schema.GroupVersionResource) (discovery.Resource, error) {
		if !served {
			return discovery.Resource{}, discovery.ErrNotFound
		}
		return lookup(ctx, gvr)
	}})
	n := r.Named(configMaps, NamedOptions{Changed: func(types.NamespacedName, Version, bool) {}, Known: func() {}})
	s := n.feed.begin("ConfigMap", true)[0]
	id := types.NamespacedName{Namespace: "ns", Name: "it"}
	must.Do(t, s.take(found{all: map[types.NamespacedName]Version{id: {UID: "u", ResourceVersion: "1"}}}, n.feed.wanted))
	notFound := apierrors.NewNotFound(configMaps.GroupResource(), "")
	for i, step := range []struct {
		err    error
		after  time.Duration
		served bool
		exists bool
	}{
		{notFound, 0, false, true}, {nil, absentFor, false, true}, {notFound, 0, false, true}, {notFound, absentFor / 2, false, true},
		{notFound, absentFor, true, true}, {notFound, 0, false, false},
	} {
		served = step.served
		s.missing = s.missing.Add(-step.after)
		s.judge(t.Context(), step.err)
		if _, exists, known := n.Version(id); exists != step.exists || !known {
			t.Errorf("after answer %d: exists %v, known %v", i, exists, known)
		}
	}
}
