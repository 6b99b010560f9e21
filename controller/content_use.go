package controller

import (
	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
)

// use is the content of which the runs of a watch are made at a time: a copy, or
// what lies there.
type use struct {
	copy    *contentcopy.Copy // nil for what lies there
	content *contents
	secrets *secrets
}

// newUse is the content of a watch, in a copy.
func newUse(w watches.Watch, opts *Options, c *contentcopy.Copy, v *vault.Vault) *use {
	content := newContents(w, opts, c)
	return &use{copy: c, content: content, secrets: newSecrets(v, w, content, opts.Inventory, c)}
}

// newContents is what identifies the inputs of the runs of a watch, made of a copy of
// its content. Its files count under the names of those that they are copies of.
func newContents(w watches.Watch, opts *Options, c *contentcopy.Copy) *contents {
	content := contentsOf(w, opts)
	roots := content.roots
	content.roots = fingerprint.Roots{
		Trees: c.Paths(roots.Trees), Playbooks: c.Paths(roots.Playbooks), Files: roots.Files, Collections: roots.Collections,
	}
	if c != nil {
		content.files.Name = c.Original
	}
	return content
}

// take returns the content for one reconcile, to be released after it.
func (k *kind) take() *use {
	for {
		k.mu.Lock()
		u := k.use
		k.mu.Unlock()
		if u.copy.Hold() {
			return u
		}
		// It was replaced in between.
	}
}

// change has runs that begin from now on made of u, and all objects looked at.
func (k *kind) change(u *use) {
	k.mu.Lock()
	k.use = u
	r := k.served
	k.mu.Unlock()
	if r != nil {
		r.objects.queueAll()
	}
}
