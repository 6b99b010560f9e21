package controller

import (
	"context"
	"net/http"
	"os"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// tenant returns a user who may do nothing at first.
func tenant(t *testing.T, cfg *rest.Config) *rest.Config {
	t.Helper()
	user := rest.CopyConfig(cfg)
	user.Impersonate.UserName = testenv.Random("tenant-")
	return user
}

// allow grants a user what is needed to serve, in a namespace, a kind whose objects refer to Secrets.
func allow(t *testing.T, cfg, user *rest.Config, gvk schema.GroupVersionKind, namespace string) {
	t.Helper()
	rbac := must.Get(kubernetes.NewForConfig(cfg))(t).RbacV1()
	name := metav1.ObjectMeta{Name: user.Impersonate.UserName}
	must.Get(rbac.Roles(namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: name, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{gvk.Group}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}},
	}}, metav1.CreateOptions{}))(t)
	must.Get(rbac.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: name, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: name.Name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name.Name},
	}, metav1.CreateOptions{}))(t)
}

// A namespace that the operator may not read does not block other namespaces. The operator names it, and serves it when
// it may read it. No run ends because of that.
func TestKind_ServesTheNamespacesThatItMay(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c, gvk := clientOf(t, cfg), testenv.CRD(t, cfg)
	first, second := testenv.Namespace(t, cfg), testenv.Namespace(t, cfg)
	user := tenant(t, cfg)
	allow(t, cfg, user, gvk, first)
	release := make(chan struct{})
	exec := &fakeExecutor{do: func(ctx context.Context, req runner.Request) (runner.Result, error) {
		if strings.Contains(string(req.ExtraVars), `{"name": "slow"`) {
			select {
			case <-release:
			case <-ctx.Done():
				t.Errorf("the run in progress was stopped: %v", context.Cause(ctx))
			}
		}
		return succeeded(), nil
	}}
	root, registry := t.TempDir(), prometheus.NewRegistry()
	gone := map[string]string{}
	for _, ns := range []string{first, second} {
		was := object(gvk, ns, "gone", nil)
		was.SetUID(types.UID(newUID()))
		leave(t, root, was, status.Active{ID: newUID(), Generation: 1}, "", nil, "")
		gone[ns] = storeOf(t, root).Object(string(was.GetUID()))
	}
	removed := func(ns string) bool {
		_, err := os.Stat(gone[ns])
		return os.IsNotExist(err)
	}
	ready := func(is string) bool {
		return testutil.GatherAndCompare(registry, strings.NewReader("# HELP rolewright_kind_ready 1 while a watched kind is installed and its cache is synced, else 0; no series while its enabledIf is not met.\n"+
			"# TYPE rolewright_kind_ready gauge\n"+
			`rolewright_kind_ready{group="`+gvk.Group+`",kind="Widget",version="v1alpha1"} `+is+"\n"), "rolewright_kind_ready") == nil
	}
	o := start(t, user, exec, Options{
		RunnerRoot: root, Metrics: must.Get(metrics.New(registry))(t), Namespaces: []string{second, first},
		Watches: []watches.Watch{referringTo(gvk)},
	})
	with := func(ns, name string) *unstructured.Unstructured {
		return create(t, c, object(gvk, ns, name, map[string]any{"secrets": name}))
	}
	create(t, c, secretWith(first, "one", "a"))
	two := with(second, "two")
	create(t, c, secretWith(second, "two", "a"))
	awaitCondition(t, c, with(first, "one"), status.Ready, "True")
	slow := with(first, "slow")
	eventually(t, "the slow run", func() bool { return exec.ranFor("slow") == 1 })
	eventually(t, "the directory of an object that is gone is removed", func() bool { return removed(first) })

	must.Do(t, o.set.Ready())
	must.Be(t, "rolewright_kind_ready is 0", true, ready("0"))
	must.Be(t, "runs in the other namespace", 0, exec.ranFor("two"))
	must.Be(t, "the directory in the other namespace is removed", false, removed(second))
	log := o.log()
	if strings.Count(log, "Kind is not served in all namespaces") != 1 || strings.Contains(log, "Serving kind") ||
		!strings.Contains(log, `grant the operator get, list, watch, patch of status on widgets in group \"`+gvk.Group+`\", namespace \"`+second+`\"`) ||
		strings.Contains(log, `namespace \"`+first) {
		t.Errorf("the log does not name the namespace, once:\n%s", log)
	}

	allow(t, cfg, user, gvk, second)
	awaitCondition(t, c, two, status.Ready, "True")
	eventually(t, "the kind is served everywhere", func() bool { return ready("1") && strings.Contains(o.log(), "Serving kind") })
	eventually(t, "the directory in the other namespace is removed", func() bool { return removed(second) })
	must.Be(t, "runs in progress", 1, exec.ranFor("slow"))
	close(release)
	awaitCondition(t, c, slow, status.Ready, "True")
	for _, name := range []string{"one", "two", "slow"} {
		must.Be(t, "runs of "+name, 1, exec.ranFor(name))
	}
	setPassword(t, c, secretWith(second, "two", "a"), "b")
	awaitTrigger(t, c, two, causeReference, "secrets "+second+"/two was changed")
}

// If the operator may read a kind in none of its namespaces, the kind is not served, and the operator names all of them.
func TestKind_MissingPermissionInAllNamespaces(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	gvk, first, second := testenv.CRD(t, cfg), testenv.Namespace(t, cfg), testenv.Namespace(t, cfg)
	o := start(t, tenant(t, cfg), &fakeExecutor{}, Options{Namespaces: []string{first, second}, Watches: []watches.Watch{watchOf(gvk)}})
	eventually(t, "readiness names both namespaces", func() bool {
		err := o.set.Ready()
		return err != nil && strings.Contains(err.Error(), `"`+first+`"`) && strings.Contains(err.Error(), `"`+second+`"`)
	})
	eventually(t, "the log says so", func() bool { return strings.Contains(o.log(), "Kind cannot be served yet") })
}

// An operator with many kinds, shards or namespaces makes four first lists at a time. Lists that fail do not block
// others.
func TestKind_ReadsItsFirstListsInTurns(t *testing.T) {
	t.Parallel()
	cfg := testenv.Config(t)
	c, gvk := clientOf(t, cfg), testenv.CRD(t, cfg)
	var in []string
	for range firstLists + 2 {
		in = append(in, testenv.Namespace(t, cfg))
	}
	asked, answer := make(chan string, 1000), make(chan struct{})
	var first sync.Map // the namespaces whose lists fail
	faulty := refusing(cfg, http.StatusInternalServerError, func(req *http.Request) bool {
		at, lists := strings.CutSuffix(req.URL.Path, "/widgets")
		if !lists {
			return false
		}
		asked <- path.Base(at)
		<-answer
		return has(&first, path.Base(at))
	})
	start(t, faulty, &fakeExecutor{}, Options{Watches: []watches.Watch{watchOf(gvk)}, Namespaces: in})
	for range firstLists {
		first.Store(<-asked, true)
	}
	select {
	case ns := <-asked:
		t.Errorf("namespace %s is listed beside %d others", ns, firstLists)
	case <-time.After(300 * time.Millisecond):
	}
	close(answer)
	others := map[string]bool{}
	for len(others) < len(in)-firstLists {
		if ns := <-asked; !has(&first, ns) {
			others[ns] = true
		}
	}
	first.Clear()
	for _, ns := range in {
		awaitCondition(t, c, create(t, c, object(gvk, ns, "one", nil)), status.Ready, "True")
	}
}

func has(m *sync.Map, key string) bool {
	_, ok := m.Load(key)
	return ok
}
