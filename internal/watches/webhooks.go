package watches

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Webhooks are what the API server asks for before it takes an object of the kind.
type Webhooks struct {
	// Validate are rules that objects have to keep.
	Validate []Validation `json:",omitempty"`
	// Mutate are changes that are made of objects, in this order.
	Mutate []Mutation `json:",omitempty"`
}

// IsZero reports whether the API server asks for nothing.
func (w Webhooks) IsZero() bool { return len(w.Validate)+len(w.Mutate) == 0 }

// Validation is a rule.
type Validation struct {
	// Rule is a CEL expression that is true for what is taken. It compiles.
	Rule string
	// Message is what is said of an object that breaks it; empty for the rule itself.
	Message string
}

// Mutation is a change: one of the expressions is set, and compiles.
type Mutation struct {
	// Apply is a CEL expression of the type Object: the fields that are set.
	Apply string
	// JSONPatch is a CEL expression of a list of JSONPatch.
	JSONPatch string
}

// maxWebhooks bounds validate and mutate of a watch. Each costs time in each request.
const maxWebhooks = 32

func webhookFields() []field[entry] {
	return []field[entry]{
		{Field{"validate", typeList, "[]", false, "Rules in CEL that the API server checks when an object is created or its spec changes."},
			setValidations},
		{Field{"mutate", typeList, "[]", false, "Changes in CEL that the API server makes, one after the other, when an object is created or its spec changes."},
			setMutations},
	}
}

func validationFields() []field[Validation] {
	return []field[Validation]{
		{Field{"rule", typeString, "", true, "A CEL expression over object, oldObject, request and namespaceObject that is true for what is taken, such as object.spec.size <= 5."},
			celField(func(v *Validation) *string { return &v.Rule }, cel.BoolType)},
		{Field{"message", typeString, "", false, "What the API server answers where it is not true; one line. The rule itself if it is missing."},
			setRuleMessage},
	}
}

func mutationFields() []field[Mutation] {
	return []field[Mutation]{
		{Field{"apply", typeString, "", false, "A CEL expression with the fields to set, such as Object{spec: Object.spec{size: 3}}; Object{} for none."},
			celField(func(m *Mutation) *string { return &m.Apply }, (&patch.ApplyConfigurationCondition{}).ReturnTypes()...)},
		{Field{"jsonPatch", typeString, "", false, `A CEL expression with a list of changes, such as [JSONPatch{op: "add", path: "/spec/size", value: 3}], in place of apply.`},
			celField(func(m *Mutation) *string { return &m.JSONPatch }, (&patch.JSONPatchCondition{}).ReturnTypes()...)},
	}
}

func setValidations(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		var v Validation
		keys := object(c, element, validationFields(), &v)
		if _, said := keys["rule"]; keys != nil && !said {
			c.error(element, "a validation must have rule", `write a CEL expression, such as rule: object.spec.size <= 5`)
		}
		if len(e.watch.Webhooks.Validate) == maxWebhooks {
			c.error(element, fmt.Sprintf("there are more than %d validations", maxWebhooks), "join rules with &&")
			return
		}
		e.watch.Webhooks.Validate = append(e.watch.Webhooks.Validate, v)
	})
}

func setMutations(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		var m Mutation
		keys := object(c, element, mutationFields(), &m)
		if keys != nil && len(keys) != 1 {
			c.error(element, "a mutation must have one of apply and jsonPatch", "write one of the two")
		}
		if len(e.watch.Webhooks.Mutate) == maxWebhooks {
			c.error(element, fmt.Sprintf("there are more than %d mutations", maxWebhooks), "join those of apply into one")
			return
		}
		e.watch.Webhooks.Mutate = append(e.watch.Webhooks.Mutate, m)
	})
}

// setRuleMessage reads what the API server would refuse, and take the policy with it.
func setRuleMessage(c *decoding, v *Validation, a at) {
	s, ok := c.string(a)
	switch {
	case !ok:
	case strings.TrimSpace(s) == "" || strings.ContainsAny(s, "\r\n"):
		c.error(a, "a message is one line of text", "write it in one line")
	default:
		v.Message = s
	}
}

// maxExpression bounds an expression; the API server's own limit is 16 KiB.
const maxExpression = 16 << 10

// celField reads CEL, compiled as the API server will do it.
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
			c.error(a, fmt.Sprintf("the CEL expression has more than %d bytes", maxExpression), "write several")
			return
		}
		*of(into) = s
		if compiled := c.compiler().CompileCELExpression(typed{s, result}, plugincel.OptionalVariableDeclarations{
			HasAuthorizer: true, HasPatchTypes: result[0] != cel.BoolType,
		}, environment.NewExpressions); compiled.Error != nil {
			c.error(a, "no CEL expression that the API server takes: "+celProblem(compiled.Error.Detail),
				"variables are object, oldObject, request and namespaceObject; has(object.spec.size) tells whether a field is there")
		}
	}
}

// compiler is the API server's. Most files need none.
func (c *decoding) compiler() plugincel.Compiler {
	if c.cel == nil {
		c.cel = plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	}
	return c.cel
}

// celProblem is the first problem, with line and column in the expression.
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

// GetExpression is the expression.
func (t typed) GetExpression() string { return t.text }

// ReturnTypes are its types.
func (t typed) ReturnTypes() []*cel.Type { return t.types }
