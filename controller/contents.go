package controller

import (
	"context"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/watches"
)

// contentMaxAge bounds how often the files of a role are looked at: often
// enough for somebody who edits one, seldom enough for a thousand objects that
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

func newContents(w watches.Watch, opts *Options) *contents {
	roots := fingerprint.Roots{Collections: opts.CollectionsPath}
	if w.Content.Playbook != "" {
		roots.Playbooks = []string{w.Content.Playbook}
	} else {
		roots.Trees = append(roots.Trees, w.Content.Role)
	}
	roots.Trees = append(roots.Trees, filepath.Join(".", "roles"))
	roots.Trees = append(roots.Trees, opts.RolesPath...)
	if opts.Inventory != "" {
		roots.Trees = append(roots.Trees, opts.Inventory)
	}
	return &contents{
		files: fingerprint.Contents{MaxAge: contentMaxAge},
		roots: roots,
		settings: map[string]any{
			"content": w.Content, "vars": w.Vars, "snakeCase": w.SnakeCaseParameters, "markUnsafe": w.MarkUnsafe,
			"allowReserved": w.AllowReservedVariables, "args": opts.AnsibleArgs, "skipFacts": opts.SkipFacts,
		},
		annotations: w.WatchAnnotationsChanges,
	}
}

// fingerprint identifies the inputs of a run of obj now, be it whole or trimmed.
func (c *contents) fingerprint(ctx context.Context, obj *unstructured.Unstructured) (string, error) {
	content, err := c.files.Digest(ctx, c.roots)
	if err != nil {
		return "", err
	}
	object, err := inputsOf(obj.Object, c.annotations)
	if err != nil {
		return "", err
	}
	return fingerprint.Of(fingerprint.Inputs{Object: object, Content: content, Settings: c.settings})
}
