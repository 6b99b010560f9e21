// Package content reads roles and playbooks as far as their files are literal:
// their plays, blocks and tasks, with the roles and files that they include by
// name. It runs nothing, evaluates no expression, and does not know what a task
// does.
package content

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Content is a role's directory or a playbook; exactly one of them is set.
type Content struct{ Playbook, Role string }

// Options say where other roles are, and how far to read.
type Options struct {
	// RolesPath and CollectionsPath are the directories in which roles are searched
	// after those beside the content that names them.
	RolesPath, CollectionsPath []string
	// AllTasks reads all files of tasks and handlers of a role, not only the main ones
	// and what they include.
	AllTasks bool
}

// Frame is a place in the content.
type Frame struct {
	// File is the file being read, RoleDir the directory of the role that it belongs
	// to; empty if it belongs to none.
	File, RoleDir string
	// roles are directories in which roles are searched before RolesPath.
	roles []string
}

// Task is a task that is no block.
type Task struct {
	Frame
	Node *yaml.Node
	// Module is the name as written, without ansible.builtin or ansible.legacy. Args is
	// its value: a mapping, text or nil. Line is the line of the module.
	Module string
	Args   *yaml.Node
	Line   int
}

// Visitor is called for what the content contains, in its order.
type Visitor interface {
	// Group is called for a play, a block, and the entry of a role in a play or in the
	// dependencies of another role.
	Group(f Frame, node *yaml.Node)
	// Task is called for a task before what it includes is read; if it returns false,
	// the included file or role is not read.
	Task(t Task) bool
	// Role is called for a role; its directory is in the frame.
	Role(f Frame)
	// Gap is called for content that is not read: it is encrypted, named by an
	// expression, or missing. A line of 0 stands for the whole file.
	Gap(f Frame, line int, format string, args ...any)
}

// Read reads the content. The error names each file that cannot be read, or is not
// valid YAML for Ansible; everything else is read all the same.
func Read(c Content, o Options, v Visitor) error {
	r := &reader{Options: o, Visitor: v, seen: map[string]bool{}}
	if c.Playbook != "" {
		r.playbook(c.Playbook, Frame{})
	} else {
		r.role(c.Role, "main", Frame{})
	}
	return errors.Join(r.errs...)
}

type reader struct {
	Options
	Visitor
	seen map[string]bool // files that were read, with their role
	errs []error
}

// fail notes that a file is wrong.
func (r *reader) fail(format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf(format, args...))
}

// read parses a file, once for each role that it belongs to. It returns nil if there
// is nothing to read, or the file cannot be read.
func (r *reader) read(path string, f *Frame) *yaml.Node {
	key := f.RoleDir + "\x00" + path
	if r.seen[key] {
		return nil
	}
	r.seen[key] = true
	f.File = path
	data, err := os.ReadFile(path)
	if err != nil {
		r.fail("read the content: %w", err)
		return nil
	}
	if strings.HasPrefix(string(data), "$ANSIBLE_VAULT") {
		r.Gap(*f, 0, "the file is encrypted")
		return nil
	}
	root, err := Parse(data)
	if err != nil {
		r.fail("%s: %w", path, err)
	}
	return root
}

// Parse returns the root of the first document; nil without an error if that is
// empty. If a mapping has a key several times, the last one counts, as in Ansible; of
// several merge keys all count, the last one first. It refuses an alias that contains
// itself.
func Parse(data []byte) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, err
	}
	if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
		return nil, nil // a file of comments is empty
	}
	dropRepeated(&doc)
	var plain any
	if err := doc.Decode(&plain); err != nil {
		return nil, err
	}
	return doc.Content[0], nil
}

