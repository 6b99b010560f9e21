package scaffold

import (
	"strings"
	"testing"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/test/must"
)

// A field in snake_case, or with an abbreviation, becomes the same variable as the field in camelCase. If a CRD has such a
// field, it keeps it.
func TestDefinition_KeepsFieldsInSnakeCase(t *testing.T) {
	k := Kind{Project: Project{Domain: "example.com", Name: "op"}, Group: "web", Version: "v1", Kind: "Site", Namespaced: true}
	const spec = "argument_specs: {main: {options: {log_level: {required: true}, a_list: {type: list, elements: dict, options: {log_level: {}, tls_key: {}}}}}}"
	text := func(old string) (string, string) {
		t.Helper()
		options := optionsOf(t, "meta/argument_specs.yml", spec)
		Variable(extravars.ToSnake).takeFields(options, k.specIn(old))
		s := newSchema(options, nil, extravars.ToSnake)
		text, breaks, kept, err := k.definitionText(old, s)
		if err != nil || len(breaks)+len(kept) > 0 {
			t.Fatal(err, breaks, kept)
		}
		return text, must.Get(k.sampleText(s, options))(t)
	}
	first, _ := text("")
	for _, field := range []string{"log_level", "logLEVEL"} {
		other := strings.ReplaceAll(first, "logLevel", field)
		if again, sample := text(other); again != other || !strings.Contains(sample, "  "+field+": example\n") || !strings.Contains(again, "tlsKey:") {
			t.Errorf("%s\nis now\n%s\nwith\n%s", other, again, sample)
		}
	}
}

// With snakeCaseParameters: false, a new option becomes a field with its own name beside those that the CRD has.
func TestDefinition_WithoutSnakeCase(t *testing.T) {
	k := Kind{Project: Project{Domain: "example.com", Name: "op"}, Group: "web", Version: "v1", Kind: "Site", Namespaced: true}
	old := ""
	for _, names := range []string{"logLevel: {}", "logLevel: {}, log_file: {}"} {
		options := optionsOf(t, "meta/argument_specs.yml", "argument_specs: {main: {options: {"+names+"}}}")
		Variable(nil).takeFields(options, k.specIn(old))
		text, breaks, kept, err := k.definitionText(old, newSchema(options, nil, nil))
		if err != nil || len(breaks)+len(kept) > 0 {
			t.Fatal(err, breaks, kept)
		}
		old = text
	}
	if !strings.Contains(old, "logLevel:") || !strings.Contains(old, "log_file:") {
		t.Error(old)
	}
}
