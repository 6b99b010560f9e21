package controller

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/controller/dependent"
	"github.com/rolewright/rolewright/controller/reference"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// referringTo returns a watch of objects that name Secrets in spec.secrets.
func referringTo(gvk schema.GroupVersionKind, edit ...func(*watches.Watch)) watches.Watch {
	return watchOf(gvk, append([]func(*watches.Watch){func(w *watches.Watch) {
		w.References = []watches.Reference{{GVK: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, FromField: "spec.secrets"}}
	}}, edit...)...)
}

// secretWith returns a Secret with one key.
func secretWith(namespace, name, value string) *unstructured.Unstructured {
	obj := secret(namespace, name)
	obj.Object["data"] = map[string]any{"password": base64.StdEncoding.EncodeToString([]byte(value))}
	return obj
}

func setPassword(t *testing.T, c client.Client, obj *unstructured.Unstructured, value string) {
	t.Helper()
	update(t, c, obj, func(is map[string]any) {
		is["data"] = map[string]any{"password": base64.StdEncoding.EncodeToString([]byte(value))}
	})
}

// awaitTrigger waits until the last run of an object has a given cause and trigger.
func awaitTrigger(t *testing.T, c client.Client, obj *unstructured.Unstructured, cause cause, trigger string) {
	t.Helper()
	var last status.Run
	eventually(t, obj.GetName()+" runs for "+trigger, func() bool {
		st, _ := get(t, c, obj).Object["status"].(map[string]any)
		last, _ = lastRun(st)
		return last.Trigger == trigger && last.Cause == string(cause)
	})
}

func TestReferences_AChangeRunsOnlyTheObjectsThatReferToIt(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{}
	options := Options{Watches: []watches.Watch{referringTo(gvk)}}
	o := start(t, cfg, exec, options)
	one, two := create(t, c, secretWith(ns, "one", "a")), create(t, c, secretWith(ns, "two", "a"))
	it := create(t, c, object(gvk, ns, "it", map[string]any{"secrets": []any{map[string]any{"name": "one"}, "later"}}))
	other := create(t, c, object(gvk, ns, "other", map[string]any{"secrets": "two"}))
	awaitCondition(t, c, it, "Ready", "True")
	awaitCondition(t, c, other, "Ready", "True")

	setPassword(t, c, one, "b")
	awaitTrigger(t, c, it, causeReference, "secrets "+ns+"/one was changed")
	create(t, c, secretWith(ns, "later", "a"))
	awaitTrigger(t, c, it, causeReference, "secrets "+ns+"/later was created")
	must.Do(t, c.Delete(t.Context(), one))
	awaitTrigger(t, c, it, causeReference, "secrets "+ns+"/one was deleted")
	create(t, c, secretWith(ns, "unnamed", "a"))
	quiet(t, exec, 5, "a run for each of three changes")
	must.Be(t, "runs of the other object", 1, exec.ranFor("other"))

	o.stop()
	o = start(t, cfg, exec, options)
	eventually(t, "the kind is served", func() bool { return o.set.Ready() == nil && strings.Contains(o.log(), "Serving kind") })
	quiet(t, exec, 5, "a restart is not a change")
	o.stop()
	setPassword(t, c, two, "b")
	start(t, cfg, exec, options)
	awaitTrigger(t, c, other, causeReference, "secrets "+ns+"/two was changed")
	quiet(t, exec, 6, "what was changed meanwhile runs once")
}

// What a run itself writes, owned or not, starts no other run. What other clients write meanwhile starts one.
func TestReferences_OwnWritesDoNotCount(t *testing.T) {
	t.Parallel()
	for name, inject := range map[string]bool{"owned": true, "nobody's": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, c, gvk, ns := installed(t)
			there := create(t, c, secretWith(ns, "there", "a"))
			exec := writing(there, secret(ns, "made"))
			do := exec.do
			exec.do = func(ctx context.Context, req runner.Request) (runner.Result, error) {
				if exec.count() == 3 {
					setPassword(t, c, there, "d")
				}
				return do(ctx, req)
			}
			start(t, cfg, exec, Options{InjectOwnerRef: inject, Watches: []watches.Watch{referringTo(gvk, func(w *watches.Watch) { w.WatchDependentResources = true })}})
			it := create(t, c, object(gvk, ns, "it", map[string]any{"secrets": []any{"there", "made"}}))
			awaitCondition(t, c, it, "Ready", "True")
			quiet(t, exec, 1, "its own writes start nothing")
			setPassword(t, c, there, "b")
			awaitTrigger(t, c, it, causeReference, "secrets "+ns+"/there was changed")
			quiet(t, exec, 2, "a change starts one run")
			setPassword(t, c, there, "c")
			quiet(t, exec, 4, "a change during a run starts one more")
		})
	}
}

