// Package scaffold makes the files of an operator's project: those of a new
// project, those of a new kind in it, and the CRD of a role's argument spec.
//
// It knows the layout of operator-sdk's Ansible projects, and adds to such a
// project as well as to one of its own. It reads and writes files of the project's directory, and
// nothing else.
package scaffold

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"text/template"

	"github.com/google/uuid"
	"gopkg.in/yaml.v3"

	unified "github.com/rolewright/rolewright/internal/text"
)

//go:embed all:files
var embedded embed.FS

var rolePattern = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

// File is a file that a project should have.
type File struct {
	// Path is relative to the project's directory, with slashes.
	Path string
	Text string
	// Replaces is true if an existing file is replaced: the text was made from it.
	Replaces bool
	// Link is the target of a symbolic link, which then replaces the text.
	Link string
	// Yields is true if an existing file stays, whatever it contains, unless force is set.
	Yields bool
}

// Change says what [Write] did with a file.
type Change struct {
	Path string
	// Did is created, changed or unchanged.
	Did string
}

// Differs is an error about a file that exists with another text. The error of [Write] joins one
// for each such file. Nothing was written then.
type Differs struct {
	Path      string
	Old, Text string
}

// Error names the file; [Differs.Diff] returns what differs.
func (d *Differs) Error() string { return d.Path + ": it exists, and differs" }

// Diff returns what would change in the file, as a unified diff.
func (d *Differs) Diff() string { return unified.Diff(d.Path, d.Path+" (new)", d.Old, d.Text) }

// Write writes the files into the directory, all or none; with force, it also overwrites
// others. It leaves a file alone that has the text already. A link in the directory
// that leads out of it is an error. If the disk is full, or the like, the error says
// what was written all the same.
func Write(dir string, files []File, force bool) ([]Change, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	var changes []Change
	var differing []error
	for _, f := range files {
		target := filepath.FromSlash(f.Path)
		if _, err := root.Lstat(target); err == nil && (f.Link != "" || f.Yields && !force) { // whatever it is, it belongs to people
			changes = append(changes, Change{f.Path, "unchanged"})
			continue
		}
		old, err := root.ReadFile(target)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			changes = append(changes, Change{f.Path, "created"})
		case err != nil:
			return nil, err
		case string(old) == f.Text:
			changes = append(changes, Change{f.Path, "unchanged"})
		case f.Replaces || force:
			changes = append(changes, Change{f.Path, "changed"})
		default:
			differing = append(differing, &Differs{Path: f.Path, Old: string(old), Text: f.Text})
		}
	}
	if len(differing) > 0 {
		return nil, errors.Join(differing...)
	}
	for i, f := range files {
		if changes[i].Did == "unchanged" {
			continue
		}
		if err := write(root, f); err != nil {
			if absolute, e := filepath.Abs(dir); e == nil {
				dir = absolute
			}
			return nil, fmt.Errorf("write into %s: %w; %s", dir, err, written(changes[:i]))
		}
	}
	return changes, nil
}

// written says for an error which files were written.
func written(changes []Change) string {
	var paths []string
	for _, c := range changes {
		if c.Did != "unchanged" {
			paths = append(paths, c.Path)
		}
	}
	if len(paths) == 0 {
		return "nothing was written"
	}
	return "written before it: " + strings.Join(paths, ", ")
}

func write(root *os.Root, f File) error {
	target := filepath.FromSlash(f.Path)
	if err := root.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	if f.Link != "" {
		return root.Symlink(f.Link, target)
	}
	return Replace(root, f.Path, f.Text)
}

// Replace writes a file. An existing file is replaced as a whole or not at all, and keeps its permissions, so a full
// disk damages nothing. If no other file can take its place, Replace writes into it.
func Replace(root *os.Root, path, text string) error {
	path = filepath.FromSlash(path)
	if info, err := root.Lstat(path); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o200 != 0 {
		err := exchange(root, path, text, info)
		// The directory may be read-only, or the file a mount.
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EBUSY) {
			return err
		}
	}
	return root.WriteFile(path, []byte(text), 0o644)
}

