package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/text"
)

const anObject = "a path, an object, or a list of both"

// scenarioKeys and stepKeys return the keys of a scenario and of a step, with the values that they take.
func scenarioKeys() map[string]string {
	return map[string]string{"given": anObject, "steps": "a list of steps"}
}

func stepKeys() map[string]string {
	return map[string]string{
		"name": "a text", "apply": anObject, "delete": anObject, "status": anObject, "expect": anObject, "absent": anObject,
		"fails": "a text", "message": "a text", "changed": "a number", "idempotent": "true or false", "timeout": "a duration such as 2m",
	}
}

// explain returns an error about what is wrong in data, which could not be decoded because of
// err. The error has the line, the key, and what is expected.
func explain(path string, data []byte, err error) error {
	var root yaml.Node
	if why := yaml.Unmarshal(data, &root); why != nil {
		return fmt.Errorf("%s: %w", path, why) // its text has the line
	}
	if len(root.Content) == 0 {
		return fmt.Errorf("%s: it is empty", path)
	}
	top := root.Content[0]
	if found := wrongKey[Scenario](path, top, scenarioKeys(), "a scenario", "steps"); found != nil {
		return found
	}
	for key, value := range content.Pairs(top) {
		if key.Value != "steps" {
			continue
		}
		if value.Kind != yaml.SequenceNode {
			return fmt.Errorf("%s:%d: steps: a list of steps expected", path, value.Line)
		}
		for _, step := range value.Content {
			if found := wrongKey[Step](path, step, stepKeys(), "a step", ""); found != nil {
				return found
			}
		}
	}
	return fmt.Errorf("%s: %w", path, err)
}

// wrongKey returns an error about the first key of the mapping that T does not have, or whose
// value T does not take; nil if there is none. It does not check the value of the key skip.
func wrongKey[T any](path string, mapping *yaml.Node, keys map[string]string, what, skip string) error {
	if mapping.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d: %s is a mapping with the keys %s", path, mapping.Line, what, strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
	}
	lines := map[string]int{}
	for key, value := range content.Pairs(mapping) {
		if first, twice := lines[key.Value]; twice {
			return fmt.Errorf("%s:%d: %s is there twice: it is in line %d, too", path, key.Line, key.Value, first)
		}
		lines[key.Value] = key.Line
		want, known := keys[key.Value]
		if !known {
			names := slices.Sorted(maps.Keys(keys))
			hint := fmt.Sprintf("the keys of %s are %s", what, strings.Join(names, ", "))
			if near := text.Nearest(key.Value, names); near != "" {
				hint = fmt.Sprintf("did you mean %q?", near)
			}
			return fmt.Errorf("%s:%d: unknown key %q: %s", path, key.Line, key.Value, hint)
		}
		if key.Value == skip {
			continue
		}
		var into T
		one, err := yaml.Marshal(map[string]*yaml.Node{key.Value: value})
		if err != nil || sigsyaml.UnmarshalStrict(one, &into) != nil {
			return fmt.Errorf("%s:%d: %s: %s expected", path, key.Line, key.Value, want)
		}
	}
	return nil
}
