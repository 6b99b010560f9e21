package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// mutant is a seeded bug: a patch of the operator's code, with a header.
type mutant struct {
	// Name is the name of the patch's file, without .patch.
	Name string
	// Seen says where such a bug was seen.
	Seen string
	// Forked is true if the bug is in the code path of forked runs.
	Forked bool
	// Elsewhere names the test that catches the bug, if the campaign cannot.
	Elsewhere string

	patch string
	files []string
}

// errOutdated is the error of a patch that does not apply to the code.
var errOutdated = errors.New("the patch does not apply any more")

// load reads the patches of a directory, in the order of their names.
func load(dir string) ([]mutant, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.patch"))
	if err != nil || len(paths) == 0 {
		return nil, errors.Join(fmt.Errorf("%s has no patches", dir), err)
	}
	var all []mutant
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read a mutant: %w", err)
		}
		m, err := parse(strings.TrimSuffix(filepath.Base(path), ".patch"), string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, m)
	}
	return all, nil
}

// parse reads a patch. Its header consists of lines "# KEY: VALUE" before the first file.
func parse(name, text string) (mutant, error) {
	m := mutant{Name: name, patch: text}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if file, ok := strings.CutPrefix(lines.Text(), "--- a/"); ok {
			m.files = append(m.files, file)
			continue
		}
		comment, ok := strings.CutPrefix(lines.Text(), "# ")
		if !ok || len(m.files) > 0 {
			continue
		}
		key, value, _ := strings.Cut(comment, ": ")
		switch key {
		case "seen":
			m.Seen = value
		case "runner":
			if value != "forked" {
				return m, fmt.Errorf("runner %q: want forked, or no such line", value)
			}
			m.Forked = true
		case "elsewhere":
			m.Elsewhere = value
		default:
			return m, fmt.Errorf("unknown key %q in the header: want seen, runner or elsewhere", key)
		}
	}
	if m.Seen == "" || len(m.files) == 0 {
		return m, errors.New("the header has no seen, or the patch has no file")
	}
	return m, nil
}

// apply writes the mutated files below dir.
func (m mutant) apply(ctx context.Context, root, dir string) error {
	for _, file := range m.files {
		data, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return fmt.Errorf("mutant %s: %w: %w", m.Name, errOutdated, err)
		}
		target := filepath.Join(dir, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o700), os.WriteFile(target, data, 0o600)); err != nil {
			return fmt.Errorf("mutant %s: %w", m.Name, err)
		}
	}
	// One line of context is enough if the lines around it have changed.
	cmd := exec.CommandContext(ctx, "git", "apply", "-C1", "-")
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(m.patch)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir), "GIT_DIR=")
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("mutant %s: %w", m.Name, context.Cause(ctx))
	case errors.As(err, &exit):
		return fmt.Errorf("mutant %s: %w: %s", m.Name, errOutdated, out)
	case err != nil:
		return fmt.Errorf("mutant %s: git apply: %w", m.Name, err)
	}
	return nil
}

// build builds the mutated operator with its failpoints into dir and returns its path.
func (m mutant) build(ctx context.Context, root, dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	if len(m.files) > 0 {
		if err := m.apply(ctx, root, filepath.Join(dir, "patched")); err != nil {
			return "", err
		}
	}
	replace := map[string]string{}
	for _, file := range m.files {
		patched := filepath.Join(dir, "patched", file)
		replace[filepath.Join(root, file)] = patched
		// The operator has Python as text: if it did not compile, no run could be forked, and every plan would catch that.
		if filepath.Ext(file) == ".py" {
			cmd := exec.CommandContext(ctx, "python3", "-c", `import sys; compile(open(sys.argv[1], "rb").read(), sys.argv[1], "exec")`, patched)
			if out, err := cmd.CombinedOutput(); err != nil {
				return "", fmt.Errorf("mutant %s does not compile: %w\n%s", m.Name, err, out)
			}
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	data, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, data, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("mutant %s: %w", m.Name, err)
	}
	binary := filepath.Join(dir, "rolewright")
	// Without symbols, linking takes half the time.
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-tags", "failpoint", "-ldflags", "-s -w", "-overlay", overlay, "-o", binary, "./cmd/rolewright")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("mutant %s does not compile: %w\n%s", m.Name, err, out)
	}
	return binary, nil
}
