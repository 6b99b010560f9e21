package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// tool runs the program in the stage's project, and returns its standard output.
func (s *stage) tool(want int, args ...string) string {
	s.t.Helper()
	cmd := process(s.t, binary(s.t), args...)
	cmd.Dir, cmd.Env = s.dir, s.env
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	_ = cmd.Run() // the exit code says it all
	if got := cmd.ProcessState.ExitCode(); got != want {
		s.t.Fatalf("rolewright %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, want, out.String(), stderr.String())
	}
	return out.String() + stderr.String()
}

// texts returns the contents of the files in the stage's project.
func (s *stage) texts() map[string]string {
	s.t.Helper()
	found := map[string]string{}
	must.Do(s.t, filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, s.dir+"/")] = string(data)
		return err
	}))
	return found
}

// read decodes a manifest of the project.
func (s *stage) read(path string, into any) {
	s.t.Helper()
	data, err := os.ReadFile(filepath.Join(s.dir, path))
	if err == nil {
		err = yaml.UnmarshalStrict(data, into)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// install installs the CRDs of the project, and returns their kinds by name.
func (s *stage) install() map[string]kind {
	s.t.Helper()
	kinds := map[string]kind{}
	paths := must.Get(filepath.Glob(s.dir + "/config/crd/bases/*.yaml"))(s.t)
	for _, path := range paths {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		s.read(strings.TrimPrefix(path, s.dir+"/"), crd)
		testenv.InstallCRD(s.t, s.cfg, crd)
		k := s.kindOf(schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind})
		kinds[crd.Spec.Names.Kind] = k
	}
	return kinds
}

// sample creates an object from a sample of the project.
func (s *stage) sample(k kind, path string) object {
	s.t.Helper()
	u := &unstructured.Unstructured{}
	s.read(path, &u.Object)
	spec, _, err := unstructured.NestedMap(u.Object, "spec")
	if err != nil {
		s.t.Fatal(err)
	}
	return k.create(u.GetName(), spec)
}

// molecule executes a part of the project's scenario, as molecule does, and returns its output.
func (s *stage) molecule(part string) string {
	s.t.Helper()
	cmd := process(s.t, "ansible-playbook", "-e", "sample_namespace="+s.namespace, "molecule/default/"+part+".yml")
	cmd.Dir = s.dir
	cmd.Env = append(cleanEnvironment(), "KUBECONFIG="+testenv.Kubeconfig(s.t, s.cfg))
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", part, err, out)
	}
	return string(out)
}

// There is a project of a role with a finalizer, one of a playbook, and one of cluster-scoped objects. The molecule
// scenario passes in its order, with the permissions that were generated for the operator and no others. The finalizer
// removes what belongs to its object.
func TestScaffold_AProjectComesToReady(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	domain := testenv.Random("d") + ".example.com"
	s.tool(0, "init", "--domain", domain, "--name", "web-operator")
	s.tool(0, "create", "api", "--group", "web", "--version", "v1", "--kind", "Site", "--finalizer")
	s.tool(0, "create", "api", "--group", "web", "--version", "v1", "--kind", "Page", "--playbook", "playbooks/page.yml")
	s.tool(0, "create", "api", "--group", "web", "--version", "v1", "--kind", "Zone", "--cluster-scoped")
	s.replace("config/samples/web_v1_zone.yaml", "targetNamespace: default", "targetNamespace: "+s.namespace)
	s.tool(0, "validate")
	s.tool(0, "generate", "crd", "--check")
	if schema := s.tool(0, "generate", "schema", "Site"); !strings.Contains(schema, `"web.`+domain+`/v1"`) || !strings.Contains(schema, `"text"`) {
		t.Errorf("the schema of a Site is %s", schema)
	}

	s.install()
	var role rbacv1.ClusterRole
	s.read("config/rbac/role.yaml", &role)
	user := testenv.User(t, s.cfg, role.Rules)
	s.env = append(slices.Clip(s.env), "KUBECONFIG="+testenv.Kubeconfig(t, user))
	s.start()
	s.molecule("converge")
	s.molecule("verify")
	if again := s.molecule("converge"); !strings.Contains(again, "changed=0") {
		t.Errorf("the samples again:\n%s", again)
	}
	made := kubernetes.NewForConfigOrDie(s.cfg).CoreV1().ConfigMaps(s.namespace)
	for _, name := range []string{"site-sample", "page-sample", "zone-sample"} {
		if found, err := made.Get(t.Context(), name, metav1.GetOptions{}); err != nil || found.Data["text"] != "Hello" {
			t.Errorf("what the role makes: %v, %v", found, err)
		}
	}
	s.molecule("destroy")
	if _, err := made.Get(t.Context(), "site-sample", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("what the role made is there after its finalizer: %v", err)
	}
}

