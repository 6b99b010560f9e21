package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2"
	state "helm.sh/helm/v4/pkg/release/common"
	release "helm.sh/helm/v4/pkg/release/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/fake"
)

// Values come from the watch's values, the spec, valuesFrom and the watch's override values. Later ones win.
func TestValues(t *testing.T) {
	t.Parallel()
	object := func(spec any) unstructured.Unstructured {
		return unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	}
	for name, tt := range map[string]struct {
		settings settings
		spec     any
		want     string
	}{
		"no spec": {settings{}, nil, `{}`},
		"layers": {
			settings{
				Values: map[string]any{"a": map[string]any{"x": 1, "y": 1}, "b": 1}, ValuesOverride: map[string]any{"d": []any{4}, "a": map[string]any{"w": 4}},
				ValuesFrom: []valuesSource{{Name: "secrets s", Prefix: "a.", Data: map[string]string{"password": "p", "z": "3"}}},
			},
			map[string]any{"a": map[string]any{"y": int64(2), "z": int64(2)}, "c": int64(2), "d": []any{1, 2}},
			`{"a":{"password":"p","w":4,"x":1,"y":2,"z":"3"},"b":1,"c":2,"d":[4]}`,
		},
		"overrides are texts": {
			settings{OverrideValues: map[string]string{"a.b": "3", "c": `x\,y`, "d": "{e,f}", `g\.h`: "i"}}, map[string]any{"a": map[string]any{"z": true}},
			`{"a":{"b":"3","z":true},"c":"x,y","d":["e","f"],"g.h":"i"}`,
		},
		"a list for a spec": {settings{}, []any{1}, "spec is not a mapping"},
		"bad override":      {settings{OverrideValues: map[string]string{"a": "x,y"}}, nil, "overrideValues of the watch: a: "},
		"no path":           {settings{ValuesFrom: []valuesSource{{Name: "secrets s", Data: map[string]string{"a..b": "p"}}}}, nil, `the key "a..b" of secrets s is not a path`},
		"through a text":    {settings{ValuesFrom: []valuesSource{{Name: "secrets s", Data: map[string]string{"a.b": "p"}}}}, map[string]any{"a": "x"}, `the key "a.b" of secrets s: a is not a mapping`},
	} {
		in := &input{Object: object(tt.spec), settings: tt.settings}
		before, _ := json.Marshal(tt.spec)
		values, err := in.values()
		got, _ := json.Marshal(values)
		if err != nil {
			got = []byte(err.Error())
		}
		if !strings.HasPrefix(string(got), tt.want) || err == nil && string(got) != tt.want {
			t.Errorf("%s: %s; want %s", name, got, tt.want)
		}
		if after, _ := json.Marshal(tt.spec); string(after) != string(before) {
			t.Errorf("%s: the object was changed", name)
		}
	}
}

// The status has no value of a Secret, and the rest of the manifest unchanged.
func TestShown(t *testing.T) {
	t.Parallel()
	const rest = "---\n# Source: a/templates/b.yaml\nkind: ConfigMap\n# kept\ndata: {a: b}\n"
	manifest := rest + "\n---\n# Source: a/templates/c.yaml\nkind: Secret\ndata: {a: c2VjcmV0}\nstringData: {b: secret}\n" +
		"\n---\nkind: List\nitems: [{kind: Secret, data: {a: c2VjcmV0}}]\n" + "\n---\napiVersion: v1\nkind: SecretList\nitems: [{data: {a: c2VjcmV0}}]\n" + "\n---\nkind: Secret\ndata: secret\n" + "\n---\nkind: [secret\n"
	got := shown(manifest, false, nil)
	if strings.Contains(strings.ToLower(got), "c2vjcmv0") || strings.Contains(got, "secret\n") || strings.Contains(got, "[secret") || !strings.HasPrefix(got, rest) ||
		!strings.Contains(got, "# Source: a/templates/c.yaml\ndata:\n  a: (hidden)\nkind: Secret") {
		t.Errorf("shown:\n%s", got)
	}
	if shown(manifest, true, []string{rest}) != manifest {
		t.Error("exposed: not as it was")
	}
	if long := shown(strings.Repeat("kind: A\n\n---\n", maxManifest/10), true, nil); len(long) > maxManifest || !strings.HasSuffix(long, "…") {
		t.Errorf("cut to %d bytes", len(long))
	}
}

