package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/controller/extravars"
	"github.com/rolewright/rolewright/internal/lint"
	"github.com/rolewright/rolewright/internal/rbac"
	"github.com/rolewright/rolewright/internal/scaffold"
	"github.com/rolewright/rolewright/internal/version"
	"github.com/rolewright/rolewright/internal/watches"
)

// lintOptions are the flags of lint.
type lintOptions struct {
	contentPaths

	file, output        string
	strict, syntaxCheck bool
}

// The values of lint's --output, in addition to those of other commands.
const (
	outputSARIF  = "sarif"
	outputGitHub = "github"
)

func newLintCommand() *cobra.Command {
	var o lintOptions
	cmd := &cobra.Command{
		Use:   "lint",
		Short: "Check whether watches, roles, CRDs, samples and permissions agree, without a cluster",
		Long: `Compare watches.yaml, roles, argument specs, CRDs, samples, permissions and
requirements.yml with each other. Each finding says where it is, what to do, and the ID
of its rule: "rolewright explain RW103" says more. The findings include all that
"rolewright validate" finds.

The exit code is 1 if there is an error, with --strict also if there is a warning, and 2
if there is no watches file. -o sarif prints SARIF for code scanning. -o github prints
workflow commands that annotate a pull request; it is the default if GITHUB_ACTIONS is
true.`,
		Example: `  rolewright lint
  rolewright lint -o sarif > rolewright.sarif`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("output") && os.Getenv("GITHUB_ACTIONS") == "true" {
				o.output = outputGitHub
			}
			return o.run(cmd)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&o.file, "watches-file", "./watches.yaml", "The file that says which kinds are watched.")
	fs.StringVarP(&o.output, "output", "o", outputText, "How to print the findings: text, json, sarif or github.")
	fs.BoolVar(&o.strict, "strict", false, "Fail on warnings, too.")
	fs.BoolVar(&o.syntaxCheck, "syntax-check", true, "Let ansible-playbook check the syntax of the playbooks and roles.")
	o.contentPaths.bindFlags(fs)
	oneOf(cmd, "output", outputText, outputJSON, outputSARIF, outputGitHub)
	return cmd
}

func (o *lintOptions) run(cmd *cobra.Command) error {
	o.file = filepath.Clean(o.file)
	found, checked, err := o.findings(cmd.Context())
	if err != nil {
		return usage(err)
	}
	found = lint.Sort(found)
	out := cmd.OutOrStdout()
	switch o.output {
	case outputJSON:
		err = printJSON(out, map[string]any{"findings": append([]lint.Finding{}, found...)})
	case outputSARIF:
		err = lint.SARIF(out, lint.Rules(), found, version.Read().Version)
	case outputGitHub:
		err = lint.GitHub(out, found)
	default:
		for _, f := range found {
			fmt.Fprintln(out, f)
		}
	}
	if err != nil {
		return err
	}
	bad := slices.ContainsFunc(found, func(f lint.Finding) bool { return f.Severity == lint.Error || o.strict })
	fmt.Fprintf(cmd.ErrOrStderr(), "%s in %s\n", counted(len(found), "finding", "findings"), checked)
	if _, err := os.Stat(o.file); err != nil {
		return usage(errInvalid)
	}
	if bad {
		return errInvalid
	}
	return nil
}

// findings compares everything, and says what it has checked. An error is about a
// file that cannot be read.
func (o *lintOptions) findings(ctx context.Context) (found []lint.Finding, checked string, err error) {
	watched, problems, err := watches.Load(o.file, watches.Options{LookupEnv: o.lookupEnv})
	if err != nil && len(problems) == 0 {
		return nil, "", err
	}
	found = ofProblems(lint.Watches, problems)
	definitions, err := lint.ReadDefinitions(globbed(kindDefinitions))
	if err != nil {
		return nil, "", err
	}
	samples := slices.DeleteFunc(globbed("config/samples/*.y*ml"), func(p string) bool { return strings.HasPrefix(filepath.Base(p), "kustomization.") })
	checked = counted(len(watched), "watch", "watches") + ", " + counted(len(definitions), "version of a CRD", "versions of CRDs") + ", " + counted(len(samples), "sample", "samples")
	for _, w := range watched {
		builtin, err := rbac.IsBuiltin(w.GVK.GroupKind())
		if err != nil {
			return nil, "", err
		}
		if d, ok := definitions[w.GVK]; !ok && !builtin {
			found = append(found, lint.Finding{
				Rule: lint.NoDefinition, Severity: lint.Warning, File: relative(o.file), Line: w.Pos.Line, Column: w.Pos.Column,
				Message: fmt.Sprintf("no CRD in %s defines %s", kindDefinitions, w.GVK), Hint: "rolewright generate crd",
			})
		} else if ok && w.ManageStatus && !d.HasStatus {
			found = append(found, lint.Finding{
				Rule: lint.NoStatus, Severity: lint.Warning, File: d.File, Line: d.Line,
				Message: "the version has no status subresource: no status is written", Hint: "add subresources: {status: {}}",
			})
		}
	}
	for _, part := range []func(context.Context, []watches.Watch) ([]lint.Finding, error){o.ofSchemas, o.ofSyntax, o.ofRoles, o.ofPermissions, o.ofJobs} {
		more, err := part(ctx, watched)
		if err != nil {
			return nil, "", err
		}
		found = append(found, more...)
	}
	for _, path := range samples {
		more, err := lint.Sample(path, definitions)
		if err != nil {
			return nil, "", err
		}
		found = append(found, more...)
	}
	return found, checked, nil
}

