package migrate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/text"
)

// Level says how much of a project is changed.
type Level string

// The levels; each includes the changes of the earlier ones.
const (
	// DropIn is what Rolewright needs to replace ansible-operator.
	DropIn Level = "drop-in"
	// Safe removes unsafe settings that ansible-operator made necessary.
	Safe Level = "safe"
)

// Levels returns all levels, in order.
func Levels() []Level { return []Level{DropIn, Safe} }

// Step is a change that is made as a whole, in one commit.
type Step struct {
	// Subject and Body are its commit's message.
	Subject, Body string
	// Files are the files that the step changes.
	Files []FileChange
}

// FileChange is a file before and after a step.
type FileChange struct {
	// Path is relative to the project, with slashes.
	Path     string
	Old, New string
}

// Plan is what can be changed in a project automatically.
type Plan struct {
	Steps []Step

	texts map[string]string // of the files before the changes
	edits map[string][]edit // by file, relative to those texts
}

// step says which rules' changes form a step.
type step struct {
	level   Level
	subject string
	rules   []string
	body    string
}

func steps() []step {
	return []step{
		{DropIn, "Build the image on rolewright/operator", []string{baseImage}, "Rolewright takes ansible-operator's place; the entrypoint and what is copied into the image stay."},
		{DropIn, "Build the image on rolewright/charts", []string{chartImage}, "Rolewright takes helm-operator's place; the entrypoint and what is copied into the image stay."},
		{DropIn, "Run Rolewright in the Makefile", []string{runTarget}, "rolewright run takes the flags of ansible-operator run and of helm-operator run."},
		{DropIn, "Let the operator patch the kinds it watches", []string{noPatch}, "Rolewright writes status and finalizers with a patch."},
		{DropIn, "Let the operator get the objects it lists", []string{noGet}, "A task that reads an object by its name is no longer answered from a cache."},
		{DropIn, "Keep the record of runs in the status", []string{statusSchema}, "Rolewright's record is status.ansible: without it, each restart runs every object."},
		{DropIn, "Give the operator the time to end its runs", []string{grace}, "Runs end within --graceful-shutdown-timeout, 30 s; the Pod must have longer."},
		{DropIn, "Give the operator memory for runs of charts", []string{chartMemory}, "Each run is a process: two at a time take 384Mi with the operator."},
		{DropIn, "Give the operator memory for forked runs", []string{memory}, "Two runs at a time take 384Mi, and 768Mi at most."},
		{Safe, "Take strings of objects as text", []string{markingOff}, "With markUnsafe: false, who writes an object can run commands in the operator."},
	}
}

// NewPlan plans the changes of a level in a project. They are the smallest changes that remove
// the level's differences. Everything else in the files stays as it is.
func NewPlan(dir string, level Level, opts Options) (Plan, error) {
	r, err := read(dir, opts)
	if err != nil {
		return Plan{}, err
	}
	p, err := r.plan(level)
	return p, errors.Join(err, r.root.Close())
}

func (r *reporter) plan(level Level) (Plan, error) {
	p := Plan{texts: r.texts, edits: map[string][]edit{}}
	now := maps.Clone(r.texts)
	for _, s := range steps() {
		if slices.Index(Levels(), s.level) > slices.Index(Levels(), level) {
			continue
		}
		one := Step{Subject: s.subject, Body: s.body}
		concerned := map[string]bool{}
		for _, d := range r.Differences {
			if d.Level != "" && slices.Contains(s.rules, d.Rule) {
				p.edits[d.File], concerned[d.File] = append(p.edits[d.File], d.edit), true
			}
		}
		for _, path := range slices.Sorted(maps.Keys(concerned)) {
			text := edited(r.texts[path], p.edits[path])
			if err := stillReads(path, text); err != nil {
				return Plan{}, fmt.Errorf("%s could not be read after the change %q: %w", path, s.subject, err)
			}
			one.Files = append(one.Files, FileChange{Path: path, Old: now[path], New: text})
			now[path] = text
		}
		if len(one.Files) > 0 {
			p.Steps = append(p.Steps, one)
		}
	}
	return p, nil
}

// stillReads returns an error if a YAML file can no longer be read.
func stillReads(path, text string) error {
	if ext := filepath.Ext(path); ext != ".yaml" && ext != ".yml" {
		return nil
	}
	for _, err := range content.Documents(text) {
		if err != nil {
			return err
		}
	}
	return nil
}

// Made is a step that was made.
type Made struct {
	Step
	// Commit is the hash of its commit; empty without git.
	Commit string
}

// errNotClean is wrapped by the error of [Plan.Make] about a work tree with changes.
var errNotClean = errors.New("the work tree has changes that are not committed")

// Make makes the steps, each in a commit if the project is in a git repository. It
// refuses a repository whose work tree is not clean. A step that fails leaves its files as
// they were. The steps before it stay, and Make continues after them when it is called again.
// before is the commit before the first step; empty without git.
func (p *Plan) Make(ctx context.Context, dir string) (done []Made, before string, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = root.Close() }()
	repository, err := openRepository(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	if repository != nil {
		if before, err = repository.ready(ctx, p.paths()); err != nil {
			return nil, "", err
		}
	}
	for _, s := range p.Steps {
		hash, err := s.make(ctx, root, repository)
		if err != nil {
			return done, before, fmt.Errorf("%s: %w", s.Subject, err)
		}
		done = append(done, Made{s, hash})
	}
	return done, before, nil
}

// Diff returns all changes of the plan in the format of patch.
func (p *Plan) Diff() string {
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(p.edits)) {
		out.WriteString(text.Diff("a/"+path, "b/"+path, p.texts[path], edited(p.texts[path], p.edits[path])))
	}
	return out.String()
}

// DiffOf returns all changes of steps that were made in the format of patch.
func DiffOf(done []Made) string {
	first, last := map[string]string{}, map[string]string{}
	for _, s := range done {
		for _, f := range s.Files {
			if _, changed := last[f.Path]; !changed {
				first[f.Path] = f.Old
			}
			last[f.Path] = f.New
		}
	}
	var out strings.Builder
	for _, path := range slices.Sorted(maps.Keys(last)) {
		out.WriteString(text.Diff("a/"+path, "b/"+path, first[path], last[path]))
	}
	return out.String()
}

func (p *Plan) paths() []string {
	var all []string
	for _, s := range p.Steps {
		for _, f := range s.Files {
			all = append(all, f.Path)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (s Step) make(ctx context.Context, root *os.Root, r *repository) (hash string, err error) {
	var written []FileChange
	defer func() {
		if err == nil {
			return
		}
		for _, f := range written {
			if undo := scaffold.Replace(root, f.Path, f.Old); undo != nil {
				err = errors.Join(err, fmt.Errorf("the change of %s stays: %w", f.Path, undo))
			}
		}
	}()
	for _, f := range s.Files {
		there, err := root.ReadFile(filepath.FromSlash(f.Path))
		if err != nil {
			return "", err
		}
		if string(there) != f.Old {
			return "", fmt.Errorf("%s was changed meanwhile: run the command again", f.Path)
		}
		if err := scaffold.Replace(root, f.Path, f.New); err != nil {
			return "", err
		}
		written = append(written, f)
	}
	if r == nil {
		return "", nil
	}
	return r.commit(ctx, s)
}