// What a run writes itself while the operator ends starts no other one in the next process.
func TestReferences_OwnWritesWhileTheOperatorEnds(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	there := create(t, c, secretWith(ns, "there", "a"))
	begun, end := make(chan struct{}, 9), make(chan struct{})
	exec := writing(there)
	do := exec.do
	exec.do = func(ctx context.Context, req runner.Request) (runner.Result, error) {
		begun <- struct{}{}
		<-end
		return do(ctx, req)
	}
	options := Options{Watches: []watches.Watch{referringTo(gvk)}}
	o := start(t, cfg, exec, options)
	it := create(t, c, object(gvk, ns, "it", map[string]any{"secrets": "there"}))
	<-begun
	o.cancel()
	eventually(t, "the operator ends", func() bool { return strings.Contains(o.log(), "Stopping and waiting for leader election runnables") })
	settle()
	close(end)
	o.stop()
	awaitCondition(t, c, it, "Ready", "True")
	o = start(t, cfg, exec, options)
	eventually(t, "the kind is served", func() bool { return o.set.Ready() == nil && strings.Contains(o.log(), "Serving kind") })
	quiet(t, exec, 1, "its own writes start nothing")
}

// The keys of varsFrom are variables, and masked; without them nothing runs.
func TestReferences_VarsFrom(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	exec := &fakeExecutor{do: func(_ context.Context, req runner.Request) (runner.Result, error) {
		if strings.Contains(string(req.ExtraVars), "better-value") {
			return succeeded(), nil
		}
		return failed(req.Mask.Mask("the password first-value is bad")), nil
	}}
	reg := prometheus.NewRegistry()
	opts := Options{RetryMin: time.Hour, RetryMax: time.Hour, Metrics: must.Get(metrics.New(reg))(t)}
	opts.Watches = []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.VarsFrom = []watches.VarsFrom{
			{Secret: true, NameField: "spec.secret", Prefix: "db_"}, {Name: "defaults"}, {Name: "missing", Optional: true},
		}
	})}
	start(t, cfg, exec, opts)
	defaults := configMap(ns, "defaults")
	defaults.Object["data"] = map[string]any{"color": "green", "not-a-name": "x"}
	create(t, c, defaults)
	it := create(t, c, object(gvk, ns, "it", map[string]any{"secret": "database"}))
	is := awaitCondition(t, c, it, "Ready", "False")
	must.Be(t, "reason", "ReferenceNotFound", condition(is, "Ready")["reason"])
	if message, _ := condition(is, "Ready")["message"].(string); !strings.Contains(message, "secrets "+ns+"/database") {
		t.Errorf("the message does not name the Secret: %q", message)
	}
	must.Be(t, "runs", 0, exec.count())
	must.Do(t, testutil.GatherAndCompare(reg, strings.NewReader("# HELP rolewright_runs_total Runs that ended or could not begin, by what started them and how they ended.\n"+
		"# TYPE rolewright_runs_total counter\n"+
		`rolewright_runs_total{cause="created",group="`+gvk.Group+`",kind="Widget",reason="ReferenceNotFound",version="`+gvk.Version+`"} 1`+"\n"),
		"rolewright_runs_total", "rolewright_runs_in_flight"))

	password := create(t, c, secretWith(ns, "database", "first-value"))
	awaitTrigger(t, c, it, causeReference, "secrets "+ns+"/database was created")
	is = get(t, c, it)
	if message, _ := condition(is, "Ready")["message"].(string); strings.Contains(message, "first-value") || !strings.Contains(message, "[masked]") {
		t.Errorf("the value is not masked: %q", message)
	}
	vars := string(exec.runs[0].ExtraVars)
	for _, want := range []string{`"db_password": {"__ansible_unsafe": "first-value"}`, `"color": {"__ansible_unsafe": "green"}`} {
		if !strings.Contains(vars, want) {
			t.Errorf("%s is not in the extra vars: %s", want, vars)
		}
	}
	if warnings := encoded(is.Object["status"]); !strings.Contains(warnings, "not-a-name") {
		t.Errorf("the status does not warn: %s", warnings)
	}
	setPassword(t, c, password, "better-value")
	awaitCondition(t, c, it, "Ready", "True")
	quiet(t, exec, 2, "one run for each value")

	own := secretWith(ns, "rolewright-runs", "of-another-run")
	own.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "rolewright"})
	create(t, c, own)
	is = awaitCondition(t, c, create(t, c, object(gvk, ns, "thief", map[string]any{"secret": "rolewright-runs"})), "Ready", "False")
	if message, _ := condition(is, "Ready")["message"].(string); !strings.Contains(message, "the operator's own") {
		t.Errorf("a Secret of the operator itself: %q", message)
	}
	quiet(t, exec, 2, "none with the operator's own Secret")
}

