package tasks

import (
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/chartdir"
	"github.com/rolewright/rolewright/internal/content"
)

// OfChart lists the requests for the objects in the templates of a chart, of its subcharts and in crds/, whatever the
// values are, and the requests that comments in these files and in Chart.yaml list. dir is the prefix of the paths. Tests of
// the chart count only if they are run. Alternatives, such as an older version of an API, are uses at the same place; at
// least one of them has to be known.
func OfChart(c *chartdir.Chart, dir string, tests bool) (Report, error) {
	s := &scanner{}
	charts, err := c.Subcharts()
	if err != nil {
		return Report{}, err
	}
	s.chart(c, dir, tests)
	for _, sub := range charts {
		s.chart(sub, path.Join(dir, "charts", sub.Name), tests)
	}
	return s.report, errors.Join(s.errs...)
}

func (s *scanner) chart(c *chartdir.Chart, dir string, tests bool) {
	for _, f := range c.Files {
		below, name := path.Split("/" + f.Path)
		manifests := strings.Contains(below, "/templates/") && (tests || !strings.Contains(below, "/templates/tests/")) || strings.Contains(below, "/crds/")
		if name != "Chart.yaml" && !manifests || name == "NOTES.txt" {
			continue
		}
		place := path.Join(dir, f.Path)
		if !s.listed(string(f.Data), Place{File: place}) {
			s.template(string(f.Data), place)
		}
	}
}

// What is read of a Go template: not its comments, and not the actions that produce no text of their own. An object may
// also come from the values, as an action at the beginning of a line prints it.
var (
	comment  = regexp.MustCompile(`(?s)\{\{-?\s*/\*.*?\*/\s*-?\}\}`)
	action   = regexp.MustCompile(`\{\{-?\s*(?:(?:if|else|end|with|range|define|block)\b|\$\w+\s*:?=)[^}]*\}\}`)
	ofValues = regexp.MustCompile(`^\{\{-?.*\b(?:tpl|toYaml|tplvalues\.render)\b`)
)

// lookups matches calls of the function that reads objects of the cluster. The groups are its version and kind, if literal.
var lookups = regexp.MustCompile(`\blookup\s+(?:"([^"]*)"|\S+)\s+(?:"([^"]*)"|\S+)`)

// template reads the documents of a Go template, and the lookups in it.
func (s *scanner) template(text, file string) {
	a := args{s: s, f: content.Frame{File: file}}
	text = empty(text, comment)
	for i, line := range strings.Split(text, "\n") {
		for _, m := range lookups.FindAllStringSubmatch(line, -1) {
			if m[1] == "" || m[2] == "" {
				s.Gap(a.f, i+1, "the kind that lookup reads is not literal")
				continue
			}
			a.use([]Use{{Place: Place{file, i + 1}, APIVersion: m[1], Kind: m[2]}}, "", "get list", false)
		}
	}
	list := documents(empty(text, action), 1, ofValues)
	for i, d := range list {
		// Without a literal version, the object is in whichever group has such a kind.
		list[i].versions = slices.DeleteFunc(d.versions, func(n *yaml.Node) bool { return n.Value == "" || strings.Contains(n.Value, "{{") })
	}
	a.use(a.manifest(list, file), "", "get list watch create update patch delete", true)
}
