package tasks

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/chartdir"
	"github.com/rolewright/rolewright/internal/content"
)

// made lists the verbs for an object of a chart or of a hook.
const made = "get list watch create update patch delete"

// OfChart lists the requests for the objects in the templates of a chart, of its subcharts and in crds/, whatever the
// values are, and the requests that comments in the templates list. dir is the prefix of the paths. Alternatives, such as
// an older version of an API, are uses at the same place; at least one of them has to be known.
func OfChart(c *chartdir.Chart, dir string) (Report, error) {
	s := &scanner{}
	charts, err := c.Subcharts()
	if err != nil {
		return Report{}, err
	}
	s.chart(c, dir)
	for _, sub := range charts {
		s.chart(sub, path.Join(dir, "charts", sub.Name))
	}
	return s.report, errors.Join(s.errs...)
}

func (s *scanner) chart(c *chartdir.Chart, dir string) {
	var values yaml.Node
	if err := yaml.Unmarshal(c.File("values.yaml"), &values); err != nil {
		s.errs = append(s.errs, fmt.Errorf("%s: %w", path.Join(dir, "values.yaml"), err))
	}
	var defaults *yaml.Node
	if len(values.Content) > 0 {
		defaults = values.Content[0]
	}
	for _, f := range c.Files {
		below, name := path.Split(f.Path)
		template := strings.HasPrefix(below, "templates/") || strings.Contains(below, "/templates/")
		if name == "NOTES.txt" || strings.Contains(below, "templates/tests/") || !template && !strings.HasPrefix(below, "crds/") && !strings.Contains(below, "/crds/") {
			continue
		}
		place := path.Join(dir, f.Path)
		directs, known, err := directives(string(f.Data), Place{File: place})
		s.report.Directs = append(s.report.Directs, directs...)
		if err != nil {
			s.errs = append(s.errs, err)
		}
		if !known {
			s.template(string(f.Data), place, defaults)
		}
	}
}

// lookups matches calls of the function that reads objects of the cluster. The groups are its version and kind, if literal.
var lookups = regexp.MustCompile(`\blookup\s+(?:"([^"]*)"|\S+)\s+(?:"([^"]*)"|\S+)`)

// looked records the objects that a template reads with lookup.
func (s *scanner) looked(text, file string) {
	for _, m := range lookups.FindAllStringSubmatchIndex(text, -1) {
		line := 1 + strings.Count(text[:m[0]], "\n")
		if m[2] < 0 || m[4] < 0 {
			s.Gap(content.Frame{File: file}, line, "the kind that lookup reads is not literal")
			continue
		}
		s.report.Uses = append(s.report.Uses, Use{Place: Place{file, line}, APIVersion: text[m[2]:m[3]], Kind: text[m[4]:m[5]], Verbs: []string{"get", "list"}})
	}
}

// action matches comments of Go templates, and actions that produce no text of their own.
var action = regexp.MustCompile(`(?s)\{\{-?\s*(?:/\*.*?\*/|(?:(?:if|else|end|with|range|define|block)\b|\$\w+\s*:?=)[^}]*)\s*-?\}\}`)

// comments matches comments of Go templates.
var comments = regexp.MustCompile(`(?s)\{\{-?\s*/\*.*?\*/\s*-?\}\}`)

// emptied returns as many empty lines as the text has lines.
func emptied(text string) string { return strings.Repeat("\n", strings.Count(text, "\n")) }

// ofValues matches actions that print objects taken from values.
var ofValues = regexp.MustCompile(`(?m)^\{\{-?.*\b(?:tpl|toYaml|tplvalues\.render)\b`)

// template reads the documents of a Go template, line by line.
func (s *scanner) template(text, file string, defaults *yaml.Node) {
	s.looked(comments.ReplaceAllStringFunc(text, emptied), file)
	text = action.ReplaceAllStringFunc(text, emptied)
	var kinds, versions []key
	start := 1
	var document strings.Builder
	finish := func(next int) {
		s.templated(kinds, versions, Place{file, start}, document.String())
		kinds, versions, start = nil, nil, next
		document.Reset()
	}
	for i, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "---") {
			finish(i + 2)
			continue
		}
		document.WriteString(line + "\n")
		if m := keyLine.FindStringSubmatch(line); m != nil {
			value, _, _ := strings.Cut(m[2], " #")
			k := key{m[1], strings.Trim(strings.TrimSpace(value), `'"`), i + 1}
			if m := aValue.FindStringSubmatch(k.value); m != nil {
				s.Gap(content.Frame{File: file}, k.line, "the %s is a value: only the default of %s is known", k.name, m[1])
				k.value = valueAt(defaults, m[1])
			}
			if k.name == "kind" {
				kinds = append(kinds, k)
			} else {
				versions = append(versions, k)
			}
		}
	}
	finish(0)
}

// aValue matches an action that prints a value of the chart.
var aValue = regexp.MustCompile(`^\{\{-?\s*\.Values\.([\w.]+)\s*(?:\|\s*quote\s*)?-?\}\}$`)

// valueAt returns the default at a path; empty if there is none.
func valueAt(defaults *yaml.Node, path string) string {
	for name := range strings.SplitSeq(path, ".") {
		defaults = content.Get(defaults, name)
	}
	if defaults == nil {
		return ""
	}
	return defaults.Value
}

// templated records the objects of one document.
func (s *scanner) templated(kinds, versions []key, at Place, text string) {
	if len(kinds) == 0 {
		if ofValues.MatchString(text) {
			s.Gap(content.Frame{File: at.File}, at.Line, "objects that the values have")
		}
		return
	}
	for _, kind := range kinds {
		place := Place{at.File, kind.line}
		if kind.value == "" || strings.Contains(kind.value, "{{") || strings.HasSuffix(kind.value, "List") {
			s.Gap(content.Frame{File: at.File}, kind.line, "the kind is not literal: %s", kind.value)
			continue
		}
		literal := 0
		for _, v := range versions {
			if v.value == "" || strings.Contains(v.value, "{{") {
				continue
			}
			literal++
			s.report.Uses = append(s.report.Uses, Use{Place: place, APIVersion: v.value, Kind: kind.value, Verbs: strings.Fields(made), Makes: true})
		}
		if literal == 0 { // in whichever group has such a kind
			s.report.Uses = append(s.report.Uses, Use{Place: place, APIVersion: "v1", Kind: kind.value, Verbs: strings.Fields(made), Makes: true})
		}
	}
}
