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

// contentVersion is the role or playbook, with its secrets, from which the runs of a watch are made at a time. A watch
// gets another one when its content is changed.
type contentVersion struct {
	copy    *contentcopy.Copy // nil if runs use the files where they are
	inputs  *contents
	secrets *secrets
}

// newContentVersion reads the content of a watch from a copy.
func newContentVersion(w watches.Watch, opts *Options, c *contentcopy.Copy, v *vault.Vault) *contentVersion {
	content := newContents(w, opts, c, v)
	return &contentVersion{copy: c, inputs: content, secrets: newSecrets(v, w, content, opts.Inventory, c)}
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

// acquireContent returns the content for one reconcile, which releases it. It returns nil when the
// copy is gone and no other one comes: ctx or the kind has ended, while its queue still
// hands out the objects that it had.
func (k *kind) acquireContent(ctx context.Context) *contentVersion {
	for {
		k.mu.Lock()
		u := k.content
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
func (k *kind) change(u *contentVersion) {
	k.mu.Lock()
	k.content = u
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
