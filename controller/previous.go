package controller

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	k8sjson "k8s.io/apimachinery/pkg/util/json"

	"github.com/rolewright/rolewright/controller/status"
	"github.com/rolewright/rolewright/internal/text"
)

// previous is what the last successful run of an object was made for. The zero value is
// that it is not known.
type previous struct {
	// raw is the spec as JSON, nil if it is not known, and spec the same decoded.
	raw  json.RawMessage
	spec any
	// fields are the paths at which the spec is another one now, at most
	// [maxChangedFields]; more is how many there are besides.
	fields []string
	more   int
}

// previousOf reads from the disk what the last successful run of s was made for.
func (r *reconciler) previousOf(s *scope) (p previous) {
	if s.memory.last == nil {
		return previous{}
	}
	p.raw = r.store.Spec(s.uid(), s.memory.last.ID)
	if p.raw == nil || k8sjson.Unmarshal(p.raw, &p.spec) != nil {
		return previous{}
	}
	p.fields, p.more = changedFields(p.spec, s.object.Object["spec"])
	return p
}

// keepSpec keeps the spec of s if run has applied it, for later runs. It is called while
// last is still the run before.
func (r *reconciler) keepSpec(s *scope, last *status.Run, run status.Run) {
	var err error
	switch {
	case run.Result == status.Succeeded && run.Mode != status.ModeCheck && run.Wait == nil && !s.deleting:
		if s.given == nil {
			return // an earlier process has made the run, or the object has no spec
		}
		var spec json.RawMessage
		if spec, err = json.Marshal(s.given); err == nil {
			err = r.store.KeepSpec(s.uid(), run.ID, spec)
		}
	case last != nil:
		err = r.store.CarrySpec(s.uid(), last.ID, run.ID)
	}
	if err != nil {
		s.log.V(1).Info("Later runs are not told what was changed in the spec", "error", err.Error())
	}
}

// maxChangedFields is how many paths of a spec are named at most, maxChangedField how
// long each of them is, in bytes.
const (
	maxChangedFields = 20
	maxChangedField  = 200
)

// changedFields are the paths at which the spec after is not what it was before, in
// order, and how many more there are. A field that is only in one of them is named, and
// not what is in it; so is a list with another number of elements.
func changedFields(before, after any) (paths []string, more int) {
	diffFields(before, after, []string{"spec"}, func(path []string) {
		if len(paths) == maxChangedFields {
			more++
			return
		}
		paths = append(paths, text.Clip(strings.Join(path, ""), maxChangedField))
	})
	return paths, more
}

// diffFields calls found with the path of each difference, which it may not keep.
func diffFields(before, after any, path []string, found func(path []string)) {
	switch a := after.(type) {
	case map[string]any:
		b, ok := before.(map[string]any)
		if !ok {
			break
		}
		keys := maps.Clone(b)
		maps.Copy(keys, a)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			was, inBefore := b[key]
			is, inAfter := a[key]
			below := append(path, step(key))
			if inBefore != inAfter {
				found(below)
			} else {
				diffFields(was, is, below, found)
			}
		}
		return
	case []any:
		b, ok := before.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			diffFields(b[i], a[i], append(path, "["+strconv.Itoa(i)+"]"), found)
		}
		return
	}
	if !reflect.DeepEqual(before, after) {
		found(path)
	}
}

// step is a key in a path: quoted, in brackets, where it is more than letters, digits,
// - and _.
func step(key string) string {
	plain := key != "" && !strings.ContainsFunc(key, func(c rune) bool {
		return c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z')
	})
	if plain {
		return "." + key
	}
	return "[" + strconv.QuoteToASCII(key) + "]"
}
