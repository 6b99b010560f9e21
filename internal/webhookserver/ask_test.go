package webhookserver

import (
	"encoding/json"
	"strings"
	"testing"

	hooks "github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/test/must"
)

// A command can change only what users may write.
func TestPatched(t *testing.T) {
	t.Parallel()
	const object = `{"apiVersion":"g/v1","kind":"A","metadata":{"name":"a","labels":{"x":"1"}},"spec":{"size":1,"list":[1,2]}}`
	for patch, want := range map[string]string{
		`{"spec":{"size":9007199254740993}}`:     `[{"op":"replace","path":"/spec/size","value":9007199254740993}]`,
		`{"spec":{"list":null}}`:                 `[{"op":"remove","path":"/spec/list"}]`,
		`{"metadata":{"labels":{"y":"2"}}}`:      `[{"op":"add","path":"/metadata/labels/y","value":"2"}]`,
		`{"metadata":{"annotations":{"y":"2"}}}`: `[{"op":"add","path":"/metadata/annotations","value":{"y":"2"}}]`,
		`{}`:                                     `[]`,
		`{"metadata":{"finalizers":["x"]}}`:      "error: it changes metadata.finalizers",
		`{"metadata":{"name":"b"}}`:              "error: it changes metadata.name",
		`{"metadata":null}`:                      "error: its metadata is not an object",
		`{"status":{}}`:                          "error: it changes status",
		`{"kind":"B"}`:                           "error: it changes kind",
		`[{"op":"remove","path":"/spec"}]`:       "error: it is not an object",
		`"x"`:                                    "error: it is not an object",
	} {
		response, err := patched(hooks.Hook{Mutates: true}, []byte(object), []byte(patch))
		got := "error: "
		if err == nil {
			got = string(must.Get(json.Marshal(response.Patches))(t))
		} else {
			got += err.Error()
		}
		if got == "null" {
			got = "[]"
		}
		if got != want && !(strings.HasPrefix(want, "error: ") && strings.HasPrefix(got, want)) {
			t.Errorf("%s: %s, want %s", patch, got, want)
		}
	}
}
