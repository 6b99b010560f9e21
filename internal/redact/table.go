package redact

import "slices"

// table is a map of hashes, which need not be hashed again. The zero value is
// empty and ready.
type table[V any] struct {
	// keys are 0 for free places; their number is a power of two.
	keys   []uint64
	values []V
	used   int
}

// find returns the value of a key, nil if there is none. It is valid until the
// next call of add.
func (t *table[V]) find(key uint64) *V {
	key++ // is not 0
	mask := uint64(len(t.keys) - 1)
	if len(t.keys) == 0 {
		return nil
	}
	for i := key & mask; t.keys[i] != 0; i = (i + 1) & mask {
		if t.keys[i] == key {
			return &t.values[i]
		}
	}
	return nil
}

// add returns the value of a key, which is zero and new if there was none.
func (t *table[V]) add(key uint64) *V {
	if v := t.find(key); v != nil {
		return v
	}
	const half = 2
	if half*t.used >= len(t.keys) {
		t.grow()
	}
	t.used++
	mask := uint64(len(t.keys) - 1)
	i := (key + 1) & mask
	for ; t.keys[i] != 0; i = (i + 1) & mask {
	}
	t.keys[i] = key + 1
	return &t.values[i]
}

func (t *table[V]) grow() {
	const first, factor = 64, 2
	old := *t
	size := max(first, factor*len(old.keys))
	t.keys, t.values = make([]uint64, size), make([]V, size)
	mask := uint64(size - 1)
	for from, key := range slices.All(old.keys) {
		if key == 0 {
			continue
		}
		i := key & mask
		for ; t.keys[i] != 0; i = (i + 1) & mask {
		}
		t.keys[i], t.values[i] = key, old.values[from]
	}
}
