package objectbody

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAddToJSON_ChangesNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		mark       Mark
		body, want string
	}{
		"no metadata":         {owner(), `{}`, `{"metadata":{"ownerReferences":[OWNER]}}`},
		"empty metadata":      {owner(), `{"a":1e3, "metadata" : { } , "b":0.10}`, `{"a":1e3, "metadata" : { "ownerReferences":[OWNER]} , "b":0.10}`},
		"null metadata":       {owner(), `{"metadata":null}`, `{"metadata":{"ownerReferences":[OWNER]}}`},
		"order and spelling":  {owner(), `{"z":9007199254740993,"metadata":{"name":"\u0061"},"a":1.0}`, `{"z":9007199254740993,"metadata":{"name":"\u0061","ownerReferences":[OWNER]},"a":1.0}`},
		"escaped key":         {owner(), `{"metad\u0061ta":{"ownerReference\u0073":[OTHER]}}`, `{"metad\u0061ta":{"ownerReference\u0073":[OTHER,OWNER]}}`},
		"other case":          {owner(), `{"Metadata":{}}`, `{"Metadata":{},"metadata":{"ownerReferences":[OWNER]}}`},
		"duplicates":          {owner(), `{"a":1,"a":2,"metadata":{"name":"a"},"metadata":{"name":"b"},"a":3}`, `{"a":1,"a":2,"metadata":{"name":"a"},"metadata":{"name":"b","ownerReferences":[OWNER]},"a":3}`},
		"duplicate, then nil": {owner(), `{"metadata":{"name":"a"},"metadata":null}`, `{"metadata":{"name":"a"},"metadata":{"ownerReferences":[OWNER]}}`},
		"in the duplicate":    {owner(), `{"metadata":{"name":"a"},"metadata":{"ownerReferences":[OTHER]}}`, `{"metadata":{"name":"a"},"metadata":{"ownerReferences":[OTHER,OWNER]}}`},
		"empty list":          {owner(), `{"metadata":{"ownerReferences":[ ]}}`, `{"metadata":{"ownerReferences":[ OWNER]}}`},
		"null list":           {owner(), `{"metadata":{"ownerReferences": null }}`, `{"metadata":{"ownerReferences": [OWNER] }}`},
		"second owner":        {owner(), `{"metadata":{"ownerReferences":[OTHER ]}}`, `{"metadata":{"ownerReferences":[OTHER ,OWNER]}}`},
		"there already":       {owner(), ` {"metadata":{"ownerReferences":[OTHER, {"uid":"u-1","x":1}]}} `, ` {"metadata":{"ownerReferences":[OTHER, {"uid":"u-1","x":1}]}} `},
		"new annotations":     {annotated(), `{"metadata":{"name":"n"}}`, `{"metadata":{"name":"n","annotations":{NOTES}}}`},
		"null annotations":    {annotated(), `{"metadata":{"annotations":null}}`, `{"metadata":{"annotations":{NOTES}}}`},
		"more annotations":    {annotated(), `{"metadata":{"annotations":{"a":"\u003c" }}}`, `{"metadata":{"annotations":{"a":"\u003c" ,NOTES}}}`},
		"other annotations": {
			annotated(), `{"metadata":{"annotations":{"operator-sdk/primary-resource-type":"x","b":"y"}}}`,
			`{"metadata":{"annotations":{"operator-sdk/primary-resource-type":"App.example.com","b":"y","operator-sdk/primary-resource":"ns/a"}}}`,
		},
		"annotated already": {annotated(), `{"metadata":{"annotations":{NOTES}}}`, `{"metadata":{"annotations":{NOTES}}}`},
	} {
		for _, e := range []Encoding{JSON, YAML, ApplyYAML} {
			body, want := expand(c.body), expand(c.want)
			got, err := e.Add([]byte(body), c.mark, nil)
			if err != nil {
				t.Errorf("%s: %s: %v", name, e, err)
				continue
			}
			if diff := cmp.Diff(want, string(got)); diff != "" {
				t.Errorf("%s: %s (-want +got):\n%s", name, e, diff)
			}
			if !checkAdded(t, e, []byte(body), got, c.mark, "") {
				t.Errorf("%s: %s: nothing to compare", name, e)
			}
		}
	}
}

func expand(s string) string {
	return strings.NewReplacer("OWNER", ownerText, "OTHER", otherText, "NOTES", notesText).Replace(s)
}

