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

// contentMaxAge bounds how often the files of a role are looked at: often
// enough for someone who edits one, seldom enough for a thousand objects that
// are looked at together after a restart.
const contentMaxAge = 10 * time.Second

// contents computes the inputs of the runs of one watch. Safe for concurrent use.
type contents struct {
	files fingerprint.Contents
	// roots are the role or playbook with what it may use, the inventory and the
	// collections. They may lie in a copy.
	roots fingerprint.Roots
	// what the trees and playbooks of roots are called.
	what string
	// read is the content in which files are named, and how far it is read for that.
	read        content.Content
	readOptions content.Options
	// counts tells whether a file that the content names counts.
	counts func(path string) bool
	// patterns are those of the watch, passwords and configuration the files of Ansible's
	// configuration and arguments.
	patterns, passwords, configuration []string
	// fixed are the inputs that stay as they are as long as the process lives.
	fixed []fingerprint.Part
	err   error // why they are not known
	// versions tells those of Ansible; nil for none.
	versions func(ctx context.Context) (runner.Versions, error)
	// ofObject is what of the object counts as inputs.
	ofObject fingerprint.Counts

	mu sync.Mutex
	// named are the files that the content names that has the digest namedBy.
	named   []string
	namedBy string
}

// homeConfiguration is where Ansible looks for its configuration in the home directory,
// which may be another one in each Pod.
const homeConfiguration = "~/.ansible.cfg"

// ofObject is what of an object of the watch counts as inputs. Of a kind without generations, such as PersistentVolumeClaim,
// a watch without a status of its own is about the status that others write, as for ansible-operator.
func ofObject(w watches.Watch) fingerprint.Counts {
	return fingerprint.Counts{Annotations: w.WatchAnnotationsChanges, Requests: requestAnnotations(), Status: !w.ManageStatus}
}

// contentsOf is the content of a watch as it lies there.
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

// fix sets the inputs that the watch, the flags and the environment say.
func (c *contents) fix(w watches.Watch, opts *Options) {
	for _, pattern := range w.Inputs.Files {
		if !strings.HasPrefix(pattern, "-") {
			c.patterns = append(c.patterns, pattern)
		}
	}
	c.fixed, c.err = settingParts(w, opts)
	host, _ := os.Hostname() // without a name, no variable has it in its value
	for _, entry := range environment(os.Environ(), w.Inputs.Env, host) {
		name, value, _ := strings.Cut(entry, "=")
		c.fixed = append(c.fixed, fingerprint.Variable(name, value))
	}
}

// nameFiles has files count under the names that original gives them.
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

// configurations are the files in which Ansible looks for its configuration.
func configurations() []string {
	files := []string{os.Getenv("ANSIBLE_CONFIG"), "ansible.cfg", homeFile(), ansiblecfg.System}
	return slices.DeleteFunc(files, func(path string) bool { return path == "" })
}

// settingParts are what the watch and the flags say about its runs.
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
	var parts []fingerprint.Part
	for _, s := range []struct {
		name  string
		value any
	}{
		{what, w.Content}, {"vars", w.Vars}, {"snakeCaseParameters", w.SnakeCaseParameters}, {"markUnsafe", w.MarkUnsafe},
		{"allowReservedVariables", w.AllowReservedVariables}, {"--ansible-args", opts.AnsibleArgs}, {"ANSIBLE_GATHERING", opts.SkipFacts},
	} {
		value, err := json.Marshal(s.value)
		if err != nil {
			return nil, fmt.Errorf("fingerprint of %s: %w", s.name, err)
		}
		parts = append(parts, fingerprint.Part{Group: fingerprint.OfSettings, Name: s.name, Value: string(value)})
	}
	return parts, nil
}

// parts are the inputs of any run now, but for its object. The versions of Ansible are
// missing where they cannot be found out and wanted is false.
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

// namedFiles are the files that count of those that the content of a digest names.
func (c *contents) namedFiles(sum string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.namedBy != sum && c.read != (content.Content{}) {
		c.namedBy = sum
		c.named = slices.DeleteFunc(content.Files(c.read, c.readOptions), func(path string) bool { return !c.counts(path) })
	}
	return c.named
}

// fingerprint identifies the inputs of a run of the scope's object now, and notes what
// they are in s.
func (c *contents) fingerprint(ctx context.Context, s *scope) (string, error) {
	// What has succeeded is not run for versions that are not known; another run says
	// in its status why it cannot be made.
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
