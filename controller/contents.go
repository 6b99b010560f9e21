package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/ansiblecfg"
	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// contentMaxAge is how long digests of files may be reused: short enough for
// someone who edits a role, long enough for a thousand objects that are
// reconciled together after a restart.
const contentMaxAge = 10 * time.Second

// contents computes the parts of a watch's fingerprints, all but the object's. It is safe for concurrent use.
type contents struct {
	files fingerprint.Contents
	// roots are the role or playbook with what it may use, the inventory and the
	// collections. They may be paths in a copy.
	roots fingerprint.Roots
	// what is the name for the trees and playbooks of roots.
	what string
	// read is the content that is searched for names of files, with readOptions.
	read        content.Content
	readOptions content.Options
	// counts reports whether a file that the content names is an input.
	counts func(path string) bool
	// patterns are the watch's patterns of files, passwords the password files, and
	// configuration the files of Ansible's configuration and variables.
	patterns, passwords, configuration []string
	// fixed are the inputs that do not change during the life of the process.
	fixed []fingerprint.Part
	err   error // why fixed is not known
	// versions returns the versions of Ansible; nil if they do not count.
	versions func(ctx context.Context) (runner.Versions, error)
	// ofObject says which parts of the object count as inputs.
	ofObject fingerprint.Counts

	mu sync.Mutex
	// named are the files named by the content whose digest is namedBy.
	named   []string
	namedBy string
}

// homeConfiguration is the name under which Ansible's configuration file in the home directory
// counts. The home directory may differ between Pods.
const homeConfiguration = "~/.ansible.cfg"

// ofObject returns which parts of the watch's objects count as inputs. If the watch does not manage the status, the status
// that others write counts for kinds without generations, such as PersistentVolumeClaim, as it does for ansible-operator.
func ofObject(w watches.Watch) fingerprint.Counts {
	return fingerprint.Counts{Annotations: w.WatchAnnotationsChanges, Requests: requestAnnotations(), Status: !w.ManageStatus}
}

// contentsOf returns the contents of a watch, with the original paths.
func contentsOf(w watches.Watch, opts *Options, v *vault.Vault) *contents {
	if w.Content.Command != nil {
		return contentsOfCommand(w, opts)
	}
	if w.Content.Handler != "" {
		return contentsOfHandler(w, opts)
	}
	roots := fingerprint.Roots{Collections: opts.CollectionsPath}
	if w.Content.Playbook != "" {
		roots.Playbooks = []string{w.Content.Playbook}
	} else {
		roots.Trees = append(roots.Trees, w.Content.Role)
		if siblings := filepath.Dir(w.Content.Role); filepath.Base(siblings) == "roles" {
			roots.Trees = append(roots.Trees, siblings) // this is the run's roles path
		}
	}
	roots.Trees = append(roots.Trees, filepath.Join(".", "roles"))
	roots.Trees = append(roots.Trees, opts.RolesPath...)
	if opts.Inventory != "" {
		roots.Trees = append(roots.Trees, opts.Inventory)
	}
	for i, tree := range roots.Trees {
		if path, err := filepath.Abs(tree); err == nil {
			roots.Trees[i] = path // the copy's names are absolute, too
		}
	}
	c := &contents{
		files: fingerprint.Contents{MaxAge: contentMaxAge}, roots: roots, what: "roles and playbooks",
		read:        content.Content{Playbook: w.Content.Playbook, Role: w.Content.Role},
		readOptions: content.Options{RolesPath: opts.RolesPath, CollectionsPath: opts.CollectionsPath, AllTasks: true},
		counts:      namedFiles{without: w.Inputs.Files, within: roots.Trees, mayWrite: mayWrite}.counts,
		versions:    opts.Versions,
		ofObject:    ofObject(w),
	}
	passwords, variables := v.Files()
	slices.Sort(passwords)
	c.passwords = slices.Compact(passwords)
	c.configuration = slices.Concat(configurations(), variables)
	c.fix(w, opts)
	if w.Hooks.Vars != nil {
		c.addProgram(opts)
	}
	c.nameFiles(func(path string) string { return path })
	return c
}

// fix sets the inputs that come from the watch, the flags and the environment.
func (c *contents) fix(w watches.Watch, opts *Options) {
	for _, pattern := range w.Inputs.Files {
		if !strings.HasPrefix(pattern, "-") {
			c.patterns = append(c.patterns, pattern)
		}
	}
	c.fixed, c.err = settingParts(w, opts)
	host, _ := os.Hostname() // without a name, no variable is left out because of it
	for _, entry := range environment(os.Environ(), w.Inputs.Env, host) {
		name, value, _ := strings.Cut(entry, "=")
		c.fixed = append(c.fixed, fingerprint.Variable(name, value))
	}
}

// nameFiles sets the names of files in fingerprints to what original returns.
func (c *contents) nameFiles(original func(path string) string) {
	home := homeFile()
	c.files.Name = func(path string) string {
		if path == home {
			return homeConfiguration
		}
		return original(path)
	}
}

func homeFile() string { return ansiblecfg.Home(os.Getenv("HOME")) }