func ofProblems(rule string, problems []watches.Problem) []lint.Finding {
	var found []lint.Finding
	for _, p := range problems {
		message := p.Message
		if p.Path != "" {
			message = p.Path + ": " + message
		}
		found = append(found, lint.Finding{
			Rule: rule, Severity: lint.Severity(p.Severity), File: relative(p.File), Line: p.Pos.Line, Column: p.Pos.Column, Message: message, Hint: p.Hint,
		})
	}
	return found
}

// ofSchemas warns of schemas that let objects replace variables of the content.
func (o *lintOptions) ofSchemas(_ context.Context, watched []watches.Watch) ([]lint.Finding, error) {
	v := validateOptions{definitions: defaultDefinitions, contentPaths: o.contentPaths}
	problems, err := v.checkSchemas(o.file, watched)
	return ofProblems(lint.KeepsUnknown, problems), err
}

// ofSyntax returns what Ansible finds in the content.
func (o *lintOptions) ofSyntax(ctx context.Context, watched []watches.Watch) ([]lint.Finding, error) {
	if !o.syntaxCheck {
		return nil, nil
	}
	problems, _, err := checkSyntax(ctx, o.file, watched, append(os.Environ(), o.overrides()...))
	return ofProblems(lint.Syntax, problems), err
}