// The API server accepts the schema that is generated from an argument spec, and refuses what Ansible would refuse.
func TestScaffold_TheSchemaIsTheArgumentSpec(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.tool(0, "init", "--domain", testenv.Random("d")+".example.com", "--name", "op")
	s.role("thing", "[]\n")
	s.write("roles/thing/meta/argument_specs.yml", `argument_specs:
  main:
    options:
      size: {type: int, required: true}
      log_level: {type: str, choices: [debug, info, off]}
      memory: {type: bytes}
      anything: {type: raw}
      tls:
        type: dict
        mutually_exclusive: [[secret, issuer]]
        required_together: [[key, cert]]
        options: {secret: {}, issuer: {}, key: {}, cert: {}}
      backends:
        type: list
        elements: dict
        required_if: [[kind, http, [port]]]
        options: {kind: {choices: [http, file]}, port: {type: int}}
`)
	s.tool(0, "create", "api", "--version", "v1", "--kind", "Thing", "--group", "x")
	s.tool(0, "generate", "crd", "--check")
	k := s.install()["Thing"]
	for name, tt := range map[string]struct {
		spec  string
		valid bool
	}{
		"all":       {`{size: 1, logLevel: "off", memory: 10MB, anything: [1, {a: b}], tls: {key: a, cert: b}, backends: [{kind: http, port: 80}, {kind: file}]}`, true},
		"required":  {`{logLevel: debug}`, false},
		"choice":    {`{size: 1, logLevel: loud}`, false},
		"type":      {`{size: large}`, false},
		"number":    {`{size: 1, memory: 1024}`, true},
		"exclusive": {`{size: 1, tls: {secret: a, issuer: b}}`, false},
		"together":  {`{size: 1, tls: {key: a}}`, false},
		"if":        {`{size: 1, backends: [{kind: http}]}`, false},
	} {
		u := &unstructured.Unstructured{}
		must.Do(t, yaml.Unmarshal([]byte("{metadata: {name: "+name+"}, spec: "+tt.spec+"}"), &u.Object))
		u.SetGroupVersionKind(k.gvk)
		_, err := k.objects.Create(context.Background(), u, metav1.CreateOptions{})
		if tt.valid && err != nil || !tt.valid && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %s: %v, want valid %t", name, tt.spec, err, tt.valid)
		}
	}
	s.write("roles/thing/meta/argument_specs.yml", "argument_specs: {main: {options: {size: {type: str, required: true}}}}\n")
	s.tool(1, "generate", "crd", "--check")
	if out := s.tool(1, "generate", "crd"); !strings.Contains(out, "spec.size: its type changes from integer to string") {
		t.Error(out)
	}
	s.tool(0, "generate", "crd", "--allow-breaking")
	s.tool(0, "generate", "crd", "--check")
}

// A project of operator-sdk gets another kind, which becomes Ready next to its own. Of its files only those change that
// list kinds or name ansible-operator.
func TestScaffold_TakesOverAProjectOfOperatorSDK(t *testing.T) {
	t.Parallel()
	needAnsible(t)
	s := newStage(t)
	must.Do(t, os.CopyFS(s.dir, os.DirFS("../cluster/testdata/tea-operator")))
	before := s.texts()
	s.tool(0, "init", "--from-operator-sdk")
	s.tool(0, "create", "api", "--group", "kitchen", "--version", "v1alpha1", "--kind", "Cup")
	after := s.texts()
	var changed []string
	for path, text := range before {
		if after[path] != text {
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	want := []string{"Dockerfile", "PROJECT", "config/crd/kustomization.yaml", "config/rbac/kustomization.yaml", "config/samples/kustomization.yaml", "watches.yaml"}
	if !slices.Equal(changed, want) {
		t.Errorf("changed %q, want %q", changed, want)
	}
	kinds := s.install()
	s.start()
	cup := s.sample(kinds["Cup"], "config/samples/kitchen_v1alpha1_cup.yaml")
	kinds["Cup"].awaitReady(cup.GetName())
}

// The API server accepts the CRD and the sample that are generated from an argument spec with options of all shapes, and
// refuses what Ansible would refuse.
func TestScaffold_TheAPIServerTakesAnyArgumentSpec(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	spec := must.Get(os.ReadFile("testdata/argument_specs.yml"))(t)
	s.write("roles/odd/meta/argument_specs.yml", string(spec))
	s.write("roles/odd/tasks/main.yml", "---\n- name: Nothing\n  ansible.builtin.debug:\n")
	s.tool(0, "init", "--domain", testenv.Random("d")+".example.com", "--name", "odd-operator")
	s.tool(0, "create", "api", "--group", "odd", "--version", "v1", "--kind", "Odd")
	odd := s.install()["Odd"]
	sample := s.sample(odd, "config/samples/odd_v1_odd.yaml")
	base, _, err := unstructured.NestedMap(sample.Object, "spec")
	if err != nil {
		t.Fatal(err)
	}
	for text, valid := range map[string]bool{
		"{s: b}": true, "{s: c}": false, "{yn: maybe}": false, "{ints: 4}": false, "{f: x}": false, "{b: x}": false,
		"{by: 10 MB}": true, "{by: 5}": true, "{by: many}": false, `{ls: ["y"]}`: true, "{ls: [z]}": false, "{fch: 2.5}": true, "{fch: 3}": false,
		"{r: {x: [1]}, j: 1, ja: x, l: [1, {a: b}], d: {x: 1}}": true,
		"{ld: [{a: x}]}": false, "{ld: [{a: x, c: true, d: 1}]}": true, // required_by
		"{ld: [{b: 1}]}": true, "{ld: [{a: x, b: 1, c: true}]}": false, "{ld: [{}]}": false,
		"{ld: [{b: 1, k: other}]}": false, "{ld: [{b: 1, deep: {deeper: [{}]}}]}": false, "{ld: [{b: 1, deep: {deeper: [{x: 1}]}}]}": true,
		"{dn: {mode: 3}}": false, "{dn: {mode: 3, x: a}}": true, "{dn: {flag: true, x: a}}": false, "{dn: {flag: false}}": true, "{dn: {fl: 3}}": false,
		"{dn: {mode: 4}}": false, "{self: {in: x}}": false, "{self: {in: x, self: b, has: z}}": true,
	} {
		var more map[string]any
		must.Do(t, yaml.Unmarshal([]byte(text), &more))
		u := sample.DeepCopy()
		merged := map[string]any{}
		maps.Copy(merged, base)
		maps.Copy(merged, more)
		u.Object = map[string]any{"apiVersion": sample.GetAPIVersion(), "kind": "Odd", "spec": merged,
			"metadata": map[string]any{"generateName": "odd-", "namespace": s.namespace}}
		_, err := odd.objects.Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{"All"}})
		if (err == nil) != valid || err != nil && !apierrors.IsInvalid(err) {
			t.Errorf("%s: valid %v, want %v: %v", text, err == nil, valid, err)
		}
	}
}

