package migrate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/lint"
	"github.com/rolewright/rolewright/internal/text"
)

// Difference is a place in a project where ansible-operator and Rolewright differ.
type Difference struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// File is relative to the project, with slashes, or says where else the text comes
	// from; Line is 0 if the difference is about the whole file.
	File string `json:"file"`
	Line int    `json:"line"`
	// Text is the text at that place.
	Text string `json:"text"`
	// The other fields are those of the [Rule].
	AnsibleOperator string `json:"ansibleOperator"`
	Rolewright      string `json:"rolewright"`
	Switch          string `json:"switch"`
	Do              string `json:"do"`
	// Level is the level of [Plan] that makes the change; empty if people have to.
	Level Level `json:"level"`

	edit edit
}

// Explanation returns the sentences about a difference, each with its title.
func (d Difference) Explanation() [][2]string {
	do := d.Do
	switch d.Level {
	case DropIn:
		do += "; rolewright migrate apply does it"
	case Safe:
		do += "; rolewright migrate apply --level safe does it"
	}
	return Rule{AnsibleOperator: d.AnsibleOperator, Rolewright: d.Rolewright, Switch: d.Switch, Do: do}.parts()
}

// Options say what is known about Rolewright and about the project.
type Options struct {
	// KnownFlag tells whether the operator has a flag.
	KnownFlag func(name string) bool
	// Variable says why a key of a spec becomes no variable; empty if it becomes one.
	Variable func(key string) string
	// WatchesFile is relative to the project; empty for all files whose names begin with "watches".
	WatchesFile string
	// LookupEnv looks up the environment of the operator, for watches.yaml.
	LookupEnv func(name string) (string, bool)
	// Image is true if the project was taken from an image.
	Image bool
}

// Report is what was found in a project.
type Report struct {
	// Differences are ordered by severity, rule and place.
	Differences []Difference `json:"differences"`
	// Skipped are the directories that were not checked.
	Skipped []string `json:"skipped"`
}

// DropIn tells whether nothing prevents Rolewright from replacing ansible-operator.
func (r Report) DropIn() bool {
	return !slices.ContainsFunc(r.Differences, func(d Difference) bool { return d.Severity == Blocked })
}

// Count returns how many differences have the severity.
func (r Report) Count(s Severity) int {
	n := 0
	for _, d := range r.Differences {
		if d.Severity == s {
			n++
		}
	}
	return n
}

// Findings returns the differences as findings of lint, for lint's formats.
func (r Report) Findings() []lint.Finding {
	var all []lint.Finding
	for _, d := range r.Differences {
		f := lint.Finding{Rule: d.Rule, Severity: lint.Warning, File: d.File, Line: d.Line, Message: d.Text}
		switch d.Severity {
		case Blocked:
			f.Severity = lint.Error
		case Better, Unread:
			f.Severity = lint.Note
		default:
		}
		for _, part := range d.Explanation() {
			f.Hint += part[0] + ": " + part[1] + "\n"
		}
		f.Hint = strings.TrimSuffix(f.Hint, "\n")
		all = append(all, f)
	}
	return all
}

// Limits for what is read. Known operators have some hundred files.
const (
	maxFile  = 4 << 20
	maxFiles = 20000
	maxTotal = 256 << 20
	// maxText limits how much of a line a difference shows.
	maxText = 200
	// maxSame limits the places of one rule in one file.
	maxSame = 100
)

type reporter struct {
	Options
	root  *os.Root
	file  string
	text  string // of the file with a Deployment
	kinds []kind
	texts map[string]string // of the files that have edits
	lines lineRules
	rules map[string]Rule
	same  map[string]int // places by file and rule
	image image
	files int
	total int64
	Report
}

// Read checks the project in a directory. It opens nothing outside of it, and
// writes nothing. The error is about the directory or the watches file.
func Read(dir string, opts Options) (Report, error) {
	r, err := read(dir, opts)
	if err != nil {
		return Report{}, err
	}
	return r.Report, r.root.Close()
}

func read(dir string, opts Options) (*reporter, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	r := newReporter(opts)
	r.root = root
	if opts.Image {
		r.file = "."
		r.unread(errors.New("the entrypoint and the environment of an image are not among its files"))
	}
	if err := r.watches(dir); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	if err := fs.WalkDir(root.FS(), ".", r.visit); err != nil && !errors.Is(err, errTooMuch) {
		return nil, errors.Join(err, root.Close())
	}
	r.ownImage()
	r.sort()
	return r, nil
}

