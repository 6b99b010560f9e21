package dependent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// quiet and told say what is reported to an owner in a case.
const (
	quiet = false
	told  = true
)

func TestRegistry_TellsAnOwnerOfWhatOthersDoToItsConfigMaps(t *testing.T) {
	t.Parallel()
	gvk := testenv.CRD(t, testenv.Config(t))
	apply := func(manager, value string) func(*world) {
		return func(w *world) {
			body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"object"},"data":{"key":%q}}`, value)
			force := true
			if _, err := w.client.CoreV1().ConfigMaps(w.namespace).Patch(t.Context(), "object", types.ApplyPatchType, []byte(body),
				metav1.PatchOptions{FieldManager: manager, Force: &force}); err != nil {
				t.Errorf("apply: %v", err)
			}
		}
	}
	patch := func(body string) func(*world) {
		return func(w *world) {
			if _, err := w.client.CoreV1().ConfigMaps(w.namespace).Patch(t.Context(), "object", types.MergePatchType, []byte(body),
				metav1.PatchOptions{}); err != nil {
				t.Errorf("patch: %v", err)
			}
		}
	}
	tests := []struct {
		name string
		do   func(*world) // to the object
		want bool
	}{
		{name: "nothing", do: func(*world) {}, want: quiet},
		{name: "other data", do: func(w *world) { w.set("object", "second") }, want: told},
		{name: "another label", do: patch(`{"metadata":{"labels":{"a":"b"}}}`), want: told},
		{name: "another annotation", do: patch(`{"metadata":{"annotations":{"a":"b"}}}`), want: told},
		{name: "the mark taken off", do: patch(`{"metadata":{"ownerReferences":null}}`), want: told},
		{name: "the same values applied by another manager", do: apply("another", "first"), want: quiet},
		{name: "other values applied by another manager", do: apply("another", "second"), want: told},
		{name: "deleted", do: func(w *world) { w.deleteConfigMap("object") }, want: told},
		{
			name: "kept by a finalizer while it is deleted", want: quiet,
			do: func(w *world) { w.deleteConfigMap("finalized") },
		},
		{
			name: "another object created",
			do:   func(w *world) { w.configMap(w.created("object").meta("more")) }, want: quiet,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, gvk)
			owner, witness := w.owner("owner"), w.owner("witness")
			w.configMap(ownedBy(owner, "object"))
			w.configMap(ownedBy(witness, "witness"))
			finalized := ownedBy(owner, "finalized")
			finalized.Finalizers = []string{"rolewright.test/keep"}
			w.configMap(finalized)
			t.Cleanup(func() {
				_, _ = w.client.CoreV1().ConfigMaps(w.namespace).Patch(context.WithoutCancel(t.Context()), "finalized",
					types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			})
			w.restore(configMaps, "owner", "witness")

			tt.do(w)
			w.set("witness", "second") // comes after, and is read after
			want := map[string]int{"witness": 1}
			if tt.want {
				want["owner"] = 1
			}
			must.Be(t, "owners told", want, w.awaitTold("witness"))
		})
	}
}

// made is an object that exists.
type made struct{ object *corev1.ConfigMap }

func (w *world) created(name string) made {
	w.t.Helper()
	object, err := w.client.CoreV1().ConfigMaps(w.namespace).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatalf("get ConfigMap %s: %v", name, err)
	}
	return made{object}
}

// meta belongs to another object of the same owner.
func (m made) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, OwnerReferences: m.object.OwnerReferences}
}

func TestRegistry_CountsTwoWritesOfOneManagerWithinASecond(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testenv.CRD(t, testenv.Config(t)))
	w.configMap(ownedBy(w.owner("owner"), "object"))
	w.restore(configMaps, "owner")
	before, writes := w.set("object", "0"), 1
	for same := false; !same; writes++ {
		after := w.set("object", fmt.Sprint(writes))
		same = cmp.Equal(before.ManagedFields, after.ManagedFields) // then the metadata says nothing about it
		before = after
	}
	testenv.Eventually(t, "every write told", func(context.Context) error {
		if got := w.tally()["owner"]; got < writes {
			return fmt.Errorf("%d of %d told", got, writes)
		}
		return nil
	})
}

func TestRun_OwnWritesAreNotNews(t *testing.T) {
	t.Parallel()
	gvk := testenv.CRD(t, testenv.Config(t))
	tests := []struct {
		name string
		do   func(*world, *Run) // between Begin and End of a run that knows the object
		want bool
	}{
		{
			name: "an answer that comes before the event", want: quiet,
			do: func(w *world, r *Run) { r.Wrote(child(configMaps, w.set("object", "own"))) },
		},
		{
			name: "an answer that comes after the event", want: quiet,
			do: func(w *world, r *Run) {
				o := w.set("object", "own")
				w.awaitSeen(configMaps, o)
				r.Wrote(child(configMaps, o))
			},
		},
		{
			name: "several answers that come after their events", want: quiet,
			do: func(w *world, r *Run) {
				a, b := w.set("object", "own"), w.set("object", "own too")
				w.awaitSeen(configMaps, b)
				r.Wrote(child(configMaps, b))
				r.Wrote(child(configMaps, a))
			},
		},
		{
			name: "an answer to a write of a subresource", want: quiet,
			do: func(w *world, r *Run) {
				c := child(configMaps, w.set("object", "own"))
				c.Subresource = "scale" // a ConfigMap has none; what was written is the same to the watch
				r.Wrote(c)
			},
		},
		{
			name: "a write without an answer", want: told,
			do: func(w *world, _ *Run) { w.awaitSeen(configMaps, w.set("object", "foreign")) },
		},
		{
			name: "a foreign write after an own one", want: told,
			do: func(w *world, r *Run) {
				o := w.set("object", "own")
				w.awaitSeen(configMaps, w.set("object", "foreign"))
				r.Wrote(child(configMaps, o))
			},
		},
		{
			name: "a foreign write that was undone", want: told,
			do: func(w *world, r *Run) {
				w.awaitSeen(configMaps, w.set("object", "foreign"))
				r.Wrote(child(configMaps, w.set("object", "own")))
			},
		},
		{
			name: "a deletion that is answered before the event", want: quiet,
			do: func(w *world, r *Run) {
				o := w.created("object").object
				r.Deleted(child(configMaps, o))
				w.deleteConfigMap("object")
			},
		},
		{
			name: "a deletion that is answered after the event", want: quiet,
			do: func(w *world, r *Run) {
				o := w.created("object").object
				w.deleteConfigMap("object")
				w.awaitSeen(configMaps, w.set("witness", "not yet"))
				r.Deleted(child(configMaps, o))
			},
		},
		{
			name: "an object deleted and made again", want: quiet,
			do: func(w *world, r *Run) {
				o := w.created("object")
				w.deleteConfigMap("object")
				r.Deleted(child(configMaps, o.object))
				next := w.configMap(o.meta("object"))
				w.awaitSeen(configMaps, next)
				r.Wrote(child(configMaps, next))
			},
		},
		{
			name: "a foreign deletion during the run", want: told,
			do: func(w *world, _ *Run) {
				w.deleteConfigMap("object")
				w.awaitSeen(configMaps, w.set("witness", "not yet"))
			},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, gvk)
			object := w.configMap(ownedBy(w.owner("owner"), "object"))
			w.configMap(ownedBy(w.owner("witness"), "witness"))
			w.restore(configMaps, "owner", "witness")

			other := w.begin("witness") // it reports nothing meanwhile
			run := w.begin("owner")
			run.Expect(child(configMaps, object))
			tt.do(w, run)
			if n := w.tally()["owner"]; n != 0 {
				t.Errorf("the owner was told %d times during its run", n)
			}
			run.End()
			w.awaitSeen(configMaps, w.set("witness", "now"))
			other.End()
			want := map[string]int{"witness": w.awaitTold("witness")["witness"]}
			if tt.want {
				want["owner"] = 1
			}
			must.Be(t, "owners told", want, w.tally())
			w.assertSettled()
		})
	}
}

// assertSettled fails if what runs did is remembered for longer than necessary.
func (w *world) assertSettled() {
	w.t.Helper()
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	for resource, f := range w.registry.feeds {
		if len(f.own)+len(f.runs)+len(f.hints) != 0 {
			w.t.Errorf("of %s %d writes, %d runs and %d hints are remembered", resource, len(f.own), len(f.runs), len(f.hints))
		}
	}
	for name, o := range w.kind.owners {
		if len(o.kept) != 0 || o.runs != 0 {
			w.t.Errorf("of %s %d changes and %d runs are remembered", name, len(o.kept), o.runs)
		}
	}
}

func TestRun_OwnWritesAreNewsToOtherOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testenv.CRD(t, testenv.Config(t)))
	meta := ownedBy(w.owner("owner"), "object")
	meta.OwnerReferences = append(meta.OwnerReferences, ownedBy(w.owner("other"), "object").OwnerReferences...)
	object := w.configMap(meta)
	w.restore(configMaps, "owner", "other")

	run := w.begin("owner")
	run.Expect(child(configMaps, object))
	run.Wrote(child(configMaps, w.set("object", "second")))
	run.End()
	must.Be(t, "owners told", map[string]int{"other": 1}, w.awaitTold("other"))
}

// The first list of a resource comes after the first write. What happened in between is not lost.
func TestRun_JudgesWhatHappenedBeforeTheFirstList(t *testing.T) {
	t.Parallel()
	gvk := testenv.CRD(t, testenv.Config(t))
	tests := []struct {
		name string
		do   func(*world) // after the run's write and before the list
		late bool         // whether the answer comes after the list
		want bool
	}{
		{name: "nothing", do: func(*world) {}, want: quiet},
		{name: "nothing, with a late answer", do: func(*world) {}, late: true, want: quiet},
		{name: "a change", do: func(w *world) { w.set("object", "foreign") }, want: told},
		{name: "a change, with a late answer", do: func(w *world) { w.set("object", "foreign") }, late: true, want: told},
		{name: "a deletion", do: func(w *world) { w.deleteConfigMap("object") }, want: told},
		{name: "a deletion, with a late answer", do: func(w *world) { w.deleteConfigMap("object") }, late: true, want: told},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, gvk)
			owner := w.owner("owner")
			witness := w.configMap(ownedBy(w.owner("witness"), "witness"))
			run := w.begin("owner")
			object := w.configMap(ownedBy(owner, "object"))
			tt.do(w)
			// Nothing was listed yet: for the registry, the write is still in progress.
			run.Expect(child(configMaps, witness))
			if !tt.late {
				run.Wrote(child(configMaps, object))
			}
			w.await(configMaps)
			if tt.late {
				run.Wrote(child(configMaps, object))
			}
			run.End()
			w.set("witness", "second")
			want := map[string]int{"witness": 1}
			if tt.want {
				want["owner"] = 1
			}
			must.Be(t, "owners told", want, w.awaitTold("witness"))
			if strings.HasPrefix(tt.name, "a deletion") && !slices.Contains(w.marks(), runUID("owner")) {
				t.Errorf("marks %q: a successor of the owner would be told of what was its predecessor's", w.marks())
			}
			w.assertSettled()
		})
	}
}

// deployment creates a Deployment that the real controller handles.
func (w *world) deployment(meta metav1.ObjectMeta) *appsv1.Deployment {
	w.t.Helper()
	labels := map[string]string{"app": meta.Name}
	replicas := int32(1)
	made, err := w.client.AppsV1().Deployments(w.namespace).Create(w.t.Context(), &appsv1.Deployment{
		ObjectMeta: meta,
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image.test/c:1"}}},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.t.Fatalf("create Deployment %s: %v", meta.Name, err)
	}
	return made
}

func (w *world) patchDeployment(name, body string) *appsv1.Deployment {
	w.t.Helper()
	made, err := w.client.AppsV1().Deployments(w.namespace).Patch(w.t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err != nil {
		w.t.Fatalf("patch Deployment %s: %v", name, err)
	}
	return made
}

// awaitController waits until the Deployment controller has written both its annotation and a status.
func (w *world) awaitController(name, revision string) *appsv1.Deployment {
	w.t.Helper()
	var d *appsv1.Deployment
	testenv.Eventually(w.t, "the Deployment controller's writes to "+name, func(ctx context.Context) error {
		var err error
		d, err = w.client.AppsV1().Deployments(w.namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && (d.Annotations["deployment.kubernetes.io/revision"] != revision || d.Status.ObservedGeneration != d.Generation || d.Status.Replicas == 0) {
			err = errors.New("nothing yet")
		}
		return err
	})
	return d
}

func TestRun_TheDeploymentControllerIsNoNewsUnlessStatusCounts(t *testing.T) {
	t.Parallel()
	gvk := testenv.CRD(t, testenv.Config(t))
	tests := []struct {
		name     string
		settings []setting
		first    bool // whether the watch begins only after the controller's writes
		status   bool
	}{
		{name: "status does not count"},
		{name: "status does not count and the watch is late", first: true},
		{name: "status counts", settings: []setting{withStatus}, status: true},
		{name: "status counts and the watch is late", settings: []setting{withStatus}, first: true, status: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, gvk, tt.settings...)
			owner, witness := w.owner("owner"), w.owner("witness")
			if !tt.first {
				w.restore(deployments, "owner")
			}
			run := w.begin("owner")
			object := w.deployment(ownedBy(owner, "object"))
			if tt.first {
				w.awaitController("object", "1")
			}
			run.Expect(child(deployments, object))
			run.Wrote(child(deployments, object))
			run.End()
			w.await(deployments)
			w.awaitController("object", "1")
			run = w.begin("owner")
			run.Expect(child(deployments, object))
			run.Wrote(child(deployments, w.patchDeployment("object",
				`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"image.test/c:2"}]}}}}`)))
			run.End()
			w.awaitSeen(deployments, w.awaitController("object", "2"))
			w.deployment(ownedBy(witness, "witness"))
			w.awaitSeen(deployments, w.awaitController("witness", "1"))
			if tt.status {
				w.awaitTold("owner")
				return
			}
			// A change of the spec counts, and comes later.
			w.patchDeployment("witness", `{"spec":{"minReadySeconds":1}}`)
			must.Be(t, "owners told", map[string]int{"witness": 1}, w.awaitTold("witness"))
		})
	}
}

func TestRegistry_FollowsCustomResourcesThatAreOwned(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]testenv.CRDOption{
		"with a status subresource": nil,
		"without one":               {testenv.WithoutStatus()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gvk := testenv.CRD(t, testenv.Config(t), options...)
			followsCustomResources(t, newWorld(t, gvk), gvk, len(options) == 0)
		})
	}
}

func followsCustomResources(t *testing.T, w *world, gvk schema.GroupVersionKind, hasStatus bool) {
	t.Helper()
	widgets := gvk.GroupVersion().WithResource("widgets")
	owned := &unstructured.Unstructured{}
	owned.SetGroupVersionKind(gvk)
	owned.SetName("object")
	owned.SetOwnerReferences(ownedBy(w.owner("owner"), "").OwnerReferences)
	objects := w.dynamic.Resource(widgets).Namespace(w.namespace)
	if _, err := objects.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the object: %v", err)
	}
	w.restore(widgets, "owner")
	for _, step := range []struct {
		body   string
		status bool
		want   int // how often it was reported until then
	}{
		{body: `{"status":{"a":"b"}}`, status: true, want: 0},
		{body: `{"metadata":{"finalizers":null}}`, want: 0},
		{body: `{"spec":{"a":"b"}}`, want: 1},
		{body: `{"metadata":{"labels":{"a":"b"}}}`, want: 2},
	} {
		var subresources []string
		if step.status && hasStatus {
			subresources = []string{"status"}
		}
		o, err := objects.Patch(t.Context(), "object", types.MergePatchType, []byte(step.body), metav1.PatchOptions{}, subresources...)
		if err != nil {
			t.Fatalf("patch %s: %v", step.body, err)
		}
		w.awaitSeen(widgets, o)
		// If the content was not asked for, the owner is told while the event is handled, or a moment later.
		testenv.Eventually(t, "the owner told", func(context.Context) error {
			if got := w.tally()["owner"]; got < step.want {
				return fmt.Errorf("told %d times", got)
			}
			return nil
		})
		if got := w.tally()["owner"]; got != step.want {
			t.Errorf("after %s the owner was told %d times, want %d", step.body, got, step.want)
		}
	}
}

func TestRegistry_FollowsAnnotations(t *testing.T) {
	t.Parallel()
	gvk := testenv.CRD(t, testenv.Config(t))
	annotations := func(w *world, owner string) map[string]string {
		return map[string]string{
			"operator-sdk/primary-resource":      w.namespace + "/" + owner,
			"operator-sdk/primary-resource-type": "Widget." + gvk.Group,
		}
	}
	t.Run("in another namespace", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, gvk, everywhere)
		home := w.namespace
		meta := metav1.ObjectMeta{Name: "object", Annotations: annotations(w, "owner")}
		w.namespace = testenv.Namespace(t, w.cfg)
		w.configMap(meta)
		w.kind.Restore(types.NamespacedName{Namespace: home, Name: "owner"}, []schema.GroupVersionResource{configMaps})
		w.await(configMaps)
		w.set("object", "second")
		w.awaitTold("owner")
		must.Be(t, "UIDs told", []types.UID{""}, w.marks())
		w.mu.Lock()
		defer w.mu.Unlock()
		must.Be(t, "it is told that the object is in another namespace", true, w.otherNamespace)
	})
	for _, follows := range []bool{true, false} {
		t.Run(fmt.Sprintf("on objects of the cluster is %t", follows), func(t *testing.T) {
			t.Parallel()
			var settings []setting
			if follows {
				settings = append(settings, withClusterScoped)
			}
			w := newWorld(t, gvk, settings...)
			object, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
				ObjectMeta: metav1.ObjectMeta{Name: testenv.Random("dependent-"), Annotations: annotations(w, "owner")},
			}, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("create the object: %v", err)
			}
			ctx := context.WithoutCancel(t.Context())
			t.Cleanup(func() { _ = w.client.CoreV1().Namespaces().Delete(ctx, object.Name, metav1.DeleteOptions{}) })
			run := w.begin("owner")
			run.Expect(child(namespaces, object))
			if !follows {
				run.End()
				w.registry.mu.Lock()
				defer w.registry.mu.Unlock()
				if len(w.registry.feeds) != 0 {
					t.Error("a resource is watched of which no mark is followed")
				}
				return
			}
			run.Wrote(child(namespaces, object))
			w.await(namespaces)
			run.End()
			if _, err := w.client.CoreV1().Namespaces().Patch(t.Context(), object.Name, types.MergePatchType,
				[]byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
				t.Fatalf("change the object: %v", err)
			}
			w.awaitTold("owner")
		})
	}
}

func TestRegistry_StopsAWatchThatIsOfNoUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testenv.CRD(t, testenv.Config(t)), func(_ *world, o *Options, _ *OwnerKind) { o.Idle = 50 * time.Millisecond })
	owner := w.owner("owner")
	for range 2 { // and begins it again
		run := w.begin("owner")
		run.Expect(proxy.Child{Resource: configMaps, Kind: "ConfigMap", Namespace: w.namespace, Name: "object"})
		object := w.configMap(ownedBy(owner, "object"))
		run.Wrote(child(configMaps, object))
		w.await(configMaps)
		must.Be(t, "resources owned at the end of the run", []schema.GroupVersionResource{configMaps}, run.End())
		w.deleteConfigMap("object")
		testenv.Eventually(t, "the watch stopped", func(context.Context) error {
			if watching := w.registry.Watching(); len(watching) != 0 {
				return fmt.Errorf("still watching %v", watching)
			}
			return nil
		})
		if owned := w.kind.Owned(w.name("owner")); len(owned) != 0 {
			t.Errorf("the owner still owns %v", owned)
		}
	}
	if got := w.count("Watching child resource"); got != 2 {
		t.Errorf("the begin of a watch is logged %d times, want 2", got)
	}
}

// count returns the number of lines in the log that contain a text.
func (w *world) count(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, line := range w.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func TestRegistry_BeginsAForbiddenWatchWhenItIsAllowed(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	user := rest.CopyConfig(cfg)
	user.Impersonate.UserName = testenv.Random("another-")
	w := newWorld(t, testenv.CRD(t, cfg), as(user))
	w.configMap(ownedBy(w.owner("owner"), "object"))
	w.kind.Restore(w.name("owner"), []schema.GroupVersionResource{configMaps})
	const refusal = "Dependents cannot be watched"
	testenv.Eventually(t, "the refusal in the log", func(context.Context) error {
		if w.count(refusal) == 0 {
			return errors.New("not there")
		}
		return nil
	})
	run := w.begin("owner")
	must.Be(t, "resources owned while they cannot be listed", []schema.GroupVersionResource{configMaps}, run.End())
	w.allow(user.Impersonate.UserName, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}})
	w.await(configMaps)
	w.set("object", "second")
	w.awaitTold("owner")
	if got := w.count(refusal); got != 1 {
		t.Errorf("the refusal is logged %d times, want once", got)
	}
}

// allow gives someone permissions in the namespace.
func (w *world) allow(user string, rule rbacv1.PolicyRule) {
	w.t.Helper()
	meta := metav1.ObjectMeta{Name: user}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}
	if _, err := w.client.RbacV1().Roles(w.namespace).Create(w.t.Context(), role, metav1.CreateOptions{}); err != nil {
		w.t.Fatalf("create role: %v", err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta,
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}
	if _, err := w.client.RbacV1().RoleBindings(w.namespace).Create(w.t.Context(), binding, metav1.CreateOptions{}); err != nil {
		w.t.Fatalf("create role binding: %v", err)
	}
}

func TestRegistry_FindsWhatHappenedInAGap(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{
		"that the API server remembers":     http.StatusServiceUnavailable,
		"that the API server has forgotten": http.StatusGone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, wire := wired(testenv.Config(t))
			w := newWorld(t, testenv.CRD(t, cfg), as(cfg))
			for _, owner := range []string{"changed", "deleted", "untouched", "rewritten", "replaced", "remade"} {
				w.configMap(ownedBy(w.owner(owner), owner))
			}
			w.restore(configMaps, "changed", "deleted", "untouched", "rewritten", "replaced", "remade")
			wire.cut(code)
			w.set("changed", "second")
			w.deleteConfigMap("deleted")
			replaced := w.created("replaced")
			w.deleteConfigMap("replaced")
			w.configMap(replaced.meta("replaced"))
			run := w.begin("rewritten")
			run.Expect(child(configMaps, w.created("rewritten").object))
			run.Wrote(child(configMaps, w.set("rewritten", "second")))
			run.End()
			run = w.begin("remade")
			remade := w.created("remade")
			run.Expect(child(configMaps, remade.object))
			run.Deleted(child(configMaps, remade.object))
			w.deleteConfigMap("remade")
			run.Wrote(child(configMaps, w.configMap(remade.meta("remade"))))
			run.End()
			wire.awaitRefusal(t)
			wire.restore()
			last := w.set("changed", "third")
			w.awaitSeen(configMaps, last)
			w.awaitTold("changed")
			got := w.awaitTold("deleted")
			got["changed"] = min(got["changed"], 1) // as often as it was seen
			want := map[string]int{"changed": 1, "deleted": 1, "replaced": 1}
			must.Be(t, "owners told", want, got)
			w.assertSettled()
		})
	}
}

func TestRegistry_ForgetsSilentlyWhatGoesWithItsDefinition(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	gvk := testenv.CRD(t, cfg)
	other := testenv.CRD(t, cfg)
	w := newWorld(t, gvk, func(_ *world, o *Options, _ *OwnerKind) { o.Idle = 50 * time.Millisecond })
	widgets := other.GroupVersion().WithResource("widgets")
	owned := &unstructured.Unstructured{}
	owned.SetGroupVersionKind(other)
	owned.SetName("object")
	owned.SetOwnerReferences(ownedBy(w.owner("owner"), "").OwnerReferences)
	if _, err := w.dynamic.Resource(widgets).Namespace(w.namespace).Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create the object: %v", err)
	}
	w.restore(widgets, "owner")
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	if err := w.dynamic.Resource(definitions).Delete(t.Context(), "widgets."+other.Group, metav1.DeleteOptions{}); err != nil {
		t.Fatalf("delete the definition: %v", err)
	}
	testenv.Eventually(t, "the watch stopped", func(context.Context) error {
		w.registry.mu.Lock()
		defer w.registry.mu.Unlock()
		if len(w.registry.feeds) != 0 {
			return errors.New("still there")
		}
		return nil
	})
	if owned := w.kind.Owned(w.name("owner")); len(owned) != 0 {
		t.Errorf("the owner still owns %v", owned)
	}
}

// A watch goes on with another version if its own is not served any more. The new one is recorded.
func TestRegistry_GoesOnInAnotherVersion(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	gvk := testenv.CRD(t, cfg, testenv.WithVersions("v1", "v1alpha1"))
	w := newWorld(t, gvk)
	widgets := gvk.GroupVersion().WithResource("widgets")
	owned := &unstructured.Unstructured{}
	owned.SetGroupVersionKind(gvk)
	owned.SetName("object")
	owned.SetOwnerReferences(ownedBy(w.owner("owner"), "").OwnerReferences)
	objects := w.dynamic.Resource(widgets).Namespace(w.namespace)
	must.Get(objects.Create(t.Context(), owned, metav1.CreateOptions{}))(t)
	w.restore(widgets.GroupResource().WithVersion("v1alpha1"), "owner")
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	must.Get(w.dynamic.Resource(definitions).Patch(t.Context(), "widgets."+gvk.Group, types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/versions/1/served","value":false}]`), metav1.PatchOptions{}))(t)
	w.await(widgets)
	must.Get(objects.Patch(t.Context(), "object", types.MergePatchType, []byte(`{"spec":{"a":"b"}}`), metav1.PatchOptions{}))(t)
	must.Be(t, "owners told", map[string]int{"owner": 1}, w.awaitTold("owner"))
	must.Be(t, "recorded", []schema.GroupVersionResource{widgets}, w.kind.Owned(w.name("owner")))
}

