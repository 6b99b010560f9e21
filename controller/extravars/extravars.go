package extravars

import (
	"maps"
	"regexp"
	"strings"
)

// OperatorMeta is the variable that holds the object's name and namespace.
const OperatorMeta = "ansible_operator_meta"

// Options say how an object becomes variables. The zero value is the strictest
// choice for a kind of the core group, except for MarkUnsafe: code that builds
// Options from a watch sets that unless the watch says otherwise.
type Options struct {
	// Group and Kind are those of the watched kind. The names of the variables
	// that hold the object and its spec contain them.
	Group, Kind string
	// SnakeCase converts the keys of the spec with [ToSnake], at every depth.
	SnakeCase bool
	// MarkUnsafe marks every string of the object, so that Ansible never takes
	// it for a template.
	MarkUnsafe bool
	// AllowReserved lets keys of the spec become variables that Ansible
	// reserves. It gives anyone who may write the object the operator's rights:
	// it exists for projects that depend on it.
	AllowReserved bool
	// From are other objects whose keys are variables.
	From []Source
	// Vars are the variables of the watch. FinalizerVars are those of its
	// finalizer; nil unless this is a finalizer run.
	Vars, FinalizerVars map[string]any
	// HookVars are the variables that Go code returns for the object, as decoded JSON. Their
	// values are data, which may come from the object: strings are always marked [Unsafe].
	HookVars map[string]any
}

// Unsafe is a string that is marked for Ansible as data: never a template.
type Unsafe string

// ObjectVariable returns the name of the variable that holds the whole object
// of a kind; the one that holds its raw spec has "_spec" appended. group is
// empty for the core group.
func ObjectVariable(group, kind string) string {
	name := "_" + group + "_" + strings.ToLower(kind)
	return strings.NewReplacer(".", "_", "-", "_").Replace(name)
}

// Vars returns the variables of an object before they are encoded; marked
// strings are of type [Unsafe]. Later ones replace earlier ones in this order:
// opts.From, the keys of the spec, ansible_operator_meta, the object and its raw
// spec, opts.Vars, opts.HookVars, opts.FinalizerVars. Vars does not change the
// object. The result may share parts with opts and must not be modified.
func Vars(object map[string]any, opts Options) (map[string]any, []Notice) {
	notices := &noticeList{}
	vars := map[string]any{}
	sources := sourceVars(opts, notices)
	maps.Copy(vars, sources)
	spec := specVars(object["spec"], opts, notices)
	lay(vars, spec, sources, "the spec", notices)

	own := ownVars(object, opts, notices)
	for _, name := range sortedKeys(own) {
		if _, taken := spec[name]; taken {
			notices.add(KeyCollision, "%q of the spec is not a variable, since Rolewright sets it itself", name)
		}
	}
	lay(vars, own, sources, "Rolewright itself", notices)
	lay(vars, opts.Vars, sources, "the watch", notices)
	lay(vars, hookVars(opts, notices), sources, "the hook Vars", notices)
	lay(vars, opts.FinalizerVars, sources, "the finalizer", notices)
	return vars, notices.list()
}

// specVars returns the variables that the keys of the spec become.
func specVars(spec any, opts Options, notices *noticeList) map[string]any {
	fields, ok := spec.(map[string]any)
	if !ok {
		detail := "the object has no spec"
		if spec != nil {
			detail = "the spec of the object is not a map, and gives no variables"
		}
		notices.add(SpecNotMap, detail)
		return map[string]any{}
	}
	c := newConverter(opts, notices)
	c.path = append(c.path, "spec")
	if opts.SnakeCase {
		c.snake = map[string]string{}
	}
	vars := c.convertMap(fields, true)
	for _, key := range sortedKeys(fields) {
		name := c.name(key)
		_, set := vars[name]
		switch {
		case !set:
		case Reserved(name) && !opts.AllowReserved:
			delete(vars, name)
			notices.add(ReservedVariable, "%q of the spec is not a variable, since Ansible reserves the name %q; it is only in %s_spec",
				key, name, ObjectVariable(opts.Group, opts.Kind))
		case strings.ContainsAny(name, expressiveChars) && opts.MarkUnsafe:
			delete(vars, name)
			notices.add(ExpressionName, "%q of the spec is not a variable, since Ansible could evaluate the name; it is only in %s_spec",
				key, ObjectVariable(opts.Group, opts.Kind))
		}
	}
	return vars
}

// hookVars returns the variables that opts.HookVars become.
func hookVars(opts Options, notices *noticeList) map[string]any {
	c := &converter{mark: true, notices: notices, path: []string{"Hooks.Vars"}}
	return c.convertMap(opts.HookVars, false)
}

// ownVars returns the variables that Rolewright sets itself.
func ownVars(object map[string]any, opts Options, notices *noticeList) map[string]any {
	c := newConverter(opts, notices)
	whole := c.convertMap(object, false)
	spec, ok := whole["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
	}
	if whole["spec"] == nil {
		// Roles for core kinds use the spec without a check whether it exists.
		whole["spec"] = spec
	}
	name := ObjectVariable(opts.Group, opts.Kind)
	return map[string]any{
		OperatorMeta:   c.operatorMeta(object),
		name:           whole,
		name + "_spec": spec,
	}
}

// plainName matches DNS names, which are the only names that most kinds may have.
var plainName = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$`)

// operatorMeta returns the name and namespace of the object, unmarked like
// ansible-operator's. Names of some core kinds may contain nearly any character;
// a name that is not a DNS name is marked.
func (c *converter) operatorMeta(object map[string]any) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	meta := make(map[string]any, 2)
	for _, key := range []string{"name", "namespace"} {
		text, _ := metadata[key].(string)
		text = c.text(text)
		meta[key] = text
		if c.mark && text != "" && !plainName.MatchString(text) {
			meta[key] = Unsafe(text)
		}
	}
	return meta
}

// Build returns the literal content of env/extravars for an object: JSON, or YAML
// if Ansible would take a key of the object for a marker or could take it for an
// expression. The same arguments give the same bytes. An error means that JSON
// cannot represent a value or, with [ErrTooDeep], that Ansible cannot read it.
func Build(object map[string]any, opts Options) ([]byte, []Notice, error) {
	vars, notices := Vars(object, opts)
	content, marker, err := encode(vars, opts)
	if err != nil {
		return nil, notices, err
	}
	// Other keys that force YAML are ordinary, such as *.example.com.
	if strings.HasPrefix(marker, markerPrefix) || strings.Contains(marker, "{") {
		tail := &noticeList{}
		tail.add(MarkerEncoded, "Ansible would read the key %q as one of its markers or as a template; all variables are written as YAML", marker)
		notices = append(notices, tail.list()...)
	}
	return content, notices, nil
}
