package scenario

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/rolewright/rolewright/internal/text"
)

// mismatch returns where have differs from what want asks for; empty if it does not. Fields
// that want does not name may have any value; a field that is null in want must not exist. For a
// list of objects, each wanted object has to be there, in any order; other lists have to be equal.
func mismatch(want, have any, path string) string {
	switch want := want.(type) {
	case map[string]any:
		fields, ok := have.(map[string]any)
		if !ok {
			return differs(path, want, have)
		}
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if why := mismatch(want[name], fields[name], path+"."+name); why != "" {
				return why
			}
		}
		return ""
	case []any:
		list, ok := have.([]any)
		if !ok {
			break
		}
		if !allObjects(want) {
			if slices.EqualFunc(want, list, func(wanted, element any) bool { return mismatch(wanted, element, "") == "" }) {
				return ""
			}
			break
		}
		for i, wanted := range want {
			if !slices.ContainsFunc(list, func(element any) bool { return mismatch(wanted, element, "") == "" }) {
				if len(want) == 1 && len(list) == 1 {
					return mismatch(wanted, list[0], path+"[0]")
				}
				return fmt.Sprintf("%s: no element is as wanted[%d] %s", path, i, brief(wanted))
			}
		}
		return ""
	case float64: // a number of YAML; the API server's may be an int64
		if i, ok := have.(int64); ok && float64(i) == want {
			return ""
		}
	}
	if !equality.Semantic.DeepEqual(want, have) {
		return differs(path, want, have)
	}
	return ""
}

func allObjects(list []any) bool {
	return len(list) > 0 && !slices.ContainsFunc(list, func(element any) bool { _, ok := element.(map[string]any); return !ok })
}

func differs(path string, want, have any) string {
	switch {
	case want == nil:
		return fmt.Sprintf("%s: wanted absent, it is %s", path, brief(have))
	case have == nil:
		return fmt.Sprintf("%s: wanted %s, it is not there", path, brief(want))
	}
	return fmt.Sprintf("%s: wanted %s, it is %s", path, brief(want), brief(have))
}

func brief(v any) string {
	const most = 200
	shown := fmt.Sprintf("%v", v)
	if s, ok := v.(string); ok {
		shown = fmt.Sprintf("%q", s)
	}
	return text.Clip(shown, most)
}
