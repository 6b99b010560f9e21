package scaffold

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gopkg.in/yaml.v3"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/test/must"
)

// schemaOf returns the schema of an argument spec, and its text.
func schemaOf(t *testing.T, spec string) (*schema, string) {
	t.Helper()
	s := newSchema(optionsOf(t, "meta/argument_specs.yml", "argument_specs: {main: {options: "+spec+"}}"), nil, extravars.ToSnake)
	text := must.Get(encode(s.spec))(t)
	return s, text
}

func optionsOf(t *testing.T, file, content string) []option {
	t.Helper()
	options := must.Get(reader(func(name string) ([]byte, error) {
		if name != file {
			return nil, os.ErrNotExist
		}
		return []byte(content), nil
	}).options("", ""))(t)
	return options
}

// compact returns YAML in one line, without comments.
func compact(t *testing.T, text string) string {
	t.Helper()
	var n yaml.Node
	must.Do(t, yaml.Unmarshal([]byte(text), &n))
	var flow func(n *yaml.Node)
	flow = func(n *yaml.Node) {
		n.Style, n.HeadComment, n.LineComment = n.Style|yaml.FlowStyle, "", ""
		for _, c := range n.Content {
			flow(c)
		}
	}
	flow(n.Content[0])
	data := must.Get(yaml.Marshal(&n))(t)
	return strings.Join(strings.Fields(string(data)), " ")
}

func TestSchema_OfEachType(t *testing.T) {
	tests := []struct{ spec, want string }{
		{"{log_level: {type: str}}", "{logLevel: {type: string}}"},
		{"{a: {}}", "{a: {type: string}}"},
		{"{a: {type: bool}}", "{a: {type: boolean}}"},
		{"{a: {type: int, choices: [1, 2]}}", "{a: {type: integer, format: int64, enum: [1, 2]}}"},
		{"{a: {type: float}}", "{a: {type: number}}"},
		{"{a: {type: path, choices: [yes, no]}}", `{a: {type: string, enum: ["yes", "no"]}}`},
		{"{a: {type: raw}}", "{a: {x-kubernetes-preserve-unknown-fields: true}}"},
		{"{a: {type: list, elements: str}}", "{a: {type: array, items: {type: string, maxLength: 1024}, x-kubernetes-list-type: atomic}}"},
		{"{a: {type: dict}}", "{a: {type: object, x-kubernetes-preserve-unknown-fields: true}}"},
		{"{a: {type: dict, options: {b: {type: int, required: true}}}}", "{a: {type: object, properties: {b: {type: integer, format: int64}}, required: [b]}}"},
		{"{a: {removed_in_version: '2', type: dict, options: {}}}", "{a: {description: 'Deprecated: removed in version 2 of the role.', type: object, x-kubernetes-preserve-unknown-fields: true}}"},
		{"{a: {type: int, default: 3, description: [One., 'See O(b).']}}", "{a: {description: 'One. See b. Default: 3, from the role.', type: integer, format: int64}}"},
	}
	for _, tt := range tests {
		_, text := schemaOf(t, tt.spec)
		if got, want := compact(t, text), compact(t, "{type: object, properties: "+tt.want+"}"); got != want {
			t.Errorf("%s\n got %s\nwant %s", tt.spec, got, want)
		}
	}
}

// If the API server would not pass on values as the argument spec expects them, the user gets a note.
func TestSchema_Notes(t *testing.T) {
	for spec, want := range map[string]string{
		"{a1b2: {}}":                 "a1b2: no field of an object becomes this variable",
		"{password: {no_log: true}}": "password is a secret",
		"{a: {type: list}}":          "a is a list of anything",
		"{a: {type: list, elements: dict, options: {b: {type: list, elements: dict, options: {c: {type: list, elements: dict, required_together: [[x, y]], options: {x: {}, y: {}}}}}}}}": "a[].b[].c[]: its rules are left to Ansible, since it is in more than 2 lists",
		"{a: {aliases: [b]}}":       "an alias is not a field of an object, write a in place of b",
		"{a: {choices: [on, off]}}": "",
	} {
		s, text := schemaOf(t, spec)
		if got := strings.Join(s.notes, "\n"); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: notes %q, want %q; %s", spec, got, want, text)
		}
	}
}

