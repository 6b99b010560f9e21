package watches

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"gopkg.in/yaml.v3"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Webhooks are what the API server does, or asks for, before it accepts an object of the kind.
type Webhooks struct {
	// Validate are rules that objects have to keep.
	Validate []Validation `json:",omitempty"`
	// Mutate are changes that are made to objects, in this order.
	Mutate []Mutation `json:",omitempty"`
	// Conversion says how objects of other versions are converted to the watch's version.
	Conversion []Conversion `json:",omitempty"`
}

// IsZero reports whether there are no rules, mutations and conversions.
func (w Webhooks) IsZero() bool { return len(w.Validate)+len(w.Mutate)+len(w.Conversion) == 0 }

// NeedServer reports whether the API server has to ask the operator.
func (w Webhooks) NeedServer() bool {
	return len(w.Conversion) > 0 || slices.ContainsFunc(w.Validate, func(v Validation) bool { return v.Command != nil }) ||
		slices.ContainsFunc(w.Mutate, func(m Mutation) bool { return m.Command != nil })
}

// Call is a command that answers a request of the API server.
type Call struct {
	// Command is nil if an expression answers.
	Command *Command `json:",omitempty"`
	// Words are the command as written, with variables expanded: the path at which it is found differs between machines.
	Words []string `json:",omitempty"`
	// Timeout is how long the API server waits.
	Timeout time.Duration
	// FailurePolicy says what happens to an object if there is no answer.
	FailurePolicy FailurePolicy
}

// FailurePolicy says what happens to an object if there is no answer. Any value but
// [FailurePolicyIgnore], including the zero value, is [FailurePolicyFail].
type FailurePolicy string

// The values of FailurePolicy.
const (
	// FailurePolicyFail: the object is refused.
	FailurePolicyFail FailurePolicy = "Fail"
	// FailurePolicyIgnore: the object is accepted as it is.
	FailurePolicyIgnore FailurePolicy = "Ignore"
)

// Validation is a rule: an expression or a command.
type Validation struct {
	Call
	// Rule is a CEL expression that is true for objects that are accepted. It compiles.
	Rule string
	// Message is the error for an object that breaks the rule; empty for the rule itself.
	Message string
}

// Mutation is a change: a command or one of the two expressions, which compiles.
type Mutation struct {
	Call
	// Apply is a CEL expression of the type Object: the fields that are set.
	Apply string
	// JSONPatch is a CEL expression that gives a list of JSONPatch.
	JSONPatch string
}

// maxWebhooks bounds validate and mutate of a watch. Each costs time in each request.
const maxWebhooks = 32

func webhookFields() []field[entry] {
	return []field[entry]{
		{Field{"validate", typeList, "[]", false,
			"Rules that are checked when an object is created or its spec changes: CEL expressions or commands."},
			setValidations},
		{Field{"mutate", typeList, "[]", false,
			"Changes that are made, one after the other, when an object is created or its spec changes: CEL expressions or commands."},
			setMutations},
		{Field{"conversion", typeList, "[]", false, "How other versions of the kind are converted to the version of the watch, and back."},
			setConversions},
	}
}

// reading is an element of validate or mutate while it is being read.
type reading struct {
	Validation
	Mutation
	call    Call
	command []string
}

func callFields() []field[reading] {
	return []field[reading]{
		{Field{"command", typeList, "", false,
			"An executable that answers instead of an expression, written like command of the watch. It gets the request as JSON on standard input."},
			setCommand(func(r *reading) *[]string { return &r.command })},
		{Field{"timeout", typeDuration, "5s", false, "How long the API server waits for the command, in whole seconds from 1s to 10s."},
			setCallTimeout},
		{Field{"failurePolicy", typeString, "Fail", false,
			"What happens to an object if the command or the operator does not answer. With Fail, it is refused; with Ignore, it is accepted."},
			word("failure policy", func(r *reading) *FailurePolicy { return &r.call.FailurePolicy }, FailurePolicyFail, FailurePolicyIgnore)},
	}
}

func validationFields() []field[reading] {
	return append([]field[reading]{
		{Field{"rule", typeString, "", false,
			"A CEL expression over object, oldObject, request, namespaceObject and authorizer that is true for objects that are accepted, " +
				"such as object.spec.size <= 5."},
			celField(func(r *reading) *string { return &r.Rule }, cel.BoolType)},
		{Field{"message", typeString, "", false,
			"What the API server answers if the rule is not true; one line. If missing, the answer names the rule."},
			setRuleMessage},
	}, callFields()...)
}

func mutationFields() []field[reading] {
	return append([]field[reading]{
		{Field{"apply", typeString, "", false,
			"A CEL expression that returns the fields to set, such as Object{spec: Object.spec{size: 3}}, or Object{} for none."},
			celField(func(r *reading) *string { return &r.Apply }, (&patch.ApplyConfigurationCondition{}).ReturnTypes()...)},
		{Field{"jsonPatch", typeString, "", false,
			`A CEL expression that returns a list of changes, such as [JSONPatch{op: "add", path: "/spec/size", value: 3}], instead of apply.`},
			celField(func(r *reading) *string { return &r.JSONPatch }, (&patch.JSONPatchCondition{}).ReturnTypes()...)},
	}, callFields()...)
}

