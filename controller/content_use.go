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

// contentVersion is the content that the runs of a watch currently use, with its secrets. A watch gets another version when
// its content changes.
type contentVersion struct {
	copy    *contentcopy.Copy // nil if runs use the files where they are
	inputs  *contents
	secrets *secrets
}

// newContentVersion returns the version of a watch's content in a copy.
func newContentVersion(w watches.Watch, opts *Options, c *contentcopy.Copy, v *vault.Vault) *contentVersion {
	content := newContents(w, opts, c, v)
	return &contentVersion{copy: c, inputs: content, secrets: newSecrets(v, w, content, opts.Inventory, c)}
}

// newContents returns the contents of a watch, read from a copy. Files in the copy have the
// names of their originals in the fingerprint.
func newContents(w watches.Watch, opts *Options, c *contentcopy.Copy, v *vault.Vault) *contents {
	content := contentsOf(w, opts, v)
	content.roots.Trees, content.roots.Playbooks = c.Paths(content.roots.Trees), c.Paths(content.roots.Playbooks)
	content.read.Playbook, content.read.Role = c.Path(content.read.Playbook), c.Path(content.read.Role)
	content.readOptions.RolesPath = c.Paths(content.readOptions.RolesPath)
	content.nameFiles(c.Original)
	return content
}

// acquireContent returns the content for one reconcile, which has to release it. It returns nil if the
// copy is gone and will not be replaced: ctx or the kind has ended, but the queue still hands out objects.
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

// change makes u the content of new runs, and queues all objects.
func (k *kind) change(u *contentVersion) {
	k.mu.Lock()
	k.content = u
	r := k.served
	k.mu.Unlock()
	if r != nil {
		r.objects.queueAll()
	}
}

// rolesPath returns the roles path of a run that uses a copy of the content; empty if the copy has
// none of the directories, so that Ansible finds them by itself.
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
