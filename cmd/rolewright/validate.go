package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
	"github.com/rolewright/rolewright/runner/syntaxcheck"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// validateOptions are the flags of rolewright validate.
type validateOptions struct {
	strict, syntaxCheck bool
	output, definitions string
	contentPaths
}

// The values of --output.
const (
	outputText = "text"
	outputJSON = "json"
)

func newValidateCommand() *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a watches file and the content that it names, without a cluster",
		Long: `Check a watches file (by default ./watches.yaml) without a cluster: every problem
is printed with its line and column and with what to write instead. Paths,
environment variables and defaults count as they do for "run", so run it where
the operator runs. The playbooks and roles are checked by Ansible itself
(ansible-playbook --syntax-check). Where a CustomResourceDefinition in --crd-dir
keeps fields of the spec that it does not declare, a warning names the variables
of the content that such a field would replace.

The exit code is 0 if the file is valid, with warnings or without, 1 if it is
not, and 2 if it cannot be read.

With -o json one object is printed: file, valid, strict, watches (how many can
be used), errors and warnings (how many), syntaxCheck ("passed", "failed",
"skipped" or "unavailable") and problems, a list of objects with file, line,
column, severity ("error" or "warning"), path (the place in the document, such as
[2].finalizer.name), text, message and hint. Numbers that are not known are 0,
texts that are not known are empty; keys may be added, but are never renamed.`,
		Example: `  rolewright validate
  rolewright validate --strict -o json config/watches.yaml`,
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: onlyFirst(files("yaml", "yml")),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := "watches.yaml"
			if len(args) > 0 {
				file = args[0]
			}
			return o.run(cmd.Context(), file, cmd.OutOrStdout())
		},
	}
	o.bindFlags(cmd.Flags())
	textOrJSON(cmd, &o.output, "result")
	return cmd
}

func (o *validateOptions) bindFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.strict, "strict", false, "Treat warnings as errors.")
	fs.StringVar(&o.definitions, "crd-dir", defaultDefinitions, "A directory with CustomResourceDefinitions.")
	o.contentPaths.bindFlags(fs)
	fs.BoolVar(&o.syntaxCheck, "syntax-check", true, "Let ansible-playbook check the syntax of the playbooks and roles.")
}

// validationReport is the result, as -o json prints it. Its keys are an interface:
// see the help of the command.
type validationReport struct {
	File        string           `json:"file"`
	Valid       bool             `json:"valid"`
	Strict      bool             `json:"strict"`
	Watches     int              `json:"watches"`
	Errors      int              `json:"errors"`
	Warnings    int              `json:"warnings"`
	SyntaxCheck syntaxCheckState `json:"syntaxCheck"`
	// Commands describe the commands of the watches.
	Commands []string          `json:"commands,omitempty"`
	Problems []reportedProblem `json:"problems"`
}

// reportedProblem is a problem in the form of the interface.
type reportedProblem struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"`
	Path     string `json:"path"`
	Text     string `json:"text"`
	Message  string `json:"message"`
	Hint     string `json:"hint"`
}

// syntaxCheckState says what is known about the content's syntax.
type syntaxCheckState string

const (
	syntaxPassed      syntaxCheckState = "passed"
	syntaxFailed      syntaxCheckState = "failed"
	syntaxSkipped     syntaxCheckState = "skipped"
	syntaxUnavailable syntaxCheckState = "unavailable"
)

// run checks the file and prints the result. It returns errInvalid if there is
// an error among the problems.
func (o *validateOptions) run(ctx context.Context, file string, out io.Writer) error {
	watched, problems, err := watches.Load(file, watches.Options{
		LookupEnv: o.lookupEnv,
		Strict:    o.strict,
	})
	if err != nil && len(problems) == 0 {
		return usage(err)
	}
	schemas, err := o.checkSchemas(file, watched)
	if err != nil {
		return err
	}
	problems = append(problems, schemas...)
	state := syntaxSkipped
	if o.syntaxCheck {
		var more []watches.Problem
		if more, state, err = checkSyntax(ctx, file, watched, append(os.Environ(), o.overrides()...)); err != nil {
			return err
		}
		problems = append(problems, more...)
	}
	v := validationReport{File: file, Strict: o.strict, Watches: len(watched), SyntaxCheck: state}
	for _, w := range watched {
		for _, content := range w.Contents() {
			switch c := content.Command; {
			case c != nil && c.Chart != nil:
				v.Commands = append(v.Commands, fmt.Sprintf("%s has releases of the chart %s, made by %s", w.GVK, relative(c.Chart.Dir), c.Path))
			case c != nil:
				v.Commands = append(v.Commands, fmt.Sprintf("%s runs %s in %s", w.GVK, strings.Join(append([]string{c.Path}, c.Args...), " "), c.Dir))
			}
		}
	}
	v.Errors, v.Warnings = watches.Count(problems)
	v.Valid = v.Errors == 0
	if o.output == outputJSON {
		err = v.printJSON(out, problems)
	} else {
		err = v.printText(out, problems)
	}
	if err != nil || v.Valid {
		return err
	}
	if _, err := os.ReadFile(file); err != nil {
		return usage(errInvalid)
	}
	return errInvalid
}

