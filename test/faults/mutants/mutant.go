package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mutant is a seeded bug.
type mutant struct {
	// Name is lower case words with hyphens.
	Name string
	// Origin is where the bug was seen: W and F numbers are the incumbent's
	// (docs/comparison and the specification), the others the pattern.
	Origin string
	Edits  []edit
	// Plans are where it should show, the most likely first: names of workloads
	// without faults, and after a slash a part of the name of a plan that is made
	// of the workload; matrix/ and fixed/ are the kill matrix and the fixed plans.
	Plans []string
	// Elsewhere says which test catches it, if that is no matter of the campaign's.
	Elsewhere string
}

// edit replaces one piece of a file of the module, which must be there exactly once.
type edit struct{ File, Find, Replace string }

// apply returns the content of the mutated files.
func (m mutant) apply(root string) (map[string]string, error) {
	changed := map[string]string{}
	for _, e := range m.Edits {
		text, ok := changed[e.File]
		if !ok {
			data, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
			text = string(data)
		}
		if n := strings.Count(text, e.Find); n != 1 {
			return nil, fmt.Errorf("mutant %s: %s has this %d times, not once; bring the mutant up to date:\n%s", m.Name, e.File, n, e.Find)
		}
		changed[e.File] = strings.Replace(text, e.Find, e.Replace, 1)
	}
	return changed, nil
}

// overlay writes the mutated files and the file that tells the compiler of
// them, and returns its path.
func (m mutant) overlay(root, dir string) (string, error) {
	changed, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for file, text := range changed {
		path := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("mutant %s: %w", m.Name, err)
		}
		replace[filepath.Join(root, file)] = path
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	path := filepath.Join(dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	return path, nil
}

// build builds the mutated operator with its failpoints into dir and returns its path.
func (m mutant) build(ctx context.Context, root, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "rolewright")
	// Nobody debugs it: without symbols it is linked in half the time.
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "failpoint", "-ldflags", "-s -w", "-overlay", overlay, "-o", binary, "./cmd/rolewright")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mutant %s does not compile: %w\n%s", m.Name, err, out)
	}
	return binary, nil
}
