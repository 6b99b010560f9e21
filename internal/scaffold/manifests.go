package scaffold

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	gvk "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/rbac"
	"github.com/rolewright/rolewright/internal/watches"
)

// Manifests are the files of a project below config.
type Manifests struct {
	Files []File
	Kinds []Kind
	Notes []string
}

// permissions is the only file below config that is not made from the watches alone.
const permissions = "config/rbac/role.yaml"

// ManifestsOf returns what "init" and "create api" write below config for a project with
// these watches, except for the operator's own permissions. CRDs and samples are included
// only if the directory has none of the kind. A list that exists gets the entries that it
// lacks.
func ManifestsOf(dir string, p Project, watched []watches.Watch, variable Variable) (Manifests, error) {
	var m Manifests
	base, err := p.Files()
	if err != nil {
		return m, err
	}
	lists := map[string]string{}
	if slices.ContainsFunc(watched, func(w watches.Watch) bool { return w.Executor == watches.ExecutorJob }) {
		if base, lists, err = p.withJobs(dir, base); err != nil {
			return m, err
		}
	}
	var definitions []Definition
	seen := map[gvk.GroupVersionKind]bool{}
	for _, w := range watched {
		builtin, err := rbac.IsBuiltin(w.GVK.GroupKind())
		if err != nil {
			return m, err
		}
		if builtin || seen[w.GVK] { // its CRD and sample are made from the first watch
			continue
		}
		seen[w.GVK] = true
		made, err := p.manifestsOf(dir, w, variable, definitions)
		if err != nil {
			return m, err
		}
		for _, e := range made.entries {
			if _, ok := lists[e.path]; !ok {
				if lists[e.path], err = listOf(dir, e.path, base); err != nil {
					return m, err
				}
			}
			if lists[e.path], err = e.addTo(lists[e.path]); err != nil {
				return m, err
			}
		}
		m.add(made.files...)
		definitions = append(definitions, made.definition)
		m.Kinds, m.Notes = append(m.Kinds, made.kind), append(m.Notes, made.notes...)
	}
	for _, f := range base {
		if text, ok := lists[f.Path]; ok {
			f.Text, f.Replaces = text, true
		}
		if strings.HasPrefix(f.Path, "config/") && f.Path != permissions {
			m.add(f)
		}
	}
	return m, nil
}

// add replaces what is there: two versions of a kind have files in common, and the later CRD has both.
func (m *Manifests) add(files ...File) {
	for _, f := range files {
		if i := slices.IndexFunc(m.Files, func(have File) bool { return have.Path == f.Path }); i >= 0 {
			m.Files[i] = f
		} else {
			m.Files = append(m.Files, f)
		}
	}
}

// listOf returns the text of a list: the one in the directory, or else a new one.
func listOf(dir, name string, base []File) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if !os.IsNotExist(err) {
		return string(data), err
	}
	for _, f := range base {
		if f.Path == name {
			return f.Text, nil
		}
	}
	return "", nil
}

// ofKind holds the manifests of one kind.
type ofKind struct {
	kind       Kind
	definition Definition // without a path if the directory has one
	files      []File
	entries    []entry
	notes      []string
}

func (p Project) manifestsOf(dir string, w watches.Watch, variable Variable, earlier []Definition) (ofKind, error) {
	k, known := p.kindOf(w)
	old, err := k.takeDefinition(dir)
	if err != nil {
		return ofKind{}, err
	}
	before, err := k.takeDefinition(dir, earlier...)
	if err != nil {
		return ofKind{}, err
	}
	made := ofKind{}
	d := Definition{}
	sample, err := k.findSample(dir)
	if err != nil {
		return ofKind{}, err
	}
	if old == "" || sample == "" {
		if d, err = DefinitionOf(dir, p, w, "", variable, earlier...); err != nil && !errors.Is(err, ErrSeveral) {
			return ofKind{}, err
		}
	}
	if d.Sample == "" { // nothing says what the spec is
		s := newSchema(nil, nil, variable)
		s.spec = mapping("type", scalar("object"), "x-kubernetes-preserve-unknown-fields", literal("!!bool", "true"))
		if d.Sample, err = k.sampleText(s, nil); err != nil {
			return ofKind{}, err
		}
		if old == "" {
			if d.File.Text, _, _, err = k.definitionText(before, s); err != nil {
				return ofKind{}, err
			}
		}
	}
	if old == "" {
		made.definition.File = File{Path: k.Definition(), Text: d.File.Text}
		made.files = append(made.files, made.definition.File)
		if !known {
			made.notes = append(made.notes, fmt.Sprintf("%s: PROJECT does not list it: its objects are taken as namespaced", k.Kind))
		}
	}
	if sample == "" {
		sample = k.sample()
		made.files = append(made.files, File{Path: k.Sample(), Text: d.Sample})
	}
	people, err := k.forPeople()
	if err != nil {
		return ofKind{}, err
	}
	made.kind, made.files, made.entries = k, append(made.files, people...), k.entries(path.Base(k.Definition()), sample)
	return made, nil
}

// takeNames takes plural and scope from the existing CRD, which is free to choose them.
func (k *Kind) takeNames(definition string) error {
	docs, err := documents([]byte(definition))
	for _, root := range docs {
		if spec := at(root, "spec"); k.defines(root) {
			k.plural, k.Namespaced = text(at(at(spec, "names"), "plural")), text(at(spec, "scope")) != "Cluster"
		}
	}
	return err
}

// findSample returns the name of a file in config/samples with an object of the kind;
// empty if there is none.
func (k Kind) findSample(dir string) (string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "config/samples/*.y*ml"))
	if err != nil {
		return "", err
	}
	for _, p := range paths {
		root, err := reader(func(name string) ([]byte, error) { return os.ReadFile(name) }).yaml("", p)
		if err != nil {
			return "", err
		}
		if text(at(root, "kind")) == k.Kind && text(at(root, "apiVersion")) == k.FullGroup()+"/"+k.Version {
			return filepath.Base(p), nil
		}
	}
	return "", nil
}

// PodLabels returns the labels of the operator's Pods from the Deployment of a project; ok is false if there is none.
func PodLabels(dir string) (labels map[string]string, ok bool, err error) {
	data, err := os.ReadFile(filepath.Join(dir, manager))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	for in := yaml.NewDecoder(bytes.NewReader(data)); err == nil; {
		var d struct {
			Kind string
			Spec struct {
				Template struct {
					Metadata struct{ Labels map[string]string }
				}
			}
		}
		if err = in.Decode(&d); err == nil && d.Kind == "Deployment" {
			return d.Spec.Template.Metadata.Labels, true, nil
		}
	}
	if errors.Is(err, io.EOF) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("%s: %w", manager, err)
}
