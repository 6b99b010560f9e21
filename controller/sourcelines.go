package controller

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rolewright/rolewright/internal/history"
	"github.com/rolewright/rolewright/internal/text"
)

// Limits of the source lines in the history: linesAround lines before and after the task's line.
const (
	linesAround   = 2
	maxSourceFile = 1 << 20
	maxSourceLine = 300
)

// sourceLines returns the lines of a role or playbook around place (file:line); nil if they
// cannot be read. Since place comes from the run, only YAML files below roles and playbooks are
// read, and no files of variables.
func (r *reconciler) sourceLines(s *scope, place string) *history.Source {
	cut := strings.LastIndexByte(place, ':')
	if cut < 0 || s.content == nil || s.mask == nil {
		return nil
	}
	line, err := strconv.Atoi(place[cut+1:])
	if ext := filepath.Ext(place[:cut]); err != nil || line < 1 || ext != ".yml" && ext != ".yaml" {
		return nil
	}
	path := s.content.copy.Path(place[:cut])
	inventory, roots := r.inventoryOf(s), []string{}
	if inventory != "" && isBelow(inventory, path) {
		return nil
	}
	for _, tree := range s.content.inputs.roots.Trees {
		if tree != inventory {
			roots = append(roots, tree)
		}
	}
	for _, playbook := range s.content.inputs.roots.Playbooks {
		if playbook, err = filepath.Abs(playbook); err == nil {
			roots = append(roots, filepath.Dir(playbook))
		}
	}
	for _, root := range roots {
		below, err := filepath.Rel(root, path)
		if err != nil || !filepath.IsLocal(below) || hasVariables(below) {
			continue
		}
		if content, err := readBelow(root, below); err == nil {
			return around(s.mask.Mask(text.Plain(content)), line)
		}
	}
	return nil
}

// inventoryOf returns the path of the inventory; empty for none.
func (r *reconciler) inventoryOf(s *scope) string {
	if r.opts.Inventory == "" {
		return ""
	}
	path, err := filepath.Abs(r.opts.Inventory)
	if err != nil {
		path = r.opts.Inventory
	}
	return s.content.copy.Path(path)
}

// isBelow reports whether path is root or below it.
func isBelow(root, path string) bool {
	below, err := filepath.Rel(root, path)
	return err == nil && filepath.IsLocal(below)
}

// hasVariables reports whether path is in a directory where Ansible looks for variables, which may be
// secret, and not for tasks.
func hasVariables(path string) bool {
	return slices.ContainsFunc(strings.Split(filepath.Dir(path), string(filepath.Separator)), func(dir string) bool {
		return slices.Contains([]string{"defaults", "group_vars", "host_vars", "vars"}, dir)
	})
}

// readBelow reads the beginning of a regular file. It follows links, but not out of root.
func readBelow(root, path string) (string, error) {
	f, err := os.OpenInRoot(root, path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", os.ErrInvalid
	}
	content, err := io.ReadAll(io.LimitReader(f, maxSourceFile))
	return string(content), err
}

// around returns the lines around line, which is counted from 1; nil if there is no such line.
func around(content string, line int) *history.Source {
	lines := strings.Split(strings.TrimSuffix(content, "\n"), "\n")
	if line > len(lines) {
		return nil
	}
	first := max(line-linesAround, 1)
	source := history.Source{First: first, Line: line, Lines: slices.Clone(lines[first-1 : min(line+linesAround, len(lines))])}
	for i, l := range source.Lines {
		source.Lines[i] = text.Clip(l, maxSourceLine)
	}
	return &source
}
