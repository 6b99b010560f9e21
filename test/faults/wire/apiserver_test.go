package wire_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/rolewright/rolewright/test/faults/plan"
	"github.com/rolewright/rolewright/test/faults/wire"
	"github.com/rolewright/rolewright/test/testenv"
)

func clientset(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// place is a namespace, seen directly and through a proxy with a rule.
type place struct {
	*testing.T
	namespace       string
	proxy           *wire.Proxy
	direct, through kubernetes.Interface
}

func newPlace(t *testing.T, rules ...plan.Rule) *place {
	t.Helper()
	cfg := testenv.Config(t)
	p, via := proxied(t, cfg, wire.Options{Rules: rules})
	return &place{T: t, namespace: testenv.Namespace(t, cfg), proxy: p, direct: clientset(t, cfg), through: clientset(t, via)}
}

func (p *place) create(c kubernetes.Interface, name string) error {
	p.Helper()
	_, err := c.CoreV1().ConfigMaps(p.namespace).Create(p.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	return err
}

func (p *place) patch(c kubernetes.Interface, name, value string) error {
	p.Helper()
	_, err := c.CoreV1().ConfigMaps(p.namespace).Patch(p.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"v":%q}}`, value), metav1.PatchOptions{})
	return err
}

// must is for what the test only prepares.
func (p *place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// seen is what an informer tells its client.
type seen struct {
	recorder
	store cache.Store
	stop  func()
}

func (p *place) informer() *seen {
	p.Helper()
	s := &seen{}
	factory := informers.NewSharedInformerFactoryWithOptions(p.through, 0, informers.WithNamespace(p.namespace))

	informer := factory.Core().V1().ConfigMaps().Informer()
	say := func(what string, object any) {
		if m, ok := object.(*corev1.ConfigMap); ok && m.Name != "kube-root-ca.crt" {
			s.add(what + " " + m.Name + m.Data["v"])
		}
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { say("add", o) },
		UpdateFunc: func(_, o any) { say("update", o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				say("miss", unknown.Obj)
				return
			}
			say("delete", o)
		},
	})
	p.must(err)
	ctx, cancel := context.WithCancel(p.Context())
	factory.StartWithContext(ctx)
	s.store = informer.GetStore()
	s.stop = sync.OnceFunc(func() { cancel(); factory.Shutdown() })
	p.Cleanup(s.stop)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		p.Fatal("the informer does not sync")
	}
	return s
}

func (p *place) until(what string, done func() bool) {
	p.Helper()
	testenv.Eventually(p, what, func(context.Context) error {
		if !done() {
			return errors.New("not yet")
		}
		return nil
	})
}

func (p *place) untilSaid(s *seen, want string) {
	p.Helper()
	testenv.Eventually(p, "the informer to say "+want, func(context.Context) error {
		if all := s.all(); all != want {
			return fmt.Errorf("it says %s", all)
		}
		return nil
	})
}

// Both are written, whatever the client hears of it: also by the encoding that typed clients may use.
func TestAPIServer_WriteWhoseAnswerIsLostIsCommitted(t *testing.T) {
	t.Parallel()
	for _, do := range []plan.Do{plan.TimeoutAfterCommit, plan.ResetAfter} {
		t.Run(string(do), func(t *testing.T) {
			t.Parallel()
			cfg := testenv.Config(t)
			p, via := proxied(t, cfg, wire.Options{Rules: []plan.Rule{rule(plan.Match{Verb: "create", Resource: "configmaps"}, plan.Action{Do: do})}})
			via.ContentType, via.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
			at := &place{T: t, namespace: testenv.Namespace(t, cfg), proxy: p, direct: clientset(t, cfg), through: clientset(t, via)}
			err := at.create(at.through, "one")
			if do == plan.TimeoutAfterCommit && !apierrors.IsTimeout(err) || err == nil {
				t.Errorf("error %v", err)
			}
			if err := at.create(at.through, "one"); !apierrors.IsAlreadyExists(err) {
				t.Errorf("error %v, want that it exists", err)
			}
		})
	}
}

// What is dropped is unknown to the informer until it lists again; what else happens it hears of.
func TestAPIServer_InformerMissesADeletionUntilItListsAgain(t *testing.T) {
	t.Parallel()
	p := newPlace(t, rule(plan.Match{Verb: "watch", Resource: "configmaps", Name: "one", Event: "DELETED"}, plan.Action{Do: plan.DropEvent}))
	p.must(p.create(p.direct, "one"))
	s := p.informer()
	p.must(p.direct.CoreV1().ConfigMaps(p.namespace).Delete(t.Context(), "one", metav1.DeleteOptions{}))
	p.must(p.create(p.direct, "two"))
	p.untilSaid(s, "add one, add two")
	p.proxy.Quiet()
	p.until("the informer to miss the object", func() bool { return strings.Contains(s.all(), "miss one") })
	if n := p.proxy.Unreached(); len(n) > 0 {
		t.Errorf("unreached: %v", n)
	}
}

// A client that begins again begins with the state before the last change, and then goes on to the present one.
func TestAPIServer_NewInformerBeginsInThePast(t *testing.T) {
	t.Parallel()
	p := newPlace(t, rule(plan.Match{Verb: "watch", Resource: "configmaps"}, plan.Action{Do: plan.Stale}))
	p.must(p.create(p.direct, "one"))
	first := p.informer()
	p.must(p.patch(p.direct, "one", "1"))
	p.untilSaid(first, "add one, update one1")
	first.stop()
	p.must(p.patch(p.direct, "one", "2"))
	p.must(p.create(p.direct, "two"))
	second := p.informer()
	if got := second.all(); got != "add one1" && got != "" { // handlers hear of it a moment later
		t.Errorf("the second informer begins with %s", got)
	}
	p.untilSaid(second, "add one1")
	p.proxy.Quiet()
	p.until("the second informer to see the present", func() bool { // it may have to list again, in any order
		return strings.Contains(second.all(), "update one2") && strings.Contains(second.all(), "add two")
	})
	if fired := p.proxy.Fired(); len(fired) != 1 || fired[0].Do != plan.Stale {
		t.Errorf("fired %+v", fired)
	}
}

// The same for a client that lists in the plain way.
func TestAPIServer_ListOfThePast(t *testing.T) {
	t.Parallel()
	p := newPlace(t, rule(plan.Match{Verb: "list", Resource: "configmaps"}, plan.Action{Do: plan.Stale}))
	names := func() []string {
		list, err := p.through.CoreV1().ConfigMaps(p.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name!=kube-root-ca.crt"})
		p.must(err)
		is := []string{}
		for _, m := range list.Items {
			is = append(is, m.Name)
		}
		return is
	}
	if got := names(); len(got) != 0 {
		t.Errorf("first %v", got)
	}
	p.must(p.create(p.direct, "one"))
	if got := names(); len(got) != 0 {
		t.Errorf("then %v, want what there was", got)
	}
	if got := names(); !slices.Equal(got, []string{"one"}) {
		t.Errorf("last %v", got)
	}
}
