package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/rolewright/rolewright/controller"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/watches"
)

// changed does what the changed files call for. It returns true if the operator has to
// start again.
func (d *dev) changed(ctx context.Context, paths []string) (again bool) {
	var content, manifests []string
	for _, p := range paths {
		switch {
		case same(p, d.opts.watchesFile):
			_, err := d.opts.loadWatches(logr.Discard())
			if err != nil {
				d.console.Problem(fmt.Errorf("%w; the previous watches file stays in use", err))
				continue
			}
			d.console.Say("%s has changed: the operator restarts", p)
			again = true
		case strings.HasPrefix(p, "config/crd/bases/"), strings.HasPrefix(p, "config/samples/"):
			manifests = append(manifests, p)
		case strings.HasPrefix(p, "config/"), strings.HasPrefix(p, "molecule/"), strings.HasPrefix(p, "tests/"), !strings.Contains(p, "/") && path.Ext(p) != ".cfg" && path.Ext(p) != ".yml" && path.Ext(p) != ".yaml" && !d.named(p):
			// Neither the operator nor a run reads this file.
		default:
			content = append(content, p)
		}
	}
	d.apply(ctx, manifests)
	if len(content) == 0 || again {
		return again
	}
	select {
	case <-d.serves: // changes that are saved during the start are used, too
	case <-ctx.Done():
		return false
	}
	if err := d.use(ctx, d.set, content); err != nil && ctx.Err() == nil {
		d.console.Problem(err)
	}
	return false
}

// same tells whether two paths lead to the same file, which need not exist.
func same(a, b string) bool {
	a, errA := filepath.Abs(a)
	b, errB := filepath.Abs(b)
	return errA == nil && errB == nil && a == b
}

// named tells whether a watch names the file: in its command, or in its inputs.
func (d *dev) named(file string) bool {
	matches := func(pattern string) bool {
		whole, err := filepath.Abs(file)
		if err != nil {
			return false
		}
		ok, err := filepath.Match(pattern, whole)
		return err == nil && ok
	}
	return slices.ContainsFunc(d.watched, func(w watches.Watch) bool {
		return slices.ContainsFunc(w.Inputs.Files, matches) || slices.ContainsFunc(w.Contents(), func(c watches.Content) bool {
			return c.Command != nil && slices.ContainsFunc(c.Command.Files(), func(f string) bool { return same(file, f) })
		})
	})
}

// use makes runs use the content as it is now, if it can be read, and has all objects
// checked.
func (d *dev) use(ctx context.Context, set *controller.Set, changed []string) error {
	if d.copy == nil {
		d.console.Say("changed: %s", strings.Join(changed, ", "))
		set.ContentChanged()
		return nil
	}
	next, err := d.copied(ctx)
	if err == nil {
		if err = next.Check(ctx); err != nil {
			next.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("%w; the previous state stays in use until this is fixed", err)
	}
	d.console.Say("changed: %s", strings.Join(changed, ", "))
	before := d.copy
	d.copy = next
	defer before.Close()
	return set.Watch(d.watched, next)
}

// copied returns a copy of the content as it is now, once no tool is writing to it.
func (d *dev) copied(ctx context.Context) (c *contentcopy.Copy, err error) {
	for range 20 { // five seconds
		if c, _, err = contentcopy.Take(ctx, d.opts.runnerRoot, d.opts.watchesFile, d.watched); !errors.Is(err, contentcopy.ErrChanging) {
			break
		}
		sleep(ctx, contentRest)
	}
	return c, err
}

// contentRest is how long copied waits before it tries again.
const contentRest = 250 * time.Millisecond

func (d *dev) apply(ctx context.Context, paths []string) {
	if d.applier == nil {
		return
	}
	for _, p := range paths {
		if strings.HasPrefix(path.Base(p), "kustomization.") { // it is for kubectl
			continue
		}
		names, err := d.applier.apply(ctx, p)
		for _, name := range names {
			d.console.Say("%s: %s applied", p, name)
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, fs.ErrNotExist) {
			d.console.Problem(fmt.Errorf("%s: %w", p, err))
		}
	}
}

func globbed(pattern string) []string {
	paths, err := filepath.Glob(pattern)
	if err != nil { // the pattern is ours
		return nil
	}
	return paths
}
