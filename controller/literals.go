package controller

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/runner/plainfile"
)

// literals knows which names of tasks and plays are literals in the files of the
// content: a name without a template cannot contain anything from an object. It is
// asked about names that contain the value of a secret by chance, and reads the file
// only then. It is safe for concurrent use.
type literals struct {
	// dirs are the directories whose files are trusted; playbooks are the files with the plays.
	dirs, playbooks []string

	mu    sync.Mutex
	files map[string]namesIn
}

// namesIn holds the names in one file that have no template: lines has the names by
// their lines, plays the names of plays. at is when the file was read.
type namesIn struct {
	at    time.Time
	lines map[int]string
	plays map[string]bool
}

// Limits of what is read: a file of tasks usually has a few kilobytes.
const (
	maxTaskFile  = 1 << 20
	maxTaskFiles = 1000
)

func newLiterals(roots fingerprint.Roots) *literals {
	l := &literals{files: map[string]namesIn{}, playbooks: roots.Playbooks}
	dirs := append(append([]string{}, roots.Trees...), roots.Collections...)
	for _, playbook := range roots.Playbooks {
		dirs = append(dirs, besidePlaybook(playbook)...)
	}
	for _, dir := range dirs {
		for _, name := range []func(string) (string, error){filepath.Abs, resolved} {
			if name, err := name(dir); err == nil {
				l.dirs = append(l.dirs, name)
			}
		}
	}
	return l
}

// resolved returns path as an absolute path without symbolic links.
func resolved(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// has reports whether name, without a template, is the name of the task at place
// (file:line) in a file of the content. If place is empty, it asks for a play.
func (l *literals) has(name, place string) bool {
	if l == nil || name == "" {
		return false
	}
	if place == "" {
		return slices.ContainsFunc(l.playbooks, func(playbook string) bool { return l.read(playbook).plays[name] })
	}
	i := strings.LastIndexByte(place, ':')
	if i < 0 || !l.within(filepath.Clean(place[:i])) {
		return false
	}
	line, err := strconv.Atoi(place[i+1:])
	return err == nil && l.read(filepath.Clean(place[:i])).lines[line] == name
}

func (l *literals) within(path string) bool {
	return slices.ContainsFunc(l.dirs, func(dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") })
}

// read returns the names in a file, at most [contentMaxAge] old.
func (l *literals) read(path string) namesIn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.files[path]; ok && time.Since(known.at) < contentMaxAge {
		return known
	}
	if len(l.files) >= maxTaskFiles {
		clear(l.files)
	}
	found := namesIn{lines: map[int]string{}, plays: map[string]bool{}}
	var doc yaml.Node
	if file, err := resolved(path); err == nil {
		if data, err := plainfile.Read(file, maxTaskFile); err == nil && yaml.Unmarshal(data, &doc) == nil {
			found.add(&doc, 0)
		}
	}
	found.at = time.Now()
	l.files[path] = found
	return found
}

// maxTaskDepth limits the nesting of blocks.
const maxTaskDepth = 100

// add notes the names of a node and of the nodes below it. Of several nodes on one
// line, the first is the task.
func (n namesIn) add(node *yaml.Node, depth int) {
	if depth > maxTaskDepth {
		return
	}
	if node.Kind == yaml.MappingNode {
		if _, taken := n.lines[node.Line]; !taken {
			name := literalName(node)
			n.lines[node.Line] = name
			if name != "" && depth <= 2 { // the document, its list, a play
				n.plays[name] = true
			}
		}
	}
	for _, child := range node.Content {
		n.add(child, depth+1)
	}
}

// literalName returns the value of the key "name"; empty if there is none or it has
// a template.
func literalName(node *yaml.Node) string {
	for i := 0; i+1 < len(node.Content); i += 2 {
		value := node.Content[i+1]
		if node.Content[i].Value != "name" {
			continue
		}
		if value.Kind != yaml.ScalarNode || value.ShortTag() != "!!str" || strings.Contains(value.Value, "{{") ||
			strings.Contains(value.Value, "{%") || strings.Contains(value.Value, "{#") {
			return ""
		}
		return value.Value
	}
	return ""
}
