package scaffold

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/rbac"
	"github.com/rolewright/rolewright/internal/watches"
)

// All returns the files of a kind with its CRD and its sample, and notes for people.
// source says what the CRD is made from: one of [FromArgspec] and so on, or empty for
// what the role has.
func (k Kind) All(dir, source string, variable Variable) (files []File, notes []string, err error) {
	definition, err := k.findVersion(dir)
	if err != nil {
		return nil, nil, err
	}
	if files, err = k.Files(dir); err != nil {
		return nil, nil, err
	}
	role, read, err := k.content(dir, files)
	if err != nil {
		return nil, nil, err
	}
	if role == "" { // nothing says what the spec is
		source = FromNone
		notes = append(notes, fmt.Sprintf("%s: %s names no role under roles: its CRD keeps any spec", k.Kind, k.Playbook))
	}
	options, err := read.options(role, source)
	if err != nil {
		return nil, nil, err
	}
	var fixed map[string]any
	if k.Finalizer {
		fixed = map[string]any{"state": nil}
	}
	variable.takeFields(options, k.specIn(definition.Text))
	s := newSchema(options, fixed, variable)
	s.about = read.about()
	if source == FromNone {
		s.spec = mapping("type", scalar("object"), "x-kubernetes-preserve-unknown-fields", literal("!!bool", "true"))
	}
	if definition.Text, _, _, err = k.definitionText(definition.Text, s); err != nil {
		return nil, nil, err
	}
	sample := File{Path: k.Sample()}
	if sample.Text, err = k.sampleText(s, options); err != nil {
		return nil, nil, err
	}
	return append(files, definition, sample), append(append(notes, s.notes...), guessed(read, source, role, options)...), nil
}

// content returns the role that the kind runs, as it exists or as it is among the files. It is empty if an existing playbook
// names no role, and no role has the name of the kind's.
func (k Kind) content(dir string, files []File) (role string, read reader, err error) {
	role = path.Join("roles", k.Role)
	switch {
	case k.hasPlaybook(dir):
		whole, err := RoleOf(filepath.Join(dir, k.Playbook))
		if whole == "" && exists(dir, role) { // a task may run it
			whole = filepath.Join(dir, role)
		}
		if err != nil || whole == "" {
			return "", func(string) ([]byte, error) { return nil, fs.ErrNotExist }, err
		}
		return shown(dir, whole), func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(whole, name)) }, nil
	case exists(dir, role):
		return role, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, role, name)) }, nil
	}
	return role, func(name string) ([]byte, error) {
		for _, f := range files {
			if f.Path == path.Join(role, name) {
				return []byte(f.Text), nil
			}
		}
		return nil, fs.ErrNotExist
	}, nil
}

// guessed reports that options were taken from the defaults, and which types they seem to have.
func guessed(read reader, source, role string, options []option) []string {
	if _, err := read.options("", FromArgspec); source != FromDefaults && err == nil || len(options) == 0 {
		return nil
	}
	var types []string
	for _, o := range options {
		types = append(types, o.Name+" "+o.Type)
	}
	return []string{fmt.Sprintf("%s: the fields and their types are guessed from its defaults: %s; \"rolewright generate argspec\" writes an argument spec to correct them",
		role, strings.Join(types, ", "))}
}

// largest is the maximum size in bytes of an object that kubectl apply can copy into an annotation.
const largest = 256 << 10

// Definition is the updated CRD of a watch.
type Definition struct {
	// File has no path if there is nothing that a CRD could be made from.
	File File
	// Sample is an object of the kind. It is empty if the path of File is.
	Sample string
	// Breaks are changes that existing objects may violate.
	Breaks []string
	Notes  []string
	// Guessed is a note about fields that were made from defaults.
	Guessed []string
	// WasOpen tells whether the existing CRD keeps spec fields that its schema does not declare.
	WasOpen bool
}

// kindOf returns the kind of a watch; known is false if PROJECT does not have it.
func (p Project) kindOf(w watches.Watch) (k Kind, known bool) {
	k = Kind{Project: p, Version: w.GVK.Version, Kind: w.GVK.Kind, Namespaced: true}
	if group, ok := strings.CutSuffix(w.GVK.Group, "."+p.Domain); ok || p.Domain == "" {
		k.Group = group
	} else if w.GVK.Group != p.Domain {
		k.Project.Domain = w.GVK.Group
	}
	for _, r := range p.Resources {
		if r.Kind == k.Kind && r.Group == k.Group {
			k.Namespaced, known = r.API.Namespaced, true
		}
	}
	return k, known
}