// ofRoles compares roles with their argument specs, CRDs and requirements.
func (o *lintOptions) ofRoles(_ context.Context, watched []watches.Watch) ([]lint.Finding, error) {
	var found []lint.Finding
	p, err := scaffold.Read(".")
	ours := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	compared := map[schema.GroupVersionKind]bool{} // by "generate crd", with the first watch that says what the spec is
	for _, w := range watched {
		if ours && !compared[w.GVK] {
			more, done, err := ofDefinition(p, w)
			if err != nil {
				return nil, err
			}
			found, compared[w.GVK] = append(found, more...), done
		}
	}
	for _, w := range watched {
		more, err := ofOptions(w)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	for _, used := range contents(watched) {
		path := used.content.Role + used.content.Playbook
		if role := roleOf(used.content); role != "" {
			mismatches, err := scaffold.Mismatches(role)
			if err != nil {
				return nil, err
			}
			for _, m := range mismatches {
				f := lint.Finding{Rule: lint.Contradiction, Severity: lint.Error, File: relative(m.File), Line: m.Line, Message: m.Message, Hint: "change one of them"}
				if m.Undocumented {
					f.Rule, f.Severity, f.Hint = lint.Undocumented, lint.Warning, "add it to meta/argument_specs.yml, or begin its name with _"
				}
				found = append(found, f)
			}
		}
		more, err := lint.Collections(path, "requirements.yml")
		if err != nil {
			return nil, err
		}
		for i := range more {
			more[i].File = relative(more[i].File)
		}
		found = append(found, more...)
	}
	return found, nil
}

// ofDefinition compares the CRD of a watch with its role. compared is false if nothing says what the spec is.
func ofDefinition(p scaffold.Project, w watches.Watch) (found []lint.Finding, compared bool, err error) {
	if !w.Content.Ansible() { // the CRD has no role to be compared with; that of a chart is made from its values
		return nil, w.Content.Command != nil && w.Content.Command.Chart != nil, nil
	}
	d, err := scaffold.DefinitionOf(".", p, w, "", extravars.ToSnake)
	if errors.Is(err, scaffold.ErrSeveral) {
		return []lint.Finding{{
			Rule: lint.Stale, Severity: lint.Warning, File: d.File.Path, Message: w.GVK.Kind + ": " + scaffold.ErrSeveral.Error() + ", and is not compared with its role",
			Hint: "give each a file of its own in config/crd/bases",
		}}, true, nil
	} else if err != nil {
		return nil, false, err
	}
	for _, n := range d.Notes {
		found = append(found, lint.Finding{
			Rule: lint.NotInSchema, Severity: lint.Warning, File: relative(w.Content.Role + w.Content.Playbook), Message: n,
			Hint: "change the argument spec, the defaults or the CRD, so that they agree",
		})
	}
	there, err := os.ReadFile(d.File.Path)
	if err == nil && string(there) != d.File.Text {
		f := lint.Finding{
			Rule: lint.Stale, Severity: lint.Error, File: d.File.Path, Line: firstDifference(string(there), d.File.Text),
			Message: "the CRD does not match the role's argument spec or defaults", Hint: "rolewright generate crd",
		}
		if len(d.Breaks) > 0 {
			f.Hint += " --allow-breaking, because existing objects may violate it: " + strings.Join(d.Breaks, "; ")
		}
		if d.WasOpen && len(d.Guessed) > 0 { // for example in a project of operator-sdk, whose CRD accepts any spec
			f.Severity = lint.Warning
			f.Hint = "rolewright generate argspec, and add to the argument spec the fields without a default that objects set: the API server drops fields that the CRD does not have; then " + f.Hint
		}
		found = append(found, f)
	}
	return found, d.File.Path != "", nil
}

// roleOf returns the role that is run, or that a playbook runs first; empty if there is none.
func roleOf(c watches.Content) string {
	if c.Role != "" {
		return c.Role
	}
	role, err := scaffold.RoleOf(c.Playbook)
	if err != nil {
		return "" // it is missing or not YAML, which is reported already
	}
	return role
}

// ofOptions returns the options of a watch's role that have no effect.
func ofOptions(w watches.Watch) ([]lint.Finding, error) {
	role := roleOf(w.Content)
	if role == "" {
		return nil, nil
	}
	options, err := scaffold.SpecOptions(role)
	if err != nil {
		return nil, err
	}
	var found []lint.Finding
	for _, o := range options {
		f := lint.Finding{Severity: lint.Warning, File: relative(o.File), Line: o.Line}
		switch {
		case extravars.Reserved(o.Name) && !w.AllowReservedVariables:
			f.Rule, f.Severity = lint.Reserved, lint.Error
			f.Message, f.Hint = o.Name+" is a name that Ansible reserves: no object can set it", "give the option another name"
		case o.Unused && w.Content.Role != "": // a playbook may read it
			f.Rule = lint.Unused
			f.Message, f.Hint = "nothing in the role reads "+o.Name, "use it in a task or template, or remove it"
		default:
			continue
		}
		found = append(found, f)
	}
	return found, nil
}

// firstDifference returns the number of the first line in which two texts differ.
func firstDifference(a, b string) int {
	as, bs := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(as), len(bs)) {
		if as[i] != bs[i] {
			return i + 1
		}
	}
	return min(len(as), len(bs))
}

// ofPermissions compares what the tasks request with config/rbac/role.yaml.
func (o *lintOptions) ofPermissions(ctx context.Context, _ []watches.Watch) ([]lint.Finding, error) {
	if _, err := os.Stat(rulesFile); err != nil {
		return nil, nil //nolint:nilerr // the permissions come from elsewhere
	}
	g := generateRBACOptions{watchesFile: o.file, definitions: defaultDefinitions, scan: true, offline: true, injectOwnerRef: true, contentPaths: o.contentPaths}
	needs, gaps, err := g.generate(ctx, io.Discard)
	if err != nil {
		return nil, nil //nolint:nilerr // watches.yaml or the syntax is wrong, which is found already
	}
	found, err := lint.Permissions(rulesFile, needs.Rules())
	for _, gap := range gaps {
		found = append(found, lint.Finding{
			Rule: lint.NotKnown, Severity: lint.Warning, File: gap.File, Line: gap.Line, Message: "not known: " + gap.What,
			Hint: `list what it needs in a comment of the task, or of the chart's Chart.yaml, such as "# rolewright:rbac apps deployments get,patch"`,
		})
	}
	return found, err
}

// ofJobs returns what config lacks for runs as Jobs.
func (o *lintOptions) ofJobs(_ context.Context, watched []watches.Watch) ([]lint.Finding, error) {
	if !exists("config/manager") {
		return nil, nil // the manifests come from elsewhere
	}
	set, err := scaffold.JobURLs(".")
	if err != nil || len(set) > 0 {
		return nil, err
	}
	var found []lint.Finding
	for _, w := range watched {
		if w.Executor == watches.ExecutorJob {
			found = append(found, lint.Finding{
				Rule: lint.NoJobURL, Severity: lint.Warning, File: relative(o.file), Line: w.Pos.Line, Column: w.Pos.Column,
				Message: fmt.Sprintf("%s says executor: job, and no file in config sets --job-url: the operator does not start", w.GVK.Kind),
				Hint:    "rolewright generate manifests, which writes config/jobs and the flag",
			})
		}
	}
	return found, nil
}