// A name that is not valid prevents runs, but not the deletion of the object.
func TestReadVars_ADeletionWaitsForNoName(t *testing.T) {
	for name, tt := range map[string]struct {
		names any
		want  string
	}{
		"none": {nil, "has no name"}, "odd": {"a/../b", "not a name of an object"}, "two": {[]any{"a", "b"}, "2 names"},
	} {
		r := &reconciler{watch: watches.Watch{VarsFrom: []watches.VarsFrom{{Secret: true, NameField: "spec.names"}}}}
		s := &scope{object: &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"names": tt.names}}}}
		s.key.Namespace = "ns"
		if _, err := r.readVars(t.Context(), s); err == nil || !strings.Contains(err.Error(), tt.want) || len(s.warnings) > 0 {
			t.Errorf("%s: %v, warnings %q", name, err, s.warnings)
		}
		s.deleting = true
		if sources, err := r.readVars(t.Context(), s); err != nil || len(sources) > 0 || !strings.Contains(strings.Join(s.warnings, "\n"), tt.want) {
			t.Errorf("%s, in a deletion: %v, warnings %q", name, err, s.warnings)
		}
	}
}

// While it is on, denial answers requests for a resource like the API server without the permission, and ends watches of
// it.
type denial struct {
	resource string
	code     int // 0 for that of a missing permission

	mu  sync.Mutex
	on  bool
	end []context.CancelFunc
}

func (d *denial) set(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = on
	for _, end := range d.end {
		end()
	}
	d.end = nil
}

// roundTrip is for [through].
func (d *denial) roundTrip(req *http.Request, next http.RoundTripper) (*http.Response, error) {
	if !strings.HasSuffix(req.URL.Path, "/"+d.resource) || req.Method != http.MethodGet {
		return next.RoundTrip(req)
	}
	d.mu.Lock()
	on := d.on
	if !on {
		ctx, end := context.WithCancel(req.Context())
		d.end = append(d.end, end)
		req = req.WithContext(ctx)
	}
	d.mu.Unlock()
	if on {
		return refusal(req, cmp.Or(d.code, http.StatusForbidden)), nil
	}
	return next.RoundTrip(req)
}

// If something can no longer be watched, the status of the objects that depend on it says so until it can, and that of no
// others. The objects do not run for this. They run for what changed meanwhile.
func TestReferences_NotWatched(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	refused := &denial{resource: "secrets"}
	cfg = through(cfg, refused.roundTrip)
	exec := &fakeExecutor{}
	reg := prometheus.NewRegistry()
	options := Options{Metrics: must.Get(metrics.New(reg))(t), Watches: []watches.Watch{referringTo(gvk)}}
	o := start(t, cfg, exec, options)
	one := create(t, c, secretWith(ns, "one", "a"))
	it, other := create(t, c, object(gvk, ns, "it", map[string]any{"secrets": "one"})), create(t, c, object(gvk, ns, "other", nil))
	awaitCondition(t, c, it, "Ready", "True")
	awaitCondition(t, c, other, "Ready", "True")
	warned := func(obj *unstructured.Unstructured, want ...any) {
		t.Helper()
		eventually(t, fmt.Sprint("the warnings of ", obj.GetName(), " are ", want), func() bool {
			warnings, _, _ := unstructured.NestedSlice(get(t, c, obj).Object, "status", "ansible", "warnings")
			return slices.Equal(warnings, want)
		})
	}
	const says = "not watched: secrets: the operator may not list and watch them, so their changes start no runs until it is allowed to"
	gauge := func(want string) {
		t.Helper()
		eventually(t, "the metric is "+want, func() bool {
			return testutil.GatherAndCompare(reg, strings.NewReader(
				"# HELP rolewright_references_unwatched 1 while the operator cannot watch a resource that a watch refers to (references, varsFrom, triggers); else 0.\n"+
					"# TYPE rolewright_references_unwatched gauge\nrolewright_references_unwatched{group=\""+gvk.Group+"\",kind=\"Widget\",resource=\"secrets\",version=\""+gvk.Version+"\"} "+want+"\n"),
				"rolewright_references_unwatched") == nil
		})
	}
	gauge("0")
	refused.set(true)
	warned(it, says)
	warned(other)
	gauge("1")
	if !strings.Contains(o.log(), "Objects that watches refer to cannot be watched") {
		t.Error("the log does not say so")
	}
	setPassword(t, c, one, "b")
	quiet(t, exec, 2, "nothing is seen")
	update(t, c, other, func(is map[string]any) { is["spec"] = map[string]any{"secrets": "one"} })
	warned(other, says)
	quiet(t, exec, 3, "a run for another reason")
	refused.set(false)
	awaitTrigger(t, c, it, causeReference, "secrets "+ns+"/one was changed")
	warned(it)
	warned(other)
	gauge("0")

	refused.set(true)
	warned(it, says)
	o.stop()
	refused.set(false)
	start(t, cfg, exec, options)
	warned(it)
}

