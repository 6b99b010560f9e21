package controller

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/watches"
)

// contentMaxAge bounds how often the files of a role are looked at: often
// enough for someone who edits one, seldom enough for a thousand objects that
// are looked at together after a restart.
const contentMaxAge = 10 * time.Second

// contents computes the fingerprint of the runs of one watch.
type contents struct {
	files    fingerprint.Contents
	roots    fingerprint.Roots
	settings map[string]any
	// annotations is true where they count as inputs.
	annotations bool
}

// contentsOf is the content of a watch as it lies there.
func contentsOf(w watches.Watch, opts *Options) *contents {
	roots := fingerprint.Roots{Collections: opts.CollectionsPath, Files: configurations()}
	if w.Content.Playbook != "" {
		roots.Playbooks = []string{w.Content.Playbook}
	} else {
		roots.Trees = append(roots.Trees, w.Content.Role)
		if siblings := filepath.Dir(w.Content.Role); filepath.Base(siblings) == "roles" {
			roots.Trees = append(roots.Trees, siblings) // it is the roles path of the run
		}
	}
	roots.Trees = append(roots.Trees, filepath.Join(".", "roles"))
	roots.Trees = append(roots.Trees, opts.RolesPath...)
	if opts.Inventory != "" {
		roots.Trees = append(roots.Trees, opts.Inventory)
	}
	for i, tree := range roots.Trees {
		if path, err := filepath.Abs(tree); err == nil {
			roots.Trees[i] = path // as a copy of it is named
		}
	}
	roots.Patterns = w.Inputs.Files
	host, _ := os.Hostname() // without a name, no variable has it in its value
	return &contents{
		files: fingerprint.Contents{MaxAge: contentMaxAge},
		roots: roots,
		settings: map[string]any{
			"content": w.Content, "vars": w.Vars, "snakeCase": w.SnakeCaseParameters, "markUnsafe": w.MarkUnsafe,
			"allowReserved": w.AllowReservedVariables, "args": opts.AnsibleArgs, "skipFacts": opts.SkipFacts,
			"environment": environment(os.Environ(), w.Inputs.Env, host),
		},
		annotations: w.WatchAnnotationsChanges,
	}
}

// configurations are the files in which Ansible looks for its configuration.
func configurations() []string {
	return []string{os.Getenv("ANSIBLE_CONFIG"), "ansible.cfg", "/etc/ansible/ansible.cfg"}
}

// fingerprint identifies the inputs of a run of the scope's object now.
func (c *contents) fingerprint(ctx context.Context, s *scope) (string, error) {
	content, err := c.files.Digest(ctx, c.roots)
	if err != nil {
		return "", err
	}
	object, _ := s.object.Object[inputsKey].(string)
	if !s.trimmed {
		if object, err = fingerprint.Object(s.object.Object, c.annotations); err != nil {
			return "", err
		}
	}
	return fingerprint.Of(fingerprint.Inputs{Object: object, Content: content, Settings: c.settings})
}
