package lint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/runner/collection"
)

// Permissions compares the permissions that the operator needs with the roles in a file.
func Permissions(path string, needs []rbacv1.PolicyRule) ([]Finding, error) {
	var granted []rbacv1.PolicyRule
	err := eachDocument(path, func(root *yaml.Node) error {
		var role struct {
			Rules []struct {
				APIGroups     []string `yaml:"apiGroups"`
				Resources     []string
				ResourceNames []string `yaml:"resourceNames"`
				Verbs         []string
			}
		}
		if err := root.Decode(&role); err != nil {
			return err
		}
		for _, r := range role.Rules {
			if len(r.ResourceNames) == 0 {
				granted = append(granted, rbacv1.PolicyRule{APIGroups: r.APIGroups, Resources: r.Resources, Verbs: r.Verbs})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	has := func(list []string, name string) bool {
		return slices.Contains(list, name) || slices.Contains(list, "*")
	}
	var all []Finding
	for _, need := range needs {
		for _, resource := range need.Resources {
			missing := slices.DeleteFunc(slices.Clone(need.Verbs), func(verb string) bool {
				return slices.ContainsFunc(granted, func(r rbacv1.PolicyRule) bool {
					return has(r.APIGroups, need.APIGroups[0]) && has(r.Resources, resource) && has(r.Verbs, verb)
				})
			})
			if len(missing) > 0 {
				all = append(all, Finding{
					Rule: Denied, Severity: Error, File: path,
					Message: fmt.Sprintf("no permission to %s %s in group %q", strings.Join(missing, ", "), resource, need.APIGroups[0]),
					Hint:    "rolewright generate rbac --output " + path,
				})
			}
		}
	}
	return all, nil
}

// module matches the module of a task, if it belongs to a collection, in YAML as people write it.
var module = regexp.MustCompile(`^\s*(?:-\s+)?(([a-z][a-z0-9_]*\.[a-z][a-z0-9_]*)\.[a-z][a-z0-9_]*):`)

// Collections compares the collections of the modules in a role's directory, or in a
// playbook, with the collections that the requirements file names.
func Collections(used, requirements string) ([]Finding, error) {
	var named struct {
		Collections []yaml.Node
	}
	var doc yaml.Node
	data, err := os.ReadFile(requirements)
	if err == nil {
		err = yaml.Unmarshal(data, &doc)
	}
	if err == nil && len(doc.Content) > 0 && doc.Content[0].Kind != yaml.SequenceNode { // a list has only roles
		err = doc.Decode(&named)
	}
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil // the collections come from elsewhere
		}
		return nil, fmt.Errorf("%s: %w", requirements, err)
	}
	required := []string{"ansible.builtin", "ansible.legacy"}
	provided := collection.Modules()
	for _, node := range named.Collections {
		var c struct{ Name string }
		if node.Kind == yaml.ScalarNode {
			c.Name = node.Value
		} else if err := node.Decode(&c); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", requirements, node.Line, err)
		}
		required = append(required, c.Name)
	}
	var all []Finding
	err = content.WalkDir(used, func(path string, entry fs.DirEntry, err error) error {
		ext := filepath.Ext(path)
		if err != nil || !entry.Type().IsRegular() || ext != ".yml" && ext != ".yaml" {
			return err
		}
		if rel, err := filepath.Rel(used, path); err != nil || rel != "." && !slices.Contains([]string{"tasks", "handlers"}, strings.Split(filepath.ToSlash(rel), "/")[0]) {
			return err
		}
		text, err := os.ReadFile(path)
		for i, line := range strings.Split(string(text), "\n") {
			if m := module.FindStringSubmatch(line); m != nil && !slices.Contains(required, m[2]) && !slices.Contains(provided, m[1]) {
				required = append(required, m[2])
				all = append(all, Finding{
					Rule: NotRequired, Severity: Warning, File: path, Line: i + 1,
					Message: fmt.Sprintf("%s does not name the collection %s", requirements, m[2]),
					Hint:    "add it to the collections of " + requirements,
				})
			}
		}
		return err
	})
	return all, err
}
