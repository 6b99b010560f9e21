package watches

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Trigger says which objects start runs of those of the watch, which do not name them.
type Trigger struct {
	// GVK is the kind of the objects; it is not that of the watch.
	GVK schema.GroupVersionKind
	// Selector restricts them. It is valid.
	Selector metav1.LabelSelector
	// MapTo says which objects of the watch they start.
	MapTo MapTo
	// NameFromLabel is a label whose value is the name of the only object that one starts;
	// empty for all names.
	NameFromLabel string
}

// MapTo says which objects of a watch a trigger starts. Any value but [MapToAll], the zero
// value included, is [MapToSameNamespace].
type MapTo string

// What a trigger starts.
const (
	// MapToSameNamespace: the objects in its namespace; all where one of the two kinds is
	// in no namespaces. A Namespace starts those in it.
	MapToSameNamespace MapTo = "sameNamespace"
	// MapToAll: all.
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
		{Field{"selector", typeMap, "", false, "The labels of those that do. It may be missing only where there is nameFromLabel."},
			func(c *decoding, t *Trigger, a at) { object(c, a, selectorFields(), &t.Selector) }},
		{Field{"mapTo", typeString, "sameNamespace", false,
			"Which objects of the watch they start: with sameNamespace those in their namespace, with all those in all namespaces."},
			word("answer to which objects a trigger starts", func(t *Trigger) *MapTo { return &t.MapTo }, MapToSameNamespace, MapToAll)},
		{Field{"nameFromLabel", typeString, "", false, "A label whose value is the name of the object of the watch that is started, in place of all."},
			checkedText(func(t *Trigger) *string { return &t.NameFromLabel }, "label", validation.IsQualifiedName)},
	}
}

// busy is true for kinds whose objects change all the time.
func busy(kind string) bool {
	return slices.Contains([]string{"Endpoints", "EndpointSlice", "Event", "Lease", "Node", "Pod"}, kind)
}

// setTriggers reads which objects start runs. The kind of the watch is known.
func setTriggers(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		t := Trigger{MapTo: MapToSameNamespace}
		for _, p := range pairs(element) {
			if key, hint := absentTriggerKey(p.key); key != "" {
				c.error(p.name, "triggers have no key "+key, hint)
				return
			}
		}
		keys := object(c, element, triggerFields(), &t)
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
	})
}

// absentTriggerKey says what to write in place of a key that others' triggers have.
func absentTriggerKey(key string) (name, hint string) {
	switch strings.ToLower(key) {
	case "namespaceselector":
		return "namespaceSelector", "remove it: objects are selected by their own labels; mapTo: sameNamespace keeps namespaces apart"
	case "on", "true": // on is true in YAML 1.1
		return "on", "remove it: what counts is which objects there are, and in which versions, also after a restart"
	}
	return "", ""
}

func (c *decoding) checkTrigger(e *entry, t Trigger, m mapping) {
	_, selected := m.keys["selector"]
	all := len(t.Selector.MatchLabels)+len(t.Selector.MatchExpressions) == 0
	switch {
	case t.GVK.GroupKind() == e.watch.GVK.GroupKind():
		c.error(m.value("kind"), "a trigger of the kind of the watch: each object would start all others", "name another kind, or objects in references")
	case !selected && t.NameFromLabel == "":
		c.error(m.at, "a trigger must have selector or nameFromLabel", "write the labels of the objects that start runs; selector: {} selects all of the kind")
	case all && t.NameFromLabel == "" && busy(t.GVK.Kind):
		c.error(m.value("selector"), fmt.Sprintf("all objects of the kind %s change all the time", t.GVK.Kind), "select some by their labels")
	case t.NameFromLabel != "" && t.MapTo == MapToAll:
		c.error(m.value("mapTo"), "mapTo: all contradicts nameFromLabel", "remove one of the two")
	}
}
