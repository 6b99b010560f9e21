package scaffold

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/chartdir"
)

// chartsDir is the directory of a project's charts.
const chartsDir = "helm-charts"

// chartsImage is the base image of a project of charts.
const chartsImage = "rolewright/charts"

// KindOfChart returns the default kind for a chart: its name in CamelCase.
func KindOfChart(name string) string {
	var kind strings.Builder
	for _, word := range strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune("-_.", r) }) {
		kind.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return kind.String()
}

// chartFiles returns the copy of the chart.
func (k Kind) chartFiles() []File {
	var files []File
	for _, f := range k.Chart.Files {
		files = append(files, File{Path: path.Join(chartsDir, k.Chart.Name, f.Path), Text: string(f.Data)})
	}
	return files
}

// LeftOver returns the files in the copy of the chart that are left over from an earlier version of it.
func (k Kind) LeftOver(dir string) (paths []string) {
	name := path.Join(chartsDir, k.Chart.Name)
	there, err := chartdir.Read(filepath.Join(dir, name))
	if err != nil {
		return nil // there is none, or what is wrong with it is reported where it is used
	}
	for _, f := range there.Files {
		if k.Chart.File(f.Path) == nil {
			paths = append(paths, path.Join(name, f.Path))
		}
	}
	return paths
}

// AllOfChart returns the files of a chart's kind, with its CRD and its sample.
func (k Kind) AllOfChart(dir string) ([]File, error) {
	there, err := k.findVersion(dir)
	if err != nil {
		return nil, err
	}
	files, err := k.Files(dir)
	if err != nil {
		return nil, err
	}
	d, err := k.ofChart(there.Text)
	d.File.Replaces = there.Replaces
	return append(files, d.File, File{Path: k.Sample(), Text: d.Sample}), err
}

// definitionOfChart returns the CRD of the kind in the project's directory, updated to match a chart.
func (k Kind) definitionOfChart(dir, chart string, earlier []Definition) (d Definition, err error) {
	if k.Chart, err = chartdir.Read(chart); err != nil {
		return d, err
	}
	old, err := k.takeDefinition(dir, earlier...)
	if err != nil {
		return d, err
	}
	return k.ofChart(old)
}

// ofChart returns the updated CRD, with a sample.
func (k Kind) ofChart(old string) (d Definition, err error) {
	read := reader(func(name string) ([]byte, error) { return k.Chart.File(name), nil })
	values, err := read.yaml(k.Chart.Name, "values.yaml")
	if err != nil {
		return d, err
	}
	jsonSchema, err := read.yaml(k.Chart.Name, "values.schema.json")
	if err != nil {
		return d, err
	}
	s := &schema{spec: ofValues(values, jsonSchema), about: k.Chart.Description}
	if d.Sample, err = k.sampleOfChart(s.spec, values); err != nil {
		return d, err
	}
	d.File.Path = k.Definition()
	text, breaks, kept, err := k.definitionText(old, s)
	if err != nil {
		return d, err
	}
	d.File.Text, d.Breaks = text, breaks
	d.noteSize()
	for _, field := range kept {
		d.Notes = append(d.Notes, fmt.Sprintf("%s: %s is in the CRD, but is not a value of the chart: it is kept; remove it from %s if no object sets it", k.Kind, field, d.File.Path))
	}
	return d, nil
}

// sampleOfChart returns a short object: the required fields, and the number of Pods if the chart has a value for
// it. A copy of all values would keep the object from getting the values of new versions of the chart.
func (k Kind) sampleOfChart(schema, defaults *yaml.Node) (string, error) {
	spec := exampleOf(schema)
	for _, name := range []string{"replicaCount", "replicas"} {
		if n := at(defaults, name); n != nil && n.Tag == "!!int" {
			set(spec, name, literal(n.Tag, n.Value))
		}
	}
	if len(spec.Content) == 0 {
		spec.Style = yaml.FlowStyle
	}
	return encode(mapping(
		"apiVersion", scalar(k.FullGroup()+"/"+k.Version), "kind", scalar(k.Kind),
		"metadata", mapping("name", scalar(k.Singular()+"-sample")), "spec", spec,
	))
}

// exampleOf returns a value that has nothing but what a schema requires.
func exampleOf(schema *yaml.Node) *yaml.Node {
	if enum := at(schema, "enum"); enum != nil && len(enum.Content) > 0 {
		return enum.Content[0]
	}
	switch text(at(schema, "type")) {
	case "object":
		node := mapping()
		for _, name := range values(at(schema, "required")) {
			set(node, name, exampleOf(at(at(schema, "properties"), name)))
		}
		return node
	case "array":
		return sequence()
	case "boolean":
		return literal("!!bool", "true")
	case "integer", "number":
		if least := at(schema, "minimum"); least != nil {
			return literal(least.Tag, least.Value)
		}
		return literal("!!int", "1")
	}
	return scalar("example")
}
