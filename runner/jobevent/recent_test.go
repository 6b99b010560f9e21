package jobevent

import "testing"

func TestRecent_KeepsTheLatest(t *testing.T) {
	var r recent[int, string]
	r.remove(1)
	for i := range maxRecent + 2 {
		r.set(i, "v")
	}
	r.set(2, "again")
	_, evicted := r.get(1)
	got, _ := r.get(2)
	if evicted || got != "again" || len(r.keys) != maxRecent || r.keys[len(r.keys)-1] != 2 {
		t.Errorf("evicted = %t, value = %q, keys = %v", !evicted, got, r.keys)
	}
}
