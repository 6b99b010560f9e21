package objectbody

import (
	"testing"

	"github.com/rolewright/rolewright/test/must"
)

func TestNames_ReadsEveryAnswer(t *testing.T) {
	for body, want := range map[string][]Meta{
		`{"apiVersion":"v1","kind":"Status","status":"Success","details":{"name":"c","uid":"u","kind":"configmaps"}}`: {{Name: "c", UID: "u"}},
		`{"apiVersion":"v1","kind":"Status","status":"Failure","details":{"name":"c","uid":"u"}}`:                     nil,
		`{"apiVersion":"v1","kind":"Status","status":"Success"}`:                                                      nil,
		`{"apiVersion":"v1","kind":"Status","status":"Success","details":{"kind":"configmaps"}}`:                      nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"n","uid":"u"}}`:                    {{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "c", UID: "u"}},
		`{"apiVersion":"v1","kind":"ConfigMapList","metadata":{},"items":[]}`:                                         nil,
		`{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"c"}},{"metadata":{"name":"d"}}]}`: {
			{APIVersion: "v1", Kind: "ConfigMap", Name: "c"}, {APIVersion: "v1", Kind: "ConfigMap", Name: "d"}},
		`{"apiVersion":"e/v1","kind":"AppList","metadata":{},"items":[{"apiVersion":"e/v2","kind":"App","metadata":{"name":"a","uid":"u"}}]}`: {
			{APIVersion: "e/v2", Kind: "App", Name: "a", UID: "u"}},
		// Objects that look like lists or statuses.
		`{"apiVersion":"e/v1","kind":"AllowList","metadata":{"name":"l","uid":"u"},"items":["x"]}`: {{APIVersion: "e/v1", Kind: "AllowList", Name: "l", UID: "u"}},
		`{"apiVersion":"e/v1","kind":"Status","metadata":{"name":"s","uid":"u"},"status":{}}`:      {{APIVersion: "e/v1", Kind: "Status", Name: "s", UID: "u"}},
		`{"apiVersion":"meta.k8s.io/v1","kind":"Table","metadata":{},"rows":[{"cells":[],"object":{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"t","uid":"u"}}}]}`: {
			{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata", Name: "t", UID: "u"}},
	} {
		got, err := Names([]byte(body))
		if err != nil {
			t.Errorf("%s: %v", body, err)
		}
		must.Be(t, body, want, got)
	}
	for _, body := range []string{
		``, `null`, `[]`, `{`, `{}x`, `{"items":[1]}`, `{"items":{}}`, `{"items":[{"metadata":[]}]}`, `{"kind":7}`,
		`{"apiVersion":"v1","kind":"Status","details":7}`, `{"apiVersion":"meta.k8s.io/v1","kind":"Table","rows":[{}]}`,
	} {
		if got, err := Names([]byte(body)); err == nil {
			t.Errorf("%q: %+v", body, got)
		}
	}
}
