package watches

import "strings"

// JSONSchema returns the JSON Schema of a watches file, for editors. It has the keys of
// [Fields] with their types. Only [Load] checks them in combination.
func JSONSchema() map[string]any {
	watch := mappingSchema()
	for _, f := range Fields() {
		parent := watch
		names := strings.Split(f.Key, ".")
		for _, name := range names[:len(names)-1] {
			parent = child(parent, name)
		}
		name := names[len(names)-1]
		value := f.schema()
		properties(parent)[name] = value
		if f.Required {
			required, _ := parent["required"].([]string)
			parent["required"] = append(required, name)
		}
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "watches.yaml",
		"type":    "array",
		"items":   watch,
	}
}

func mappingSchema() map[string]any {
	return map[string]any{"type": "object", "properties": map[string]any{}, "additionalProperties": false}
}

func properties(schema map[string]any) map[string]any {
	p, _ := schema["properties"].(map[string]any)
	return p
}

// child returns the schema of the mapping under a key, or of the items of a list. It
// replaces a schema that allows anything there.
func child(parent map[string]any, name string) map[string]any {
	name, isList := strings.CutSuffix(name, "[]")
	value, _ := properties(parent)[name].(map[string]any)
	if isList {
		if items, ok := value["items"].(map[string]any); ok {
			return items
		}
		items := mappingSchema()
		value["items"] = items
		return items
	}
	if value["properties"] == nil {
		value["properties"], value["additionalProperties"] = map[string]any{}, false
	}
	return value
}

// schema returns the schema of the key's values.
func (f Field) schema() map[string]any {
	types := map[string]any{
		typeString: "string", typeBool: "boolean", typeInt: "integer", typeNumber: "number", typeMap: "object", typeList: "array",
		typeDuration: []string{"string", "integer"},
	}
	s := map[string]any{"type": types[f.Type], "description": f.Description}
	if f.Default != "" && !strings.HasPrefix(f.Default, "--") {
		s["description"] = f.Description + " Default: " + f.Default + "."
	}
	return s
}
