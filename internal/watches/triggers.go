package watches

import (
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Trigger says which objects start runs of the watched objects, although those do not name them.
type Trigger struct {
	// GVK is the kind of the objects that start runs; never the kind of the watch.
	GVK schema.GroupVersionKind
	// Selector restricts the objects that start runs. It is valid.
	Selector metav1.LabelSelector
	// MapTo says which objects of the watch they start.
	MapTo MapTo
	// NamespaceSelector restricts the namespaces of the objects that start runs, by labels. It
	// is valid; an empty one restricts nothing.
	NamespaceSelector metav1.LabelSelector
	// On says which changes of these objects start runs; empty for all.
	On []Change
	// NameFromLabel is a label of the object that starts runs. Its value is the name of the only
	// watched object that runs. It is empty for all names.
	NameFromLabel string
}

// Change is a change of an object that starts runs.
type Change string

// The changes of an object that starts runs.
const (
	// Create: an object is created, or its labels begin to match.
	Create Change = "create"
	// Update: the object changes.
	Update Change = "update"
	// Delete: the object is deleted, or its labels no longer match.
	Delete Change = "delete"
)

// Counts reports whether a change starts runs.
func (t Trigger) Counts(c Change) bool { return len(t.On) == 0 || slices.Contains(t.On, c) }

// OfNamespaces reports whether the labels of namespaces restrict the trigger.
func (t Trigger) OfNamespaces() bool {
	return len(t.NamespaceSelector.MatchLabels)+len(t.NamespaceSelector.MatchExpressions) > 0
}

// MapTo says which objects of a watch a trigger starts. Any value but [MapToAll], including the
// zero value, is [MapToSameNamespace].
type MapTo string

// The values of MapTo.
const (
	// MapToSameNamespace: the objects in its namespace; all objects if one of the two kinds is
	// cluster-scoped. A Namespace starts the objects in it.
	MapToSameNamespace MapTo = "sameNamespace"
	// MapToAll: all objects.
	MapToAll MapTo = "all"
)

func triggerFields() []field[Trigger] {
	return []field[Trigger]{
		{Field{"group", typeString, `""`, false, "The API group of the kind; empty for the core group."},
			textField(func(t *Trigger) *string { return &t.GVK.Group })},
		{Field{"version", typeString, "", true, "The API version of the kind."},
			textField(func(t *Trigger) *string { return &t.GVK.Version })},
		{Field{"kind", typeString, "", true, "The kind of the objects that start runs."},
			textField(func(t *Trigger) *string { return &t.GVK.Kind })},
		{Field{"selector", typeMap, "", false,
			"The labels of the objects that start runs; {} selects all objects of the kind. Required unless nameFromLabel is set."},
			func(c *decoding, t *Trigger, a at) { object(c, a, selectorFields(), &t.Selector) }},
		{Field{"namespaceSelector", typeMap, "", false, "The labels of the namespaces of these objects. If missing, they may be in any namespace."},
			func(c *decoding, t *Trigger, a at) { object(c, a, selectorFields(), &t.NamespaceSelector) }},
		{Field{"on", typeList, "[create, update, delete]", false,
			"Which changes start runs: create, update and delete. If the labels of an object start to match, that is a create; if they stop matching, a delete."},
			setOn},
		{Field{"mapTo", typeString, "sameNamespace", false,
			"Which objects of the watch run. With sameNamespace, those in the namespace of the object that has changed; if one of the two " +
				"kinds is cluster-scoped, all objects; if it is a Namespace, the objects in it. With all, those in all namespaces."},
			word("value of mapTo", func(t *Trigger) *MapTo { return &t.MapTo }, MapToSameNamespace, MapToAll)},
		{Field{"nameFromLabel", typeString, "", false,
			"A label of the object that has changed. Only the object of the watch whose name is the value of this label runs."},
			checkedText(func(t *Trigger) *string { return &t.NameFromLabel }, "label", validation.IsQualifiedName)},
	}
}

// setOn reads which changes start runs.
func setOn(c *decoding, t *Trigger, a at) {
	t.On = []Change{}
	c.elements(a, func(element at) {
		var on struct{ Change }
		word("value of on", func(into *struct{ Change }) *Change { return &into.Change }, Create, Update, Delete)(c, &on, element)
		if on.Change != "" && !slices.Contains(t.On, on.Change) {
			t.On = append(t.On, on.Change)
		}
	})
	if a.node.Kind == yaml.SequenceNode && len(a.node.Content) == 0 {
		c.error(a, "on is empty, so no change starts runs", "write create, update or delete, or remove the key for all of them")
	}
}

// busy is true for kinds whose objects are created all the time or, if updates count,
// change all the time.
func busy(t Trigger) bool {
	kinds := []string{"Event", "Pod"}
	if t.Counts(Update) {
		kinds = append(kinds, "Endpoints", "EndpointSlice", "Lease", "Node")
	}
	return slices.Contains(kinds, t.GVK.Kind)
}

// setTriggers reads which objects start runs. The kind of the watch must have been read already.
func setTriggers(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		t := Trigger{MapTo: MapToSameNamespace}
		keys := object(c, withOn(element), triggerFields(), &t)
		if keys == nil {
			return
		}
		for _, key := range []string{"version", "kind"} {
			if _, said := keys[key]; !said {
				c.error(element, "a trigger must have "+key, "write version and kind of the objects that start runs")
				return
			}
		}
		c.checkTrigger(e, t, mapping{at: element, keys: keys})
		if len(e.watch.Triggers) == maxReferences {
			c.error(element, fmt.Sprintf("there are more than %d triggers", maxReferences), "join selectors, or remove triggers")
			return
		}
		e.watch.Triggers = append(e.watch.Triggers, t)
		e.starts = append(e.starts, start{at: keys["kind"], kind: t.GVK.GroupKind(), trigger: true})
	})
}

