package watches

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"gopkg.in/yaml.v3"
)

// mapping is a watch or a finalizer as it is written, and what it runs.
type mapping struct {
	at             at
	keys           map[string]at
	playbook, role string
	command        []string
	handler        string
}

// varsFromKey returns the key that sets Watch.VarsFrom.
func (e *entry) varsFromKey() string {
	if _, chart := e.keys["chart"]; chart {
		return "valuesFrom"
	}
	return "varsFrom"
}

// entry is a watch while it is being read.
type entry struct {
	mapping
	watch     Watch
	finalizer *finalizer
	// check is what runs that only check execute; it has no keys if the watch does not say.
	check mapping
	// settings are common to all commands of the watch. They have no executable here.
	settings   Command
	secrets    []VarsFrom
	chart      Chart
	starts     []start // what starts runs of its objects
	conversion *at     // nil if there is none
	ok         bool    // no errors were reported for it
}

// finalizer is a watch's finalizer as it is written.
type finalizer struct {
	mapping
	Finalizer
}

// entry reads one watch. It returns nil if it is not a mapping.
func (c *decoding) entry(a at) *entry {
	if isNull(a.node) { // an empty mapping, as in ansible-operator
		a.node = &yaml.Node{Kind: yaml.MappingNode, Line: a.node.Line, Column: a.node.Column}
	}
	e := &entry{mapping: mapping{at: a}, settings: Command{Stop: Stop{Grace: defaultGrace}}, chart: Chart{CRDs: CRDsCreate, MaxHistory: defaultMaxHistory}, watch: Watch{
		MaxRunnerArtifacts:      defaultMaxRunnerArtifacts,
		ManageStatus:            true,
		WatchDependentResources: true,
		SnakeCaseParameters:     true,
		MarkUnsafe:              true,
		Adopt:                   AdoptNever,
		Timeout:                 defaultTimeout,
		IdleTimeout:             defaultIdleTimeout,
		Mode:                    ModeApply,
		OnChange:                OnChangeWait,
		Annotations:             AnnotationsBounded,
		Executor:                c.opts.Defaults.Executor,
		Pos:                     c.src.position(a.node.Line, a.node.Column),
	}}
	if a.node.Kind != yaml.MappingNode {
		c.error(a, describeNode(a.node)+" is not a watch",
			`write "version:", "kind:" and "role:", "playbook:", "command:" or "chart:" after the "- "`)
		return nil
	}
	e.keys = object(c, a, watchFields(), e)
	c.checkKind(e)
	if _, said := e.keys["maxFailedRunnerArtifacts"]; !said && e.watch.MaxRunnerArtifacts != 0 {
		e.watch.MaxFailedRunnerArtifacts = defaultMaxFailedRunnerArtifacts
	}
	c.contentOf(e)
	if a, given := e.keys["job"]; given && e.watch.Executor != ExecutorJob {
		c.warn(a, "job has no effect without executor: job, and this watch has executor: "+string(e.watch.Executor), "remove it, or set executor: job")
	}
	c.checkReferences(e)
	c.checkPrune(e)
	c.perKind(e)
	return e
}

// contentOf determines what the watch and its finalizer run.
func (c *decoding) contentOf(e *entry) {
	runs := "role"
	for _, key := range []string{"command", "handler", "chart"} {
		if _, given := e.keys[key]; given {
			runs = key
		}
	}
	c.refuse(runs, e.mapping)
	switch runs {
	case "chart":
		c.chartOf(e)
		return
	case "handler":
		e.watch.Content = Content{Handler: e.handler}
		e.watch.Executor = ExecutorRunner // no interpreter of Ansible's is needed
	case "command":
		e.watch.Content = Content{Command: c.commandOf(e.mapping, e.settings)}
		e.watch.CheckCommand = c.commandOf(e.check, e.settings)
		e.watch.VarsFrom = e.secrets // a command has no varsFrom of its own
		c.executorOfCommand(e)
	default:
		c.refuse(runs, e.check)
		e.watch.Content = c.content(e.mapping, Error)
	}
	if e.finalizer != nil && runs != "role" {
		c.refuse(runs, e.finalizer.mapping)
	}
	if e.finalizer != nil {
		e.watch.Finalizer = c.checkFinalizer(e)
	}
}

// onlyFor returns the keys that only some watches may have, with what those watches run.
func onlyFor() map[string]string {
	const role, command = "a role or playbook", "a command"
	keys := map[string]string{
		"playbook": role, "role": role, "vars": role, "varsFrom": role, "snakeCaseParameters": role, "markUnsafe": role, "allowReservedVariables": role,
		"command": command, "inheritEnv": command, "env": command, "secrets": command, "stop": command, "requireResult": command,
		"check": "a role, playbook or command", "finalizer": "a role, playbook, command or handler", "handler": "a handler",
		"executor": "a role, playbook, command or chart", "job": "a role, playbook, command or chart",
	}
	for _, f := range chartFields() {
		keys[f.Key] = "a chart"
	}
	return keys
}

