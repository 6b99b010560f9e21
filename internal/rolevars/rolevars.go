// Package rolevars lists the variables that roles and playbooks set themselves, as
// far as they are literal in the files: by register, set_fact, the vars of plays,
// blocks and tasks, and vars/main.yml. It ignores defaults, which are meant to be
// replaced, and starts nothing.
package rolevars

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// Of returns the names of the variables that a playbook or a role sets, sorted;
// one of the two is given. Roles that they name are read too, if they are in one
// of the directories rolesPath or beside the playbook or role. A file that cannot be
// read or parsed gives no names: a syntax check reports that.
func Of(playbook, role string, rolesPath []string) []string {
	set := names{}
	if playbook != "" || role != "" {
		_ = content.Read(content.Content{Playbook: playbook, Role: role}, content.Options{RolesPath: rolesPath, AllTasks: true}, set)
	}
	return slices.Sorted(maps.Keys(set))
}

// names are those of variables.
type names map[string]bool

// variable matches names that a template can use.
var variable = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (set names) add(name string) {
	if variable.MatchString(name) && name != "cacheable" { // an argument of set_fact
		set[name] = true
	}
}

// keys adds those of a mapping.
func (set names) keys(n *yaml.Node) {
	content.Each(n, func(key, _ *yaml.Node) { set.add(key.Value) })
}

// Group implements content.Visitor.
func (set names) Group(_ content.Frame, node *yaml.Node) { set.keys(content.Get(node, "vars")) }

// Role implements content.Visitor.
func (set names) Role(f content.Frame) {
	if data, err := os.ReadFile(content.FindFile("main", filepath.Join(f.RoleDir, "vars"))); err == nil {
		root, _ := content.Parse(data) // as above
		set.keys(root)
	}
}

// Task implements content.Visitor.
func (set names) Task(t content.Task) bool {
	set.Group(t.Frame, t.Node)
	if register, ok := content.Literal(content.Get(t.Node, "register")); ok {
		set.add(register)
	}
	if t.Module == "set_fact" {
		set.keys(t.Args)
		if t.Args != nil {
			for _, word := range strings.Fields(t.Args.Value) {
				if name, _, ok := strings.Cut(word, "="); ok {
					set.add(name)
				}
			}
		}
	}
	return true
}

// Gap implements content.Visitor.
func (set names) Gap(content.Frame, int, string, ...any) {}
