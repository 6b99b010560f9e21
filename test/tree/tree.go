// Package tree changes values of JSON: mappings, lists, and the leaves in them.
package tree

// Map is a copy of a value in which key has changed the keys, and leaf what is neither a mapping nor a list. Nil changes nothing.
func Map(value any, key func(string) string, leaf func(any) any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			if key != nil {
				name = key(name)
			}
			out[name] = Map(item, key, leaf)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = Map(item, key, leaf)
		}
		return out
	}
	if leaf == nil {
		return value
	}
	return leaf(value)
}

// Texts is what Map takes for the leaves where change is for texts only.
func Texts(change func(string) string) func(any) any {
	return func(leaf any) any {
		if text, ok := leaf.(string); ok {
			return change(text)
		}
		return leaf
	}
}
