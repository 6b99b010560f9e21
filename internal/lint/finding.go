// Package lint compares the parts of an operator's project with each other: watches,
// roles, argument specs, CRDs, samples, permissions, requirements. It reads files only.
package lint

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
	// Note is for findings that require no action.
	Note Severity = "note"
)

// Finding is an inconsistency.
type Finding struct {
	// Rule is the ID of the rule, such as RW103: see [Rules].
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// File is relative to the project. Line and Column begin at 1; 0 means not known.
	File   string `json:"file"`
	Line   int    `json:"line"`
	Column int    `json:"column"`
	// Message says what is wrong. Hint says what to do; it may be empty.
	Message string `json:"message"`
	Hint    string `json:"hint"`
}

// String renders the finding as compilers do.
func (f Finding) String() string {
	place := f.File
	for _, n := range []int{f.Line, f.Column} {
		if n == 0 {
			break
		}
		place += fmt.Sprintf(":%d", n)
	}
	text := fmt.Sprintf("%s: %s: %s [%s]", place, f.Severity, f.Message, f.Rule)
	if f.Hint != "" {
		text += "\n    " + f.Hint
	}
	return text
}

// Sort sorts findings by their places, and removes duplicates.
func Sort(all []Finding) []Finding {
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
	return slices.Compact(all)
}

// Rule explains the findings of one ID.
type Rule struct {
	ID, Title string
	// Text says why the rule matters, and what to do.
	Text string
}

// The IDs of the rules.
const (
	Watches       = "RW001"
	Syntax        = "RW002"
	NoDefinition  = "RW101"
	NoStatus      = "RW102"
	Stale         = "RW103"
	KeepsUnknown  = "RW104"
	Contradiction = "RW201"
	Undocumented  = "RW202"
	NotInSchema   = "RW203"
	Unused        = "RW204"
	Reserved      = "RW205"
	BadSample     = "RW301"
	Denied        = "RW401"
	NotKnown      = "RW402"
	NoJobURL      = "RW403"
	NotRequired   = "RW501"
)

// Rules returns all rules, by their IDs.
func Rules() []Rule {
	return []Rule{
		{Watches, "watches.yaml is invalid", "The operator does not start, or does not do what the line seems to say. \"rolewright validate\" finds the same."},
		{Syntax, "Ansible cannot read a role or playbook", "Each run of the kind would fail. The message is that of ansible-playbook --syntax-check."},
		{NoDefinition, "a watched kind has no CRD in the project", "Without its CustomResourceDefinition the operator waits, and no object can be created. \"rolewright generate crd\" writes it. Ignore this finding if the CRD comes from elsewhere."},
		{NoStatus, "a CRD has no status subresource", "The operator then writes no status: no Ready condition, no failed task. Add \"subresources: {status: {}}\" to the version, or say manageStatus: false in watches.yaml."},
		{Stale, "a CRD does not match the role", "The argument spec or the CRD was changed. The API server silently drops a field that the CRD does not have, and the role gets its default. \"rolewright generate crd\" brings the CRD up to date and keeps manual changes."},
		{KeepsUnknown, "objects can replace variables of the role", "The schema keeps fields that it does not declare, and each field of a spec becomes an extra var, which wins over the role's own variables. Anyone who may write an object can change them. Declare the fields, and remove x-kubernetes-preserve-unknown-fields."},
		{Contradiction, "an argument spec contradicts the defaults", "Users do not get what the argument spec and the CRD say: Ansible uses the value in defaults/main.yml, and fails if the argument spec does not allow it."},
		{Undocumented, "a default has no argument spec", "The variable is not a field of the CRD, so no object can set it. Add an option to meta/argument_specs.yml, or begin its name with _ to say that it is the role's own."},
		{NotInSchema, "the CRD cannot say all that the argument spec says about an option", "Only Ansible checks what the schema cannot say, when the object runs."},
		{Unused, "nothing reads an option", "People set the field, and nothing happens: the name is in no task, template or default of the role. Use it, or remove it from the argument spec and from the CRD. Roles that run other roles are not checked."},
		{Reserved, "an option has a name that Ansible reserves", "A field of that name never becomes a variable, since it would change how Ansible works: the role gets its default. Give the option another name."},
		{BadSample, "a sample is not valid", "The API server would refuse it, or remove the field. CEL rules are not checked here: \"rolewright test\" applies the samples to an API server."},
		{Denied, "the operator lacks a permission", "The task would fail with \"forbidden\". \"rolewright generate rbac --output config/rbac/role.yaml\" writes what the tasks need."},
		{NotKnown, "what a task requests is not known", "The kind is an expression, or it is a command, a chart or a module of your own. List what it needs in a comment (\"rolewright generate rbac --help\"), or record it."},
		{NoJobURL, "runs as Jobs lack what they need", "A watch says executor: job, but the flag --job-url is missing, by which Pods of runs reach the operator: without it, the operator exits at start. \"rolewright generate manifests\" writes config/jobs and the flag. Ignore this finding if a chart with jobs.enabled installs the operator."},
		{NotRequired, "a collection is not in requirements.yml", "The image is built with the collections of requirements.yml: where this one is missing, Ansible does not find the module."},
	}
}

// Explain returns the text about one of the rules; the error lists the known rules.
func Explain(rules []Rule, id string) (string, error) {
	var known []string
	for _, r := range rules {
		if strings.EqualFold(r.ID, id) {
			return fmt.Sprintf("%s: %s\n\n%s\n", r.ID, r.Title, r.Text), nil
		}
		known = append(known, r.ID)
	}
	slices.Sort(known)
	return "", fmt.Errorf("there is no rule %.20q; the rules are %s", id, strings.Join(known, ", "))
}
