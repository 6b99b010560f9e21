package objectbody

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/rolewright/rolewright/test/must"
)

func marks() map[string]Mark {
	return map[string]Mark{
		"ownerReferences": {Reference: &metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "App", Name: "a", UID: "u-1"}},
		"annotations": {Annotations: map[string]string{
			"operator-sdk/primary-resource": "ns/a", "operator-sdk/primary-resource-type": "App.example.com",
		}},
	}
}

// bodies returns objects to which a mark can be added.
func bodies() []string {
	const other = `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u-2","blockOwnerDeletion":true}`
	return []string{
		`{}`,
		` {"kind":"A" , "metadata" : null}` + "\n",
		`{"metadata":{"name":"c"},"spec":{"a":1.0,"b":1e3,"c":9007199254740993,"d":12345678901234567890,"e":"\u00e9\ud83d\ude00\/<&"}}`,
		`{"metadata":{"ownerReferences":null,"annotations":null}}`,
		`{"metadata":{"ownerReferences":[],"annotations":{}}}`,
		`{"metadata":{"ownerReferences":[` + other + `],"annotations":{"x/y":"1","operator-sdk/primary-resource":"old"}}}`,
		`{"metadata":{"OwnerReferences":[1],"Annotations":2}}`,
	}
}

// checkAdded reports whether the mark could be added, and fails if anything else has changed.
func checkAdded(t *testing.T, field string, m Mark, body string) bool {
	t.Helper()
	marked, err := Add([]byte(body), m)
	if err != nil {
		return false
	}
	var before, after map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(marked, &after); err != nil {
		t.Fatalf("%s: the result is not JSON: %v\n%s", body, err, marked)
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(body), &before); err != nil {
		t.Fatalf("%s: marked, and no JSON: %v", body, err)
	}
	meta, err := Read(marked)
	if err != nil || !m.In(meta) {
		t.Fatalf("%s: %+v, want the mark; error %v", body, meta, err)
	}
	// Without the mark, the field is as before, and so is the rest of the object.
	rest := func(object map[string]any) any {
		md, _ := object["metadata"].(map[string]any)
		was := md[field]
		delete(md, field)
		if len(md) == 0 {
			delete(object, "metadata")
		}
		switch was := was.(type) {
		case []any:
			for i := len(was) - 1; i >= 0; i-- {
				if ref, _ := was[i].(map[string]any); ref["uid"] == "u-1" {
					was = append(was[:i], was[i+1:]...)
				}
			}
			return []any{object, append([]any{}, was...)}
		case map[string]any:
			for key := range m.Annotations {
				delete(was, key)
			}
			if field == "annotations" && len(was) > 0 {
				return []any{object, was}
			}
		}
		return []any{object, []any{}}
	}
	if a, b := rest(before), rest(after); !reflect.DeepEqual(a, b) {
		t.Fatalf("%s: became %s", body, marked)
	}
	again, err := Add(marked, m)
	if err != nil || string(again) != string(marked) {
		t.Fatalf("%s: marked twice: %s, error %v", body, again, err)
	}
	return true
}

func TestAdd_ChangesNothingElse(t *testing.T) {
	for field, m := range marks() {
		for _, body := range bodies() {
			if !checkAdded(t, field, m, body) {
				t.Errorf("%s: %s: not marked", field, body)
			}
		}
	}
}

func TestAdd_RefusesWhatWouldLoseSomething(t *testing.T) {
	for _, body := range []string{
		``, `null`, `[]`, `{`, `{}x`, `"a"`,
		`{"a":1,"a":2}`, `{"metadata":{},"metadata":{}}`, `{"metadata":{"name":"a","name":"b"}}`,
		`{"metadata":[]}`, `{"metadata":{"ownerReferences":{}}}`, `{"metadata":{"annotations":{"a":1}}}`, `{"metadata":{"annotations":{"a":"1","a":"2"}}}`,
		`{"metadata":` + strings.Repeat(`{"a":`, 20_000) + strings.Repeat(`}`, 20_001),
	} {
		for field, m := range marks() {
			if marked, err := Add([]byte(body), m); err == nil && !(field == "ownerReferences" && strings.Contains(body, `"annotations":{"a":"1"`)) {
				t.Errorf("%s: %.100s: became %.100s", field, body, marked)
			}
		}
	}
}

func FuzzAdd(f *testing.F) {
	for _, body := range bodies() {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		if len(body) > 1<<14 || !json.Valid([]byte(body)) {
			t.Skip()
		}
		for field, m := range marks() {
			checkAdded(t, field, m, body)
		}
	})
}

// A note is added to an object together with the mark, and is not part of the mark.
func TestAdd_PutsNotesOn(t *testing.T) {
	t.Parallel()
	for field, m := range marks() {
		m.Notes = map[string]string{"note": "n"}
		plain := m
		plain.Notes = nil
		marked := must.Get(Add([]byte(`{"metadata":{"annotations":{"x":"1"}}}`), plain))(t)
		noted := must.Get(Add(marked, m))(t)
		meta, err := Read(noted)
		if err != nil || !m.In(meta) || meta.Annotations["note"] != "n" || meta.Annotations["x"] != "1" || len(meta.OwnerReferences) > 1 {
			t.Errorf("%s: %s", field, noted)
		}
		again, err := Add(noted, m)
		if err != nil || string(again) != string(noted) {
			t.Errorf("%s: added again: %s, %v", field, again, err)
		}
	}
}
