package tasks

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Place is a line of a file; 0 is the file as a whole.
type Place struct {
	File string
	Line int
}

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Use is a request that a task makes.
type Use struct {
	Place
	// APIVersion and Kind are as written in the task. A kind may be the name of a
	// resource or a short name, which the modules accept.
	APIVersion, Kind string
	// Subresource is empty for the object itself.
	Subresource string
	Verbs       []string
	// Makes is true if the request may create the object.
	Makes bool
}

// Direct is a permission that a comment in the files asks for.
type Direct struct {
	Place
	Group, Resource string // Resource has the subresource after a slash
	Verbs           []string
}

// Gap is a place whose requests are not known.
type Gap struct {
	Place
	What string
}

// Report is the result of a scan, in the order of the tasks.
type Report struct {
	Uses    []Use
	Directs []Direct
	Gaps    []Gap
}

// Content is a role's directory or a playbook; one of them is set.
type Content struct{ Playbook, Role string }

// Options are settings outside of the content.
type Options struct {
	// RolesPath and CollectionsPath are where other roles are searched.
	RolesPath, CollectionsPath []string
	// APIVersion and Kind are the watched kind.
	APIVersion, Kind string
}

// Scan reads a role or playbook and all that it includes by a literal name. An
// error names the file that cannot be read, or is not the YAML that Ansible wants.
func Scan(c Content, o Options) (Report, error) {
	s := &scanner{opts: o, seen: map[string]bool{}}
	var err error
	if c.Playbook != "" {
		err = s.playbook(c.Playbook, frame{})
	} else {
		err = s.role(c.Role, "main", frame{})
	}
	return s.report, err
}

// scanner is one scan.
type scanner struct {
	opts   Options
	report Report
	seen   map[string]bool // files that were read, with their role
}

// frame is the place of the scan in the content.
type frame struct {
	// file is the file being read, roleDir the role that it belongs to, or empty.
	file, roleDir string
	// roles are directories in which roles are searched first.
	roles []string
}

// gap reports a place whose requests are not known.
func (s *scanner) gap(f frame, line int, format string, args ...any) {
	g := Gap{Place{f.file, line}, fmt.Sprintf(format, args...)}
	if !slices.Contains(s.report.Gaps, g) {
		s.report.Gaps = append(s.report.Gaps, g)
	}
}

// read parses a file once for each role that it belongs to; nil if there is
// nothing to read. Encrypted files are reported.
func (s *scanner) read(path string, f *frame) (*yaml.Node, error) {
	key := f.roleDir + "\x00" + path
	if s.seen[key] {
		return nil, nil
	}
	s.seen[key] = true
	f.file = path
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the content: %w", err)
	}
	if strings.HasPrefix(string(data), "$ANSIBLE_VAULT") {
		s.gap(*f, 0, "the file is encrypted")
		return nil, nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" {
		return nil, nil // a file of comments is empty
	}
	// Decoding refuses an alias that contains itself.
	var plain any
	if err := doc.Decode(&plain); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return doc.Content[0], nil
}

// playbook reads the plays of a file.
func (s *scanner) playbook(path string, f frame) error {
	root, err := s.read(path, &f)
	if err != nil || root == nil {
		return err
	}
	f.roles = append(slices.Clone(f.roles), filepath.Join(filepath.Dir(path), "roles"))
	if root.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s:%d: a playbook is a list of plays", path, root.Line)
	}
	for _, play := range root.Content {
		if err := s.play(play, f); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) play(play *yaml.Node, f frame) error {
	for _, key := range []string{"import_playbook", "ansible.builtin.import_playbook"} {
		if name := get(play, key); name != nil {
			return s.included(f, name, []string{filepath.Dir(f.file)}, s.playbook)
		}
	}
	s.settings(play, f)
	err := s.roleList(get(play, "roles"), f)
	for _, key := range []string{"pre_tasks", "tasks", "post_tasks", "handlers"} {
		err = errors.Join(err, s.tasks(get(play, key), f))
	}
	return err
}

// settings reports keywords of plays, blocks and tasks that change what tasks do.
func (s *scanner) settings(node *yaml.Node, f frame) {
	for _, n := range []*yaml.Node{get(node, "connection"), get(get(node, "vars"), "ansible_connection")} {
		if n != nil && (strings.Contains(n.Value, "kubectl") || strings.HasSuffix(n.Value, ".oc")) {
			s.gap(f, n.Line, "the connection %s runs commands in Pods", n.Value)
		}
	}
	each(get(node, "module_defaults"), func(key, _ *yaml.Node) {
		if strings.Contains(key.Value, "k8s") {
			s.gap(f, key.Line, "module_defaults change the arguments of %s", key.Value)
		}
	})
}

// roleList reads the roles of a play, or the dependencies of a role.
func (s *scanner) roleList(list *yaml.Node, f frame) error {
	if list == nil {
		return nil
	}
	var err error
	for _, entry := range list.Content {
		name := resolved(entry)
		if name.Kind == yaml.MappingNode {
			name = either(get(entry, "role"), get(entry, "name"))
		}
		err = errors.Join(err, s.namedRole(name, nil, f, entry.Line))
	}
	return err
}

