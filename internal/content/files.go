package content

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Files are the absolute paths that the content names literally: files and directories
// of variables (vars_files, include_vars), and files in lookups of file and template. They
// are sorted, and need not exist. What cannot be read of the content names none.
func Files(c Content, o Options) []string {
	named := files{}
	_ = Read(c, o, named)
	return slices.Sorted(maps.Keys(named))
}

type files map[string]bool

func (set files) add(path string) {
	if filepath.IsAbs(path) {
		set[filepath.Clean(path)] = true
	}
}

// fileLookup matches a lookup with a literal path.
var fileLookup = regexp.MustCompile(`\b(?:lookup|query|q)\(\s*['"](?:ansible\.builtin\.)?(?:file|template)['"]\s*,\s*['"](/[^'"{}]+)['"]\s*[,)]`)

// lookups adds those in the text of a node and of all below it.
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

// Group implements [Visitor]. The tasks of a play or block come by themselves.
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

// paths adds a path, or a list of paths and of lists of them.
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
			root, _ := Parse(data) // what cannot be parsed names none
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
