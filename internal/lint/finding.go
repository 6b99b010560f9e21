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
		{Watches, "watches.yaml is not right", "The operator does not start, or does not do what the line seems to say. \"rolewright validate\" finds the same."},
		{Syntax, "Ansible cannot read a role or playbook", "Each run of the kind would fail. It is what ansible-playbook --syntax-check says."},
		{NoDefinition, "a watched kind has no CRD in the project", "Without its CustomResourceDefinition the operator waits, and no object can be created. \"rolewright generate crd\" writes it. If the CRD comes from elsewhere, the finding is of no concern."},
		{NoStatus, "a CRD has no status subresource", "The operator then writes no status: no Ready condition, no failed task. Add \"subresources: {status: {}}\" to the version, or say manageStatus: false in watches.yaml."},
		{Stale, "a CRD is not what the role says", "The argument spec has changed, or the CRD was. A field that the CRD does not have is removed by the API server without a word, and the role gets its default. \"rolewright generate crd\" brings it up to date and keeps what is written by hand."},
		{KeepsUnknown, "objects can replace variables of the role", "The schema keeps fields that it does not declare, and each field of a spec becomes an extra var, which wins over the role's own variables. Who may write an object can change them. Declare the fields, and take x-kubernetes-preserve-unknown-fields away."},
		{Contradiction, "an argument spec contradicts the defaults", "What people read in the argument spec and in the CRD is not what they get: Ansible takes the value of defaults/main.yml, and refuses one that the argument spec does not allow."},
		{Undocumented, "a default has no argument spec", "The variable is not a field of the CRD, so no object can set it. Add an option to meta/argument_specs.yml, or begin its name with _ to say that it is the role's own."},
		{NotInSchema, "an option is not in the CRD as it is in the argument spec", "What the schema cannot say is checked by Ansible only, when the object runs."},
		{Unused, "nothing reads an option", "People set the field, and nothing happens: the name is in no task, template or default of the role. Use it, or remove it from the argument spec and from the CRD. Roles that run other roles are not looked at."},
		{Reserved, "an option has a name that Ansible reserves", "A field of that name never becomes a variable, since it would change how Ansible works: the role gets its default. Give the option another name."},
		{BadSample, "a sample is not valid", "The API server would refuse it, or remove the field. CEL rules are not checked here: \"rolewright test\" applies the samples to an API server."},
		{Denied, "the operator lacks a permission", "The task would fail with \"forbidden\". \"rolewright generate rbac --output config/rbac/role.yaml\" writes what the tasks need."},
		{NotKnown, "what a task requests is not known", "The kind is an expression, or it is a command, a chart or a module of your own. List what it needs in a comment (\"rolewright generate rbac --help\"), or record it."},
		{NoJobURL, "runs as Jobs lack what they need", "A watch says executor: job, and the operator ends at its start without the flag --job-url, by which Pods of runs find it. \"rolewright generate manifests\" writes config/jobs and the flag. If a chart with jobs.enabled installs the operator, the finding is of no concern."},
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