// Values of Secrets are also hidden in other objects. Values of ConfigMaps are not, nor are values that any text may
// contain by chance.
func TestShown_ValuesFrom(t *testing.T) {
	t.Parallel()
	in := &input{settings: settings{ValuesFrom: []valuesSource{
		{Secret: true, Data: map[string]string{"a": "the \"password\"", "b": "first line\nsecond line\n", "c": "short"}},
		{Data: map[string]string{"d": "a setting"}},
	}}}
	manifest := "kind: ConfigMap\ndata:\n  a: user:the \"password\"@db\n  b: \"the \\\"password\\\"\"\n  c: |\n    first line\n    second line\n" +
		"  d: " + base64.StdEncoding.EncodeToString([]byte("first line\nsecond line\n")) + "\n  e: short\n  f: a setting\n"
	want := "data:\n  a: user:(hidden)@db\n  b: (hidden)\n  c: |\n    (hidden)\n  d: (hidden)\n  e: short\n  f: a setting\nkind: ConfigMap\n"
	if got := shown(manifest, false, in.secrets()); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// If Secrets have too many lines to search for, only the fields that identify objects are shown.
func TestShown_ManySecrets(t *testing.T) {
	t.Parallel()
	lines := make([]string, maxSecrets)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d", i)
	}
	in := &input{settings: settings{ValuesFrom: []valuesSource{{Secret: true, Data: map[string]string{"a": strings.Join(lines, "\n")}}}}}
	manifest := "---\n# Source: a\nkind: A\nmetadata: {name: a}\ndata: {a: line 7}\n\n---\n# line 7\n\n---\nkind: List\nitems: [line 7, {kind: B, data: line 7}]\n"
	want := "---\n# Source: a\nkind: A\nmetadata:\n  name: a\n\n---\n{}\n\n---\nitems:\n- kind: B\nkind: List\n"
	if got := shown(manifest, false, in.secrets()); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
}

// Of a release that is not trusted, only objects remain that the chart makes now, in the order of the release.
func TestAgreed(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	for i := range 12 {
		fmt.Fprintf(&text, "---\n# Source: x\nkind: A\nmetadata: {name: a%d}\n", i)
	}
	got, err := agreed(text.String(), []string{"A a3", "A a10'", "B b"})
	want := "0 1 2 4 5 6 7 8 9 11"
	var names []string
	for line := range strings.Lines(got) {
		if _, name, found := strings.Cut(line, "{name: a"); found {
			names = append(names, strings.TrimSuffix(name, "}\n"))
		}
	}
	if is := strings.Join(names, " "); err != nil || is != want {
		t.Errorf("agreed: %s, %v; want %s", is, err, want)
	}
}

