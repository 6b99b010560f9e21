package redact

// table has a value for each hash. add needs one that was made; find does not.
type table[V any] map[uint64]*V

// find returns the value of a key, nil if there is none.
func (t table[V]) find(key uint64) *V { return t[key] }

// add returns the value of a key, which is zero and new if there was none.
func (t table[V]) add(key uint64) *V {
	v := t[key]
	if v == nil {
		v = new(V)
		t[key] = v
	}
	return v
}
