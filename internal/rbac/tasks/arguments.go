package tasks

import (
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// args are the arguments of a task.
type args struct {
	s    *scanner
	f    frame
	node *yaml.Node
	line int
}

// get is an argument by one of its names; nil if it is not given.
func (a args) get(names ...string) *yaml.Node {
	for _, name := range names {
		if n := get(a.node, name); n != nil && n.Tag != "!!null" {
			return n
		}
	}
	return nil
}

func (a args) has(names ...string) bool { return a.get(names...) != nil }

// text is an argument's one value; empty if there is none, or more.
func (a args) text(name string) string {
	values, _, ok := a.s.values(a.get(name), a.f)
	if !ok || len(values) != 1 {
		return ""
	}
	return values[0]
}

// may reports whether an argument may be one of these words: it says so, or an
// expression does that nobody knows.
func (a args) may(name, otherwise string, words ...string) bool {
	n := a.get(name)
	if n == nil {
		return slices.Contains(words, otherwise)
	}
	values, _, ok := a.s.values(n, a.f)
	return !ok || slices.ContainsFunc(values, func(v string) bool { return slices.Contains(words, strings.ToLower(v)) })
}

// on reports whether a switch may be on.
func (a args) on(name string) bool {
	n := a.get(name)
	if n != nil && n.Kind == yaml.MappingNode {
		return true
	}
	return a.may(name, "false", "true", "yes", "on", "1", "y", "t")
}

// mayLack reports whether an argument may be missing at run time.
func (a args) mayLack(names ...string) bool {
	n := a.get(names...)
	return n == nil || n.Kind == yaml.ScalarNode && (n.Value == "" || nothing.MatchString(n.Value))
}

// nothing matches an expression that may leave an argument out, or empty.
var nothing = regexp.MustCompile(`\bomit\b|\b(?:default|d)\(\s*(?:''|""|[Nn]one\b)`)

// add is a request for a kind that the module itself names.
func (a args) add(apiVersion, kind, subresource string, verbs ...string) {
	a.s.use(Use{Place: Place{a.f.file, a.line}, APIVersion: apiVersion, Kind: kind, Subresource: subresource, Verbs: verbs})
}

// useKind is a request for the kind that the arguments name.
func (a args) useKind(subresource string, verbs []string, makes bool) {
	for _, o := range a.named() {
		a.useObject(o, subresource, verbs, makes)
	}
}

func (a args) useObject(o object, subresource string, verbs []string, makes bool) {
	a.s.use(Use{Place: o.place, APIVersion: o.apiVersion, Kind: o.kind, Subresource: subresource, Verbs: verbs, Makes: makes, Alternative: o.alternative})
}

// named are the kinds that kind and api_version name; those of the arguments
// that are an expression are reported.
func (a args) named() []object {
	return a.objectsOf(a.get("kind"), a.get("api_version", "api", "version"), object{place: Place{a.f.file, a.line}})
}

// objectsOf are the objects of all kinds and versions that two scalars may say.
func (a args) objectsOf(kind, apiVersion *yaml.Node, like object) []object {
	kinds, openKind, ok := a.s.values(kind, a.f)
	if !ok {
		what := "the kind is an expression: " + text(kind)
		if kind == nil {
			what = "no kind is named"
		}
		a.s.gapAt(like.place, what)
		return nil
	}
	versions := []string{"v1"}
	if apiVersion != nil {
		var openVersion bool
		if versions, openVersion, ok = a.s.values(apiVersion, a.f); !ok {
			a.s.gapAt(like.place, "the API version of "+strings.Join(kinds, ", ")+" is an expression: "+text(apiVersion))
			return nil
		}
		openKind = openKind || openVersion
	}
	var list []object
	for _, k := range kinds {
		for _, v := range versions {
			o := like
			o.kind, o.apiVersion = k, v
			o.alternative = len(kinds)*len(versions) > 1
			list = append(list, o)
		}
	}
	if openKind {
		a.s.gapAt(like.place, "the kind comes from the defaults of the role ("+strings.Join(kinds, ", ")+"), which an object's spec can change")
	}
	return list
}

func (s *scanner) gapAt(place Place, what string) {
	s.gap(frame{file: place.File}, place.Line, "%s", what)
}

func (a args) k8s() {
	objects := a.objects()
	for _, o := range objects {
		for _, u := range a.verbs(o) {
			a.useObject(o, "", u.verbs, u.makes)
		}
		for _, owner := range o.blocks {
			a.s.use(Use{Place: o.place, APIVersion: owner.apiVersion, Kind: owner.kind, Subresource: "finalizers", Verbs: []string{"update"}})
		}
	}
}

// verbsOf is a set of verbs, and whether they make an object.
type verbsOf struct {
	verbs []string
	makes bool
}

// verbs are what the module k8s does with an object.
func (a args) verbs(o object) []verbsOf {
	var list []verbsOf
	unnamed := !o.named && a.mayLack("name")
	if a.may("state", "present", "absent") {
		verbs := []string{"delete"}
		if !unnamed || o.named || a.has("name") {
			verbs = append(verbs, "get")
		}
		if unnamed || a.has("label_selectors") && !o.named && !a.has("name") {
			verbs = append(verbs, "list") // what there is, and then one after the other
		}
		list = append(list, verbsOf{verbs, false})
	}
	if a.may("state", "present", "patched") {
		list = append(list, verbsOf{[]string{"get", "patch"}, false})
	}
	if a.may("state", "present", "present") {
		verbs := []string{"get", "create", "patch"}
		if o.generated && unnamed {
			verbs = []string{"create"}
		} else if !a.on("apply") && a.on("force") {
			verbs = []string{"get", "create", "update"}
			if n := a.get("force"); n != nil && expression.MatchString(n.Value) {
				verbs = append(verbs, "patch")
			}
		}
		if a.on("wait") && !slices.Contains(verbs, "get") {
			verbs = append(verbs, "get")
		}
		list = append(list, verbsOf{verbs, true})
	}
	return list
}

func (a args) k8sInfo() {
	verbs := []string{}
	if a.has("name") {
		verbs = append(verbs, "get")
	}
	if a.mayLack("name") {
		verbs = append(verbs, "list")
		if a.on("wait") && !a.has("name") {
			verbs = append(verbs, "get") // each of what was found
		}
	}
	a.useKind("", verbs, false)
}

func (a args) k8sScale() {
	for _, o := range a.objects() {
		verbs := []string{}
		if o.named || a.has("name") {
			verbs = append(verbs, "get")
		}
		if !o.named && a.mayLack("name") {
			verbs = append(verbs, "get", "list")
		}
		if strings.EqualFold(o.kind, "job") || strings.EqualFold(o.kind, "jobs") {
			a.useObject(o, "", append(verbs, "patch"), false)
			continue
		}
		a.useObject(o, "", verbs, false)
		a.useObject(o, "scale", []string{"patch"}, false)
	}
}

// A command in a container is asked for by a GET that becomes a WebSocket, for
// which newer API servers want create as well.
func (a args) exec() { a.add("v1", "Pod", "exec", "create", "get") }

func (a args) k8sExec() {
	if a.mayLack("container") {
		a.add("v1", "Pod", "", "get")
	}
	a.exec()
}

func (a args) k8sCp() {
	a.add("v1", "Pod", "", "get")
	a.exec()
}

func (a args) k8sLog() {
	a.add("v1", "Pod", "log", "get")
	kind := a.get("kind")
	switch {
	case kind != nil && !slices.Contains([]string{"pod", "pods", "po"}, strings.ToLower(kind.Value)):
		a.useKind("", []string{"get"}, false)
		a.add("v1", "Pod", "", "list")
	case a.has("label_selectors"):
		a.add("v1", "Pod", "", "list")
	}
	if a.on("all_containers") {
		a.add("v1", "Pod", "", "get")
	}
}

func (a args) k8sDrain() {
	a.add("v1", "Node", "", "get", "patch")
	if !a.may("state", "drain", "drain") {
		return
	}
	a.add("v1", "Pod", "", "get", "list")
	options := args{a.s, a.f, a.get("delete_options"), a.line}
	if options.on("disable_eviction") {
		a.add("v1", "Pod", "", "delete")
	}
	if n := options.get("disable_eviction"); n == nil || n.Value != "true" && n.Value != "yes" {
		a.add("v1", "Pod", "eviction", "create")
	}
}

func (a args) k8sRollback() {
	verbs := []string{"patch"}
	if a.has("name") {
		verbs = append(verbs, "get")
	}
	if a.mayLack("name") {
		verbs = append(verbs, "list")
	}
	for _, o := range a.named() {
		a.useObject(o, "", verbs, false)
		history := "ReplicaSet"
		if o.kind == "DaemonSet" {
			history = "ControllerRevision"
		}
		a.add("apps/v1", history, "", "list")
	}
}

func (a args) k8sService() {
	o := object{place: Place{a.f.file, a.line}, apiVersion: "v1", kind: "Service", named: true}
	for _, u := range a.verbs(o) {
		a.useObject(o, "", u.verbs, u.makes)
	}
}

func (a args) k8sStatus() {
	verb := "patch"
	if a.on("force") {
		verb = "update"
	}
	for _, o := range a.named() {
		a.useObject(o, "", []string{"get"}, false)
		a.useObject(o, "status", []string{verb}, false)
	}
}

func (a args) k8sEvent() {
	a.add("v1", "Event", "", "get", "create", "patch")
	about := args{a.s, a.f, a.get("involvedObject"), a.line}
	if about.node != nil {
		// The module looks every kind up in v1, whatever the argument says.
		for _, o := range about.objectsOf(about.get("kind"), nil, object{place: Place{a.f.file, a.line}}) {
			about.useObject(o, "", []string{"get"}, false)
		}
	}
}

// helm is a release: Helm keeps it in Secrets, and what is in the chart is not
// known.
func (a args) helm(verbs ...string) {
	a.add("v1", "Secret", "", verbs...)
	chart := text(a.get("chart_ref", "chart_reference"))
	a.s.gap(a.f, a.line, "it is not known what the Helm chart (%s) contains", chart)
}