func TestOptions_OfDefaults(t *testing.T) {
	options := optionsOf(t, "defaults/main.yml", "size: 1\nname: x\non: true\nratio: 0.5\nall: []\nmore: {}\nmade: '{{ size }}'\nnone:\n_own: 1\n")
	var got []string
	for _, o := range options {
		got = append(got, o.Name+" "+o.Type)
	}
	want := []string{"size int", "name str", "on bool", "ratio float", "all list", "more dict", "made raw", "none raw"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOptions_ErrorsNameThePlace(t *testing.T) {
	for content, want := range map[string]string{
		"argument_specs: {main: {options: {a: {type: string}}}}":               "meta/argument_specs.yml:1: option a: type: one of str, list",
		"argument_specs: {main: {options: {a: {required: true, default: 1}}}}": "option a: it is required and has a default",
		"argument_specs: {main: {options: [a]}}":                               "a mapping of names is expected",
		"argument_specs: [":                                                    "meta/argument_specs.yml: yaml:",
	} {
		_, err := reader(func(name string) ([]byte, error) {
			if name != "meta/argument_specs.yml" {
				return nil, os.ErrNotExist
			}
			return []byte(content), nil
		}).options("", "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", content, err, want)
		}
	}
}

// What people have added to a CRD stays.
func TestDefinition_KeepsWhatTheOptionsDoNotSay(t *testing.T) {
	k := Kind{Project: Project{Domain: "example.com", Name: "op"}, Group: "web", Version: "v1", Kind: "Site", Namespaced: true}
	s, _ := schemaOf(t, "{size: {type: int}, color: {choices: [red, blue]}}")
	first, breaks, kept, err := k.definitionText("", s)
	if err != nil || len(breaks)+len(kept) > 0 {
		t.Fatal(err, breaks, kept)
	}
	edited := strings.Replace(first, "                  format: int64\n", "                  format: int64\n                  # Ours.\n                  maximum: 9\n", 1)
	edited = strings.Replace(edited, "                color:\n", "                extra: {type: string}\n                color:\n", 1)
	again, breaks, kept, err := k.definitionText(edited, s)
	if err != nil || len(breaks) > 0 || !slices.Equal(kept, []string{"spec.extra"}) || !strings.Contains(again, "# Ours.\n                  maximum: 9\n") {
		t.Errorf("%v, breaks %v, kept %v:\n%s", err, breaks, kept, again)
	}
	if twice, _, _, _ := k.definitionText(again, s); twice != again {
		t.Errorf("it changes what it has written:\n%s", twice)
	}
	s, _ = schemaOf(t, "{size: {type: str}, color: {choices: [red], required: true}, shape: {required: true}}")
	_, breaks, _, err = k.definitionText(again, s)
	want := []string{
		"spec.color: it becomes required", "spec.shape: it becomes required",
		"spec.size: its type changes from integer to string", "spec.color: blue is no longer a choice",
	}
	if err != nil || !slices.Equal(breaks, want) {
		t.Errorf("%v, %q, want %q", err, breaks, want)
	}
	open := strings.Replace(first, "                color:\n", "                color:\n                  x-kubernetes-preserve-unknown-fields: true\n", 1)
	s, _ = schemaOf(t, "{size: {type: int}, color: {choices: [red, blue]}}")
	if _, breaks, _, err = k.definitionText(open, s); err != nil || len(breaks) != 1 || !strings.HasPrefix(breaks[0], "spec.color: it kept fields that the schema") {
		t.Errorf("fields that are no longer kept: %v, %q", err, breaks)
	}
}

// If the type of a field changes, its old rules are removed, because the API server would refuse them with the new type.
func TestDefinition_OfAnotherType(t *testing.T) {
	k := Kind{Project: Project{Domain: "example.com", Name: "op"}, Group: "web", Version: "v1", Kind: "Site", Namespaced: true}
	for was, is := range map[string]string{
		"{type: list}": "{type: str}", "{type: dict, options: {b: {}}}": "{type: str}", "{type: bytes}": "{type: int}",
		"{type: list, elements: dict, options: {b: {}}}": "{type: list, elements: str}", "{type: list, elements: int}": "{type: raw}",
	} {
		before, _ := schemaOf(t, "{a: "+was+"}")
		after, _ := schemaOf(t, "{a: "+is+"}")
		old, _, _, err := k.definitionText("", before)
		must.Do(t, err)
		got, breaks, _, err := k.definitionText(old, after)
		must.Do(t, err)
		fresh, _, _, err := k.definitionText("", after)
		must.Do(t, err)
		if compact(t, got) != compact(t, fresh) || len(breaks) == 0 && is != "{type: raw}" {
			t.Errorf("%s, then %s: breaks %q\n%s", was, is, breaks, got)
		}
	}
	whole, _ := schemaOf(t, "{a: {type: int}}")
	parts, _ := schemaOf(t, "{a: {type: float}}")
	old, _, _, err := k.definitionText("", whole)
	must.Do(t, err)
	got, _, _, err := k.definitionText(strings.Replace(old, "format: int64", "maximum: 9", 1), parts)
	if err != nil || !strings.Contains(got, "maximum: 9") {
		t.Errorf("%v: a limit of a number is gone\n%s", err, got)
	}
}

// If a file contains more than the CRD, it is not changed, whichever document the CRD is.
func TestDefinition_HasAFileOfItsOwn(t *testing.T) {
	t.Chdir(t.TempDir())
	k := Kind{Project: Project{Domain: "example.com", Name: "op"}, Group: "web", Version: "v1", Kind: "Site"}
	other := k
	other.Kind = "Page"
	s, _ := schemaOf(t, "{size: {type: int}}")
	var both string
	for _, kind := range []Kind{other, k} {
		text, _, _, err := kind.definitionText("", s)
		must.Do(t, err)
		both += text
	}
	must.Do(t, os.MkdirAll("config/crd/bases", 0o755))
	must.Do(t, os.WriteFile("config/crd/bases/all.yaml", []byte(both), 0o644))
	file, old, err := k.find(".")
	if err != nil || file != "config/crd/bases/all.yaml" || old != both {
		t.Errorf("%v, found in %s", err, file)
	}
	if must.Do(t, k.takeNames(old)); k.plural != "sites" || k.Namespaced {
		t.Errorf("%s, in namespaces: %v", k.plural, k.Namespaced)
	}
	if text, _, _, err := k.definitionText(old, s); err == nil || !strings.Contains(err.Error(), "Site: its CRD is in a file of several documents") {
		t.Errorf("%v:\n%s", err, text)
	}
	must.Do(t, os.MkdirAll("roles/site/defaults", 0o755))
	must.Do(t, os.WriteFile("roles/site/defaults/main.yml", []byte("size: 3\n"), 0o644))
	role := must.Get(filepath.Abs("roles/site"))(t)
	w := watches.Watch{GVK: gvk.GroupVersionKind{Group: "web.example.com", Version: "v1", Kind: "Site"}, Content: watches.Content{Role: role}}
	for _, sample := range []string{"written", "there"} { // neither has a file of its own for the CRD
		made, err := ManifestsOf(".", k.Project, []watches.Watch{w}, nil)
		if err != nil || slices.ContainsFunc(made.Files, func(f File) bool { return strings.HasPrefix(f.Path, "config/crd/bases/") }) {
			t.Errorf("%v: %+v", err, made.Files)
		}
		if i := slices.IndexFunc(made.Files, func(f File) bool { return f.Path == k.Sample() }); (i >= 0) != (sample == "written") || i >= 0 && !strings.Contains(made.Files[i].Text, "  size: 3\n") {
			t.Errorf("the sample is to be %s: %+v", sample, made.Files)
		}
		must.Get(Write(".", made.Files, true))(t)
	}
	if d, err := DefinitionOf(".", k.Project, w, "", nil); !errors.Is(err, ErrSeveral) || !strings.HasPrefix(err.Error(), "config/crd/bases/all.yaml: ") || d.File.Path != "config/crd/bases/all.yaml" {
		t.Errorf("%v of %q", err, d.File.Path)
	}
}

// Another version of a kind is added to the kind's CRD. What people have added to the CRD stays.
func TestKind_OfAnotherVersion(t *testing.T) {
	dir := t.TempDir()
	p := must.Get(New("example.com", "shop"))(t)
	must.Get(Write(dir, must.Get(p.Files())(t), false))(t)
	k := Kind{Project: p, Group: "net", Version: "v1alpha1", Kind: "Zone", Role: "zone", Namespaced: true}
	create := func() string {
		t.Helper()
		files, _, err := k.All(dir, "", extravars.ToSnake)
		must.Do(t, err)
		must.Get(Write(dir, files, false))(t)
		return string(must.Get(os.ReadFile(filepath.Join(dir, k.Definition())))(t))
	}
	first := create()
	edited := strings.Replace(first, "                text:\n", "                text:\n                  maxLength: 9\n", 1)
	must.Do(t, os.WriteFile(filepath.Join(dir, k.Definition()), []byte(edited), 0o600))
	if again := create(); again != edited {
		t.Errorf("it writes over\n%s\nwith\n%s", edited, again)
	}
	k.Version = "v1beta1"
	both := create()
	before, added, _ := strings.Cut(both, "    - name: v1beta1\n      served: true\n      storage: false\n")
	if before != edited || strings.Count(added, "maxLength: 9") != 1 {
		t.Errorf("with another version:\n%s", both)
	}
	if again := create(); again != both {
		t.Errorf("it is added again:\n%s", again)
	}
}

// The CRD of a kind with two versions has both, also if the directory has no CRD yet: in version v3, no role says what the
// spec is.
func TestManifestsOf_TwoVersions(t *testing.T) {
	dir := t.TempDir()
	p := must.Get(New("example.com", "shop"))(t)
	must.Do(t, os.MkdirAll(filepath.Join(dir, "roles/zone/defaults"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "roles/zone/defaults/main.yml"), []byte("size: 3\n"), 0o644))
	must.Do(t, os.MkdirAll(filepath.Join(dir, "roles/empty"), 0o755))
	watch := func(version, role string) watches.Watch {
		return watches.Watch{GVK: gvk.GroupVersionKind{Group: "net.example.com", Version: version, Kind: "Zone"}, SnakeCaseParameters: true, Content: watches.Content{Role: filepath.Join(dir, role)}}
	}
	made := must.Get(ManifestsOf(dir, p, []watches.Watch{watch("v1", "roles/zone"), watch("v2", "roles/zone"), watch("v3", "roles/empty"), watch("v1", "roles/empty")}, extravars.ToSnake))(t)
	var names []string
	for _, f := range made.Files {
		if names = append(names, f.Path); f.Path != "config/crd/bases/net.example.com_zones.yaml" {
			continue
		}
		if strings.Count(f.Text, "    - name: v") != 3 || strings.Count(f.Text, "storage: true") != 1 || strings.Count(f.Text, "                size:\n") != 3 {
			t.Errorf("the CRD is\n%s", f.Text)
		}
	}
	for _, version := range []string{"v1", "v2", "v3"} {
		if name := "config/samples/net_" + version + "_zone.yaml"; !slices.Contains(names, name) {
			t.Errorf("no %s in %q", name, names)
		}
	}
	if len(made.Kinds) != 3 {
		t.Errorf("kinds %+v", made.Kinds)
	}
}

// A CRD may have any file name and plural. The lists and permissions use these names.
func TestKind_OfACRDWithOtherNames(t *testing.T) {
	dir := t.TempDir()
	p := must.Get(New("example.com", "shop"))(t)
	must.Get(Write(dir, must.Get(p.Files())(t), false))(t)
	k := Kind{Project: p, Group: "net", Version: "v1", Kind: "Zone", Role: "zone", Namespaced: true}
	text := strings.ReplaceAll(must.Get(execute("files/definition.yaml", k))(t), "zones", "zonen")
	must.Get(Write(dir, []File{{Path: "config/crd/bases/zone.yaml", Text: text}}, false))(t)
	k.Version = "v2"
	files, _, err := k.All(dir, "", extravars.ToSnake)
	must.Do(t, err)
	must.Get(Write(dir, files, false))(t)
	k.Namespaced = false
	if _, _, err := k.All(dir, "", extravars.ToSnake); err == nil || !strings.Contains(err.Error(), "--cluster-scoped: config/crd/bases/zone.yaml has it in namespaces") {
		t.Errorf("another scope: %v", err)
	}
	for name, want := range map[string]string{"crd/kustomization.yaml": "\n  - bases/zone.yaml\n", "rbac/zone_editor_role.yaml": "resources: [zonen]"} {
		if text := string(must.Get(os.ReadFile(filepath.Join(dir, "config", name)))(t)); !strings.Contains(text, want) {
			t.Errorf("%s has no %s:\n%s", name, want, text)
		}
	}
}

// An existing playbook is used as it is. The CRD is made from the role that the playbook runs.
func TestKind_OfAPlaybookThatExists(t *testing.T) {
	dir := t.TempDir()
	p := must.Get(New("example.com", "shop"))(t)
	must.Get(Write(dir, must.Get(p.Files())(t), false))(t)
	k := Kind{Project: p, Group: "net", Version: "v1", Kind: "Zone", Role: "zone", Playbook: "playbooks/zone.yml"}
	for _, tt := range []struct{ role, plays, want string }{
		{"other", "roles: [other]", "                size:"},
		{"other", "roles: [my.net.zone]", "x-kubernetes-preserve-unknown-fields: true"},
		{"zone", "tasks: [{import_role: {name: zone}}]", "                size:"},
	} {
		role, want := tt.plays, tt.want
		must.Get(Write(dir, []File{
			{Path: "roles/" + tt.role + "/defaults/main.yml", Text: "---\nsize: 3\n"}, {Path: k.Playbook, Text: "---\n- hosts: localhost\n  " + tt.plays + "\n"},
		}, true))(t)
		files, notes, err := k.All(dir, "", extravars.ToSnake)
		if err != nil || len(notes) != 1 {
			t.Errorf("%v, %q", err, notes)
		}
		for _, f := range files {
			if strings.HasPrefix(f.Path, "roles/") || f.Path == k.Definition() && !strings.Contains(f.Text, "\n"+want) && !strings.Contains(f.Text, " "+want) {
				t.Errorf("%s: %s\n%s", role, f.Path, f.Text)
			}
		}
	}
}

// Rules and limits that people have added stay beside those of the options. Those of the options disappear with the
// options.
func TestDefinition_KeepsRulesAndLimits(t *testing.T) {
	k := Kind{Project: Project{Domain: "example.com", Name: "op"}, Group: "web", Version: "v1", Kind: "Site", Namespaced: true}
	spec := func(extra string) *schema {
		s, _ := schemaOf(t, "{tls: {type: list, elements: dict, "+extra+"options: {a: {}, b: {}, c: {type: dict, required_by: {a: b}, options: {a: {}, b: {}}}}}}")
		return s
	}
	text := func(old string, s *schema, breaks ...string) string {
		t.Helper()
		text, found, _, err := k.definitionText(old, s)
		if err != nil || !slices.Equal(found, breaks) {
			t.Errorf("%v; breaks %q, want %q", err, found, breaks)
		}
		return text
	}
	const together = "has(self.a) == has(self.b)"
	first := text("", spec("required_together: [[a, b]], "))
	edited := regexp.MustCompile(`(validations:\n)( +)(# Of)`).ReplaceAllString(first, "$1$2- rule: self.a != 'x'\n$2$3")
	edited = strings.Replace(edited, "maxItems: 100", "maxItems: 7", 1)
	if edited = text(edited, spec("required_together: [[a, b]], ")); !strings.Contains(edited, "maxItems: 7") || strings.Count(edited, "rule: ") != 4 ||
		!strings.Contains(edited, "self.a != 'x'") || !strings.Contains(edited, ofSpec) {
		t.Errorf("it keeps no limit or rule of people's own:\n%s", edited)
	}
	without := text(edited, spec(""))
	if strings.Contains(without, together) || !strings.Contains(without, "self.a != 'x'") {
		t.Errorf("the rule of the option that is gone is there, or the other one is not:\n%s", without)
	}
	text(without, spec("required_together: [[a, b]], "), "spec.tls[]: it has to fulfil the new rule "+together)
	s, _ := schemaOf(t, "{tls: {type: dict, options: {a: {}}}}")
	free, _ := schemaOf(t, "{tls: {type: dict}}")
	text(text("", free), s, "spec.tls: it kept fields that the schema does not name, and no longer does")
}

func TestKind_Plural(t *testing.T) {
	for kind, want := range map[string]string{
		"Memcached": "memcacheds", "Policy": "policies", "Gateway": "gateways", "Ingress": "ingresses", "Box": "boxes", "Mesh": "meshes",
	} {
		if got := (Kind{Kind: kind}).Plural(); got != want {
			t.Errorf("%s: %s, want %s", kind, got, want)
		}
	}
}

// If one file differs, no file is written.
func TestWrite_IsAllOrNothing(t *testing.T) {
	dir := t.TempDir()
	files := []File{{Path: "a/new", Text: "new\n"}, {Path: "there", Text: "one\ntwo\n"}}
	must.Do(t, os.WriteFile(filepath.Join(dir, "there"), []byte("one\n2\n"), 0o600))
	_, err := Write(dir, files, false)
	if err == nil || !strings.Contains(err.Error(), "there: it exists, and differs") || exists(dir, "a/new") {
		t.Errorf("%v; new file there: %t", err, exists(dir, "a/new"))
	}
	for _, want := range []string{"changed", "unchanged"} {
		changes, err := Write(dir, files, true)
		if err != nil || changes[1].Did != want {
			t.Errorf("%v, %v, want %s", err, changes, want)
		}
	}
}

// An existing file is replaced, and never written in place: on a full disk, half of the new text would be left.
func TestWrite_ReplacesAFileAsAWhole(t *testing.T) {
	dir := t.TempDir()
	file, second := filepath.Join(dir, "watches.yaml"), filepath.Join(dir, "second")
	must.Do(t, errors.Join(os.WriteFile(file, []byte("old\n"), 0o600), os.Chmod(file, 0o666), os.Link(file, second)))
	must.Get(Write(dir, []File{{Path: "watches.yaml", Text: "new\n", Replaces: true}}, false))(t)
	if is, was := string(must.Get(os.ReadFile(file))(t)), string(must.Get(os.ReadFile(second))(t)); is != "new\n" || was != "old\n" {
		t.Errorf("it is %q, and under its second name %q", is, was)
	}
	if all := must.Get(os.ReadDir(dir))(t); len(all) != 2 {
		t.Errorf("there are %v", all)
	}
	if mode := must.Get(os.Stat(file))(t).Mode(); mode != 0o666 { // whatever the umask
		t.Errorf("its mode is %v", mode)
	}
}

// A file in a read-only directory is still written.
func TestWrite_ReplacesAFileInPlace(t *testing.T) {
	const other = 65534 // root can write to any directory
	dir := t.TempDir()
	file := filepath.Join(dir, "watches.yaml")
	must.Do(t, errors.Join(os.WriteFile(file, []byte("old\n"), 0o600), os.Chmod(dir, 0o500)))
	t.Cleanup(func() { must.Do(t, os.Chmod(dir, 0o700)) })
	if os.Geteuid() == 0 {
		must.Do(t, errors.Join(os.Chown(dir, other, other), os.Chown(file, other, other)))
	}
	t.Chdir(dir) // other users cannot reach the directories above
	was, written := must.Get(os.Stat(file))(t), make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with this goroutine
		if os.Geteuid() == 0 {
			_, _ = unix.SetfsuidRetUid(other) // otherwise root would replace the file
		}
		_, err := Write(".", []File{{Path: "watches.yaml", Text: "new\n", Replaces: true}}, false)
		written <- err
	}()
	must.Do(t, <-written)
	must.Be(t, "text", "new\n", string(must.Get(os.ReadFile(file))(t)))
	must.Be(t, "the same file", true, os.SameFile(was, must.Get(os.Stat(file))(t)))
}

