package objectbody

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestNames_ReadsEveryAnswerToADeletion(t *testing.T) {
	status := func(s string, d *metav1.StatusDetails) *metav1.Status {
		return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: s, Details: d}
	}
	config := func(name string) corev1.ConfigMap {
		return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "n", UID: "u-" + "x"}}
	}
	object := config("c")
	object.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	one := Meta{APIVersion: "v1", Kind: "ConfigMap", Name: "c", Namespace: "n", UID: "u-x"}
	two := one
	two.Name = "d"
	for name, c := range map[string]struct {
		answer runtime.Object
		want   []Meta
	}{
		"status":       {status("Success", &metav1.StatusDetails{Name: "c", UID: "u", Kind: "configmaps"}), []Meta{{Name: "c", UID: "u"}}},
		"failure":      {status("Failure", &metav1.StatusDetails{Name: "c", UID: "u"}), nil},
		"bare success": {status("Success", nil), nil},
		"no name":      {status("Success", &metav1.StatusDetails{Kind: "configmaps"}), nil},
		"object":       {&object, []Meta{one}},
		"empty list":   {&corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}}, nil},
		"list": {&corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "x"},
			Items: []corev1.ConfigMap{config("c"), config("d")},
		}, []Meta{one, two}},
	} {
		bodies := map[Encoding][]byte{JSON: encode(t, JSON, c.answer), YAML: encode(t, YAML, c.answer), Protobuf: encode(t, Protobuf, c.answer)}
		bodies[CBOR] = cbor(t, string(bodies[JSON]))
		for e, body := range bodies {
			got, err := e.Names(body)
			if err != nil {
				t.Errorf("%s: %s: %v", name, e, err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, e, diff)
			}
		}
	}
}

func TestNames_TellsListsFromObjectsThatLookAlike(t *testing.T) {
	for body, want := range map[string][]Meta{
		`{"apiVersion":"e/v1","kind":"AllowList","metadata":{"name":"l","uid":"u"},"items":["x"]}`: {{APIVersion: "e/v1", Kind: "AllowList", Name: "l", UID: "u"}},
		`{"apiVersion":"e/v1","kind":"Status","metadata":{"name":"s","uid":"u"},"status":{}}`:      {{APIVersion: "e/v1", Kind: "Status", Name: "s", UID: "u"}},
		`{"apiVersion":"e/v1","kind":"AppList","metadata":{},"items":[{"apiVersion":"e/v2","kind":"App","metadata":{"name":"a","uid":"u"}}]}`: {
			{APIVersion: "e/v2", Kind: "App", Name: "a", UID: "u"}},
	} {
		got, err := JSON.Names([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}

func TestNames_RefusesWhatIsMalformed(t *testing.T) {
	list := runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}
	envelope := func(kind runtime.TypeMeta, raw string) string {
		body, err := (&runtime.Unknown{TypeMeta: kind, Raw: []byte(raw)}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return magic + string(body)
	}
	for e, bodies := range map[Encoding][]string{
		JSON: {
			``, `null`, `[]`, `{`, `{}x`, `{"items":[1]}`, `{"items":{}}`, `{"items":[{"metadata":[]}]}`, `{"kind":7}`,
			`{"apiVersion":"v1","kind":"Status","details":7}`,
		},
		YAML: {"", "- a", "items: [1]"},
		CBOR: {"", "\x80", "\xa1"},
		Protobuf: {
			"", "k8s\x00", envelope(list, "\x12\x7f"), envelope(list, "\x12\x02\x0a\x7f"), envelope(list, "\x12\x04\x0a\x02\x0a\x7f"),
			envelope(runtime.TypeMeta{APIVersion: "v1", Kind: "Status"}, "\x0a\x7f"), envelope(runtime.TypeMeta{}, "\x0a\x7f"),
		},
		JSONPatch: {`[]`},
	} {
		for _, body := range bodies {
			if got, err := e.Names([]byte(body)); err == nil {
				t.Errorf("%s: %q: %+v", e, body, got)
			}
		}
	}
}
