package jobevent

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// windowSize is the largest number of names that are known but not delivered yet;
// they take some 5 MB. A directory with n events is listed n/windowSize times.
const windowSize = 64 << 10

// fileName is the name of an event file, N-uuid.json.
type fileName struct {
	counter int
	name    string
}

// parseName parses the name of an event file. It refuses temporary and partial
// files, and all other names.
func parseName(name string) (fileName, bool) {
	digits, rest, ok := strings.Cut(name, "-")
	if !ok || !strings.HasSuffix(rest, ".json") || strings.HasSuffix(rest, "-partial.json") {
		return fileName{}, false
	}
	// 48 bits: sums and differences of counters never overflow.
	n, err := strconv.ParseInt(digits, 10, 48)
	if err != nil || n < 1 || digits[0] == '+' {
		return fileName{}, false
	}
	return fileName{int(n), name}, true
}

func compareNames(a, b fileName) int {
	return cmp.Or(cmp.Compare(a.counter, b.counter), strings.Compare(a.name, b.name))
}

// window holds the names with the lowest counters, in order, each once.
type window struct {
	size  int
	names []fileName
	// truncated is true if names beyond the last one here were left out.
	truncated bool
}

func (w *window) empty() bool { return len(w.names) == 0 }

func (w *window) first() fileName { return w.names[0] }

func (w *window) pop() fileName {
	n := w.names[0]
	w.names = w.names[1:]
	return n
}

// add inserts one name, usually at the end. If names were left out before, it does
// not add a name after the last one: names that were left out may come between.
func (w *window) add(n fileName) {
	i, found := slices.BinarySearchFunc(w.names, n, compareNames)
	if found || w.truncated && i == len(w.names) {
		return
	}
	if i == w.size {
		w.truncated = true
		return
	}
	w.names = slices.Insert(w.names, i, n)
	if len(w.names) > w.size {
		w.names, w.truncated = w.names[:w.size], true
	}
}

// relist begins a complete listing, whose names come through collect in any
// order; settle ends it.
func (w *window) relist() { w.truncated = false }

func (w *window) collect(n fileName) {
	// Once the window is full, names after its last one need not be kept.
	if w.truncated && compareNames(n, w.names[w.size-1]) > 0 {
		return
	}
	if w.names = append(w.names, n); len(w.names) > w.size+w.size/2 {
		w.settle()
	}
}

func (w *window) settle() {
	slices.SortFunc(w.names, compareNames)
	w.names = slices.Compact(w.names)
	if len(w.names) > w.size {
		clear(w.names[w.size:])
		w.names, w.truncated = w.names[:w.size], true
	}
}
