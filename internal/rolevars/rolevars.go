// Package rolevars lists the variables that roles and playbooks set themselves, as
// far as they are literal in the files: by register, set_fact, the vars of plays,
// blocks and tasks, and vars/main.yml. It ignores defaults, which are meant to be
// replaced, and starts nothing.
package rolevars

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// variable matches names that a template can use.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// Of returns the names of the variables that a playbook or a role sets, sorted;
// one of the two is given. Roles that they name are read too, if they are in one
// of the directories rolesPath or in roles beside the playbook. A file that cannot
// be read or parsed gives no names: a syntax check reports that.
func Of(playbook, role string, rolesPath []string) []string {
	r := reader{names: map[string]bool{}, seen: map[string]bool{}, rolesPath: rolesPath}
	if role != "" {
		r.rolesPath = append(slices.Clone(rolesPath), filepath.Dir(role))
		r.role(role)
	} else if playbook != "" {
		r.rolesPath = append([]string{filepath.Join(filepath.Dir(playbook), "roles")}, rolesPath...)
		r.file(playbook)
	}
	return slices.Sorted(maps.Keys(r.names))
}

type reader struct {
	names     map[string]bool
	seen      map[string]bool
	rolesPath []string
}

func (r *reader) add(name string) {
	if variable.MatchString(name) {
		r.names[name] = true
	}
}

// role reads the files of a role.
func (r *reader) role(dir string) {
	if r.seen[dir] {
		return
	}
	r.seen[dir] = true
	for _, part := range []string{"tasks", "handlers"} {
		_ = filepath.WalkDir(filepath.Join(dir, part), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && !entry.IsDir() && isYAML(path) {
				r.file(path)
			}
			return nil
		})
	}
	for _, name := range []string{"main.yml", "main.yaml"} {
		r.keys(parse(filepath.Join(dir, "vars", name)))
		if meta, ok := parse(filepath.Join(dir, "meta", name)).(map[string]any); ok {
			r.keyword(dir, "dependencies", meta["dependencies"])
		}
	}
}

// file reads plays or tasks.
func (r *reader) file(path string) {
	if r.seen[path] {
		return
	}
	r.seen[path] = true
	r.list(filepath.Dir(path), parse(path))
}

// list reads a list of plays or tasks; dir is the directory of the file.
func (r *reader) list(dir string, value any) {
	items, _ := value.([]any)
	for _, item := range items {
		fields, _ := item.(map[string]any)
		for key, value := range fields {
			r.keyword(dir, key, value)
		}
	}
}

// keyword reads the value of a key of a play, block or task.
func (r *reader) keyword(dir, key string, value any) {
	switch module := strings.TrimPrefix(strings.TrimPrefix(key, "ansible.builtin."), "ansible.legacy."); module {
	case "register":
		r.add(argument(value))
	case "set_fact", "vars":
		r.keys(value)
		r.words(argument(value))
	case "action", "local_action":
		if module, words, ok := strings.Cut(argument(value), " "); ok && strings.HasSuffix("."+module, ".set_fact") {
			r.words(words)
		}
	case "tasks", "pre_tasks", "post_tasks", "handlers", "block", "rescue", "always":
		r.list(dir, value)
	case "roles", "dependencies":
		items, _ := value.([]any)
		for _, item := range items {
			r.named(argument(item, "role", "name"))
			fields, _ := item.(map[string]any)
			r.keys(fields["vars"])
		}
	case "include_role", "import_role":
		r.named(argument(value, "name", "role"))
	case "include_tasks", "import_tasks", "import_playbook":
		if file := argument(value, "file"); isYAML(file) {
			r.file(filepath.Join(dir, file))
		}
	}
}

// named reads a role by its name.
func (r *reader) named(name string) {
	for _, dir := range r.rolesPath {
		if fi, err := os.Stat(filepath.Join(dir, name)); name != "" && err == nil && fi.IsDir() {
			r.role(filepath.Join(dir, name))
			return
		}
	}
}

// words reads name=value.
func (r *reader) words(text string) {
	for _, word := range strings.Fields(text) {
		if name, _, ok := strings.Cut(word, "="); ok && name != "cacheable" {
			r.add(name)
		}
	}
}

func (r *reader) keys(value any) {
	fields, _ := value.(map[string]any)
	for key := range fields {
		if key != "cacheable" {
			r.add(key)
		}
	}
}

// argument is a text that stands alone or under one of the keys.
func argument(value any, keys ...string) string {
	fields, _ := value.(map[string]any)
	for _, key := range keys {
		if text, ok := fields[key].(string); ok {
			return text
		}
	}
	text, _ := value.(string)
	return text
}

// parse returns the content of a YAML file; nil if there is none.
func parse(path string) any {
	var value any
	if text, err := os.ReadFile(path); err != nil || yaml.Unmarshal(text, &value) != nil {
		return nil
	}
	return value
}

func isYAML(path string) bool {
	ext := filepath.Ext(path)
	return ext == ".yml" || ext == ".yaml"
}