// A seal covers one object, and everything that Helm's actions use from a revision, apart from its number and times.
func TestSeal(t *testing.T) {
	t.Parallel()
	h := &handler{in: &input{Object: unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"uid": "1"}}}}}
	revision := func() *release.Release {
		return &release.Release{Version: 1, Manifest: "kind: A", Labels: map[string]string{labelSalt: "s"}, Hooks: []*release.Hook{{Name: "h", Manifest: "kind: B"}}}
	}
	is := h.sealOf(revision())
	again := revision()
	again.Version, again.Hooks[0].LastRun.Phase, again.Hooks[0].DeletePolicies = 2, release.HookPhaseFailed, []release.HookDeletePolicy{release.HookBeforeHookCreation}
	if h.sealOf(again) != is {
		t.Error("a revision that was restored, and whose hooks were run, has another seal")
	}
	for name, change := range map[string]func(*release.Release){
		"manifest": func(r *release.Release) { r.Manifest += "\n" },
		"inputs":   func(r *release.Release) { r.Labels[labelInputs] = "other" },
		"salt":     func(r *release.Release) { r.Labels[labelSalt] = "t" },
		"hook":     func(r *release.Release) { r.Hooks[0].Manifest += "\n" },
		"event":    func(r *release.Release) { r.Hooks[0].Events = []release.HookEvent{release.HookPreDelete} },
		"policy":   func(r *release.Release) { r.Hooks[0].DeletePolicies = []release.HookDeletePolicy{release.HookFailed} },
		"no hook":  func(r *release.Release) { r.Hooks = nil },
	} {
		other := revision()
		if change(other); h.sealOf(other) == is {
			t.Errorf("%s: the same seal", name)
		}
	}
	h.in.Object.SetUID("2")
	if h.sealOf(revision()) == is {
		t.Error("another object: the same seal")
	}
}

// If the chart's schema refuses the values, another run does not help. If the cluster is too old, it does, because a
// cluster may be upgraded.
func TestRender_Refusals(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		chart   v2.Chart
		refused bool
		want    string
	}{
		"kubeVersion": {v2.Chart{Metadata: &v2.Metadata{KubeVersion: ">=99.0.0"}}, false, "chart requires kubeVersion: >=99.0.0 which is incompatible with Kubernetes v1."},
		"reference": {
			v2.Chart{Metadata: &v2.Metadata{}, Schema: []byte(`{"$ref": "http://127.0.0.1:1/a.json"}`)}, false,
			"values.schema.json of the chart refers to a schema that cannot be loaded",
		},
		"schema": {v2.Chart{Metadata: &v2.Metadata{}, Schema: []byte(`{"required": ["a"]}`)}, true, "the spec does not match values.schema.json of the chart"},
	} {
		h := &handler{in: &input{}, config: action.NewConfiguration(), chart: &tt.chart, values: map[string]any{}}
		h.config.Capabilities = common.DefaultCapabilities
		_, err := h.render(t.Context(), nil)
		if refused := errors.As(err, new(refusal)); refused != tt.refused || err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, refused %t", name, err, refused)
		}
	}
}

// With timeout: 0s in the watch, hooks have no time limit either, as in helm-operator.
func TestLeft_WithoutTimeout(t *testing.T) {
	t.Parallel()
	if left := newHandler(&input{}, nil).left(); left < 24*time.Hour {
		t.Error(left)
	}
}

// The changes of objects are reported within limits, and without those of Secrets.
func TestDiffs(t *testing.T) {
	t.Parallel()
	object := func(kind string, data any) map[string]any { return map[string]any{"kind": kind, "data": data} }
	var d diffs
	d.add("A a", object("A", map[string]any{"b": "1", "c": "1"}), object("A", map[string]any{"b": "2", "c": "1"}))
	d.add("A same", object("A", "x"), object("A", "x"))
	d.add("A new", nil, object("A", "x"))
	d.add("Secret s", object("Secret", "canary"), object("Secret", "canary2"))
	d.add("List l", nil, map[string]any{"kind": "List", "items": []any{object("Secret", "canary")}})
	want := "A a:\n@@ -1,4 +1,4 @@\n data:\n-  b: \"1\"\n+  b: \"2\"\n   c: \"1\"\n kind: A\nA new:\n@@ -0,0 +1,2 @@\n+data: x\n+kind: A\n"
	if got := d.String(); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
	for range 100 {
		d.add("A a", nil, object("A", strings.Repeat("x", 1000)))
	}
	d.add("A long", nil, object("A", slices.Repeat([]any{"x"}, 2*maxDiffLines)))
	if got := d.String(); len(got) > maxDiff || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes", len(got))
	}
}