// namedRole reads the role of a literal name.
func (s *scanner) namedRole(name, from *yaml.Node, f frame, line int) error {
	role, ok := literal(name)
	start, okFrom := literal(from)
	if !ok || from != nil && !okFrom {
		s.gap(f, line, "the role or its tasks are named by an expression: %s", text(name))
		return nil
	}
	if start == "" {
		start = "main"
	}
	dir := s.findRole(role, f)
	if dir == "" {
		s.gap(f, line, "the role %s is not installed here", role)
		return nil
	}
	return s.role(dir, start, f)
}

func (s *scanner) findRole(name string, f frame) string {
	var places []string
	if parts := strings.Split(name, "."); len(parts) == 3 {
		for _, dir := range s.opts.CollectionsPath {
			places = append(places, filepath.Join(dir, "ansible_collections", parts[0], parts[1], "roles", parts[2]))
		}
	}
	if f.roleDir != "" {
		places = append(places, filepath.Join(filepath.Dir(f.roleDir), name))
	}
	for _, dir := range append(slices.Clone(f.roles), s.opts.RolesPath...) {
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
func (s *scanner) role(dir, start string, f frame) error {
	f.roleDir = dir
	inner := f
	if path := findFile("main", []string{filepath.Join(dir, "meta")}); path != "" {
		meta, err := s.read(path, &inner)
		if err != nil {
			return err
		}
		if err := s.roleList(get(meta, "dependencies"), inner); err != nil {
			return err
		}
	}
	for _, part := range []struct{ kind, name string }{{"tasks", start}, {"handlers", "main"}} {
		if path := findFile(part.name, []string{filepath.Join(dir, part.kind)}); path != "" {
			if err := s.taskFile(path, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// taskFile reads a list of tasks.
func (s *scanner) taskFile(path string, f frame) error {
	root, err := s.read(path, &f)
	if err != nil {
		return err
	}
	return s.tasks(root, f)
}

func (s *scanner) tasks(list *yaml.Node, f frame) error {
	if list == nil {
		return nil
	}
	if list.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s:%d: a file of tasks is a list", f.file, list.Line)
	}
	for _, node := range list.Content {
		if node = resolved(node); node.Kind != yaml.MappingNode {
			return fmt.Errorf("%s:%d: a task is a mapping", f.file, node.Line)
		}
		if err := s.task(node, f); err != nil {
			return err
		}
	}
	return nil
}

// task is one entry of a list of tasks.
func (s *scanner) task(node *yaml.Node, f frame) error {
	known, err := s.directives(node, f)
	if err != nil {
		return err
	}
	s.settings(node, f)
	if get(node, "block") != nil {
		for _, key := range []string{"block", "rescue", "always"} {
			err = errors.Join(err, s.tasks(get(node, key), f))
		}
		return err
	}
	if known {
		return nil
	}
	scalars(node, func(n *yaml.Node) {
		if lookup.MatchString(n.Value) {
			s.gap(f, n.Line, "a lookup of Kubernetes objects")
		}
	})
	return s.call(node, f)
}

// lookup matches a lookup of Kubernetes objects.
var lookup = regexp.MustCompile(`\b(?:lookup|query|q)\(\s*['"](?:[\w.]+\.)?k8s['"]`)

// call is the module call of a task.
func (s *scanner) call(node *yaml.Node, f frame) error {
	name, value, line := action(node)
	switch strings.TrimPrefix(strings.TrimPrefix(name, "ansible.builtin."), "ansible.legacy.") {
	case "include_tasks", "import_tasks", "include":
		return s.included(f, either(get(value, "file"), value), s.searched(f, "tasks"), s.taskFile)
	case "include_role", "import_role":
		return s.namedRole(get(value, "name"), get(value, "tasks_from"), f, line)
	}
	s.module(name, args{s: s, f: f, node: arguments(value, get(node, "args")), line: line})
	return nil
}

// included reads the file that a task or play names.
func (s *scanner) included(f frame, name *yaml.Node, dirs []string, read func(string, frame) error) error {
	file, ok := literal(name)
	if !ok {
		s.gap(f, name.Line, "the included file is named by an expression: %s", text(name))
		return nil
	}
	path := findFile(strings.TrimPrefix(file, "file="), dirs)
	if path == "" {
		s.gap(f, name.Line, "the file %s does not exist", file)
		return nil
	}
	return read(path, f)
}

// searched are the directories in which Ansible searches a task's file.
func (s *scanner) searched(f frame, kind string) []string {
	here := filepath.Dir(f.file)
	dirs := []string{filepath.Join(here, kind), here}
	if f.roleDir != "" {
		dirs = append([]string{filepath.Join(f.roleDir, kind), f.roleDir, filepath.Join(f.roleDir, "tasks")}, dirs...)
	}
	return dirs
}

// findFile is the first file of the name, with an ending of YAML or as it is;
// empty if there is none.
func findFile(name string, dirs []string) string {
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
