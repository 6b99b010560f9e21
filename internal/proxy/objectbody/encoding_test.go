package objectbody

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestEncodingOf_KnowsWhatAnAPIServerTakes(t *testing.T) {
	for header, want := range map[string]Encoding{
		"":                                       JSON,
		"application/json":                       JSON,
		"Application/JSON; charset=utf-8":        JSON,
		"application/json;q":                     JSON,
		"application/yaml":                       YAML,
		"application/vnd.kubernetes.protobuf":    Protobuf,
		"application/cbor":                       CBOR,
		"application/json-patch+json":            JSONPatch,
		"application/merge-patch+json ; a=1;a=2": MergePatch,
		"application/strategic-merge-patch+json": StrategicMergePatch,
		"application/apply-patch+yaml":           ApplyYAML,
		"application/apply-patch+cbor":           ApplyCBOR,
	} {
		if got, ok := EncodingOf(header); got != want || !ok {
			t.Errorf("EncodingOf(%q) = %q, %v; want %q", header, got, ok, want)
		}
	}
	for _, header := range []string{"text/plain", "application/cbor-seq", ";", " ", "application/json, application/yaml"} {
		if got, ok := EncodingOf(header); ok {
			t.Errorf("EncodingOf(%q) = %q, want none", header, got)
		}
	}
}

func TestEncoding_TellsServerSideApplyFromOtherPatches(t *testing.T) {
	for _, e := range []Encoding{JSON, YAML, Protobuf, CBOR, JSONPatch, MergePatch, StrategicMergePatch} {
		if e.IsApply() {
			t.Errorf("%s is taken for server-side apply", e)
		}
	}
	if !ApplyYAML.IsApply() || !ApplyCBOR.IsApply() {
		t.Error("server-side apply is not recognised")
	}
}

func TestRead_SaysTheSameInEveryEncoding(t *testing.T) {
	const body = `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","generateName":"g-","namespace":"n","uid":"u",
		"resourceVersion":"7","annotations":{"a":"b"},"ownerReferences":[` + otherText + `],"labels":{"l":"m"}},"data":{"n":"1"}}`
	want := Meta{
		APIVersion: "v1", Kind: "ConfigMap", Name: "c", GenerateName: "g-", Namespace: "n", UID: "u", ResourceVersion: "7",
		Annotations:     map[string]string{"a": "b"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "o", UID: "u-2"}},
	}
	bodies := map[Encoding][]byte{
		JSON: []byte(body), MergePatch: []byte(body), StrategicMergePatch: []byte(body),
		YAML: []byte(asYAML(t, body)), ApplyYAML: []byte(asYAML(t, body)),
		CBOR: cbor(t, body), ApplyCBOR: cbor(t, body),
		Protobuf: asProtobuf(t, body),
	}
	for e, body := range bodies {
		got, err := e.Read(body)
		if err != nil {
			t.Errorf("%s: %v", e, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", e, diff)
		}
	}
	if got, err := JSONPatch.Read([]byte(`[{"op":"add","path":"/metadata/name","value":"x"}]`)); err != nil || !cmp.Equal(got, Meta{}) {
		t.Errorf("JSON patch: %+v, %v; want nothing", got, err)
	}
}

func TestRead_TakesNamesAsTheyAreSpelt(t *testing.T) {
	const body = `{"Kind":"x","kind":"K","metadata":{"NAME":"x","name":"1"},"metad\u0061ta":{"n\u0061me":"2","Name":"x","uid":null},"METADATA":{"name":"x"}}`
	got, err := JSON.Read([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Meta{Kind: "K", Name: "2"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// malformed are bodies that every API server refuses.
func malformed() map[Encoding][]string {
	jsons := []string{
		``, `null`, `[]`, `"x"`, `7`, `{`, `{"metadata":{}}x`, `{"metadata":{}}{}`, `{"metadata":[]}`, `{"metadata":"x"}`,
		`{"metadata":{"ownerReferences":{},"annotations":[]}}`, "\xef\xbb\xbf{}", `{"metadata":{"ownerReferences":[1],"annotations":"a"}}`,
		strings.Repeat("[", 3<<20), strings.Repeat(`{"metadata":`, 1<<18), `{"a":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`,
	}
	return map[Encoding][]string{
		JSON: jsons, MergePatch: jsons, StrategicMergePatch: jsons,
		YAML:      {"", "a", "- a", "a: [", "a: b: c", "metadata: x", "metadata: [a]", "? {a: b}\n: c", "? ~\n: c", "a: .nan", strings.Repeat("[", 3<<20), strings.Repeat("- ", 1<<20)},
		CBOR:      {"", "\xf6", "\x80", "\xa1", "\xd9\xd9\xf7", "\xbf", "\x9b\x7f\xff\xff\xff\xff\xff\xff\xff", strings.Repeat("\x81", 3<<20), "\xa1\x48metadata\x80", "\xa2\x41a\x01\x41a\x02"},
		Protobuf:  {"", "k8s\x00", "k8s", "x", "k8s\x00\x12", "k8s\x00\x12\xff\xff\xff\xff\x0f", "k8s\x00\x0a\x00", "k8s\x00\x12\x03\x0a\x05\x00", "k8s\x00\x12\x04\x0a\x02\x0a\x7f"},
		JSONPatch: {"", "{}", "[", "[]x", "[7]", `[{"op":"add"}]`, `[{"op":"remove","path":"/metadata/ownerReferences/x"},{"op":"remove","path":"/metadata/annotations/none"}]`},
	}
}

func TestAdd_RefusesWhatIsMalformed(t *testing.T) {
	for e, bodies := range malformed() {
		for _, body := range bodies {
			for name, m := range marks() {
				got, err := e.Add([]byte(body), m, &Meta{})
				if err == nil {
					t.Errorf("%s: %s: %.60q became %.80q", e, name, body, got)
				}
				if errors.Is(err, ErrUnmarkable) {
					t.Errorf("%s: %s: %.60q is taken for well-formed: %v", e, name, body, err)
				}
			}
		}
	}
}

func TestAdd_RefusesWhatIsNoMark(t *testing.T) {
	for name, m := range map[string]Mark{
		"none": {}, "empty": {Annotations: map[string]string{}}, "no uid": {Reference: &metav1.OwnerReference{Name: "a"}},
		"both": {Reference: owner().Reference, Annotations: annotated().Annotations},
	} {
		if got, err := JSON.Add([]byte(`{}`), m, nil); err == nil {
			t.Errorf("%s: %s", name, got)
		}
	}
	if got, err := Encoding("text/plain").Add([]byte(`{}`), owner(), nil); err == nil {
		t.Errorf("unknown encoding: %s", got)
	}
}

func TestAdd_LeavesPatchesOfNothingAlone(t *testing.T) {
	for _, e := range []Encoding{JSONPatch, MergePatch, StrategicMergePatch} {
		for name, m := range marks() {
			if got, err := e.Add([]byte(`{"a":1}`), m, nil); err != nil || string(got) != `{"a":1}` {
				t.Errorf("%s: %s: %s, %v", e, name, got, err)
			}
		}
	}
}