// A line of a report is not longer than the operator reads, whatever the names and the changes of objects have in them.
func TestReports_LongestLine(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"<", "&", "\x01", `"`, "\u2028"} {
		file := filepath.Join(t.TempDir(), "events")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := openReports(file)
		if err != nil {
			t.Fatal(err)
		}
		long := strings.Repeat(text, 2*maxDiff)
		var d diffs
		d.add(long, nil, map[string]any{"a": long})
		r.change(d.String(), "Upgrade: %s", long)
		r.close()
		line, err := os.ReadFile(file)
		if err != nil || r.err != nil || len(line) > 64<<10 || !json.Valid(line) || len(line) < maxDiff {
			t.Errorf("%q: %d bytes, %v, %v", text, len(line), err, r.err)
		}
	}
}

// The ends of the logs of a hook's Pods are reported, within limits.
func TestLogsOf(t *testing.T) {
	t.Parallel()
	client := fake.NewClientset(
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "it-1", Namespace: "ns", Labels: map[string]string{"job-name": "it"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: "ns"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}},
	)
	if got := logsOf(t.Context(), client, "Job", "ns", "it"); got != "\nthe log of Pod it-1, container c, ends with:\nfake logs" {
		t.Errorf("logs: %q", got)
	}
	if got := logsOf(t.Context(), client, "ConfigMap", "ns", "it"); got != "" {
		t.Errorf("logs of what has none: %q", got)
	}
	if got := tail(strings.Repeat("é", 100), 20); len(got) > 20 || got != "…"+strings.Repeat("é", 8) {
		t.Errorf("tail: %q", got)
	}
}

// An object differs if its fields do, not if only the text does.
func TestDiffering(t *testing.T) {
	t.Parallel()
	a, err := parse("---\n# Source: x\nkind: A\nmetadata: {name: a}\nspec: {b: 1, c: [1]}\n---\nkind: B\nmetadata: {name: b, namespace: ns}\n---\n# nothing\n")
	if err != nil {
		t.Fatal(err)
	}
	b, err := parse("---\nmetadata:\n  name: a\nkind: A\nspec:\n  c:\n  - 1\n  b: 1.0\n---\nkind: C\nmetadata: {name: c}\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(differing(a, b), ", "); got != "B ns/b, C c" {
		t.Errorf("differing: %s", got)
	}
	if len(differing(a, a)) != 0 {
		t.Error("an object differs from itself")
	}
}

// The comparison is with the revision from which Helm's upgrade starts.
func TestDeployedOf(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		states []state.Status
		want   int // the revision; 0 for none
	}{
		"none":                          {nil, 0},
		"before a failed one":           {[]state.Status{state.StatusSuperseded, state.StatusDeployed, state.StatusFailed}, 2},
		"its record was deleted":        {[]state.Status{state.StatusSuperseded}, 1},
		"deleted, and a later failed":   {[]state.Status{state.StatusSuperseded, state.StatusFailed}, 1},
		"killed between two records":    {[]state.Status{state.StatusSuperseded, state.StatusPendingUpgrade}, 1},
		"uninstalled":                   {[]state.Status{state.StatusSuperseded, state.StatusUninstalled}, 0},
		"a first one that is not there": {[]state.Status{state.StatusFailed}, 0},
	} {
		var history []*release.Release
		for i, status := range tt.states {
			history = append(history, &release.Release{Version: i + 1, Info: &release.Info{Status: status}})
		}
		got := 0
		if is := deployedOf(history); is != nil {
			got = is.Version
		}
		if got != tt.want {
			t.Errorf("%s: revision %d, want %d", name, got, tt.want)
		}
	}
}

// Whole numbers in the watch's values stay whole numbers in templates, as those of the spec do.
func TestReadJSON_Numbers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(file, []byte(`{"values": {"a": [10485760], "b": 0.5}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SETTINGS", file)
	var is settings
	if err := readJSON("SETTINGS", &is); err != nil || fmt.Sprint(is.Values) != "map[a:[10485760] b:0.5]" {
		t.Errorf("%v, %v", is.Values, err)
	}
}