func newReporter(opts Options) *reporter {
	r := &reporter{Options: opts, lines: newLineRules(), texts: map[string]string{}, rules: map[string]Rule{}, same: map[string]int{}}
	r.Differences, r.Skipped = []Difference{}, []string{}
	for _, rule := range Rules() {
		r.rules[rule.ID] = rule
	}
	return r
}

// Deployment checks an operator's Deployment from a cluster, given as YAML.
func Deployment(name string, text []byte, opts Options) (Report, error) {
	r := newReporter(opts)
	r.file = name
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil || len(doc.Content) == 0 {
		return Report{}, fmt.Errorf("read %s: %w", name, cmp.Or(err, errors.New("it is empty")))
	}
	r.pod(doc.Content[0], child(doc.Content[0], "spec"), true)
	for i := range r.Differences { // people do not see the lines of the object
		r.Differences[i].Line, r.Differences[i].Level = 0, ""
	}
	r.sort()
	return r.Report, nil
}

// Merge adds the findings of another report.
func (r *Report) Merge(other Report) {
	r.Differences, r.Skipped = append(r.Differences, other.Differences...), append(r.Skipped, other.Skipped...)
	r.sort()
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Differences, func(a, b Difference) int {
		order := Severities()
		return cmp.Or(cmp.Compare(slices.Index(order, a.Severity), slices.Index(order, b.Severity)), cmp.Compare(a.Rule, b.Rule),
			cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
}

// read reads a file of the project.
func (r *reporter) read(name string) (string, error) {
	f, err := r.root.Open(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxFile {
		return "", fmt.Errorf("it is larger than %d MiB", maxFile>>20)
	}
	r.total += int64(len(data))
	return string(data), nil
}

// add adds a difference by a rule, at a line of the file.
func (r *reporter) add(rule string, line int, text string) *Difference {
	return r.addWith(r.rules[rule], line, text)
}

func (r *reporter) addWith(rule Rule, line int, found string) *Difference {
	found, _, _ = strings.Cut(strings.TrimSpace(found), "\n")
	if key := r.file + "\x00" + rule.ID; r.same[key] >= maxSame {
		return &Difference{}
	} else if r.same[key]++; r.same[key] == maxSame {
		found = "there may be more of this in the file: they are not listed"
	}
	r.Differences = append(r.Differences, Difference{
		Rule: rule.ID, Severity: rule.Severity, File: r.file, Line: line, Text: text.Clip(text.OneLine(found), maxText),
		AnsibleOperator: rule.AnsibleOperator, Rolewright: rule.Rolewright, Switch: rule.Switch, Do: rule.Do,
	})
	return &r.Differences[len(r.Differences)-1]
}

// change makes [Plan] change the place of the difference.
func (r *reporter) change(d *Difference, level Level, text string, e edit) {
	if d.Rule == "" || e.start < 0 {
		return
	}
	d.Level, d.edit, r.texts[r.file] = level, e, text
}

func (r *reporter) unread(err error) { r.add(notRead, 0, err.Error()) }

// manifests checks the objects of a file.
func (r *reporter) manifests(text string) {
	r.lines.compare(r, r.lines.manifest, text)
	if strings.Contains("/"+r.file, "/templates/") && slices.ContainsFunc(r.kinds, func(k kind) bool { return k.untimed }) {
		r.lines.compare(r, r.lines.hooks, text)
	}
	if !strings.Contains(text, "kind:") {
		return
	}
	if strings.Contains("/"+r.file, "/templates/") && strings.Contains(text, "{{") {
		r.template(text, errors.New("it is a template"))
		return
	}
	for doc, err := range content.Documents(text) {
		if err != nil {
			r.template(text, err)
			return
		}
		r.object(text, doc)
	}
}

// template reports a file that is not plain YAML if it seems to contain a relevant
// object.
func (r *reporter) template(text string, why error) {
	for _, kind := range []string{deploymentKind, "ClusterServiceVersion", "CustomResourceDefinition", "ClusterRole", "Role"} {
		if strings.Contains(text, "kind: "+kind+"\n") {
			r.unread(fmt.Errorf("the %s in it was not compared: %w", kind, why))
			return
		}
	}
}