// refuse reports the keys of a watch, or of a part of it, that do not fit what the watch runs.
func (c *decoding) refuse(runs string, m mapping) {
	hints := map[string]string{
		"role": "remove it", "role env": "remove it: roles and playbooks have the operator's environment", "role secrets": "use varsFrom: the role gets them as variables",
		"command": "remove it; the whole object is passed on as it is", "handler": "remove it; the whole object is passed on as it is",
		"chart":           "remove it; the values of the chart are the spec, values, valuesFrom, valuesOverride and overrideValues",
		"chart finalizer": "remove it; the release is always uninstalled before its object is deleted",
	}
	fits := onlyFor()
	for _, key := range slices.Sorted(maps.Keys(m.keys)) {
		if fit, only := fits[key]; only && !strings.Contains(fit, runs) {
			c.error(m.keys[key], fmt.Sprintf("%q is for watches with %s", key, fit), cmp.Or(hints[runs+" "+key], hints[runs]))
		}
	}
}

// checkKind checks the watched kind.
func (c *decoding) checkKind(e *entry) {
	kind := e.watch.GVK
	invalid := "invalid GVK: " + kind.String() + ": "
	if kind.Version == "" && !e.mismatched("version") {
		c.error(e.value("version"), invalid+"version must not be empty", `add "version:", such as v1`)
	}
	if kind.Kind == "" && !e.mismatched("kind") {
		c.error(e.value("kind"), invalid+"kind must not be empty", `add "kind:", such as Memcached`)
	}
	for _, key := range []string{"group", "version", "kind"} {
		if a, given := e.keys[key]; given && strings.Contains(a.node.Value, "/") {
			c.warn(a, fmt.Sprintf("%s cannot contain a slash", key), `write "group:" and "version:" as two keys`)
		}
	}
}

// value returns the place of a key's value, or of the mapping that lacks the key.
func (m mapping) value(key string) at {
	if a, given := m.keys[key]; given {
		return a
	}
	return m.at
}

// mismatched reports whether a key that should hold a string holds something
// else, which has been reported.
func (m mapping) mismatched(key string) bool {
	a, given := m.keys[key]
	return given && a.node.Kind != yaml.ScalarNode
}

func setFinalizer(c *decoding, e *entry, a at) {
	f := &finalizer{mapping: mapping{at: a}, Finalizer: Finalizer{
		Timeout: defaultTimeout, IdleTimeout: defaultIdleTimeout, OnFailure: OnFailureRetry,
	}}
	if f.keys = object(c, a, finalizerFields(), f); f.keys != nil {
		e.finalizer = f
	}
}

// checkFinalizer checks the finalizer of a watch and says what it runs.
func (c *decoding) checkFinalizer(e *entry) *Finalizer {
	f := e.finalizer
	c.checkFinalizerName(f, e.watch.GVK)
	if _, isHandler := e.keys["handler"]; isHandler {
		if f.Content = e.watch.Content; f.handler != "" {
			f.Content.Handler = f.handler
		}
		return &f.Finalizer
	}
	if a, named := f.keys["handler"]; named {
		c.error(a, "the finalizer has a handler, but the watch does not", "remove it, or set handler in the watch too")
		return &f.Finalizer
	}
	_, isCommand := e.keys["command"]
	switch _, named := f.keys["command"]; {
	case named && !isCommand:
		c.error(f.keys["command"], "the watch runs a role or playbook, but its finalizer runs a command", "use a command in both or in neither")
		return &f.Finalizer
	case named:
		f.Content = Content{Command: c.commandOf(f.mapping, e.settings)}
		return &f.Finalizer
	case isCommand:
		f.Content = e.watch.Content
		return &f.Finalizer
	}
	switch {
	case len(f.Vars) == 0:
		f.Content = c.content(f.mapping, Error)
	case f.playbook == "" && f.role == "":
		f.Content = e.watch.Content
	default:
		// ansible-operator does not check the path in this case, so files that have worked
		// so far keep loading; the run will fail.
		f.Content = c.content(f.mapping, c.warning())
	}
	return &f.Finalizer
}

