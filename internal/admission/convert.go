package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/rolewright/rolewright/internal/watches"
)

// Kept is the annotation with the fields that have no place in the current version of an object,
// by version and by path.
const Kept = "rolewright.dev/other-versions"

// maxKept bounds the annotation, in bytes: the API server accepts 256 KiB of annotations.
const maxKept = 128 << 10

// errKept is returned for an object whose fields do not fit into the annotation.
var errKept = errors.New("fields that have no place in the other version are too large to be kept in an annotation")

// Fits tells whether the schema of a version accepts a value for the field at a path. An error
// says that the schema is not known.
type Fits func(version, path string, value any) (bool, error)

// Convert changes an object to another version of its kind: first to the version of the watch
// and then to the other one, by the moves of the watch. A version that the watch does not list
// has its fields in the same places as the watch's version. Fields that cannot be moved are kept
// in the annotation [Kept]. The conversion back to their version restores them if they fit its
// schema: users can write the annotation, and the API server checks no schema after a conversion.
func Convert(o *unstructured.Unstructured, to string, w watches.Watch, fits Fits) error {
	gv, err := schema.ParseGroupVersion(o.GetAPIVersion())
	if err != nil {
		return err
	}
	hub := w.GVK.Version
	for _, step := range [][2]string{{gv.Version, hub}, {hub, to}} {
		if step[0] == step[1] {
			continue
		}
		if err := move(o, step[0], step[1], w, fits); err != nil {
			return fmt.Errorf("%s %s/%s from %s to %s: %w", o.GetKind(), o.GetNamespace(), o.GetName(), gv.Version, to, err)
		}
	}
	o.SetAPIVersion(schema.GroupVersion{Group: gv.Group, Version: to}.String())
	return nil
}

// moves returns the moves between a version and that of the watch, in either direction.
func moves(w watches.Watch, from, to string) []watches.Move {
	for _, c := range w.Webhooks.Conversion {
		switch c.From {
		case from:
			return c.Moves
		case to:
			back := make([]watches.Move, len(c.Moves))
			for i, m := range c.Moves {
				back[i] = watches.Move{From: m.To, To: m.From}
			}
			return back
		}
	}
	return nil
}

// kept is the content of the annotation: values by version, then by path.
type kept map[string]map[string]any

func (k kept) add(version, path string, value any) {
	if k[version] == nil {
		k[version] = map[string]any{}
	}
	k[version][path] = value
}

// prune removes what no conversion puts back. Anyone who may write an object can fill its annotation with such values, and
// the API server lists no object of the kind if one of them cannot be converted.
func (k kept) prune(w watches.Watch, fits Fits) error {
	for version, fields := range k {
		for path, value := range fields {
			fit := named(w, version, path)
			if fit {
				var err error
				if fit, err = fits(version, path, value); err != nil {
					return err
				}
			}
			if !fit {
				delete(fields, path)
			}
		}
	}
	return nil
}

// named tells whether a move names a path of a version.
func named(w watches.Watch, version, path string) bool {
	return slices.ContainsFunc(w.Webhooks.Conversion, func(c watches.Conversion) bool {
		return slices.ContainsFunc(c.Moves, func(m watches.Move) bool {
			return path != "" && (version == c.From && path == m.From || version == w.GVK.Version && path == m.To)
		})
	})
}

// move makes the moves. It takes all fields before it puts the first one, so that two fields can
// swap places.
func move(o *unstructured.Unstructured, from, to string, w watches.Watch, fits Fits) error {
	held, list := readKept(o), moves(w, from, to)
	taken := map[string]any{}
	for _, m := range list {
		if v, ok := take(o.Object, m.From); ok {
			taken[m.From] = v
		}
	}
	for _, m := range list {
		// What is at the target of a move is a field of the old version only.
		if v, ok := take(o.Object, m.To); ok {
			held.add(from, m.To, v)
		}
	}
	for _, m := range list {
		if v, ok := taken[m.From]; ok && (m.To == "" || !put(o.Object, m.To, v)) {
			held.add(from, m.From, v)
		}
	}
	back := held[to]
	for _, path := range slices.Sorted(maps.Keys(back)) {
		if !slices.ContainsFunc(list, func(m watches.Move) bool { return path == m.From || path == m.To }) {
			continue
		}
		with := runtime.DeepCopyJSON(o.Object)
		if !put(with, path, back[path]) {
			continue
		}
		value, _, _ := unstructured.NestedFieldNoCopy(with, strings.Split(path, ".")...)
		switch fit, err := fits(to, path, value); {
		case err != nil:
			return err
		case fit:
			o.Object = with
			delete(back, path)
		}
	}
	err := writeKept(o, held)
	if errors.Is(err, errKept) {
		if err = held.prune(w, fits); err == nil {
			err = writeKept(o, held)
		}
	}
	return err
}

