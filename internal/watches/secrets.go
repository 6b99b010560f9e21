package watches

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
)

func secretFields() []field[VarsFrom] {
	return []field[VarsFrom]{
		{Field{"name", typeString, "", true, "The name of the Secret, in the namespace of the object."},
			checkedText(func(v *VarsFrom) *string { return &v.Name }, "name", validation.IsDNS1123Subdomain)},
		{Field{"key", typeString, "", true, "The key in the Secret."},
			checkedText(func(v *VarsFrom) *string { return &v.Key }, "key", validation.IsConfigMapKey)},
		{Field{"file", typeString, "the key", false, "The name of the file."},
			checkedText(func(v *VarsFrom) *string { return &v.File }, "name of a file", validation.IsConfigMapKey)},
		{Field{"optional", typeBool, "false", false,
			"If true, runs start even if the Secret or the key is missing. If false, the object fails with the reason ReferenceNotFound, and " +
				"runs when the value exists."},
			boolean(func(v *VarsFrom) *bool { return &v.Optional })},
	}
}

// setSecrets reads which values of Secrets a command gets as files.
func setSecrets(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		v := VarsFrom{Secret: true}
		before := c.errors
		keys := object(c, element, secretFields(), &v)
		if keys == nil || c.errors > before {
			return
		}
		v.File = cmp.Or(v.File, v.Key)
		switch {
		case v.Name == "" || v.Key == "":
			c.error(element, "a secret must have name and key", "write for example {name: database, key: password}")
		case slices.ContainsFunc(e.secrets, func(other VarsFrom) bool { return other.File == v.File }):
			c.error(element, fmt.Sprintf("two secrets have the same file name, %q", v.File), `set "file:" in one of them`)
		case len(e.secrets) == maxReferences:
			c.error(element, fmt.Sprintf("there are more than %d secrets", maxReferences), "let the command read the others itself")
		default:
			e.secrets = append(e.secrets, v)
		}
	})
}