// withOn returns a trigger in which the key on is a string: in YAML 1.1 it is the boolean true.
func withOn(a at) at {
	if a.node.Kind != yaml.MappingNode {
		return a
	}
	is := *a.node
	is.Content = slices.Clone(is.Content)
	for i := 0; i < len(is.Content); i += 2 {
		if key := *is.Content[i]; key.Value == "true" {
			key.Value = "on"
			is.Content[i] = &key
		}
	}
	a.node = &is
	return a
}

func (c *decoding) checkTrigger(e *entry, t Trigger, m mapping) {
	_, selected := m.keys["selector"]
	all := len(t.Selector.MatchLabels)+len(t.Selector.MatchExpressions) == 0
	switch {
	case strings.Contains(t.GVK.Group+t.GVK.Version+t.GVK.Kind, "*"):
		c.error(m.at, "a trigger is for one kind, and patterns are not supported", "write a trigger for each kind")
	case t.GVK.GroupKind() == e.watch.GVK.GroupKind():
		c.error(m.value("kind"), "the trigger has the kind of the watch: each object would start all others", "write another kind, or use references")
	case !selected && t.NameFromLabel == "":
		c.error(m.at, "a trigger must have selector or nameFromLabel", "write the labels of the objects that start runs; selector: {} selects all of the kind")
	case all && t.NameFromLabel == "" && busy(t):
		c.error(m.value("selector"), fmt.Sprintf("objects of the kind %s change constantly: a trigger for all of them would start runs all the time", t.GVK.Kind), "select some of them by labels")
	case t.OfNamespaces() && t.GVK.GroupKind() == schema.GroupKind{Kind: "Namespace"}:
		c.error(m.value("namespaceSelector"), "a trigger for Namespaces cannot have namespaceSelector", "write the labels in selector")
	case t.NameFromLabel != "" && t.MapTo == MapToAll:
		c.error(m.value("mapTo"), "mapTo: all cannot be combined with nameFromLabel", "remove one of the two")
	}
}
