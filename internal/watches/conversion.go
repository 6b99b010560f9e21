package watches

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Conversion says where fields of another version are in the version of the watch. Fields
// that it does not mention are in the same place.
type Conversion struct {
	// From is the other version.
	From string
	// Moves are the fields that are in different places. They do not collide.
	Moves []Move
}

// Move is a field that the versions have in different places: dotted paths below spec. One
// of the two is empty for a field that only one version has.
type Move struct{ From, To string }

// maxMoves bounds the moves of a conversion. Each move is made for each object that is read.
const maxMoves = 128

func conversionFields() []field[Conversion] {
	return []field[Conversion]{
		{Field{"from", typeString, "", true, "The other version, such as v1alpha1."},
			checkedText(func(v *Conversion) *string { return &v.From }, "version", validation.IsDNS1035Label)},
		{Field{"moves", typeList, "[]", false,
			"The fields that are in different places in the two versions. All other fields are in the same place."},
			setMoves},
	}
}

func moveFields() []field[Move] {
	return []field[Move]{
		{Field{"from", typeString, "", false,
			"The field in the other version, such as spec.replicas. Leave it out if that version has no such field."},
			movedField(func(m *Move) *string { return &m.From })},
		{Field{"to", typeString, "", false,
			"The field in the version of the watch, such as spec.size. Leave it out if that version has no such field."},
			movedField(func(m *Move) *string { return &m.To })},
	}
}

var movedPath = regexp.MustCompile(`^spec(\.[A-Za-z0-9_-]+)+$`)

func movedField(of func(*Move) *string) func(*decoding, *Move, at) {
	return func(c *decoding, m *Move, a at) {
		path, ok := c.string(a)
		switch {
		case !ok:
		case len(path) > 253 || !movedPath.MatchString(path):
			c.error(a, fmt.Sprintf("%q is not a path to a field in spec", excerpt(path)), "write keys separated by dots, such as spec.size; elements of lists cannot be moved")
		default:
			*of(m) = path
		}
	}
}

func setConversions(c *decoding, e *entry, a at) {
	c.elements(a, func(element at) {
		var v Conversion
		keys := object(c, element, conversionFields(), &v)
		if keys == nil {
			return
		}
		if v.From == "" {
			if _, said := keys["from"]; !said {
				c.error(element, "a conversion must have from", "write the other version")
			}
			return
		}
		if v.From == e.watch.GVK.Version {
			c.error(keys["from"], "from is the version of the watch itself", "write the other version")
		}
		for _, other := range e.watch.Webhooks.Conversion {
			if other.From == v.From {
				c.error(keys["from"], fmt.Sprintf("there are two conversions from version %s", v.From), "put the moves of both into one")
			}
		}
		if e.conversion == nil {
			e.conversion = &a
		}
		e.watch.Webhooks.Conversion = append(e.watch.Webhooks.Conversion, v)
	})
}

// setMoves reads moves that can be made in both directions.
func setMoves(c *decoding, v *Conversion, a at) {
	c.elements(a, func(element at) {
		var m Move
		keys := object(c, element, moveFields(), &m)
		_, from := keys["from"]
		_, to := keys["to"]
		switch {
		case keys == nil || from && m.From == "" || to && m.To == "":
			return // which has been reported
		case !from && !to:
			c.error(element, "a move must have from, to or both", "write where the field is in each of the two versions")
			return
		case m.From == m.To:
			c.error(element, "from and to are the same field", "remove the move")
			return
		case len(v.Moves) == maxMoves:
			c.error(element, fmt.Sprintf("there are more than %d moves", maxMoves), "move mappings that contain several of the fields")
			return
		}
		for _, other := range v.Moves {
			for _, two := range [][2]string{{m.From, other.From}, {m.To, other.To}} {
				if within(two[0], two[1]) || within(two[1], two[0]) {
					c.error(element, fmt.Sprintf("two moves overlap: %s and %s", two[1], two[0]), "move each field once; a moved mapping takes the fields in it along")
					return
				}
			}
		}
		v.Moves = append(v.Moves, m)
	})
}

// within tells whether a path names a field, or something below it.
func within(path, field string) bool {
	return path != "" && field != "" && strings.HasPrefix(path+".", field+".")
}

// checkConversions reports a kind that several watches convert: the API server asks only one.
func (c *decoding) checkConversions(entries []*entry) {
	first := map[schema.GroupKind]*entry{}
	for _, e := range entries {
		if e.conversion == nil {
			continue
		}
		if other := first[e.watch.GVK.GroupKind()]; other != nil {
			c.error(*e.conversion, fmt.Sprintf("the watch at line %d already has conversions of this kind", other.watch.Pos.Line),
				"put all conversions into the watch of the storage version")
			continue
		}
		first[e.watch.GVK.GroupKind()] = e
	}
}