func TestKind_DoesNotWatchWhatIsBlacklisted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testenv.CRD(t, testenv.Config(t)), func(_ *world, o *Options, k *OwnerKind) {
		o.Idle = 50 * time.Millisecond
		k.Blacklist = []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}}
	})
	for _, kind := range []string{"ConfigMap", ""} { // told by the proxy, or to be looked up
		run := w.begin("owner")
		run.Expect(proxy.Child{Resource: configMaps, Kind: kind, Namespace: w.namespace, Name: "object"})
		run.Wrote(proxy.Child{Resource: configMaps, Kind: kind, Namespace: w.namespace, Name: "object", UID: "u", ResourceVersion: "1"})
		testenv.Eventually(t, "no watch", func(context.Context) error {
			w.registry.mu.Lock()
			defer w.registry.mu.Unlock()
			if len(w.registry.feeds) != 0 {
				return errors.New("there is one")
			}
			return nil
		})
		if owned := run.End(); len(owned) != 0 {
			t.Errorf("the owner owns %v", owned)
		}
	}
	if got := w.count("Resource will not be watched/cached."); got != 2 {
		t.Errorf("logged %d times, want 2", got)
	}
}

func TestKind_JoinsAWatchOfAnotherKind(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	w := newWorld(t, testenv.CRD(t, cfg))
	w.configMap(ownedBy(w.owner("first"), "first"))
	w.restore(configMaps, "first")
	other := newWorld(t, testenv.CRD(t, cfg))
	other.namespace = w.namespace
	w.configMap(ownedBy(other.owner("second"), "second"))
	w.kind.registry.Subscribe(OwnerKind{GVK: other.gvk, Namespaced: true, Changed: other.kind.spec.Changed}).
		Restore(w.name("second"), []schema.GroupVersionResource{configMaps})
	// The watch worked before the second kind came: only a change after the list that knows the kind is reported.
	value := 0
	testenv.Eventually(t, "a change for the second kind", func(context.Context) error {
		if other.tally()["second"] > 0 {
			return nil
		}
		value++
		w.set("second", strconv.Itoa(value))
		return errors.New("not told")
	})
	w.set("first", "second")
	must.Be(t, "owners of the first kind told", map[string]int{"first": 1}, w.awaitTold("first"))
}

