// Package fieldpath names the fields in which two objects differ.
package fieldpath

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
)

// maxLength is how long a path is, in bytes.
const maxLength = 200

// Changed are the paths at which after is not what before was, in order, at most so many,
// and how many more there are. Each begins with root. A field that is only in one of them
// is named, and not what is in it; so is a list with another number of elements.
func Changed(root string, before, after any, most int) (paths []string, more int) {
	diff(before, after, []string{root}, func(path []string) {
		if len(paths) == most {
			more++
			return
		}
		paths = append(paths, text.Clip(strings.TrimPrefix(strings.Join(path, ""), "."), maxLength))
	})
	return paths, more
}

// diff calls found with the path of each difference, which it may not keep.
func diff(before, after any, path []string, found func(path []string)) {
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
				diff(was, is, below, found)
			}
		}
		return
	case []any:
		b, ok := before.([]any)
		if !ok || len(a) != len(b) {
			break
		}
		for i := range a {
			diff(b[i], a[i], append(path, "["+strconv.Itoa(i)+"]"), found)
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