// A run that reads a change which the operator may not see is not followed by more runs.
func TestReferences_VarsFromWhatIsNotWatched(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	refused := &denial{resource: "secrets"}
	cfg = through(cfg, refused.roundTrip)
	exec := &fakeExecutor{}
	start(t, cfg, exec, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.VarsFrom = []watches.VarsFrom{{Secret: true, NameField: "spec.secret"}}
	})}})
	password := create(t, c, secretWith(ns, "one", "a"))
	it := create(t, c, object(gvk, ns, "it", map[string]any{"secret": "one"}))
	awaitCondition(t, c, it, "Ready", "True")
	refused.set(true)
	eventually(t, "a warning", func() bool { return strings.Contains(encoded(get(t, c, it).Object["status"]), "not watched: secrets") })
	setPassword(t, c, password, "b")
	update(t, c, it, func(is map[string]any) { is["spec"].(map[string]any)["size"] = int64(2) })
	eventually(t, "a run for another reason", func() bool { return exec.count() == 2 })
	settle()
	quiet(t, exec, 2, "it has the change")
	refused.set(false)
	awaitTrigger(t, c, it, causeReference, "secrets "+ns+"/one was changed")
	quiet(t, exec, 3, "the change is seen")
}

// If a kind is removed, the status of the objects that refer to it says so. They run, because what they name is gone.
func TestReferences_AKindThatGoes(t *testing.T) {
	t.Parallel()
	cfg, c, gvk, ns := installed(t)
	named := testenv.CRD(t, cfg)
	o := start(t, cfg, &fakeExecutor{}, Options{Watches: []watches.Watch{watchOf(gvk, func(w *watches.Watch) {
		w.References = []watches.Reference{{GVK: named, FromField: "spec.name"}}
	})}})
	create(t, c, object(named, ns, "one", nil))
	it := create(t, c, object(gvk, ns, "it", map[string]any{"name": "one"}))
	awaitCondition(t, c, it, "Ready", "True")
	crd := crdObject(t, c, named)
	must.Do(t, c.Delete(t.Context(), crd.DeepCopy()))
	warned := func(want bool) {
		t.Helper()
		eventually(t, fmt.Sprint("the status warns: ", want), func() bool {
			return strings.Contains(encoded(get(t, c, it).Object["status"]), "the kind is not installed any more") == want
		})
	}
	warned(true)
	awaitTrigger(t, c, it, causeReference, "widgets."+named.Group+" "+ns+"/one was deleted")
	if !strings.Contains(o.log(), "A kind that watches refer to is not installed any more") {
		t.Error("the log does not say so")
	}
	reinstall(t, c, crd)
	eventually(t, "an object of the kind is accepted", func() bool { return c.Create(t.Context(), object(named, ns, "one", nil)) == nil })
	awaitTrigger(t, c, it, causeReference, "widgets."+named.Group+" "+ns+"/one was created")
	warned(false)
}

// A warning tells the author of a cluster-scoped object that names a Secret to name a namespace, too.
func TestRefer_WarnsOfANameInNoNamespace(t *testing.T) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	fields := reference.Fields(watches.Watch{References: []watches.Reference{{GVK: gvk, FromField: "spec.secret", NamespaceField: "spec.in"}}})
	for _, in := range []string{"", "ns"} {
		secrets := dependent.New(dependent.Options{}).Named(gvk.GroupVersion().WithResource("secrets"), dependent.NamedOptions{})
		r := &reconciler{referring: &referring{
			fields: fields, kinds: []*referredKind{{gvk: gvk, label: "secrets", namespaced: true, followed: secrets}},
			targets: map[types.NamespacedName][]target{}, from: map[target]map[types.NamespacedName]struct{}{},
		}}
		s := &scope{memory: &memory{}, object: &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"secret": "it", "in": in}}}}
		r.refer(s)
		if warned := strings.Contains(strings.Join(s.warnings, "\n"), "no namespace"); warned != (in == "") {
			t.Errorf("in namespace %q: warnings %q", in, s.warnings)
		}
	}
}
