package objectbody

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

func owner() Mark {
	return Mark{Reference: &metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "App", Name: "a", UID: "u-1"}}
}

func annotated() Mark {
	return Mark{Annotations: map[string]string{
		"operator-sdk/primary-resource":      "ns/a",
		"operator-sdk/primary-resource-type": "App.example.com",
	}}
}

func marks() map[string]Mark {
	return map[string]Mark{"reference": owner(), "annotations": annotated()}
}

const (
	ownerText = `{"apiVersion":"example.com/v1","kind":"App","name":"a","uid":"u-1"}`
	otherText = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-2"}`
	notesText = `"operator-sdk/primary-resource":"ns/a","operator-sdk/primary-resource-type":"App.example.com"`
)

// stores are objects that patches apply to.
func stores() map[string]string {
	object := func(metadata string) string {
		return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n","uid":"u-0"` + metadata + `},"data":{"k":"v"}}`
	}
	return map[string]string{
		"plain":     object(""),
		"owned":     object(`,"ownerReferences":[` + otherText + `]`),
		"ours":      object(`,"ownerReferences":[` + otherText + `,` + ownerText + `],"annotations":{` + notesText + `}`),
		"annotated": object(`,"annotations":{"x/y":"1","operator-sdk/primary-resource":"old"}`),
	}
}

// untyped is the body of a custom resource as an API server decodes it, or the
// stored object after a patch.
func untyped(e Encoding, body []byte, stored string) (object map[string]any, err error) {
	switch e {
	case JSON:
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &object)
	case YAML:
		if body, err = yaml.YAMLToJSON(body); err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(body, &object)
		}
	case ApplyYAML:
		err = utilyaml.Unmarshal(body, &object)
	case CBOR, ApplyCBOR:
		err = direct.Unmarshal(body, &object)
	default:
		if body, err = patched(e, body, stored); err == nil {
			err = kjson.UnmarshalCaseSensitivePreserveInts(body, &object)
		}
	}
	return object, err
}

func patched(e Encoding, body []byte, stored string) ([]byte, error) {
	switch e {
	case MergePatch:
		return jsonpatch.MergePatch([]byte(stored), body)
	case StrategicMergePatch:
		return strategicpatch.StrategicMergePatch([]byte(stored), body, corev1.ConfigMap{})
	case JSONPatch:
		p, err := jsonpatch.DecodePatch(body)
		if err != nil {
			return nil, err
		}
		return p.Apply([]byte(stored))
	default:
		return nil, fmt.Errorf("no patch: %s", e)
	}
}

// typed is the body of a built-in kind as an API server decodes it.
func typed(e Encoding, body []byte) (map[string]any, error) {
	var c corev1.ConfigMap
	var err error
	switch e {
	case YAML:
		if body, err = yaml.YAMLToJSON(body); err != nil {
			return nil, err
		}
		fallthrough
	case JSON:
		err = kjson.UnmarshalCaseSensitivePreserveInts(body, &c)
	case Protobuf:
		var u runtime.Unknown
		if !bytes.HasPrefix(body, []byte(magic)) {
			return nil, errors.New("no magic")
		}
		if err = u.Unmarshal(body[len(magic):]); err == nil {
			err = c.Unmarshal(u.Raw)
		}
	case CBOR:
		err = direct.Unmarshal(body, &c)
	default:
		err = fmt.Errorf("never typed: %s", e)
	}
	if err != nil {
		return nil, err
	}
	return runtime.DefaultUnstructuredConverter.ToUnstructured(&c)
}

// mark adds the mark to a decoded object: adding it to the body must have the same
// result.
func mark(t testing.TB, object map[string]any, m Mark) map[string]any {
	t.Helper()
	if object == nil {
		t.Fatal("a mark was added to no object")
	}
	md, _ := object["metadata"].(map[string]any)
	if md == nil {
		md = map[string]any{}
		object["metadata"] = md
	}
	if m.Reference == nil {
		have, _ := md[annotationsField].(map[string]any)
		if have == nil {
			have = map[string]any{}
			md[annotationsField] = have
		}
		for k, v := range m.Annotations {
			have[k] = v
		}
		return object
	}
	list, _ := md[referencesField].([]any)
	for _, r := range list {
		if r, _ := r.(map[string]any); r["uid"] == string(m.Reference.UID) {
			return object
		}
	}
	r := m.Reference
	md[referencesField] = append(list, map[string]any{
		"apiVersion": r.APIVersion, "kind": r.Kind, "name": r.Name, "uid": string(r.UID),
	})
	return object
}

// checkAdded fails unless the API server decodes the marked body as the body with
// the mark. It reports whether there was anything to compare.
func checkAdded(t testing.TB, e Encoding, body, marked []byte, m Mark, stored string) bool {
	t.Helper()
	compared := false
	compare := func(decode func([]byte) (map[string]any, error)) {
		want, err := decode(body)
		if err != nil {
			return // refused as it is
		}
		compared = true
		got, err := decode(marked)
		if err != nil {
			t.Errorf("%s: %q is refused, %q was not: %v", e, marked, body, err)
			return
		}
		if diff := cmp.Diff(mark(t, want, m), got); diff != "" {
			t.Errorf("%s: %q became %q (-want +got):\n%s", e, body, marked, diff)
		}
	}
	if e != Protobuf {
		compare(func(b []byte) (map[string]any, error) { return untyped(e, b, stored) })
	}
	if e == JSON || e == YAML || e == Protobuf || e == CBOR {
		compare(func(b []byte) (map[string]any, error) { return typed(e, b) })
	}
	again, err := e.Add(marked, m, storedMeta(t, stored))
	if err != nil {
		t.Errorf("%s: %q cannot be marked again: %v", e, marked, err)
	}
	if !bytes.Equal(again, marked) {
		t.Errorf("%s: %q was marked twice: %q", e, marked, again)
	}
	return compared
}

func storedMeta(t testing.TB, stored string) *Meta {
	t.Helper()
	if stored == "" {
		return nil
	}
	m, err := JSON.Read([]byte(stored))
	if err != nil {
		t.Fatal(err)
	}
	return &m
}

func cbor(t testing.TB, text string) []byte {
	t.Helper()
	var tree any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	body, err := direct.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte(selfDescribed), body...)
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