func TestAdd_SaysWhenTheMarkHasNoPlace(t *testing.T) {
	for name, c := range map[string]struct {
		encoding Encoding
		mark     Mark
		body     string
	}{
		"list twice":                     {JSON, owner(), `{"metadata":{"ownerReferences":[],"ownerReferences":[OTHER]}}`},
		"list in the first metadata":     {JSON, owner(), `{"metadata":{"ownerReferences":[OTHER]},"metadata":{"name":"a"}}`},
		"list in each metadata":          {JSON, owner(), `{"metadata":{"ownerReferences":[OTHER]},"metadata":{"ownerReferences":[]}}`},
		"annotations twice":              {JSON, annotated(), `{"metadata":{"annotations":{"a":"b"},"annotations":null}}`},
		"merge removes metadata":         {MergePatch, owner(), `{"metadata":null}`},
		"merge removes annotations":      {MergePatch, annotated(), `{"metadata":{"annotations":null}}`},
		"strategic removes metadata":     {StrategicMergePatch, owner(), `{"metadata":null}`},
		"strategic removes references":   {StrategicMergePatch, owner(), `{"metadata":{"ownerReferences":null}}`},
		"strategic orders references":    {StrategicMergePatch, owner(), `{"metadata":{"$setElementOrder/ownerReferences":[]}}`},
		"strategic removes annotations":  {StrategicMergePatch, annotated(), `{"metadata":{"annotations":null}}`},
		"strategic replaces annotations": {StrategicMergePatch, annotated(), `{"metadata":{"annotations":{"$patch":"delete"}}}`},
		"patch replaces metadata":        {JSONPatch, owner(), `[{"op":"replace","path":"/metadata","value":{}}]`},
		"patch replaces everything":      {JSONPatch, owner(), `[{"op":"replace","path":"","value":{}}]`},
		"patch is null":                  {JSONPatch, owner(), `null`},
		"patch copies references":        {JSONPatch, owner(), `[{"op":"copy","from":"/data","path":"/metadata/ownerReferences"}]`},
		"patch moves references":         {JSONPatch, owner(), `[{"op":"move","path":"/data/x","from":"/metadata/ownerReferences/0"}]`},
		"duplicate YAML":                 {YAML, owner(), "data: {}\ndata: {}\n"},
		"YAML key of some length":        {YAML, owner(), "? " + strings.Repeat("k", 1100) + "\n: 1\n"},
		"YAML control character":         {ApplyYAML, owner(), `{a: "\x7f"}`},
		"YAML next line":                 {ApplyYAML, owner(), `{a: "x\Ny"}`},
	} {
		body := expand(c.body)
		got, err := c.encoding.Add([]byte(body), c.mark, storedMeta(t, stores()["annotated"]))
		if !errors.Is(err, ErrUnmarkable) {
			t.Errorf("%s: %q, %v; want ErrUnmarkable", name, got, err)
		}
	}
}

// Patches of every kind against every stored object: the result of the marked patch
// is the result of the patch, with the mark.
func TestAddToPatches_AddsTheMarkToWhatTheyMake(t *testing.T) {
	objects := []string{
		`{}`, `{"data":{"k":null,"n":"1"}}`, `{"metadata":{"labels":{"l":"m"}}}`, `{"metadata":{"ownerReferences":[]}}`,
		`{"metadata":{"ownerReferences":[OTHER]}}`, `{"metadata":{"ownerReferences":[OWNER]}}`,
		`{"metadata":{"annotations":{"x/y":null,"z":"1"}}}`, `{"metadata":{"annotations":{"operator-sdk/primary-resource":null}}}`,
	}
	patches := map[Encoding][]string{
		MergePatch: append(objects, `{"metadata":{"ownerReferences":null}}`),
		StrategicMergePatch: append(objects,
			`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-2"}]}}`,
			`{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-1"}]}}`,
			`{"metadata":{"ownerReferences":[{"$patch":"replace"}]}}`),
		JSONPatch: {
			`[]`, ` [ ] `, `[{"op":"add","path":"/data/x","value":"1"} ] `, `[{"op":"test","path":"/metadata/name","value":"c"}]`,
			`[{"op":"add","path":"/metadata/ownerReferences","value":[]}]`, `[{"op":"add","path":"/metadata/ownerReferences","value":null}]`,
			`[{"op":"add","path":"/metadata/ownerReferences","value":[OTHER]}]`, `[{"op":"add","path":"/metadata/ownerReferences","value":[OWNER]}]`,
			`[{"op":"add","path":"/metadata/ownerReferences/-","value":OTHER}]`, `[{"op":"remove","path":"/metadata/ownerReferences"}]`,
			`[{"op":"remove","path":"/metadata/ownerReferences/0"}]`, `[{"op":"remove","path":"/metadata/ownerReferences/-1"}]`,
			`[{"op":"add","path":"/metadata/annotations","value":{}}]`, `[{"op":"add","path":"/metadata/annotations/a~1b","value":"~"}]`,
			`[{"op":"remove","path":"/metadata/annotations/x~1y"}]`, `[{"op":"remove","path":"/metadata/annotations"}]`,
			`[{"op":"move","from":"/data","path":"/binaryData"}]`, `[{"op":"copy","from":"/metadata/name","path":"/data/n"}]`,
			`[{"op":"replace","path":"x/metadata/ownerReferences","value":[OTHER]}]`,
			`[{"op":"test","path":"/metadata/ownerReferences","value":null},{"op":"add","path":"/metadata/l\u0061bels","value":{"a":"b"}}]`,
		},
	}
	for e, bodies := range patches {
		for _, body := range bodies {
			compared := false
			for name, stored := range stores() {
				for _, m := range marks() {
					compared = checkPatch(t, e, expand(body), name, stored, m) || compared
				}
			}
			if !compared {
				t.Errorf("%s: %s was never compared", e, body)
			}
		}
	}
}

func checkPatch(t *testing.T, e Encoding, body, name, stored string, m Mark) (compared bool) {
	t.Helper()
	want, applies := untyped(e, []byte(body), stored)
	got, err := e.Add([]byte(body), m, storedMeta(t, stored))
	if applies != nil { // the API server refuses the patch; it has to stay refused
		if err != nil {
			return false
		}
		if _, err := untyped(e, got, stored); err == nil {
			t.Errorf("%s: %s: %s is accepted, %s was not", e, name, got, body)
		}
		return false
	}
	if err != nil {
		t.Errorf("%s: %s: %s: %v", e, name, body, err)
		return false
	}
	have, err := untyped(e, got, stored)
	if err != nil {
		t.Errorf("%s: %s: %s became %s: %v", e, name, body, got, err)
		return false
	}
	// Only a strategic merge leaves the order of references to the API server.
	byUID := cmpopts.SortSlices(func(a, b any) bool { return text(t, a) < text(t, b) })
	if diff := cmp.Diff(mark(t, want, m), have, byUID); diff != "" {
		t.Errorf("%s: %s: %s became %s (-want +got):\n%s", e, name, body, got, diff)
	}
	return true
}
