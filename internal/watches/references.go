package watches

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Reference says which objects of a kind an object of the watch refers to.
type Reference struct {
	// GVK is the kind of the referenced objects.
	GVK schema.GroupVersionKind
	// FromField is a dotted path in the object to a name, a list of names, a
	// mapping with the key name, or a list of such mappings.
	FromField string
	// Reported is true if a command reports the names of the objects; FromField is then empty.
	Reported bool `json:",omitempty"`
	// NamespaceField is a dotted path in the object to the namespace of the referenced objects.
	// If it is empty, or leads to nothing, they are in the namespace of the object.
	NamespaceField string
}

// VarsFrom is a Secret or ConfigMap whose keys become extra vars, or a Secret of which one key
// becomes a file of a command.
type VarsFrom struct {
	// Secret is true for a Secret, false for a ConfigMap.
	Secret bool
	// Name is set or, as a dotted path in the object, NameField.
	Name, NameField string
	// Namespace is empty for the namespace of the object.
	Namespace string
	// Prefix is put in front of each key.
	Prefix string
	// Optional is true if the Secret or ConfigMap may be missing.
	Optional bool
	// File is the name of a command's file, whose content is the value of Key in the Secret.
	// It is empty for variables.
	Key, File string `json:",omitempty"`
}

// Kind returns the kind of the object that the variables come from.
func (v VarsFrom) Kind() schema.GroupVersionKind {
	if v.Secret {
		return schema.GroupVersionKind{Version: "v1", Kind: "Secret"}
	}
	return schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
}

// maxReferences bounds references, varsFrom and triggers of a watch. Each is evaluated for each
// object.
const maxReferences = 32

func referenceFields() []field[Reference] {
	return []field[Reference]{
		{Field{"group", typeString, `""`, false, "The API group of the kind; empty for the core group."},
			textField(func(r *Reference) *string { return &r.GVK.Group })},
		{Field{"version", typeString, "", true, "The API version of the kind."},
			textField(func(r *Reference) *string { return &r.GVK.Version })},
		{Field{"kind", typeString, "", true, "The kind of the referenced objects."},
			textField(func(r *Reference) *string { return &r.GVK.Kind })},
		{Field{"fromField", typeString, "", false,
			"The field of the object that names them, such as spec.passwordSecretName: a name, a list of names, a mapping with the key name, " +
				"or a list of such mappings. Required unless reported is true."},
			fieldPath(func(r *Reference) *string { return &r.FromField })},
		{Field{"reported", typeBool, "false", false,
			"If true, the command of the watch names the objects, in its reports of type reference, and fromField is left out."},
			boolean(func(r *Reference) *bool { return &r.Reported })},
		{Field{"namespaceField", typeString, "", false,
			"The field of the object that names their namespace. If missing, they are in the namespace of the object."},
			fieldPath(func(r *Reference) *string { return &r.NamespaceField })},
	}
}

func varsFromFields() []field[VarsFrom] {
	return []field[VarsFrom]{
		{Field{"secretRef", typeMap, "", false,
			"The Secret whose keys become variables. The values are masked. Either secretRef or configMapRef must be set."},
			func(c *decoding, v *VarsFrom, a at) { c.varsSource(v, a, true) }},
		{Field{"configMapRef", typeMap, "", false, "The ConfigMap whose keys become variables."},
			func(c *decoding, v *VarsFrom, a at) { c.varsSource(v, a, false) }},
		{Field{"prefix", typeString, `""`, false, "The text in front of each key in the name of its variable, such as db_."},
			setPrefix},
		{Field{"optional", typeBool, "false", false,
			"If true, runs start even if the Secret or ConfigMap is missing. If false, the object fails with the reason ReferenceNotFound, and runs when it exists."},
			boolean(func(v *VarsFrom) *bool { return &v.Optional })},
	}
}

func varsSourceFields() []field[VarsFrom] {
	return []field[VarsFrom]{
		{Field{"name", typeString, "", false, "The name of the Secret or ConfigMap. Either name or nameField must be set."},
			checkedText(func(v *VarsFrom) *string { return &v.Name }, "name", validation.IsDNS1123Subdomain)},
		{Field{"nameField", typeString, "", false, "The field of the object that contains the name, such as spec.secretName."},
			fieldPath(func(v *VarsFrom) *string { return &v.NameField })},
		{Field{"namespace", typeString, "", false, "The namespace of the Secret or ConfigMap. If missing, it is the namespace of the object."},
			checkedText(func(v *VarsFrom) *string { return &v.Namespace }, "namespace", validation.IsDNS1123Label)},
	}
}

