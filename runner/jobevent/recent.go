package jobevent

import "slices"

// maxRecent is enough for the hosts and tasks in progress at one time.
const maxRecent = 64

// recent is a map that keeps only the most recently set keys, to bound the memory
// for a run. The zero value is ready to use.
type recent[K comparable, V any] struct {
	keys   []K // the oldest first
	values map[K]V
}

func (r *recent[K, V]) get(k K) (V, bool) {
	v, ok := r.values[k]
	return v, ok
}

func (r *recent[K, V]) set(k K, v V) {
	r.remove(k)
	if len(r.keys) >= maxRecent {
		r.remove(r.keys[0])
	}
	if r.values == nil {
		r.values = map[K]V{}
	}
	r.keys = append(r.keys, k)
	r.values[k] = v
}

func (r *recent[K, V]) remove(k K) {
	if _, ok := r.values[k]; !ok {
		return
	}
	delete(r.values, k)
	r.keys = slices.DeleteFunc(r.keys, func(x K) bool { return x == k })
}
