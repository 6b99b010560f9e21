package main

import (
	"fmt"
	"os"

	"github.com/rolewright/rolewright/controller/assembly"
	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/doctor"
	"github.com/rolewright/rolewright/internal/rolevars"
	"github.com/rolewright/rolewright/internal/watches"
)

// replaceable lists the variables that the content of a watch sets itself and
// that an undeclared field of the spec would replace. Variables that the watch sets
// have precedence over the spec.
func replaceable(w watches.Watch, declared, rolesPath []string) []string {
	known := map[string]bool{}
	for _, field := range declared {
		known[field] = true
		if w.SnakeCaseParameters {
			known[extravars.ToSnake(field)] = true
		}
	}
	var names []string
	for _, c := range w.Contents() {
		for _, name := range rolevars.Of(c.Playbook, c.Role, rolesPath) {
			if _, set := w.Vars[name]; !set && !known[name] && becomes(w, name) {
				known[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// becomes reports whether a key of the spec becomes a variable of the same name.
func becomes(w watches.Watch, key string) bool {
	spec := map[string]any{key: false}
	vars, _ := extravars.Vars(map[string]any{"spec": spec}, extravars.Options{
		Group: w.GVK.Group, Kind: w.GVK.Kind, SnakeCase: w.SnakeCaseParameters,
		MarkUnsafe: w.MarkUnsafe, AllowReserved: w.AllowReservedVariables,
	})
	return vars[key] == false
}

// checkSchemas warns of schemas that keep undeclared fields.
func (o *validateOptions) checkSchemas(file string, watched []watches.Watch) ([]watches.Problem, error) {
	if err := checkDefinitions(o.definitions); err != nil {
		return nil, err
	}
	schemas, err := doctor.ReadSchemas(o.definitions)
	if err != nil {
		return nil, usage(fmt.Errorf("--crd-dir: %w", err))
	}
	severity := watches.Warning
	if o.strict {
		severity = watches.Error
	}
	var problems []watches.Problem
	for _, w := range watched {
		s, ok := schemas[w.GVK]
		if !ok {
			continue
		}
		declared, keeps := s.KeepsInSpec()
		if !keeps {
			continue
		}
		if names := replaceable(w, declared, assembly.RolesDirs(o.lookupEnv)); len(names) > 0 {
			p := watches.Problem{File: file, Pos: w.Pos, Severity: severity}
			p.Message, p.Hint = doctor.Replaceable(names)
			p.Message = w.GVK.Kind + ": " + p.Message
			problems = append(problems, p)
		}
	}
	return problems, nil
}

// defaultDefinitions is the default of --crd-dir. The directory need not exist.
const defaultDefinitions = "config/crd"

// checkDefinitions refuses a --crd-dir that was given and does not exist.
func checkDefinitions(dir string) error {
	if _, err := os.Stat(dir); err != nil && dir != defaultDefinitions {
		return usage(fmt.Errorf("--crd-dir: %w", err))
	}
	return nil
}