// A list that was in progress when a kind of owners came does not know what those owners own. It must not report that as
// gone.
func TestKind_TakesNoListFromBeforeItJoined(t *testing.T) {
	t.Parallel()
	cfg, wire := wired(testenv.Config(t))
	w := newWorld(t, testenv.CRD(t, cfg), as(cfg))
	object := w.configMap(ownedBy(w.owner("owner"), "object"))
	w.configMap(ownedBy(w.owner("witness"), "witness"))
	bystander := w.registry.Subscribe(OwnerKind{GVK: schema.GroupVersionKind{Group: "other.test", Version: "v1", Kind: "Other"}})

	release := wire.holdLists()
	bystander.Restore(w.name("any"), []schema.GroupVersionResource{configMaps})
	<-wire.kept
	run := w.begin("owner")
	run.Expect(child(configMaps, object))
	run.Wrote(child(configMaps, object))
	release()
	w.await(configMaps)
	run.End()
	w.set("witness", "second")
	must.Be(t, "owners told", map[string]int{"witness": 1}, w.awaitTold("witness"))
}

// A list must not show less than earlier events: what came since then would look deleted. If all lists do so, as after a
// restore of etcd, the object counts as deleted.
func TestRegistry_TakesNoListFromBeforeWhatItHasSeen(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lists int
		want  map[string]int
	}{
		"some": {maxOld - 2, map[string]int{"witness": 1}},
		"all":  {maxOld + 1, map[string]int{"witness": 1, "owner": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, wire := wired(testenv.Config(t))
			w := newWorld(t, testenv.CRD(t, cfg), as(cfg))
			w.configMap(ownedBy(w.owner("witness"), "witness"))
			old := must.Get(json.Marshal(w.metadataOfConfigMaps()))(t)
			w.restore(configMaps, "witness")
			w.awaitSeen(configMaps, w.configMap(ownedBy(w.owner("owner"), "object")))

			answered := wire.answer(t, old, tt.lists)
			w.registry.Subscribe(OwnerKind{GVK: schema.GroupVersionKind{Group: "other.test", Version: "v1", Kind: "Other"}}).
				Restore(w.name("any"), []schema.GroupVersionResource{configMaps})
			answered()
			w.awaitSeen(configMaps, w.configMap(ownedBy(w.owner("another"), "later")))
			w.set("witness", "second")
			must.Be(t, "owners told", tt.want, w.awaitTold("witness"))
		})
	}
}