// configurations returns the files in which Ansible looks for its configuration.
func configurations() []string {
	files := []string{os.Getenv("ANSIBLE_CONFIG"), "ansible.cfg", homeFile(), ansiblecfg.System}
	return slices.DeleteFunc(files, func(path string) bool { return path == "" })
}

// settingParts returns the inputs from the watch and the flags.
func settingParts(w watches.Watch, opts *Options) ([]fingerprint.Part, error) {
	what := "role or playbook"
	switch {
	case w.Content.Handler != "":
		what = "handler"
	case w.Content.Command != nil && w.Content.Command.Chart != nil:
		what = "chart"
	case w.Content.Command != nil:
		what = "command"
	}
	type setting struct {
		name  string
		value any
	}
	all := []setting{
		{what, w.Content}, {"vars", w.Vars}, {"snakeCaseParameters", w.SnakeCaseParameters}, {"markUnsafe", w.MarkUnsafe},
		{"allowReservedVariables", w.AllowReservedVariables}, {"--ansible-args", opts.AnsibleArgs}, {"ANSIBLE_GATHERING", opts.SkipFacts},
	}
	if w.WatchAnnotationsChanges {
		all = append(all, setting{"watchAnnotationsChanges", true}) // it says what of the object counts
	}
	var parts []fingerprint.Part
	for _, s := range all {
		value, err := json.Marshal(s.value)
		if err != nil {
			return nil, fmt.Errorf("fingerprint of %s: %w", s.name, err)
		}
		parts = append(parts, fingerprint.Part{Group: fingerprint.OfSettings, Name: s.name, Value: string(value)})
	}
	return parts, nil
}

// parts returns the current inputs of a run, except those from its object. If the versions of
// Ansible cannot be found out, that is an error if wanted is true; else they are left out.
func (c *contents) parts(ctx context.Context, wanted bool) ([]fingerprint.Part, error) {
	var parts []fingerprint.Part
	var failed error
	add := func(group fingerprint.Group, name string, roots fingerprint.Roots) string {
		sum, err := c.files.Digest(ctx, roots)
		if err != nil && failed == nil {
			failed = err
		}
		parts = append(parts, fingerprint.Part{Group: group, Name: name, Value: sum})
		return sum
	}
	sum := add(fingerprint.OfContent, c.what, fingerprint.Roots{Trees: c.roots.Trees, Playbooks: c.roots.Playbooks})
	sum += add(fingerprint.OfContent, "collections", fingerprint.Roots{Collections: c.roots.Collections})
	for _, pattern := range c.patterns {
		add(fingerprint.OfFiles, pattern, fingerprint.Roots{Patterns: []string{pattern}})
	}
	for _, path := range c.namedFiles(sum) {
		add(fingerprint.OfFiles, path, fingerprint.Roots{Trees: []string{path}})
	}
	for _, path := range c.configuration {
		add(fingerprint.OfConfiguration, c.files.Name(path), fingerprint.Roots{Files: []string{path}})
	}
	for _, path := range c.passwords {
		add(fingerprint.OfConfiguration, path, fingerprint.Roots{Passwords: []string{path}})
	}
	if failed != nil || c.err != nil {
		return nil, cmp.Or(failed, c.err)
	}
	if c.versions != nil {
		v, err := c.versions(ctx)
		if err != nil && (wanted || ctx.Err() != nil) {
			return nil, fmt.Errorf("find out the versions of Ansible: %w", err)
		}
		if err == nil {
			parts = append(parts, fingerprint.Part{Group: fingerprint.OfAnsible, Name: "core " + v.Core},
				fingerprint.Part{Group: fingerprint.OfAnsible, Name: "runner " + v.Runner})
		}
	}
	return append(parts, c.fixed...), nil
}

// namedFiles returns the files that the content names and that are inputs. sum is the content's digest.
func (c *contents) namedFiles(sum string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namedBy != sum && c.read != (content.Content{}) {
		c.namedBy = sum
		c.named = slices.DeleteFunc(content.Files(c.read, c.readOptions), func(path string) bool { return !c.counts(path) })
	}
	return c.named
}

// fingerprint returns the fingerprint of the current inputs of a run of s, and sets s.parts.
func (c *contents) fingerprint(ctx context.Context, s *scope) (string, error) {
	// After a success, unknown versions must not start a run. Otherwise the run itself says in its
	// status why it cannot be made.
	last := s.memory.last
	parts, err := c.parts(ctx, last != nil && last.Result == status.Succeeded)
	if err != nil {
		return "", err
	}
	object, _ := s.object.Object[inputsKey].(string)
	if !s.trimmed {
		if object, err = fingerprint.Object(s.object.Object, c.ofObject); err != nil {
			return "", err
		}
	}
	if s.settings.mode == watches.ModeCheck && !s.deleting {
		parts = append(parts, fingerprint.Part{Group: fingerprint.OfSettings, Name: "mode", Value: string(watches.ModeCheck)})
	}
	s.parts = append(append(parts, fingerprint.Part{Group: fingerprint.OfObject, Value: object}), s.referredParts()...)
	return fingerprint.Of(s.parts), nil
}