// DefinitionOf returns the CRD of a watch in the project's directory. If the earlier definitions
// have its file, that is updated again, and not the one on disk. With an error that wraps
// [ErrSeveral], it still returns the path of the file and the sample.
func DefinitionOf(dir string, p Project, w watches.Watch, source string, variable Variable, earlier ...Definition) (Definition, error) {
	var d Definition
	k, _ := p.kindOf(w)
	if builtin, err := rbac.IsBuiltin(w.GVK.GroupKind()); err != nil || builtin { // which has no CRD
		return d, err
	}
	if c := w.Content.Command; c != nil && c.Chart != nil {
		return k.definitionOfChart(dir, c.Chart.Dir, earlier)
	}
	if !w.Content.Ansible() {
		d.Notes = append(d.Notes, k.Kind+": the watch runs a command or handler, which has no argument spec: its CRD is left as it is")
		return d, nil
	}
	role := w.Content.Role
	if role == "" {
		var err error
		if role, err = RoleOf(w.Content.Playbook); err != nil {
			return d, err
		}
	}
	if role == "" {
		d.Notes = append(d.Notes, fmt.Sprintf("%s: %s names no role under roles: its CRD is left as it is", k.Kind, w.Content.Playbook))
		return d, nil
	}
	read := reader(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(role, name)) })
	options, err := read.options(shown(dir, role), source)
	if err != nil {
		return d, err
	}
	if len(options) == 0 {
		d.Notes = append(d.Notes, fmt.Sprintf("%s: the role %s has neither argument spec nor defaults: its CRD is left as it is", k.Kind, filepath.Base(role)))
		return d, nil
	}
	old, err := k.takeDefinition(dir, earlier...)
	if err != nil {
		return d, err
	}
	if !w.SnakeCaseParameters {
		variable = nil
	}
	spec := k.specIn(old)
	d.WasOpen = text(at(spec, keepsUnknown)) == "true"
	variable.takeFields(options, spec)
	s := newSchema(options, fixedVars(w), variable)
	s.about = read.about()
	if d.Sample, err = k.sampleText(s, options); err != nil {
		return d, err
	}
	d.File.Path = k.Definition()
	written, breaks, kept, err := k.definitionText(old, s)
	if err != nil {
		return d, err
	}
	d.File.Text, d.Breaks, d.Notes = written, breaks, s.notes
	d.Guessed = guessed(read, source, filepath.Base(role), options)
	d.noteSize()
	for _, field := range kept {
		d.Notes = append(d.Notes, fmt.Sprintf("%s: %s is in the CRD, but is not an option of the role: it is kept; remove it from %s if no object sets it", k.Kind, field, d.File.Path))
	}
	return d, nil
}

// fixedVars returns the variables that a watch sets, which no object can set.
func fixedVars(w watches.Watch) map[string]any {
	fixed := map[string]any{}
	for name := range w.Vars {
		fixed[name] = nil
	}
	if w.Finalizer != nil {
		for name := range w.Finalizer.Vars {
			fixed[name] = nil
		}
	}
	return fixed
}

// noteSize notes how a large CRD has to be installed.
func (d *Definition) noteSize() {
	if n := len(d.File.Text); n > largest {
		d.Notes = append(d.Notes, fmt.Sprintf("%s: it has %d bytes, and kubectl apply takes %d at most: install it with kubectl apply --server-side", d.File.Path, n, largest))
	}
}

// shown returns a path as people know it: relative to the directory if it is inside.
func shown(dir, name string) string {
	whole, err := filepath.Abs(dir)
	if err != nil {
		return name
	}
	if rel, err := filepath.Rel(whole, name); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return name
}

// RoleOf returns the directory of the first role that a playbook names, beside the playbook or
// beside its directory; empty if it names none.
func RoleOf(playbook string) (string, error) {
	read := reader(func(name string) ([]byte, error) { return os.ReadFile(name) })
	root, err := read.yaml("", playbook)
	if err != nil || root == nil {
		return "", err
	}
	for _, play := range root.Content {
		roles := at(play, "roles")
		if roles == nil || len(roles.Content) == 0 {
			continue
		}
		name := text(roles.Content[0])
		if name == "" {
			name = text(at(roles.Content[0], "role"))
		}
		for _, dir := range []string{filepath.Dir(playbook), filepath.Dir(filepath.Dir(playbook))} {
			if role := filepath.Join(dir, "roles", name); name != "" && exists(role, "") {
				return role, nil
			}
		}
	}
	return "", nil
}

// findVersion returns the CRD that the directory has for the kind, with the kind's version added if it is missing, or an
// empty file.
func (k *Kind) findVersion(dir string) (f File, err error) {
	wanted := k.Namespaced
	old, err := k.takeDefinition(dir)
	if f.Path = k.Definition(); err != nil || old == "" {
		return f, err
	}
	if k.Namespaced && !wanted {
		return f, fmt.Errorf("--cluster-scoped: %s has it in namespaces, as all versions of a kind are", f.Path)
	}
	f.Text, err = k.addVersion(old)
	f.Replaces = f.Text != old
	return f, err
}

// takeDefinition takes the file, plural and scope from the CRD that the directory has for the kind, and returns its text.
// An earlier definition with the same file replaces what the directory has.
func (k *Kind) takeDefinition(dir string, earlier ...Definition) (old string, err error) {
	if k.file, old, err = k.find(dir); err != nil {
		return "", err
	}
	found := old != ""
	for _, d := range earlier {
		if d.File.Path != k.file {
			continue
		}
		if old = d.File.Text; !found { // it has only the version of its own watch
			if old, err = k.addVersion(old); err != nil {
				return "", err
			}
		}
	}
	if old == "" {
		return "", nil
	}
	if err := k.takeNames(old); err != nil {
		return "", fmt.Errorf("%s: %w", k.file, err)
	}
	return old, nil
}

// find returns the CRD that the directory has for the kind, or where a new one belongs.
func (k Kind) find(dir string) (file, old string, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "config/crd/bases/*.y*ml"))
	if err != nil {
		return "", "", err
	}
	for _, p := range paths {
		data, err := os.ReadFile(p)
		if err != nil {
			return "", "", err
		}
		docs, err := documents(data)
		if err != nil {
			return "", "", fmt.Errorf("%s: %w", p, err)
		}
		if slices.ContainsFunc(docs, k.defines) {
			rel, err := filepath.Rel(dir, p)
			return filepath.ToSlash(rel), string(data), err
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, k.Definition()))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", "", err
	}
	return k.Definition(), string(data), nil
}
