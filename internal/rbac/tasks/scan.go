package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
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
	// APIVersion and Kind are as the task has them. A kind may be the name of a
	// resource or a short name, as the modules take it.
	APIVersion, Kind string
	// Subresource is empty for the object itself.
	Subresource string
	Verbs       []string
	// Makes is true if the request may create the object.
	Makes bool
	// Alternative is true if an expression or a condition decides what the kind
	// is: not each of its uses needs to exist.
	Alternative bool
}

// Direct is a permission that a comment in the files asks for.
type Direct struct {
	Place
	Group, Resource string // Resource has the subresource after a slash
	Verbs           []string
}

// Gap is a place that may make requests which the files do not tell.
type Gap struct {
	Place
	What string
}

// Report is what a scan has found, in the order of the tasks.
type Report struct {
	Uses    []Use
	Directs []Direct
	Gaps    []Gap
}

// Content is a role's directory or a playbook; one of them is set.
type Content struct{ Playbook, Role string }

// Options are what the content alone does not tell.
type Options struct {
	// RolesPath and CollectionsPath are where other roles are looked for.
	RolesPath, CollectionsPath []string
	// Vars are the variables of the watch.
	Vars map[string]any
	// APIVersion and Kind are the watched ones, and Group its group.
	APIVersion, Group, Kind string
}

// Scan reads a role or playbook and all that it includes by a literal name.
// An error means that a file cannot be read or is no YAML; it names the file.
func Scan(c Content, o Options) (Report, error) {
	s := &scanner{opts: o, seen: map[string]bool{}, dynamic: map[string]bool{}}
	f, err := s.watched()
	if err != nil {
		return Report{}, err
	}
	if c.Playbook != "" {
		err = s.playbook(c.Playbook, f)
	} else {
		err = s.role(c.Role, "main", f)
	}
	return s.report, err
}

// scanner is one scan.
type scanner struct {
	opts   Options
	report Report
	// seen are the files that were read, with the variables they were read with.
	seen map[string]bool
	// dynamic are the variables that tasks set, whatever else the files say.
	dynamic map[string]bool
}

// frame is where in the content the scan is. It is handed down by value; its
// maps are never changed.
type frame struct {
	// file is the file being read, roleDir the role it belongs to, or empty.
	file, roleDir string
	// roles are the directories beside which roles are looked for first.
	roles []string
	vars  map[string]variable
	// module_defaults, by module or group.
	defaults map[string]*yaml.Node
	depth    int
}

// variable is what the files say of a variable.
type variable struct {
	node *yaml.Node
	// open variables are defaults, in whose place the object's spec may put
	// something else.
	open bool
}

// maxDepth bounds includes: content that includes itself ends at run time by a
// condition.
const maxDepth = 40

// maxFiles bounds how many files are read, with each set of variables anew.
const maxFiles = 5000

// watched is the frame in which every run begins.
func (s *scanner) watched() (frame, error) {
	f := frame{vars: map[string]variable{}, defaults: map[string]*yaml.Node{}}
	for name, value := range s.opts.Vars {
		var node yaml.Node
		if err := node.Encode(value); err != nil {
			return f, fmt.Errorf("variable %s of the watch: %w", name, err)
		}
		f.vars[name] = variable{node: &node}
	}
	word := strings.NewReplacer(".", "_", "-", "_", "/", "_").Replace(s.opts.Group + "." + s.opts.Kind)
	var object yaml.Node
	if err := object.Encode(map[string]string{"apiVersion": s.opts.APIVersion, "kind": s.opts.Kind}); err != nil {
		return f, fmt.Errorf("describe the watched kind: %w", err)
	}
	f.vars["_"+strings.ToLower(strings.TrimPrefix(word, "_"))] = variable{node: &object}
	return f, nil
}

func (s *scanner) gap(f frame, line int, format string, args ...any) {
	g := Gap{Place{f.file, line}, fmt.Sprintf(format, args...)}
	if !slices.Contains(s.report.Gaps, g) {
		s.report.Gaps = append(s.report.Gaps, g)
	}
}

func (s *scanner) use(u Use) { s.report.Uses = append(s.report.Uses, u) }

// read parses a file; nil if it is empty, or has nothing but comments, as the
// files of a new project have.
func read(path string) (*yaml.Node, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the content: %w", err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(data, &doc); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if endless(&doc) {
		return nil, fmt.Errorf("%s: an alias is part of what it stands for", path)
	}
	if len(doc.Content) == 0 {
		return nil, nil //nolint:nilnil // an empty file is no mistake
	}
	root := resolved(doc.Content[0])
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
		return nil, nil //nolint:nilnil // as above
	}
	return root, nil
}