// dropRepeated leaves the last of the pairs with the same key in each mapping.
func dropRepeated(n *yaml.Node) {
	for i := 0; n.Kind == yaml.MappingNode && i < len(n.Content); {
		repeated := false
		for j := i + 2; j < len(n.Content); j += 2 {
			a, b := n.Content[i], n.Content[j]
			repeated = repeated || a.Kind == yaml.ScalarNode && b.Kind == yaml.ScalarNode && a.Tag == b.Tag && a.Value == b.Value && a.Tag != "!!merge"
		}
		if repeated {
			n.Content = slices.Delete(n.Content, i, i+2)
		} else {
			i += 2
		}
	}
	joinMerges(n)
	for _, child := range n.Content {
		dropRepeated(child)
	}
}

// joinMerges joins several merge keys of a mapping to one with a list, in which the first has precedence.
func joinMerges(n *yaml.Node) {
	var rest, merges []*yaml.Node
	for key, value := range Pairs(n) {
		if key.Tag == "!!merge" {
			one := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Line: key.Line, Content: []*yaml.Node{key, value}}
			merges = slices.Insert(merges, 0, one)
		} else {
			rest = append(rest, key, value)
		}
	}
	if len(merges) > 1 {
		all := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Line: merges[0].Line, Content: merges}
		n.Content = append(rest, merges[0].Content[0], all)
	}
}

// playbook reads the plays of a file.
func (r *reader) playbook(path string, f Frame) {
	root := r.read(path, &f)
	if root == nil {
		return
	}
	f.roles = append(slices.Clone(f.roles), filepath.Join(filepath.Dir(path), "roles"))
	if root.Kind != yaml.SequenceNode {
		r.fail("%s:%d: a playbook must be a list of plays", path, root.Line)
		return
	}
	for _, play := range root.Content {
		if name := cmp.Or(Get(play, "import_playbook"), Get(play, "ansible.builtin.import_playbook")); name != nil {
			r.included(f, name, []string{filepath.Dir(path)}, r.playbook)
			continue
		}
		r.Group(f, play)
		r.roleList(Get(play, "roles"), f)
		for _, key := range []string{"pre_tasks", "tasks", "post_tasks", "handlers"} {
			r.tasks(Get(play, key), f)
		}
	}
}

// roleList reads the roles of a play, or the dependencies of a role.
func (r *reader) roleList(list *yaml.Node, f Frame) {
	if list == nil {
		return
	}
	for _, entry := range list.Content {
		name := Resolved(entry)
		if name.Kind == yaml.MappingNode {
			r.Group(f, name)
			name = cmp.Or(Get(entry, "role"), Get(entry, "name"))
		}
		r.namedRole(name, nil, f, entry.Line)
	}
}

// namedRole reads the role with the name, if the name is literal.
func (r *reader) namedRole(name, from *yaml.Node, f Frame, line int) {
	role, ok := Literal(name)
	start, okFrom := Literal(from)
	if !ok || from != nil && !okFrom {
		r.Gap(f, line, "the role or its tasks are named by an expression: %s", Text(name))
		return
	}
	dir := r.findRole(role, f)
	if dir == "" {
		r.Gap(f, line, "the role %s is not installed here", role)
		return
	}
	r.role(dir, cmp.Or(start, "main"), f)
}

func (r *reader) findRole(name string, f Frame) string {
	var places []string
	if parts := strings.Split(name, "."); len(parts) == 3 {
		for _, dir := range r.CollectionsPath {
			places = append(places, filepath.Join(dir, "ansible_collections", parts[0], parts[1], "roles", parts[2]))
		}
	}
	if f.RoleDir != "" {
		places = append(places, filepath.Join(filepath.Dir(f.RoleDir), name))
	}
	for _, dir := range append(slices.Clone(f.roles), r.RolesPath...) {
		places = append(places, filepath.Join(dir, name))
	}
	if filepath.IsAbs(name) {
		places = []string{name}
	}
	for _, place := range places {
		if info, err := os.Stat(place); err == nil && info.IsDir() {
			return place
		}
	}
	return ""
}