// If the second file cannot be written, the error names the first.
func TestWrite_SaysWhatIsWritten(t *testing.T) {
	_, err := Write(t.TempDir(), []File{{Path: "a", Text: "x"}, {Path: "a/b", Text: "x"}}, false)
	if err == nil || !strings.HasSuffix(err.Error(), "; written before it: a") {
		t.Error(err)
	}
}

// Only the lines that name ansible-operator change, and only once.
func TestAdopt_ChangesWhatNamesTheIncumbent(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(dir, path), []byte(text), 0o600))
	}
	write("PROJECT", "domain: example.com\nlayout: ansible.sdk.operatorframework.io/v1\nprojectName: tea\nversion: \"3\"\n") // the layout of the first versions
	write("Dockerfile", "FROM --platform=linux/amd64 host.example/operator-framework/ansible-operator:v1.42.3 AS base\nCOPY roles/ ${HOME}/roles/\n")
	write("Makefile", "run: ansible-operator ## Run it\n\t$(ANSIBLE_OPERATOR) run\n\nansible-operator:\n\tcurl $(URL)/ansible-operator\n")
	for range 2 {
		files, notes, err := Adopt(dir)
		if err != nil || len(notes) > 0 {
			t.Fatal(err, notes)
		}
		want := map[string]string{
			"Dockerfile": "FROM --platform=linux/amd64 rolewright/operator AS base\nCOPY roles/ ${HOME}/roles/\n",
			"Makefile": "run: ## Run it\n\trolewright run\n\nansible-operator:\n\tcurl $(URL)/ansible-operator\n" +
				"\n.PHONY: dev\ndev: ## Run the operator while its roles are written.\n\trolewright dev\n",
		}
		for _, f := range files {
			if f.Text != want[f.Path] {
				t.Errorf("%s:\n%s\nwant\n%s", f.Path, f.Text, want[f.Path])
			}
		}
		must.Get(Write(dir, files, false))(t)
	}
	write("PROJECT", "domain: example.com\nlayout:\n- go.kubebuilder.io/v4\nprojectName: tea\nversion: \"3\"\n")
	if _, _, err := Adopt(dir); err == nil || !strings.Contains(err.Error(), "neither that of an Ansible project nor") {
		t.Error(err)
	}
}

