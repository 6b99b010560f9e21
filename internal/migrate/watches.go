package migrate

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/rolewright/rolewright/internal/content"
	"github.com/rolewright/rolewright/internal/watches"
)

// These match where images have the content, which watches.yaml may name, and the messages about what is missing.
var (
	home   = regexp.MustCompile(`^/opt/(ansible|helm)/`)
	absent = regexp.MustCompile(`not found|no such file`)
)

// kind is a watched kind, as far as it concerns other files.
type kind struct {
	schema.GroupKind
	// plural is the name of the resource by the usual rules.
	plural string
	// unmarked is true if the watch does not set markUnsafe.
	unmarked bool
	// chart is true if the watch has a chart.
	chart bool
	// untimed is true if the watch has a chart and no timeout.
	untimed bool
}

// has tells whether a resource belongs to the kind. The guessed plural can be wrong: gatewaies for Gateway, mailboxs for
// Mailbox.
func (k kind) has(resource string) bool {
	name := strings.ToLower(k.Kind)
	return resource == k.plural || resource == name+"s" || resource == name+"es"
}

// errNoWatches is the error for a directory without a project.
var errNoWatches = errors.New("there is no watches file")

// watches compares the watches files.
func (r *reporter) watches(dir string) error {
	names := []string{r.WatchesFile}
	if r.WatchesFile == "" {
		var err error
		if names, err = fs.Glob(r.root.FS(), "watches*.y*ml"); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%w in %s: name the directory of a project, or the file with --watches-file", errNoWatches, dir)
	}
	for _, name := range names {
		r.file = filepath.ToSlash(filepath.Clean(name))
		text, err := r.read(r.file) // of the project, even if links lead out of it
		if err != nil && r.WatchesFile != "" {
			return err
		}
		if err != nil {
			r.unread(err)
			continue
		}
		absolute, err := filepath.Abs(dir)
		if err != nil {
			return err
		}
		_, problems, _ := watches.Load(name, watches.Options{Dir: absolute, LookupEnv: r.LookupEnv})
		for _, p := range problems {
			r.problem(p)
		}
		r.watchesText(text)
	}
	return nil
}

// watchesText compares the entries of a watches file.
func (r *reporter) watchesText(text string) {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) == nil && len(doc.Content) > 0 && doc.Content[0].Kind == yaml.SequenceNode {
		for _, entry := range doc.Content[0].Content {
			r.watch(text, entry)
		}
	}
}

// problem reports a problem that "rolewright validate" would report.
func (r *reporter) problem(p watches.Problem) {
	rule := r.rules[otherWatch]
	switch inImage := home.ReplaceAllString(p.Text, ""); {
	case inImage != p.Text && absent.MatchString(p.Message):
		if _, err := r.root.Stat(inImage); err == nil {
			return // it exists in the image
		}
		rule = r.rules[badWatch]
	case strings.Contains(p.Message, "not found") && strings.Count(p.Text, ".") == 2 && !strings.Contains(p.Text, "/"):
		rule = r.rules[roleElsewhere] // the role of a collection
	case p.Severity == watches.Error:
		rule = r.rules[badWatch]
	}
	rule.Rolewright = p.Message
	if p.Hint != "" && rule.ID != roleElsewhere {
		rule.Do = p.Hint
	}
	text := p.Path
	if p.Text != "" {
		text += ": " + p.Text
	}
	r.addWith(rule, p.Pos.Line, text)
}

// watch compares an entry.
func (r *reporter) watch(text string, entry *yaml.Node) {
	value := func(key string) *yaml.Node { // keys may be written in any case
		for k, value := range content.Pairs(entry) {
			if strings.EqualFold(k.Value, key) {
				return value
			}
		}
		return &yaml.Node{}
	}
	gvk := schema.GroupVersionKind{Group: value("group").Value, Version: value("version").Value, Kind: value("kind").Value}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	marked := value("markUnsafe")
	chart := value("chart").Kind != 0
	marks := marked.Kind == 0 && value("command").Kind == 0 && !chart // commands and charts have no templates of Ansible
	r.kinds = append(r.kinds, kind{gvk.GroupKind(), plural.Resource, marks, chart, chart && value("timeout").Kind == 0})
	if command := value("command"); command.Kind != 0 {
		r.add(ownWatch, command.Line, gvk.Kind+": command")
	}
	if marks {
		r.add(marking, entry.Line, gvk.Kind+": markUnsafe is not set")
	}
	var unsafe bool
	if marked.Kind == yaml.ScalarNode && marked.Decode(&unsafe) == nil && !unsafe {
		r.change(r.add(markingOff, marked.Line, gvk.Kind+": markUnsafe: "+marked.Value), Safe, text, replace(text, marked, "true"))
	}
	if f := value("finalizer"); f.Kind != 0 {
		r.add(finalizer, f.Line, gvk.Kind+": "+child(f, "name").Value)
	}
}

// onlyCharts tells whether there are watches and all of them have a chart.
func (r *reporter) onlyCharts() bool {
	return len(r.kinds) > 0 && !slices.ContainsFunc(r.kinds, func(k kind) bool { return !k.chart })
}

// watched returns the watched kind; nil if the kind is not watched.
func (r *reporter) watched(group, name string) *kind {
	i := slices.IndexFunc(r.kinds, func(k kind) bool { return k.Group == group && k.Kind == name })
	if i < 0 {
		return nil
	}
	return &r.kinds[i]
}
