package controller

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/rolewright/rolewright/internal/ansiblecfg"
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
	content := newContents(w, opts, c, v)
	return &use{copy: c, content: content, secrets: newSecrets(v, w, content, opts.Inventory, c)}
}

// newContents is what identifies the inputs of the runs of a watch, made of a copy of
// its content. Its files count under the names of those that they are copies of.
func newContents(w watches.Watch, opts *Options, c *contentcopy.Copy, v *vault.Vault) *contents {
	content := contentsOf(w, opts, v)
	content.roots.Trees, content.roots.Playbooks = c.Paths(content.roots.Trees), c.Paths(content.roots.Playbooks)
	content.read.Playbook, content.read.Role = c.Path(content.read.Playbook), c.Path(content.read.Role)
	content.readOptions.RolesPath = c.Paths(content.readOptions.RolesPath)
	content.nameFiles(c.Original)
	return content
}

// take returns the content for one reconcile, to be released after it. It is nil when the
// copy is gone and no other one comes: ctx or the kind has ended, while its queue still
// hands out the objects that it had.
func (k *kind) take(ctx context.Context) *use {
	for {
		k.mu.Lock()
		u := k.use
		k.mu.Unlock()
		if u.copy.Hold() {
			return u
		}
		if ctx.Err() != nil || k.stopped.Err() != nil {
			return nil
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

// rolesPath is where the roles are that playbooks name, in a copy of the content; empty
// if the copy has none of the places, which Ansible finds by itself then.
func rolesPath(c *contentcopy.Copy, lookupEnv func(string) (string, bool)) string {
	list, _ := lookupEnv(rolesPathEnv)
	from := "."
	if list == "" {
		named, _ := lookupEnv("ANSIBLE_CONFIG")
		home, _ := lookupEnv("HOME")
		settings, dir := ansiblecfg.Defaults(named, ansiblecfg.Home(home), ansiblecfg.System)
		list, from = settings["roles_path"], dir
	}
	found := false
	var dirs []string
	for _, dir := range filepath.SplitList(list) {
		if rest, underHome := strings.CutPrefix(dir, "~/"); underHome {
			home, _ := lookupEnv("HOME")
			dir = filepath.Join(home, rest)
		} else if !filepath.IsAbs(dir) {
			dir = filepath.Join(from, dir)
		}
		is := c.Path(dir)
		found = found || is != dir
		dirs = append(dirs, is)
	}
	if !found {
		return ""
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}