// The argument spec is made from a role's defaults, in a form that the reader of argument specs understands. It never
// replaces an existing one.
func TestArgumentSpec(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
	}
	put("roles/web/defaults/main.yml", `---
# How many Pods there are,
# at least.
replicas: 2
tone: "yes"
ratio: 0.5
wanted: no
names: [a, b]
mixed: [a, 1]
settings: {LEVEL: debug}
# What depends on others.
url: "http://{{ tone }}"
nothing:
_own: 1
`)
	f := must.Get(ArgumentSpec(dir, "roles/web"))(t)
	put(f.Path, f.Text)
	for _, want := range []string{
		"replicas:\n        type: int\n        default: 2\n        description: How many Pods there are, at least.\n",
		"tone:\n        type: str\n        default: \"yes\"\n", "ratio:\n        type: float\n        default: 0.5\n", "wanted:\n        type: bool\n        default: no\n",
		"names:\n        type: list\n        elements: str\n        description", "mixed:\n        type: list\n        description", "settings:\n        type: dict\n        description",
		"url:\n        type: raw\n        description: What depends on others.\n", "nothing:\n        type: raw\n        description",
	} {
		if !strings.Contains(f.Text, want) {
			t.Errorf("no %q in\n%s", want, f.Text)
		}
	}
	if strings.Contains(f.Text, "_own") {
		t.Error("it has the role's own variable")
	}
	if _, err := ArgumentSpec(dir, "roles/web"); !errors.Is(err, os.ErrExist) || !strings.Contains(err.Error(), "9 options") {
		t.Errorf("where there is one already: %v", err)
	}
}