// setReferences reads which objects the watched objects refer to.
func setReferences(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		var r Reference
		keys := object(c, element, referenceFields(), &r)
		if keys == nil {
			return
		}
		if r.Reported && r.FromField+r.NamespaceField != "" {
			c.error(element, "a reference with reported: true cannot have fromField or namespaceField", "remove them, since the command reports name and namespace; or remove reported")
		}
		for _, key := range []string{"version", "kind", "fromField"} {
			if _, said := keys[key]; !said && !(key == "fromField" && r.Reported) {
				c.error(element, "a reference must have "+key, "write version and kind of the referenced object, and the field that names it, such as fromField: spec.passwordSecretName")
			}
		}
		if len(e.watch.References) == maxReferences {
			c.error(element, fmt.Sprintf("there are more than %d references", maxReferences), "join fields under one mapping or list, or remove references")
			return
		}
		e.watch.References = append(e.watch.References, r)
		e.starts = append(e.starts, start{at: element, kind: r.GVK.GroupKind()})
	})
}

// setVarsFrom reads the sources of further variables.
func setVarsFrom(c *decoding, e *entry, a at) {
	c.readVarsFrom(e, a, varsFromFields())
}

func (c *decoding) readVarsFrom(e *entry, a at, fields []field[VarsFrom]) {
	c.elements(a, func(element at) {
		var v VarsFrom
		keys := object(c, element, fields, &v)
		_, secret := keys["secretRef"]
		_, configMap := keys["configMapRef"]
		switch {
		case keys == nil:
			return
		case secret == configMap:
			c.error(element, "exactly one of secretRef and configMapRef must be set", "write one of them in each element of the list")
			return
		case len(e.watch.VarsFrom) == maxReferences:
			c.error(element, fmt.Sprintf("there are more than %d Secrets and ConfigMaps", maxReferences), "merge some of them")
			return
		}
		e.watch.VarsFrom = append(e.watch.VarsFrom, v)
	})
}

// varsSource reads which object variables come from.
func (c *decoding) varsSource(v *VarsFrom, a at, secret bool) {
	keys := object(c, a, varsSourceFields(), v)
	if keys == nil {
		return
	}
	v.Secret = secret
	_, name := keys["name"]
	if _, where := keys["nameField"]; name == where {
		c.error(a, "exactly one of name and nameField must be set", `write "name:" with a name, or "nameField:" with the field that names it`)
	}
}

// checkReferences checks references and varsFrom in combination with other keys of a watch.
func (c *decoding) checkReferences(e *entry) {
	reported := slices.ContainsFunc(e.watch.References, func(r Reference) bool { return r.Reported })
	if _, command := e.keys["command"]; reported && !command {
		c.error(e.keys["references"], "only commands can report references", `write "fromField:" with the field that names them`)
	}
	if !e.watch.OwnNamespaceOnly {
		return
	}
	const hint = "remove one of them"
	if slices.ContainsFunc(e.watch.References, func(r Reference) bool { return r.NamespaceField != "" }) {
		c.error(e.keys["references"], "namespaceField in references cannot be combined with ownNamespaceOnly", hint)
	}
	if slices.ContainsFunc(e.watch.VarsFrom, func(v VarsFrom) bool { return v.Namespace != "" }) {
		c.error(e.value(e.varsFromKey()), "a namespace in "+e.varsFromKey()+" cannot be combined with ownNamespaceOnly", hint)
	}
	if slices.ContainsFunc(e.watch.Triggers, func(t Trigger) bool { return t.MapTo == MapToAll }) {
		c.error(e.keys["triggers"], "mapTo: all in triggers cannot be combined with ownNamespaceOnly", hint)
	}
}

// fieldPath reads a dotted path in an object.
func fieldPath[T any](of func(*T) *string) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		path, ok := c.string(a)
		if !ok {
			return
		}
		keys := strings.Split(path, ".")
		switch {
		case slices.Contains(keys, "") || strings.ContainsAny(path, "[]{}*$"):
			c.error(a, fmt.Sprintf("%q is not a path to a field", excerpt(path)),
				"write keys separated by dots, such as spec.passwordSecretName; a path through a list applies to each element")
		case keys[0] == "status":
			c.error(a, "a field of the status cannot be used: runs write the status themselves", "use a field of the spec")
		case len(keys) == 1:
			c.warn(a, fmt.Sprintf("%q is not a field of the spec", excerpt(path)), fmt.Sprintf("write spec.%s for the field of the spec", excerpt(path)))
			*of(into) = path
		default:
			*of(into) = path
		}
	}
}

// checkedText reads a text that Kubernetes has rules for.
func checkedText[T any](of func(*T) *string, what string, check func(string) []string) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		s, ok := c.string(a)
		if !ok {
			return
		}
		if problems := check(s); len(problems) > 0 {
			c.error(a, fmt.Sprintf("%q is not a valid %s: %s", excerpt(s), what, problems[0]), "write the "+what+" as kubectl shows it")
			return
		}
		*of(into) = s
	}
}

func setPrefix(c *decoding, v *VarsFrom, a at) {
	s, ok := c.string(a)
	switch {
	case !ok:
	case s != "" && !variableName.MatchString(s):
		c.error(a, fmt.Sprintf("the name of a variable cannot begin with %q", excerpt(s)), "write letters, digits and underscores, such as db_")
	default:
		v.Prefix = s
	}
}