func (v validationReport) printText(out io.Writer, problems []watches.Problem) error {
	var b strings.Builder
	for _, p := range problems {
		b.WriteString(p.String() + "\n")
	}
	if v.Valid {
		fmt.Fprintf(&b, "%s is valid: %s", v.File, counted(v.Watches, "watch", "watches"))
		if v.Warnings > 0 {
			b.WriteString(", " + watches.Summary(problems))
		}
		if v.SyntaxCheck == syntaxSkipped && v.Watches > 0 {
			b.WriteString(" (syntax of the content not checked)")
		}
		b.WriteString("\n")
		for _, c := range v.Commands {
			b.WriteString(c + "\n")
		}
	} else {
		fmt.Fprintf(&b, "%s in %s\n", watches.Summary(problems), v.File)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (v validationReport) printJSON(out io.Writer, problems []watches.Problem) error {
	v.Problems = []reportedProblem{} // never null
	for _, p := range problems {
		v.Problems = append(v.Problems, reportedProblem{
			File: p.File, Line: p.Pos.Line, Column: p.Pos.Column, Severity: string(p.Severity),
			Path: p.Path, Text: p.Text, Message: p.Message, Hint: p.Hint,
		})
	}
	return printJSON(out, v)
}

func printJSON(out io.Writer, result any) error {
	text, err := plainJSON(result)
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

// plainJSON encodes a value as JSON. It also escapes characters that JSON allows, but that control a terminal
// or that YAML refuses.
func plainJSON(value any) ([]byte, error) {
	var plain, escaped bytes.Buffer
	encoder := json.NewEncoder(&plain)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	for _, r := range plain.String() {
		if plaintext.Unwanted(r) || r == '\ufffe' || r == '\uffff' {
			fmt.Fprintf(&escaped, "\\u%04x", r)
		} else {
			escaped.WriteRune(r)
		}
	}
	return escaped.Bytes(), nil
}

// usedContent is a playbook or role and the first watch that names it.
type usedContent struct {
	content watches.Content
	user    watches.Watch
}

// contents lists the roles and playbooks that the watches run, each once. It leaves out what does not exist, which has
// been reported.
func contents(watched []watches.Watch) []usedContent {
	var list []usedContent
	add := func(content watches.Content, user watches.Watch) {
		known := slices.ContainsFunc(list, func(u usedContent) bool { return u.content == content })
		if _, err := os.Stat(content.Playbook + content.Role); err == nil && !known {
			list = append(list, usedContent{content, user})
		}
	}
	for _, w := range watched {
		add(w.Content, w)
		if w.Finalizer != nil {
			add(w.Finalizer.Content, w)
		}
	}
	return list
}

// checkSyntax lets Ansible check everything that the watches run, several at a
// time. An error means that the answer is not known.
func checkSyntax(ctx context.Context, file string, watched []watches.Watch, environ []string) ([]watches.Problem, syntaxCheckState, error) {
	list := contents(watched)
	if len(list) == 0 {
		return nil, syntaxSkipped, nil
	}
	errs := make([]error, len(list))
	places := make(chan struct{}, max(1, runtime.NumCPU()))
	var wg sync.WaitGroup
	for i, u := range list {
		wg.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			errs[i] = syntaxcheck.Check(ctx, runner.Content{Playbook: u.content.Playbook, Role: u.content.Role}, environ)
		})
	}
	wg.Wait()

	var problems []watches.Problem
	state := syntaxPassed
	for i, err := range errs {
		var found *syntaxcheck.Error
		switch {
		case err == nil:
		case errors.Is(err, runner.ErrUnavailable):
			return []watches.Problem{{
				File: file, Severity: watches.Error,
				Message: "the syntax of the playbooks and roles was not checked: " + err.Error(),
				Hint:    "install ansible-core, or leave the check out with --syntax-check=false",
			}}, syntaxUnavailable, nil
		case errors.As(err, &found):
			state = syntaxFailed
			problems = append(problems, syntaxProblem(file, list[i].user, found))
		default:
			return nil, "", err
		}
	}
	return problems, state, nil
}

// syntaxProblem reports a mistake at its place in the content, and says which
// watch uses that content.
func syntaxProblem(file string, user watches.Watch, found *syntaxcheck.Error) watches.Problem {
	return watches.Problem{
		File:     relative(found.File),
		Pos:      watches.Position{Line: found.Line, Column: found.Column},
		Severity: watches.Error,
		Message:  found.Message,
		Hint:     fmt.Sprintf("used by the watch of %s in %s:%d", user.GVK, file, user.Pos.Line),
	}
}

// relative returns the path relative to the working directory, if it is below.
func relative(path string) string {
	dir, err := os.Getwd()
	if err != nil {
		return path
	}
	if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}