// take removes a field and returns its value, and removes mappings below spec that become empty.
func take(fields map[string]any, path string) (any, bool) {
	if path == "" {
		return nil, false
	}
	first, rest, below := strings.Cut(path, ".")
	if !below {
		v, ok := fields[first]
		delete(fields, first)
		return v, ok
	}
	inner, ok := fields[first].(map[string]any)
	if !ok {
		return nil, false
	}
	v, ok := take(inner, rest)
	if ok && len(inner) == 0 && first != "spec" {
		delete(fields, first)
	}
	return v, ok
}

// put sets a missing field, or adds missing fields to a mapping. If the field has another
// value, it changes nothing and returns false.
func put(fields map[string]any, path string, value any) bool {
	first, rest, below := strings.Cut(path, ".")
	if below {
		inner, ok := fields[first].(map[string]any)
		if _, there := fields[first]; there && !ok {
			return false
		}
		if !ok {
			inner = map[string]any{}
		}
		if !put(inner, rest, value) {
			return false
		}
		fields[first] = inner
		return true
	}
	is, there := fields[first]
	if !there {
		fields[first] = value
		return true
	}
	into, isMap := is.(map[string]any)
	more, addsMap := value.(map[string]any)
	if !isMap || !addsMap || !disjoint(into, more) {
		return false
	}
	join(into, more)
	return true
}

// disjoint tells whether the two mappings have no field in common, apart from mappings for which
// the same is true.
func disjoint(a, b map[string]any) bool {
	for key, v := range b {
		is, there := a[key]
		if !there {
			continue
		}
		inner, isMap := is.(map[string]any)
		more, addsMap := v.(map[string]any)
		if !isMap || !addsMap || !disjoint(inner, more) {
			return false
		}
	}
	return true
}

func join(into, more map[string]any) {
	for key, v := range more {
		if inner, ok := into[key].(map[string]any); ok {
			join(inner, v.(map[string]any)) // disjoint has checked the type
			continue
		}
		into[key] = v
	}
}

// readKept reads the annotation. Users can write anything into it: what does not have the right
// form is ignored.
func readKept(o *unstructured.Unstructured) kept {
	held := kept{}
	text := o.GetAnnotations()[Kept]
	if text == "" || len(text) > maxKept {
		return held
	}
	var versions map[string]any
	if err := utiljson.Unmarshal([]byte(text), &versions); err != nil { // this decoder keeps integers
		return held
	}
	for version, fields := range versions {
		if fields, ok := fields.(map[string]any); ok {
			held[version] = fields
		}
	}
	return held
}

func writeKept(o *unstructured.Unstructured, held kept) error {
	maps.DeleteFunc(held, func(_ string, fields map[string]any) bool { return len(fields) == 0 })
	annotations := o.GetAnnotations()
	if len(held) == 0 {
		if _, there := annotations[Kept]; there {
			delete(annotations, Kept)
			if len(annotations) == 0 {
				annotations = nil
			}
			o.SetAnnotations(annotations)
		}
		return nil
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // escapes have six times the length
	if err := encoder.Encode(held); err != nil {
		return fmt.Errorf("encode what is kept: %w", err)
	}
	text.Truncate(text.Len() - 1) // the end of the line
	if text.Len() > maxKept {
		return errKept
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[Kept] = text.String()
	o.SetAnnotations(annotations)
	return nil
}