func TestKind_CloseForgetsItsOwners(t *testing.T) {
	t.Parallel()
	w := newWorld(t, testenv.CRD(t, testenv.Config(t)), func(_ *world, o *Options, _ *OwnerKind) { o.Idle = 50 * time.Millisecond })
	w.configMap(ownedBy(w.owner("owner"), "object"))
	w.restore(configMaps, "owner")
	run := w.begin("owner")
	w.kind.Close()
	run.Expect(proxy.Child{Resource: configMaps, Namespace: w.namespace})
	run.End()
	testenv.Eventually(t, "the watch stopped", func(context.Context) error {
		if watching := w.registry.Watching(); len(watching) != 0 {
			return fmt.Errorf("still watching %v", watching)
		}
		return nil
	})
}

// What a run deletes in a namespace that is not watched is not remembered: no event reports that it is gone.
func TestRun_DeletionsElsewhereAreNotKept(t *testing.T) {
	t.Parallel()
	cfg, wire := wired(testenv.Config(t))
	w := newWorld(t, testenv.CRD(t, cfg), as(cfg))
	release := wire.holdLists()
	w.kind.Restore(w.name("o"), []schema.GroupVersionResource{configMaps})
	<-wire.kept
	s := w.begin("o")
	s.Deleted(proxy.Child{Resource: configMaps, Kind: "ConfigMap", Namespace: "elsewhere", Name: "x", UID: "x"})
	release()
	w.await(configMaps)
	s.End()
	w.registry.mu.Lock()
	defer w.registry.mu.Unlock()
	if own := w.registry.feeds[configMaps.GroupResource()].own; len(own) > 0 {
		t.Errorf("%d are kept", len(own))
	}
}
