package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Parse reads a plan in JSON or YAML and validates it. An unknown field, or one that is given twice, is an error.
func Parse(data []byte) (Plan, error) {
	var p Plan
	data, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return Plan{}, fmt.Errorf("parse plan: %w", err)
	}
	unknown, err := kjson.UnmarshalStrict(data, &p)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return Plan{}, fmt.Errorf("parse plan: %w", err)
	}
	if err := p.Validate(); err != nil {
		return Plan{}, fmt.Errorf("plan %q: %w", p.Name, err)
	}
	return p, nil
}

// Load reads and validates the plan in a file.
func Load(file string) (Plan, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return Plan{}, fmt.Errorf("load plan: %w", err)
	}
	p, err := Parse(data)
	if err != nil {
		return Plan{}, fmt.Errorf("load %s: %w", file, err)
	}
	return p, nil
}

// LoadDir reads and validates the plans in a file, or in all files of a directory. A directory without plans is an error.
func LoadDir(name string) ([]Plan, error) {
	var plans []Plan
	err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		p, err := Load(path)
		plans = append(plans, p)
		return err
	})
	if err == nil && len(plans) == 0 {
		err = fmt.Errorf("load plans: there are none in %s", name)
	}
	return plans, err
}

// Save writes p into the existing directory dir, in a file with the name of the plan, and returns its path.
func (p Plan) Save(dir string) (string, error) {
	if err := p.Validate(); err != nil {
		return "", fmt.Errorf("save plan %q: %w", p.Name, err)
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return "", fmt.Errorf("save plan %q: %w", p.Name, err)
	}
	file := filepath.Join(dir, p.Name+".json")
	if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
		return "", fmt.Errorf("save plan %q: %w", p.Name, err)
	}
	return file, nil
}