// exchange replaces a file by a new one.
func exchange(root *os.Root, path, text string, was fs.FileInfo) error {
	next := filepath.Join(filepath.Dir(path), ".rolewright-"+uuid.NewString())
	err := root.WriteFile(next, []byte(text), was.Mode().Perm())
	if st, ok := was.Sys().(*syscall.Stat_t); ok && err == nil {
		_ = root.Chown(next, int(st.Uid), int(st.Gid)) // only root may do that; for others the owner is the same
	}
	if err == nil {
		err = root.Chmod(next, was.Mode().Perm()) // the umask has restricted it
	}
	if err == nil {
		err = root.Rename(next, path)
	}
	if err != nil {
		_ = root.Remove(next) // the error is returned
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// render executes the templates of a directory.
func render(dir string, data any) ([]File, error) {
	var files []File
	err := fs.WalkDir(embedded, dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := execute(name, data)
		if err != nil {
			return err
		}
		target := strings.TrimPrefix(name, dir+"/")
		if base, ok := strings.CutPrefix(path.Base(target), "dot-"); ok {
			target = path.Join(path.Dir(target), "."+base)
		}
		files = append(files, File{Path: target, Text: text})
		return nil
	})
	return files, err
}

// execute executes one template. Its delimiters are << and >>: braces are Ansible's.
func execute(name string, data any) (string, error) {
	source, err := embedded.ReadFile(name)
	if err != nil {
		return "", err
	}
	t, err := template.New(name).Delims("<<", ">>").Option("missingkey=error").Parse(string(source))
	if err != nil {
		return "", err
	}
	var text bytes.Buffer
	err = t.Execute(&text, data)
	return text.String(), err
}

// Files returns the files of a kind: new files, and changes to the project's
// own files. An existing role or playbook is used as it is.
func (k Kind) Files(dir string) ([]File, error) {
	if err := k.Validate(); err != nil {
		return nil, err
	}
	project, err := k.addTo(k.Project).file()
	if err != nil {
		return nil, err
	}
	project.Replaces = true
	files := []File{project}
	if k.Chart != nil {
		files = append(files, k.chartFiles()...)
	} else if !exists(dir, "roles/"+k.Role) && !k.hasPlaybook(dir) {
		role, err := render("files/kind/role", k)
		if err != nil {
			return nil, err
		}
		for _, f := range role {
			f.Path = path.Join("roles", k.Role, f.Path)
			files = append(files, f)
		}
	}
	if k.Playbook != "" && !k.hasPlaybook(dir) {
		text, err := execute("files/kind/playbook.yml", k)
		if err != nil {
			return nil, err
		}
		// Ansible looks for roles beside the playbook.
		files = append(files, File{Path: k.Playbook, Text: text}, File{Path: path.Join(path.Dir(k.Playbook), "roles"), Link: k.rolesFrom()})
	}
	people, err := k.forPeople()
	if err != nil {
		return nil, err
	}
	changed, err := k.lists(dir)
	return append(append(files, people...), changed...), err
}

// hasPlaybook tells whether the kind runs an existing playbook, with roles of its own.
func (k Kind) hasPlaybook(dir string) bool { return k.Playbook != "" && exists(dir, k.Playbook) }

// forPeople returns the permissions of people who work with the kind.
func (k Kind) forPeople() ([]File, error) {
	var files []File
	for _, role := range []string{"editor", "viewer"} {
		text, err := execute("files/kind/"+role+"_role.yaml", k)
		if err != nil {
			return nil, err
		}
		files = append(files, File{Path: fmt.Sprintf("config/rbac/%s_%s_role.yaml", k.Singular(), role), Text: text})
	}
	return files, nil
}

// rolesFrom returns the path from the directory of the playbook to the directory of the roles.
func (k Kind) rolesFrom() string {
	return strings.Repeat("../", strings.Count(path.Clean(k.Playbook), "/")) + "roles"
}

// entries returns the entries for the lists in config, for a CRD and a sample with these names.
func (k Kind) entries(definition, sample string) []entry {
	rbac := fmt.Sprintf("  - %s_editor_role.yaml\n  - %[1]s_viewer_role.yaml\n", k.Singular())
	return []entry{
		{"config/crd/kustomization.yaml", "# +kubebuilder:scaffold:crdkustomizeresource", "bases/" + definition, "  - bases/" + definition + "\n"},
		{"config/samples/kustomization.yaml", "# +kubebuilder:scaffold:manifestskustomizesamples", sample, "  - " + sample + "\n"},
		{"config/rbac/kustomization.yaml", "", k.Singular() + "_editor_role.yaml", rbac},
	}
}

// copies returns the entries that copy the charts into the image, with the program that runs them.
func copies() []entry {
	return []entry{
		{"Dockerfile", "", "helm-charts", "COPY --from=" + chartsImage + " /usr/local/bin/rolewright-helm /usr/local/bin/\nCOPY helm-charts helm-charts\n"},
		{".dockerignore", "", "helm-charts", "!helm-charts\n"},
	}
}

// lists returns the project's files that name each kind or its files.
func (k Kind) lists(dir string) ([]File, error) {
	watch, err := execute("files/kind/watch.yaml", k)
	if err != nil {
		return nil, err
	}
	entries := k.entries(path.Base(k.Definition()), k.sample())
	if has, err := k.watched(dir); err != nil {
		return nil, err
	} else if !has {
		entries = append([]entry{{"watches.yaml", "# +kubebuilder:scaffold:watch", "", watch}}, entries...)
	}
	if k.Chart != nil {
		for _, e := range copies() {
			if exists(dir, e.path) { // an example has no such file
				entries = append(entries, e)
			}
		}
	}
	var files []File
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.path))
		if err != nil {
			return nil, fmt.Errorf("%w: it is part of a project; \"rolewright init\" writes it", err)
		}
		text, err := e.addTo(string(data))
		if err != nil {
			return nil, err
		}
		if text != string(data) {
			files = append(files, File{Path: e.path, Text: text, Replaces: true})
		}
	}
	return files, nil
}