// roleSpec is an argument spec in a shape that roles have, with specs of objects that its CRD must accept and refuse.
type roleSpec struct {
	Name           string           `json:"name"`
	Options        map[string]any   `json:"options"`
	Valid, Invalid []map[string]any `json:",omitempty"`
}

// roleSpecs reads those of the file.
func roleSpecs(t *testing.T) []roleSpec {
	t.Helper()
	file := must.Get(os.Open("testdata/role_specs.yml"))(t)
	defer func() { _ = file.Close() }()
	var all []roleSpec
	for documents := utilyaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var one roleSpec
		if err := documents.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
}

// The CRDs of sixty argument specs become one kind with as many versions. The API server accepts each schema and its
// sample, and those of the objects that it should.
func TestScaffold_TheAPIServerTakesArgumentSpecsOfRoles(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	domain := testenv.Random("d") + ".example.com"
	s.tool(0, "init", "--domain", domain, "--name", "many")
	project := must.Get(scaffold.Read(s.dir))(t)
	specs := roleSpecs(t)
	var crd *apiextensionsv1.CustomResourceDefinition
	samples := make([]map[string]any, len(specs))
	for i, spec := range specs {
		text := must.Get(yaml.Marshal(map[string]any{"argument_specs": map[string]any{"main": map[string]any{"options": spec.Options}}}))(t)
		role := fmt.Sprint("r", i)
		s.write("roles/"+role+"/meta/argument_specs.yml", string(text))
		k := scaffold.Kind{Project: project, Group: "many", Version: fmt.Sprint("v", i+1), Kind: "Thing", Namespaced: true, Role: role}
		files, _, err := k.All(s.dir, scaffold.FromArgspec, extravars.ToSnake)
		if err != nil {
			t.Fatalf("%s: %v", spec.Name, err)
		}
		one := &apiextensionsv1.CustomResourceDefinition{}
		for _, f := range files {
			switch f.Path {
			case k.Definition():
				err = yaml.UnmarshalStrict([]byte(f.Text), one)
			case k.Sample():
				err = yaml.UnmarshalStrict([]byte(f.Text), &samples[i])
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", spec.Name, f.Path, err)
			}
		}
		if crd == nil {
			crd = one
			continue
		}
		one.Spec.Versions[0].Storage = false
		crd.Spec.Versions = append(crd.Spec.Versions, one.Spec.Versions[0])
	}
	if len(specs) != 60 {
		t.Errorf("there are %d argument specs, want 60", len(specs))
	}
	testenv.InstallCRD(t, s.cfg, crd)
	for i, spec := range specs {
		k := s.kindOf(schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[i].Name, Kind: "Thing"})
		try := func(object map[string]any, valid bool) {
			u := &unstructured.Unstructured{Object: map[string]any{"spec": object, "metadata": map[string]any{"generateName": "a-"}}}
			u.SetGroupVersionKind(k.gvk)
			_, err := k.objects.Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{"All"}, FieldValidation: metav1.FieldValidationStrict})
			if (err == nil) != valid || err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("%s: %v: valid %t, want %t: %v", spec.Name, object, err == nil, valid, err)
			}
		}
		sample, _, err := unstructured.NestedMap(samples[i], "spec")
		if err != nil {
			t.Fatal(err)
		}
		try(sample, true)
		for _, object := range spec.Valid {
			try(object, true)
		}
		for _, object := range spec.Invalid {
			try(object, false)
		}
	}
}