// role reads the dependencies, tasks and handlers of a role.
func (r *reader) role(dir, start string, f Frame) {
	f.RoleDir = dir
	inner := f
	if path := FindFile("main", filepath.Join(dir, "meta")); path != "" {
		r.roleList(Get(r.read(path, &inner), "dependencies"), inner)
	}
	r.Role(f)
	for _, part := range []struct{ kind, name string }{{"tasks", start}, {"handlers", "main"}} {
		if path := FindFile(part.name, filepath.Join(dir, part.kind)); path != "" {
			r.taskFile(path, f)
		}
		if r.AllTasks {
			r.allTasks(filepath.Join(dir, part.kind), f)
		}
	}
}

// allTasks reads the files of a directory and of those below it.
func (r *reader) allTasks(dir string, f Frame) {
	_ = WalkDir(dir, func(path string, entry fs.DirEntry, err error) error { // a missing directory has no files
		if err == nil && !entry.IsDir() && slices.Contains([]string{".yml", ".yaml"}, filepath.Ext(path)) {
			r.taskFile(path, f)
		}
		return nil
	})
}

// taskFile reads a list of tasks.
func (r *reader) taskFile(path string, f Frame) {
	root := r.read(path, &f)
	r.tasks(root, f)
}

func (r *reader) tasks(list *yaml.Node, f Frame) {
	if list == nil {
		return
	}
	if list.Kind != yaml.SequenceNode {
		r.fail("%s:%d: a task file must be a list of tasks", f.File, list.Line)
		return
	}
	for _, node := range list.Content {
		if node = Resolved(node); node.Kind != yaml.MappingNode {
			r.fail("%s:%d: a task must be a mapping", f.File, node.Line)
			continue
		}
		r.task(node, f)
	}
}

// task reads one entry of a list of tasks.
func (r *reader) task(node *yaml.Node, f Frame) {
	if Get(node, "block") != nil {
		r.Group(f, node)
		for _, key := range []string{"block", "rescue", "always"} {
			r.tasks(Get(node, key), f)
		}
		return
	}
	t := Task{Frame: f, Node: node}
	t.Module, t.Args, t.Line = action(node)
	t.Module = strings.TrimPrefix(strings.TrimPrefix(t.Module, "ansible.builtin."), "ansible.legacy.")
	if !r.Task(t) {
		return
	}
	switch t.Module {
	case "include_tasks", "import_tasks", "include":
		r.included(f, cmp.Or(Get(t.Args, "file"), t.Args), f.Searched("tasks"), r.taskFile)
	case "include_role", "import_role":
		r.namedRole(Get(t.Args, "name"), Get(t.Args, "tasks_from"), f, t.Line)
	}
}

// included reads the file that a task or play names.
func (r *reader) included(f Frame, name *yaml.Node, dirs []string, read func(string, Frame)) {
	file, ok := Literal(name)
	if !ok {
		r.Gap(f, name.Line, "the included file is named by an expression: %s", Text(name))
		return
	}
	path := FindFile(strings.TrimPrefix(file, "file="), dirs...)
	if path == "" {
		r.Gap(f, name.Line, "the file %s does not exist", file)
		return
	}
	read(path, f)
}

// Searched returns the directories in which Ansible searches a task's file of a kind,
// such as templates.
func (f Frame) Searched(kind string) []string {
	here := filepath.Dir(f.File)
	dirs := []string{filepath.Join(here, kind), here}
	if f.RoleDir != "" {
		dirs = append([]string{filepath.Join(f.RoleDir, kind), f.RoleDir, filepath.Join(f.RoleDir, "tasks")}, dirs...)
	}
	return dirs
}

// FindFile returns the path of the first file with the name, as it is or with the
// ending of a YAML or JSON file; empty if there is none.
func FindFile(name string, dirs ...string) string {
	if filepath.IsAbs(name) {
		dirs = []string{"/"}
	}
	for _, dir := range dirs {
		for _, ending := range []string{"", ".yml", ".yaml", ".json"} {
			path := filepath.Join(dir, name+ending)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path
			}
		}
	}
	return ""
}