// resolved follows an alias.
func resolved(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// playbook reads the plays of a file.
func (s *scanner) playbook(path string, f frame) error {
	if f.depth >= maxDepth || !s.enter(path, f) {
		return nil
	}
	root, err := read(path)
	if err != nil || root == nil {
		return err
	}
	f.file, f.depth = path, f.depth+1
	f.roles = append(slices.Clone(f.roles), filepath.Join(filepath.Dir(path), "roles"))
	if root.Kind != yaml.SequenceNode {
		return fmt.Errorf("%s:%d: a playbook is a list of plays", path, root.Line)
	}
	for _, play := range root.Content {
		if err := s.play(resolved(play), f); err != nil {
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
	f = f.with(play)
	s.connection(play, f)
	if roles := get(play, "roles"); roles != nil {
		if err := s.roleList(roles, f); err != nil {
			return err
		}
	}
	for _, key := range []string{"pre_tasks", "tasks", "post_tasks", "handlers"} {
		if err := s.tasks(get(play, key), f); err != nil {
			return err
		}
	}
	return nil
}

// roleList reads the roles of a play, or the dependencies of a role.
func (s *scanner) roleList(list *yaml.Node, f frame) error {
	for _, entry := range list.Content {
		entry = resolved(entry)
		inner, name := f, entry
		if entry.Kind == yaml.MappingNode {
			name = either(get(entry, "role"), get(entry, "name"))
			inner = f.with(entry)
		}
		if err := s.namedRole(name, nil, inner, entry.Line); err != nil {
			return err
		}
	}
	return nil
}

// namedRole reads the role of a literal name.
func (s *scanner) namedRole(name, from *yaml.Node, f frame, line int) error {
	names, _, ok := s.values(name, f)
	if !ok {
		s.gap(f, line, "the role is named by an expression: %s", text(name))
		return nil
	}
	starts := []string{"main"}
	if from != nil {
		if starts, _, ok = s.values(from, f); !ok {
			s.gap(f, line, "the tasks of a role are named by an expression: %s", text(from))
			return nil
		}
	}
	for _, name := range names {
		dir := s.findRole(name, f)
		if dir == "" {
			s.gap(f, line, "the role %s is not installed here", name)
			continue
		}
		for _, start := range starts {
			if err := s.role(dir, start, f); err != nil {
				return err
			}
		}
	}
	return nil
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
	if f.depth >= maxDepth {
		return nil
	}
	f.roleDir, f.depth = dir, f.depth+1
	f.vars = maps.Clone(f.vars)
	for _, kind := range []string{"defaults", "vars"} {
		if err := f.addFile(yamlFile(dir, kind, "main"), kind == "defaults"); err != nil {
			return err
		}
	}
	if path := yamlFile(dir, "meta", "main"); path != "" {
		meta, err := read(path)
		if err != nil {
			return err
		}
		if list := get(meta, "dependencies"); list != nil {
			inner := f
			inner.file = path
			if err := s.roleList(list, inner); err != nil {
				return err
			}
		}
	}
	for _, part := range []struct{ kind, name string }{{"tasks", start}, {"handlers", "main"}} {
		if path := yamlFile(dir, part.kind, part.name); path != "" {
			if err := s.taskFile(path, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// yamlFile is a file of a role, with whatever extension it has; empty if there
// is none.
func yamlFile(dir, kind, name string) string {
	for _, extension := range []string{"", ".yml", ".yaml", ".json"} {
		path := filepath.Join(dir, kind, name+extension)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// addFile adds the variables of a file, if there is one.
func (f *frame) addFile(path string, open bool) error {
	if path == "" {
		return nil
	}
	root, err := read(path)
	if err != nil {
		return err
	}
	each(root, func(key, value *yaml.Node) {
		if _, fixed := f.vars[key.Value]; open && fixed {
			return // a default is what counts last
		}
		f.vars[key.Value] = variable{value, open}
	})
	return nil
}

// enter reports whether a file has not been read with these variables.
func (s *scanner) enter(path string, f frame) bool {
	var key strings.Builder
	fmt.Fprintf(&key, "%s %s", path, f.roleDir)
	for _, name := range slices.Sorted(maps.Keys(f.vars)) {
		n := resolved(f.vars[name].node)
		if n.Kind == yaml.ScalarNode {
			fmt.Fprintf(&key, " %s=%q", name, n.Value)
		} else {
			fmt.Fprintf(&key, " %s=%p", name, n)
		}
	}
	if s.seen[key.String()] {
		return false
	}
	if len(s.seen) >= maxFiles {
		s.gapAt(Place{path, 0}, "it is not read: the content includes more files than are read here")
		return false
	}
	s.seen[key.String()] = true
	return true
}

// included reads files that a task or play names.
func (s *scanner) included(f frame, name *yaml.Node, dirs []string, read func(string, frame) error) error {
	names, _, ok := s.values(name, f)
	if !ok {
		s.gap(f, name.Line, "what is included is named by an expression: %s", text(name))
		return nil
	}
	for _, one := range names {
		one = strings.Trim(strings.TrimPrefix(strings.Fields(one + " ?")[0], "file="), `'"`)
		path := findFile(one, dirs)
		if path == "" {
			s.gap(f, name.Line, "the file %s is not there", one)
			continue
		}
		if err := read(path, f); err != nil {
			return err
		}
	}
	return nil
}

// findFile is the first file of the name; empty if there is none.
func findFile(name string, dirs []string) string {
	if filepath.IsAbs(name) {
		dirs = []string{"/"}
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().IsRegular() {
			return path
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
	}
	return ""
}
