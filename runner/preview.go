package runner

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rolewright/rolewright/runner/internal/ansibleenv"
)

// The placeholders in a [Preview] for the ID and the directory of a run.
const (
	PreviewID  = "RUN-ID"
	PreviewDir = "/RUN-DIR"
)

// Preview shows, as text, what a run is started with.
type Preview struct {
	// Command is ansible-runner, or the command, with its arguments. More are arguments for
	// ansible-playbook, which ansible-runner reads from env/cmdline.
	Command []string
	More    string
	// Environment has the variables, NAME=value, that differ from the operator's environment;
	// for a command, all its variables.
	Environment []string
	// Inventory maps the names of the inventory's files to their contents.
	Inventory map[string]string
	// ExtraVars is env/extravars, JSON or YAML; empty for a command.
	ExtraVars string
	// Input is the standard input of a command, JSON; empty for Ansible.
	Input string
}

// NewPreview returns what a run of req would be started with in an environment, masked by
// req.Mask, with [PreviewDir] in place of its directory. It makes and removes a temporary
// directory, and starts no process.
func NewPreview(req Request, environ []string) (p Preview, err error) {
	temp, err := os.MkdirTemp("", "rolewright-preview-")
	if err != nil {
		return p, fmt.Errorf("prepare the preview: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	req.Dir = filepath.Join(temp, "run")
	if req, err = req.normalise(); err != nil {
		return p, err
	}
	environ = ansibleenv.Inherited(environ)
	if err := createPrivateDir(req, environ); err != nil {
		return p, err
	}
	shown := func(text string) string {
		text = strings.ReplaceAll(text, req.Dir, PreviewDir)
		if req.Mask != nil {
			text = req.Mask.Mask(text)
		}
		return text
	}
	p.Inventory = map[string]string{}
	if c := req.Content.Command; c != nil {
		for _, arg := range append([]string{c.Path}, c.Args...) {
			p.Command = append(p.Command, shown(arg))
		}
		for _, entry := range req.commandEnviron(environ) {
			p.Environment = append(p.Environment, shown(entry))
		}
		p.Input = shown(string(req.Files[InputFile]))
		return p, nil
	}
	if p.Inventory, err = previewInventory(req.Dir, shown); err != nil {
		return p, fmt.Errorf("read the inventory: %w", err)
	}
	extraVars, err := os.ReadFile(filepath.Join(req.Dir, "env", "extravars"))
	if err != nil {
		return p, err
	}
	p.ExtraVars = shown(string(extraVars))
	p.More = shown(strings.TrimSpace(unquote(req.Cmdline)))
	for _, arg := range append([]string{"ansible-runner"}, req.arguments()...) {
		p.Command = append(p.Command, shown(arg))
	}
	for _, entry := range req.environment(environ) {
		if !slices.Contains(environ, entry) {
			p.Environment = append(p.Environment, shown(entry))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(req.Env)) {
		p.Environment = append(p.Environment, shown(name+"="+req.Env[name]))
	}
	slices.Sort(p.Environment)
	return p, nil
}

func previewInventory(dir string, shown func(text string) string) (map[string]string, error) {
	files, inventory := map[string]string{}, os.DirFS(filepath.Join(dir, "inventory"))
	err := fs.WalkDir(inventory, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := fs.ReadFile(inventory, name)
		files[name] = shown(string(data))
		return err
	})
	return files, err
}
