package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/strvals"
)

// values returns the values of the release, in increasing order of precedence: the watch's values, the spec,
// values from Secrets and ConfigMaps, and the watch's overrides.
func (in *input) values() (map[string]any, error) {
	spec := map[string]any{}
	if value, there := in.Object.Object["spec"]; there && value != nil {
		m, isMap := value.(map[string]any)
		if !isMap {
			return nil, refusef("spec is not a mapping: its fields are the values of the chart")
		}
		spec = m
	}
	all := loader.MergeMaps(in.settings.Values, spec)
	for _, from := range in.settings.ValuesFrom {
		for _, key := range slices.Sorted(maps.Keys(from.Data)) {
			path := strings.Split(from.Prefix+key, ".")
			if slices.Contains(path, "") {
				return nil, refusef("the key %q of %s is not a path of a value, such as database.password", from.Prefix+key, from.Name)
			}
			if err := put(all, path, from.Data[key]); err != nil {
				return nil, refusef("the key %q of %s: %w", from.Prefix+key, from.Name, err)
			}
		}
	}
	all = loader.MergeMaps(all, in.settings.ValuesOverride)
	overrides := map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(in.settings.OverrideValues)) {
		if err := strvals.ParseIntoString(key+"="+in.settings.OverrideValues[key], overrides); err != nil {
			return nil, refusef("overrideValues of the watch: %s: %w; write a comma as \\, and a dot in a key as \\.", key, err)
		}
	}
	return loader.MergeMaps(all, overrides), nil
}

// put sets the value at a path.
func put(into map[string]any, path []string, value any) error {
	for i, key := range path[:len(path)-1] {
		next, there := into[key]
		m, isMap := next.(map[string]any)
		switch {
		case !there || next == nil:
			m = map[string]any{}
		case !isMap:
			return fmt.Errorf("%s is not a mapping", strings.Join(path[:i+1], "."))
		default:
			m = maps.Clone(m)
		}
		into[key], into = m, m
	}
	into[path[len(path)-1]] = value
	return nil
}
