package content

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Files returns the absolute paths that the content names literally: files and directories
// of variables (vars_files, include_vars), and files in lookups of file and template. They
// are sorted, and need not exist. Content that cannot be read is ignored.
func Files(c Content, o Options) []string {
	named := files{}
	_ = Read(c, o, named)
	return slices.Sorted(maps.Keys(named))
}

// WalkDir is [filepath.WalkDir], but walks the target of a root that is a link to a directory, such as a role that projects
// share. The paths begin with the root, not with the target.
func WalkDir(root string, visit fs.WalkDirFunc) error {
	if info, err := os.Stat(root); err == nil && info.IsDir() {
		root += string(filepath.Separator)
	}
	return filepath.WalkDir(root, visit)
}

type files map[string]bool

func (set files) add(path string) {
	if filepath.IsAbs(path) {
		set[filepath.Clean(path)] = true
	}
}

// fileLookup matches a lookup with a literal path.
var fileLookup = regexp.MustCompile(`\b(?:lookup|query|q)\(\s*['"](?:ansible\.builtin\.)?(?:file|template)['"]\s*,\s*['"](/[^'"{}]+)['"]\s*[,)]`)

// lookups adds the paths in lookups in the text of a node and all nodes below it.
func (set files) lookups(n *yaml.Node) {
	if n == nil {
		return
	}
	for _, match := range fileLookup.FindAllStringSubmatch(n.Value, -1) {
		set.add(match[1])
	}
	for _, child := range n.Content {
		set.lookups(child)
	}
}

// Group implements [Visitor]. It ignores the tasks of a play or block, for which Task is called.
func (set files) Group(_ Frame, node *yaml.Node) {
	Each(node, func(key, value *yaml.Node) {
		switch key.Value {
		case "block", "rescue", "always", "pre_tasks", "tasks", "post_tasks", "handlers":
			return
		case "vars_files":
			set.paths(value)
		}
		set.lookups(value)
	})
}

// paths adds a path, or the paths in a list, which may contain lists.
func (set files) paths(n *yaml.Node) {
	n = Resolved(n)
	if path, ok := Literal(n); ok {
		set.add(path)
	} else if n != nil && n.Kind == yaml.SequenceNode {
		for _, child := range n.Content {
			set.paths(child)
		}
	}
}

// Role implements [Visitor].
func (set files) Role(f Frame) {
	for _, kind := range []string{"defaults", "vars"} {
		path := FindFile("main", filepath.Join(f.RoleDir, kind))
		if data, err := os.ReadFile(path); err == nil {
			root, _ := Parse(data) // an invalid file is ignored
			set.lookups(root)
		}
	}
}

// Task implements [Visitor].
func (set files) Task(t Task) bool {
	set.lookups(t.Node)
	if t.Module != "include_vars" {
		return true
	}
	for _, arg := range []*yaml.Node{t.Args, Get(t.Args, "file"), Get(t.Args, "dir")} {
		if path, ok := Literal(arg); ok {
			set.add(strings.TrimPrefix(strings.TrimPrefix(path, "file="), "dir="))
		}
	}
	return true
}

// Gap implements [Visitor].
func (set files) Gap(Frame, int, string, ...any) {}
