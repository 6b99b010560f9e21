package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// child is an object that a run creates.
type child struct {
	resource  string // with version and group, as kubectl takes it: deployments.v1.apps
	namespace string // empty for a cluster-scoped object
	name      string
}

// children are the administrator's access to what runs create.
type children struct {
	t      *testing.T
	client dynamic.Interface
}

func (s *stage) children() children {
	s.t.Helper()
	client := must.Get(dynamic.NewForConfig(s.cfg))(s.t)
	return children{s.t, client}
}

func (cs children) in(c child) dynamic.ResourceInterface {
	cs.t.Helper()
	res, _ := schema.ParseResourceArg(c.resource)
	if res == nil {
		cs.t.Fatalf("%q is not resource.version.group", c.resource)
	}
	if c.namespace == "" {
		return cs.client.Resource(*res)
	}
	return cs.client.Resource(*res).Namespace(c.namespace)
}

func (cs children) get(c child) *unstructured.Unstructured {
	cs.t.Helper()
	u, err := cs.in(c).Get(cs.t.Context(), c.name, metav1.GetOptions{})
	if err != nil {
		cs.t.Fatalf("get %v: %v", c, err)
	}
	return u
}

// named returns the objects of c's resource and namespace whose names have a prefix.
func (cs children) named(c child, prefix string) []child {
	cs.t.Helper()
	list, err := cs.in(c).List(cs.t.Context(), metav1.ListOptions{})
	if err != nil {
		cs.t.Fatalf("list %s: %v", c.resource, err)
	}
	var found []child
	for _, item := range list.Items {
		if strings.HasPrefix(item.GetName(), prefix) {
			found = append(found, child{c.resource, c.namespace, item.GetName()})
		}
	}
	return found
}

func (cs children) patch(c child, merge string) {
	cs.t.Helper()
	if _, err := cs.in(c).Patch(cs.t.Context(), c.name, types.MergePatchType, []byte(merge), metav1.PatchOptions{}); err != nil {
		cs.t.Fatalf("patch %v: %v", c, err)
	}
}

func (cs children) delete(c child) {
	cs.t.Helper()
	if err := cs.in(c).Delete(cs.t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
		cs.t.Fatalf("delete %v: %v", c, err)
	}
}

// await waits until a child exists and meets a condition.
func (cs children) await(c child, what string, wanted func(*unstructured.Unstructured) bool) {
	cs.t.Helper()
	testenv.Eventually(cs.t, fmt.Sprintf("%v: %s", c, what), func(ctx context.Context) error {
		u, err := cs.in(c).Get(ctx, c.name, metav1.GetOptions{})
		if err == nil && !wanted(u) {
			err = fmt.Errorf("it is %v", u.Object)
		}
		return err
	})
}

func (cs children) awaitGone(c child) {
	cs.t.Helper()
	testenv.Eventually(cs.t, fmt.Sprintf("%v: gone", c), func(ctx context.Context) error {
		u, err := cs.in(c).Get(ctx, c.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("it is there: %v", u.Object["metadata"])
		}
		return err
	})
}

// absent checks that there is no such child.
func (cs children) absent(c child) {
	cs.t.Helper()
	if _, err := cs.in(c).Get(cs.t.Context(), c.name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		cs.t.Errorf("%v is there: %v", c, err)
	}
}

// mark is how an object names its owner.
type mark struct {
	References        []metav1.OwnerReference
	Primary, Resource string // the annotations
}

func markOf(u *unstructured.Unstructured) mark {
	annotations := u.GetAnnotations()
	return mark{u.GetOwnerReferences(), annotations["operator-sdk/primary-resource"], annotations["operator-sdk/primary-resource-type"]}
}

// owned checks that each child names the owner by the correct mark, once, and in no other way.
func (cs children) owned(owner object, all ...child) {
	cs.t.Helper()
	gvk := owner.GroupVersionKind()
	for _, c := range all {
		want := mark{References: []metav1.OwnerReference{{
			APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner.GetName(), UID: owner.GetUID(),
		}}}
		if c.namespace != owner.GetNamespace() {
			want = mark{Primary: owner.GetNamespace() + "/" + owner.GetName(), Resource: gvk.GroupKind().String()}
		}
		if diff := cmp.Diff(want, markOf(cs.get(c))); diff != "" {
			cs.t.Errorf("owner of %v (-want +got):\n%s", c, diff)
		}
	}
}

// unowned checks that the objects have no owner.
func (cs children) unowned(all ...child) {
	cs.t.Helper()
	for _, c := range all {
		if diff := cmp.Diff(mark{}, markOf(cs.get(c))); diff != "" {
			cs.t.Errorf("owner of %v (-want +got):\n%s", c, diff)
		}
	}
}

// awaitChildrenWatched waits until the operator has logged that it watches each kind, written as in its log.
func (o *operator) awaitChildrenWatched(kinds ...string) {
	o.t.Helper()
	testenv.Eventually(o.t, "the watches of dependents", func(context.Context) error {
		log := o.output()
		for _, kind := range kinds {
			if !slices.ContainsFunc(strings.Split(log, "\n"), func(line string) bool {
				return strings.Contains(line, "Watching child resource") && strings.Contains(line, `"`+kind+`"`)
			}) {
				return fmt.Errorf("no watch of %s yet", kind)
			}
		}
		return nil
	})
}

// noticed returns the changes of dependents that the operator has attributed to other clients. It logs them with
// --zap-log-level=debug.
func (o *operator) noticed() []string {
	o.t.Helper()
	var changes []string
	for line := range strings.Lines(o.output()) {
		if strings.Contains(line, "Dependent has changed") {
			changes = append(changes, strings.TrimSpace(line))
		}
	}
	return changes
}

// expectRuns checks how often an object has run. If that is wrong, it prints what the operator has noticed.
func (o *operator) expectRuns(obj object, want int, why string) {
	o.t.Helper()
	if got := len(o.stage.runs(obj)); got != want {
		o.t.Errorf("%d runs, want %d: %s; noticed:\n%s", got, want, why, strings.Join(o.noticed(), "\n"))
	}
}
