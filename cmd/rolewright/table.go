package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"

	plaintext "github.com/rolewright/rolewright/internal/text"
)

// Formats of lists, in addition to outputJSON and outputYAML.
const (
	outputTable    = "table"
	outputWide     = "wide"
	outputName     = "name"
	outputJSONPath = "jsonpath"
)

// table prints lines with aligned columns, also if lines are added later: a column never becomes
// narrower. Nothing in a cell controls the terminal.
type table struct {
	out    io.Writer
	widths []int
}

func (t *table) print(rows ...[]string) error {
	inLine := strings.NewReplacer("\n", " ", "\t", " ")
	for _, row := range rows {
		for i, cell := range row {
			row[i] = inLine.Replace(plaintext.Plain(cell))
			if i == len(t.widths) {
				t.widths = append(t.widths, 0)
			}
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(row[i]))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+3))
			}
		}
		if _, err := fmt.Fprintln(t.out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

// listOutput is the value of --output of a list.
type listOutput struct {
	format string
	path   *jsonpath.JSONPath
}

func (o *listOutput) String() string { return o.format }

// Type is for the help.
func (*listOutput) Type() string { return "string" }

// Set reads the value.
func (o *listOutput) Set(value string) error {
	format, path, paths := strings.Cut(value, "=")
	if !slices.Contains([]string{outputTable, outputWide, outputJSON, outputYAML, outputName, outputJSONPath}, format) || paths != (format == outputJSONPath) {
		return errors.New("it must be table, wide, json, yaml, name or jsonpath=PATH")
	}
	o.format, o.path = format, nil
	if !paths {
		return nil
	}
	if !strings.Contains(path, "{") { // like kubectl
		path = "{." + strings.TrimPrefix(path, ".") + "}"
	}
	o.path = jsonpath.New(outputJSONPath).AllowMissingKeys(true)
	return o.path.Parse(path)
}

// bind adds --output to a command that lists things.
func (o *listOutput) bind(cmd *cobra.Command, things string) {
	o.format = outputTable
	cmd.Flags().VarP(o, "output", "o", "How to print the "+things+": table, wide, json, yaml, name or jsonpath=PATH.")
	completeFlag(cmd, "output", fixed(outputTable, outputWide, outputJSON, outputYAML, outputName, outputJSONPath+"="))
}

func bindWatch(fs *pflag.FlagSet, watch *bool, each string) {
	fs.BoolVarP(watch, "watch", "w", false, "Keep watching, and show each "+each+".")
}

// isTable is true for a table, wide or not.
func (o *listOutput) isTable() bool { return o.format == outputTable || o.format == outputWide }

// checkWatch refuses --watch with a format that cannot be printed line by line.
func (o *listOutput) checkWatch(watch bool) error {
	if watch && !o.isTable() {
		return usage(errors.New("--watch prints a table: omit --output, or set it to wide"))
	}
	return nil
}

// print prints the list in a format other than a table; names are the names of its items.
func (o *listOutput) print(out io.Writer, list any, names []string) error {
	switch o.format {
	case outputJSON:
		return printJSON(out, list)
	case outputYAML:
		text, err := plainJSON(list)
		if err == nil {
			text, err = yaml.JSONToYAML(text)
		}
		if err == nil {
			_, err = out.Write(text)
		}
		return err
	case outputName:
		for _, name := range names {
			fmt.Fprintln(out, plaintext.Plain(name))
		}
		return nil
	}
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	var plain any
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	var found strings.Builder
	if err := o.path.Execute(&found, plain); err != nil {
		return usage(err)
	}
	_, err = fmt.Fprintln(out, strings.TrimSuffix(plaintext.Plain(found.String()), "\n"))
	return err
}
