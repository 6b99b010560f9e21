package tasks

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/rolewright/rolewright/internal/content"
)

// Place is a line of a file; 0 means the file as a whole.
type Place struct {
	File string
	Line int
}

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Use is a request that a task makes.
type Use struct {
	Place
	// APIVersion and Kind are as written in the task. A kind may be the name of a
	// resource or a short name, which the modules accept.
	APIVersion, Kind string
	// Subresource is empty for the object itself.
	Subresource string
	Verbs       []string
	// Makes is true if the request may create the object.
	Makes bool
}

// Direct is a permission that a comment in the files asks for.
type Direct struct {
	Place
	Group, Resource string // Resource has the subresource after a slash
	Verbs           []string
}

// Gap is a place whose requests are not known.
type Gap struct {
	Place
	What string
	Own  bool // the operator itself makes the requests, so that no record of runs has them
}

// Report is the result of a scan, in the order of the tasks.
type Report struct {
	Uses    []Use
	Directs []Direct
	Gaps    []Gap
	// KubernetesCore is true if a task names a module of kubernetes.core, by its full or its short name.
	KubernetesCore bool
}

// Scan reads a role or playbook and everything that it includes by a literal name. The
// error names each file that cannot be read, or is not the YAML that Ansible expects.
func Scan(c content.Content, o content.Options) (Report, error) {
	s := &scanner{}
	err := content.Read(c, o, s)
	return s.report, errors.Join(append(s.errs, err)...)
}

// scanner is one scan.
type scanner struct {
	report Report
	errs   []error
}

// Gap implements content.Visitor: it reports a place whose requests are not known.
func (s *scanner) Gap(f content.Frame, line int, format string, args ...any) {
	g := Gap{Place: Place{f.File, line}, What: fmt.Sprintf(format, args...)}
	if !slices.Contains(s.report.Gaps, g) {
		s.report.Gaps = append(s.report.Gaps, g)
	}
}

// Role implements content.Visitor.
func (s *scanner) Role(content.Frame) {}

// Group implements content.Visitor.
func (s *scanner) Group(f content.Frame, node *yaml.Node) {
	if content.Get(node, "block") != nil {
		s.directives(f, node)
	}
	s.settings(f, node)
}

// settings reports keywords that change what tasks do.
func (s *scanner) settings(f content.Frame, node *yaml.Node) {
	for _, n := range []*yaml.Node{content.Get(node, "connection"), content.Get(content.Get(node, "vars"), "ansible_connection")} {
		if n != nil && (strings.Contains(n.Value, "kubectl") || strings.HasSuffix(n.Value, ".oc")) {
			s.Gap(f, n.Line, "the connection %s runs commands in Pods", n.Value)
		}
	}
	content.Each(content.Get(node, "module_defaults"), func(key, _ *yaml.Node) {
		if strings.Contains(key.Value, "k8s") {
			s.Gap(f, key.Line, "module_defaults change the arguments of %s", key.Value)
		}
	})
}

// Task implements content.Visitor. If the task has a directive, the content that it includes is not read.
func (s *scanner) Task(t content.Task) bool {
	s.settings(t.Frame, t.Node)
	s.report.KubernetesCore = s.report.KubernetesCore || ofKubernetesCore.MatchString(t.Module)
	if s.directives(t.Frame, t.Node) {
		return false
	}
	scalars(t.Node, func(n *yaml.Node) {
		if lookup.MatchString(n.Value) {
			s.Gap(t.Frame, n.Line, "a lookup of Kubernetes objects")
		}
	})
	s.module(t.Module, args{s: s, f: t.Frame, node: arguments(t.Args, content.Get(t.Node, "args")), line: t.Line})
	return true
}

// lookup matches a lookup of Kubernetes objects.
var lookup = regexp.MustCompile(`\b(?:lookup|query|q)\(\s*['"](?:[\w.]+\.)?k8s['"]`)

// directive matches a comment that lists the requests of a task:
//
//	# rolewright:rbac GROUP RESOURCE[,…] VERB[,…]
//	# rolewright:rbac none
//
// The core group is written as core.
var directive = regexp.MustCompile(`(?m)^(?:#+|//)\s*rolewright:rbac\b[ \t]*(.*?)[ \t]*$`)

// directives reads the comments above and inside a task or block, but not those of the tasks in a block. They replace
// the scan of the task.
func (s *scanner) directives(f content.Frame, node *yaml.Node) (known bool) {
	nodes := []*yaml.Node{node}
	for key, value := range content.Pairs(node) {
		nodes = append(nodes, key)
		if !slices.Contains([]string{"block", "rescue", "always"}, key.Value) {
			nodes = append(nodes, value)
		}
	}
	var comments strings.Builder
	for _, n := range nodes {
		fmt.Fprintf(&comments, "%s\n%s\n%s\n", n.HeadComment, n.LineComment, n.FootComment)
	}
	return s.listed(comments.String(), Place{f.File, node.Line})
}

// listed adds the requests that comments list.
func (s *scanner) listed(comments string, at Place) (known bool) {
	for _, m := range directive.FindAllStringSubmatch(comments, -1) {
		known = true
		fields := strings.Fields(m[1])
		if len(fields) == 1 && fields[0] == "none" {
			continue
		}
		if len(fields) != 3 {
			s.errs = append(s.errs, fmt.Errorf("%s: the comment %q: write \"rolewright:rbac GROUP RESOURCE VERBS\", such as "+
				"\"rolewright:rbac apps deployments/scale get,patch\" (the core group is called core), or \"rolewright:rbac none\"", at, m[0]))
			continue
		}
		group := fields[0]
		if group == "core" {
			group = ""
		}
		for resource := range strings.SplitSeq(fields[1], ",") {
			s.report.Directs = append(s.report.Directs, Direct{at, group, resource, strings.Split(fields[2], ",")})
		}
	}
	return known
}

// OfProgram reads the comments of a program that list its requests, in the same form as for tasks, in
// lines that begin with # or //. known is false if it has none.
func OfProgram(file string) (directs []Direct, known bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20)) // a larger program is not a script
	if err != nil {
		return nil, false, err
	}
	s := &scanner{}
	known = s.listed(string(text), Place{File: file})
	return s.report.Directs, known, errors.Join(s.errs...)
}
