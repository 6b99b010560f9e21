package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rolewright/rolewright/internal/scaffold"
)

// filesOptions are the flags of the commands that write files of a project.
type filesOptions struct {
	force  bool
	output string
	// stdout gets what was done, and stderr everything else.
	stdout, stderr io.Writer
}

// bindOutput adds the flag --output.
func (o *filesOptions) bindOutput(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.output, "output", "o", outputText, "How to print what was done: text or json.")
	oneOf(cmd, "output", outputText, outputJSON)
}

// start makes the command's outputs those of o.
func (o *filesOptions) start(cmd *cobra.Command) {
	o.stdout, o.stderr = cmd.OutOrStdout(), cmd.ErrOrStderr()
}

// filesJSON is the result of -o json. Its keys are an interface.
type filesJSON struct {
	Files []fileJSON `json:"files"`
	Notes []string   `json:"notes"`
}

// fileJSON is a file of a project.
type fileJSON struct {
	Path string `json:"path"`
	// Did is created, changed or unchanged. It is differs, with the diff, if nothing was written
	// because of that difference; and missing with --check.
	Did  string `json:"did"`
	Diff string `json:"diff,omitempty"`
}

// write writes the files into this directory, all or none, and prints what it did. next
// says what people do afterwards.
func (o *filesOptions) write(files []scaffold.File, notes []string, next string) error {
	changes, err := scaffold.Write(".", files, o.force)
	if different := differing(err); len(different) > 0 {
		if err := o.print(ofDiffering(different), notes); err != nil {
			return err
		}
		return usage(fmt.Errorf("%s, and %s: %s\nnothing was written; use --force to overwrite",
			counted(len(different), "file exists", "files exist"), differ(len(different)), strings.Join(pathsOf(different), ", ")))
	}
	if err != nil {
		return usage(err)
	}
	var all []fileJSON
	same := true
	for _, c := range changes {
		all = append(all, fileJSON{Path: c.Path, Did: c.Did})
		same = same && c.Did == "unchanged"
	}
	if err := o.print(all, notes); err != nil {
		return err
	}
	if same {
		fmt.Fprintln(o.stderr, "nothing to do: all files are up to date")
	} else if next != "" {
		fmt.Fprintln(o.stderr, next)
	}
	return nil
}

// check writes nothing, and fails if a file's text differs. remedy is what brings
// the files up to date.
func (o *filesOptions) check(files []scaffold.File, notes []string, remedy string) error {
	var all []fileJSON
	var stale []string
	for _, f := range files {
		there, err := os.ReadFile(f.Path)
		switch {
		case errors.Is(err, os.ErrNotExist):
			all = append(all, fileJSON{Path: f.Path, Did: "missing"})
		case err != nil:
			return usage(err)
		case string(there) != f.Text:
			all = append(all, ofDiffering([]*scaffold.Differs{{Path: f.Path, Old: string(there), Text: f.Text}})...)
		default:
			all = append(all, fileJSON{Path: f.Path, Did: "unchanged"})
			continue
		}
		stale = append(stale, f.Path)
	}
	if err := o.print(all, notes); err != nil {
		return err
	}
	if len(stale) > 0 {
		return fmt.Errorf("not up to date: %s; %s", strings.Join(stale, ", "), remedy)
	}
	return nil
}

// print prints the files with their diffs, and the notes.
func (o *filesOptions) print(files []fileJSON, notes []string) error {
	if o.output == outputJSON {
		return printJSON(o.stdout, filesJSON{Files: append([]fileJSON{}, files...), Notes: append([]string{}, notes...)})
	}
	for _, n := range notes {
		fmt.Fprintln(o.stderr, "note:", n)
	}
	for _, f := range files {
		switch {
		case f.Diff != "":
			fmt.Fprint(o.stdout, f.Diff)
		case f.Did != "unchanged":
			fmt.Fprintf(o.stdout, "%-8s %s\n", f.Did, f.Path)
		}
	}
	return nil
}

func ofDiffering(all []*scaffold.Differs) []fileJSON {
	var files []fileJSON
	for _, d := range all {
		files = append(files, fileJSON{Path: d.Path, Did: "differs", Diff: d.Diff()})
	}
	return files
}

// differing returns the files in an error of [scaffold.Write] that exist with another text.
func differing(err error) []*scaffold.Differs {
	var several interface{ Unwrap() []error }
	if !errors.As(err, &several) {
		return nil
	}
	var all []*scaffold.Differs
	for _, e := range several.Unwrap() {
		var d *scaffold.Differs
		if errors.As(e, &d) {
			all = append(all, d)
		}
	}
	return all
}

func pathsOf(all []*scaffold.Differs) []string {
	var paths []string
	for _, d := range all {
		paths = append(paths, d.Path)
	}
	return paths
}

func differ(n int) string {
	if n == 1 {
		return "differs"
	}
	return "differ"
}