// A project from others cannot make the command write files outside its directory.
func TestWrite_StaysInTheDirectory(t *testing.T) {
	t.Parallel()
	dir, elsewhere := t.TempDir(), t.TempDir()
	must.Do(t, os.Symlink(elsewhere, filepath.Join(dir, "config")))
	if _, err := Write(dir, []File{{Path: "config/crd/a.yaml", Text: "a"}}, true); err == nil || !strings.Contains(err.Error(), "escapes") {
		t.Errorf("got %v", err)
	}
	if found, _ := os.ReadDir(elsewhere); len(found) > 0 {
		t.Errorf("written elsewhere: %v", found)
	}
}

// The image has the collections that the project says its roles need.
func TestProject_ImageHasTheCollections(t *testing.T) {
	p := must.Get(New("example.com", "shop"))(t)
	commands := p
	commands.Commands = []string{"reconcile.sh"}
	for _, tt := range []struct {
		project Project
		want    bool
	}{{p, true}, {p.ForCharts(), false}, {commands, false}} {
		text := map[string]string{}
		for _, f := range must.Get(tt.project.Files())(t) {
			text[f.Path] = f.Text
		}
		installs := strings.Contains(text["Dockerfile"], "\nCOPY requirements.yml ./\nRUN ansible-galaxy collection install -r requirements.yml\nCOPY watches.yaml ./\n")
		admits := strings.Contains(text[".dockerignore"], "\n*\n!requirements.yml\n!watches.yaml\n")
		if installs != tt.want || admits != tt.want {
			t.Errorf("%v\n%s\n%s", tt.want, text["Dockerfile"], text[".dockerignore"])
		}
	}
}