func setValidations(c *decoding, e *entry, a at) {
	c.answers(a, validationFields(), func(r reading) {
		r.Validation.Call = r.call
		e.watch.Webhooks.Validate = append(e.watch.Webhooks.Validate, r.Validation)
	}, "rule", "command")
}

func setMutations(c *decoding, e *entry, a at) {
	c.answers(a, mutationFields(), func(r reading) {
		r.Mutation.Call = r.call
		e.watch.Webhooks.Mutate = append(e.watch.Webhooks.Mutate, r.Mutation)
	}, "apply", "jsonPatch", "command")
}

// answers reads what answers the API server. Each element must have one of the keys in one.
func (c *decoding) answers(a at, fields []field[reading], add func(reading), one ...string) {
	c.elements(a, func(element at) {
		r := reading{call: Call{Timeout: defaultCallTimeout, FailurePolicy: FailurePolicyFail}}
		keys := object(c, element, fields, &r)
		if keys == nil {
			return
		}
		given := slices.DeleteFunc(slices.Clone(one), func(key string) bool { _, said := keys[key]; return !said })
		if len(given) != 1 {
			c.error(element, "exactly one of "+strings.Join(one, ", ")+" must be set", "write one of them")
			return
		}
		if given[0] == "command" {
			r.call.Words = r.command
			r.call.Command = c.commandOf(mapping{at: element, keys: keys, command: r.command}, Command{})
		} else {
			r.call = Call{}
		}
		for key, with := range map[string]string{"message": "rule", "timeout": "command", "failurePolicy": "command"} {
			if where, said := keys[key]; said && given[0] != with {
				c.error(where, fmt.Sprintf("%s is only for entries with %s, and this one has %s", key, with, given[0]), "remove it")
			}
		}
		if index := slices.IndexFunc(a.node.Content, func(n *yaml.Node) bool { return n == element.node }); index >= maxWebhooks {
			c.error(element, fmt.Sprintf("there are more than %d entries", maxWebhooks), "merge some into one")
			return
		}
		add(r)
	})
}

// The limits of a command that answers. Users wait for it, and so does the API server.
const (
	defaultCallTimeout = 5 * time.Second
	leastCallTimeout   = time.Second
	mostCallTimeout    = 10 * time.Second
)

func setCallTimeout(c *decoding, r *reading, a at) {
	d, ok := duration(c, a)
	switch {
	case !ok:
	case d < leastCallTimeout || d > mostCallTimeout || d%time.Second != 0:
		c.error(a, fmt.Sprintf("the timeout must be whole seconds, from %s to %s", leastCallTimeout, mostCallTimeout), `write for example "5s"`)
	default:
		r.call.Timeout = d
	}
}

// setRuleMessage reads a message. The API server would refuse a wrong one together with the policy.
func setRuleMessage(c *decoding, r *reading, a at) {
	s, ok := c.string(a)
	switch {
	case !ok:
	case strings.TrimSpace(s) == "" || strings.ContainsAny(s, "\r\n"):
		c.error(a, "the message must be one line of text", "write it in one line")
	default:
		r.Message = s
	}
}

// maxExpression bounds an expression; the API server's own limit is 16 KiB.
const maxExpression = 16 << 10

// celField reads a CEL expression, and compiles it as the API server will.
func celField[T any](of func(*T) *string, result ...*cel.Type) func(*decoding, *T, at) {
	return func(c *decoding, into *T, a at) {
		s, ok := c.string(a)
		switch {
		case !ok:
			return
		case strings.TrimSpace(s) == "":
			c.error(a, "the CEL expression is empty", "write one, or remove the key")
			return
		case len(s) > maxExpression:
			c.error(a, fmt.Sprintf("the CEL expression has more than %d bytes", maxExpression), "split it into several")
			return
		}
		*of(into) = s
		if compiled := c.compiler().CompileCELExpression(typed{s, result}, plugincel.OptionalVariableDeclarations{
			HasAuthorizer: true, HasPatchTypes: result[0] != cel.BoolType,
		}, environment.NewExpressions); compiled.Error != nil {
			c.error(a, "the API server would reject this CEL expression: "+celProblem(compiled.Error.Detail),
				"variables are object, oldObject, request and namespaceObject; has(object.spec.size) tells whether the field is set")
		}
	}
}

// compiler returns the API server's compiler, which most files do not need.
func (c *decoding) compiler() plugincel.Compiler {
	if c.cel == nil {
		c.cel = plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	}
	return c.cel
}

// celProblem returns the first problem, with line and column in the expression.
func celProblem(detail string) string {
	detail = strings.TrimPrefix(detail, "compilation failed: ")
	detail, _, _ = strings.Cut(detail, "\n")
	return strings.TrimPrefix(detail, "ERROR: <input>:")
}

// typed is an expression with the types that it may have.
type typed struct {
	text  string
	types []*cel.Type
}

// GetExpression returns the expression.
func (t typed) GetExpression() string { return t.text }

// ReturnTypes returns the types that the expression may have.
func (t typed) ReturnTypes() []*cel.Type { return t.types }