// watched tells whether watches.yaml has the kind. The entries belong to people, and there may be several with selectors.
// It is an error if none of them runs what is asked for.
func (k Kind) watched(dir string) (bool, error) {
	root, err := reader(func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }).yaml("", "watches.yaml")
	if err != nil || root == nil {
		return false, err
	}
	var differs error
	for _, w := range root.Content {
		if text(at(w, "group")) == k.FullGroup() && text(at(w, "version")) == k.Version && text(at(w, "kind")) == k.Kind {
			err := k.runBy(w)
			if err == nil {
				return true, nil
			}
			differs = cmp.Or(differs, err)
		}
	}
	return differs != nil, differs
}

// runBy says what the entry of watches.yaml lacks of what is asked for.
func (k Kind) runBy(w *yaml.Node) error {
	key, want := "role", k.Role
	switch {
	case k.Chart != nil:
		key, want = "chart", path.Join(chartsDir, k.Chart.Name)
	case k.Playbook != "":
		key, want = "playbook", path.Clean(k.Playbook)
	}
	// The entry may have a whole path, such as that in the image.
	if !strings.HasSuffix("/"+path.Clean(text(at(w, key))), "/"+want) {
		return fmt.Errorf("watches.yaml:%d: %s is already watched, but not with %s: %s; edit the entry, or run this command with what the entry has", w.Line, k.Kind, key, want)
	}
	if k.Finalizer && at(w, "finalizer") == nil {
		return fmt.Errorf("watches.yaml:%d: %s is already watched, but without a finalizer: add one to the entry by hand", w.Line, k.Kind)
	}
	return nil
}

// sample returns the file name of the kind's sample.
func (k Kind) sample() string {
	return strings.TrimPrefix(fmt.Sprintf("%s_%s_%s.yaml", k.Group, k.Version, k.Singular()), "_")
}

// Sample returns the path of the kind's sample.
func (k Kind) Sample() string { return "config/samples/" + k.sample() }

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name)))
	return err == nil
}