// checkFinalizerName applies the API server's rules: a name that it refuses
// would fail every reconcile.
func (c *decoding) checkFinalizerName(f *finalizer, kind schema.GroupVersionKind) {
	suggestion := fmt.Sprintf("write a name with a domain, such as %s/finalizer", cmp.Or(kind.Group, "example.com"))
	if f.Name == "" {
		if !f.mismatched("name") {
			c.error(f.value("name"), "finalizer must have name", suggestion)
		}
		return
	}
	a := f.keys["name"]
	if problems := validation.IsQualifiedName(f.Name); len(problems) > 0 {
		c.error(a, fmt.Sprintf("the API server refuses the finalizer name %q: %s", excerpt(f.Name), problems[0]), suggestion)
		return
	}
	if !strings.Contains(f.Name, "/") {
		c.warn(a, fmt.Sprintf("the finalizer name %q has no domain; another operator may use the same name", f.Name), suggestion)
	}
}

func setBlacklist(c *decoding, e *entry, a at) {
	e.watch.Blacklist = []schema.GroupVersionKind{}
	c.elements(a, func(element at) {
		var kind schema.GroupVersionKind
		if object(c, element, kindFields(), &kind) == nil {
			return
		}
		if kind.Kind == "" || kind.Version == "" {
			c.warn(element, fmt.Sprintf("%s matches no kind: version and kind must not be empty", kind),
				`add "version:" and "kind:"`)
		}
		e.watch.Blacklist = append(e.watch.Blacklist, kind)
	})
}

// elements calls read for each element of a list. It reports a value that is not a
// list.
func (c *decoding) elements(a at, read func(at)) {
	if a.node.Kind != yaml.SequenceNode {
		c.mismatch(a, typeList)
		return
	}
	for i := range a.node.Content {
		read(a.index(i))
	}
}

func setSecretVars(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		path, ok := c.string(element)
		switch {
		case !ok:
		case slices.Contains(strings.Split(path, "."), ""):
			c.error(element, fmt.Sprintf("%q is not a path to a variable", excerpt(path)), "write keys separated by dots, such as database.password")
		case strings.ContainsAny(path, "[]{}*$"):
			c.error(element, fmt.Sprintf("%q is not a path to a variable", excerpt(path)),
				"write only keys separated by dots: a path includes everything below it, and applies to each element of a list")
		default:
			e.watch.SecretVars = append(e.watch.SecretVars, path)
		}
	})
}

// word reads one of the allowed words.
func word[E any, T ~string](what string, of func(*E) *T, allowed ...T) func(*decoding, *E, at) {
	return func(c *decoding, into *E, a at) {
		if a.node.Kind != yaml.ScalarNode {
			c.mismatch(a, typeString)
			return
		}
		v, err := resolve(a.node)
		word, _ := v.(string)
		if err == nil && slices.Contains(allowed, T(word)) {
			*of(into) = T(word)
			return
		}
		words := make([]string, len(allowed))
		for i, one := range allowed {
			words[i] = string(one)
		}
		last := len(words) - 1
		c.error(a, fmt.Sprintf("%q is not a valid %s", excerpt(a.node.Value), what), "write "+strings.Join(words[:last], ", ")+" or "+words[last])
	}
}

func setMatchLabels(c *decoding, s *metav1.LabelSelector, a at) {
	if a.node.Kind != yaml.MappingNode {
		c.mismatch(a, typeMap)
		return
	}
	s.MatchLabels = map[string]string{}
	for _, p := range pairs(a) {
		if label, ok := c.string(p.value); ok {
			s.MatchLabels[p.key] = label
			c.checkSelector(p.name, metav1.LabelSelector{MatchLabels: map[string]string{p.key: label}})
		}
	}
}

func setMatchExpressions(c *decoding, s *metav1.LabelSelector, a at) {
	c.elements(a, func(element at) {
		var r metav1.LabelSelectorRequirement
		before := len(c.problems)
		if object(c, element, requirementFields(), &r) == nil {
			return
		}
		s.MatchExpressions = append(s.MatchExpressions, r)
		if before == len(c.problems) {
			c.checkSelector(element, metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{r}})
		}
	})
}

func setValues(c *decoding, r *metav1.LabelSelectorRequirement, a at) {
	c.elements(a, func(element at) {
		if value, ok := c.string(element); ok {
			r.Values = append(r.Values, value)
		}
	})
}

// checkSelector checks one condition of a selector, so that a problem is reported
// at the place of the condition.
func (c *decoding) checkSelector(a at, one metav1.LabelSelector) {
	if _, err := metav1.LabelSelectorAsSelector(&one); err != nil {
		hint := "write a label with a value that Kubernetes allows"
		if len(one.MatchExpressions) > 0 {
			hint = "use In or NotIn with values, Exists or DoesNotExist without values"
		}
		c.error(a, "error constructing predicate from watches selector: "+err.Error(), hint)
	}
}
