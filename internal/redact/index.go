package redact

import (
	"crypto/rand"
	"encoding/binary"
	"math/bits"
)

// index finds patterns in text. It does not keep the patterns, only hashes: of the
// first and the last 4, 8, 16, … bytes of each, and of the whole. At each position of
// a text it follows the beginnings as far as they match, so that the time depends
// neither on the number of patterns nor on what they have in common. The hashes have
// 61 bits and a key that the author of a pattern does not know. If two are equal by
// chance, too much is masked, never too little.
type index struct {
	// base is the key, and powers[class] is base to the power of 2^class, modulo [modulus].
	base   uint64
	powers [maxClass + 1]uint64
	// All three are keyed by hashes. heads has the beginnings; tails the ends, with
	// the length of the longest pattern with that end; wholes the patterns, with true
	// for the inner part of an encoded value.
	heads  map[uint64]*head
	tails  map[uint64]int32
	wholes map[uint64]bool
	// classes has a bit for each class that has a pattern.
	classes uint32
	// maybe rules out most texts that begin no pattern, by their first six bytes: it has the bit of the slot of each
	// pattern, without the lowest coarse bits of the slot's number. slots keeps the full numbers, for when maybe has to
	// grow; nil once it is largest.
	maybe  []uint64
	coarse int
	slots  []uint64
	// size is the sum of the patterns' lengths, and longest the largest.
	size, longest int
	// sums is memory for insert.
	sums hashes
}

// head describes the patterns with the same first 2^class bytes.
type head struct {
	// longest is the length of the longest of them.
	longest int32
	// short and ends have the lengths of those patterns that are shorter than twice
	// this beginning: short has a bit for each length below [long], ends has the other
	// lengths, the largest first.
	short uint32
	ends  [4]int32
	// alike is true if there are more lengths than fit into ends: then text with this
	// beginning counts as a pattern of the largest length, ends[0].
	alike bool
}

const (
	// window is how many bytes of a pattern are needed to look it up.
	window   = 4
	minClass = 2 // 1<<minClass is window
	maxClass = 30
	long     = 32
	// modulus of the hashes, a Mersenne prime.
	modulus = 1<<61 - 1
	// The largest index.maybe has 1<<maybeLog bits, and the smallest 1<<leastLog: each run has one. It grows when more
	// than one in sparse bits is set.
	maybeLog = 20
	leastLog = 14
	sparse   = 256
)

func newIndex() *index {
	var key [8]byte
	_, _ = rand.Read(key[:]) // it never fails: it ends the program instead
	x := &index{
		base:  1<<32 + binary.LittleEndian.Uint64(key[:])%(modulus-1<<33),
		heads: map[uint64]*head{}, tails: map[uint64]int32{}, wholes: map[uint64]bool{},
		maybe: make([]uint64, 1<<leastLog/64), coarse: maybeLog - leastLog,
	}
	power := x.base
	for class := range x.powers {
		x.powers[class] = power
		power = times(power, power)
	}
	return x
}

// times multiplies modulo [modulus].
func times(a, b uint64) uint64 {
	high, low := bits.Mul64(a, b)
	return reduced((low & modulus) + (low>>61 | high<<3))
}

func reduced(a uint64) uint64 {
	if a >= modulus {
		a -= modulus
	}
	return a
}

// hashes are the hashes of the beginnings of a text, by length.
type hashes []uint64

// hash appends the hashes of text to sums, which must be empty.
func hash[T string | []byte](x *index, sums hashes, text T) hashes {
	sum := uint64(0)
	sums = append(sums, sum)
	for i := range len(text) {
		sum = reduced(times(sum, x.base) + uint64(text[i]) + 1)
		sums = append(sums, sum)
	}
	return sums
}

// part returns the hash of the 2^class bytes at a position.
func (x *index) part(sums hashes, at, class int) uint64 {
	return reduced(sums[at+1<<class] + modulus - times(sums[at], x.powers[class]))
}

// whole returns the hash of the n bytes at a position, whose first part has the hash first: two parts cover them.
func (x *index) whole(sums hashes, first uint64, at, n, class int) uint64 {
	last := x.part(sums, at+n-1<<class, class)
	return reduced(reduced(times(first, x.base)+last) + uint64(n))
}

// classOf returns the largest class whose 2^class bytes fit into n bytes: the binary logarithm of n.
func classOf(n int) int { return bits.Len(uint(n)) - 1 }

func (x *index) insert(p pattern) {
	n := len(p.text)
	x.sums = hash(x, x.sums[:0], p.text)
	top := min(classOf(n), maxClass)
	whole := x.whole(x.sums, x.part(x.sums, 0, top), 0, n, top)
	if _, known := x.wholes[whole]; known {
		return
	}
	x.wholes[whole] = p.base64
	for class := minClass; class <= top; class++ {
		first := x.part(x.sums, 0, class)
		h := x.heads[first]
		if h == nil {
			h = &head{}
			x.heads[first] = h
		}
		h.longest = max(h.longest, int32(n))
		if class == top {
			h.end(n)
		}
		last := x.part(x.sums, n-1<<class, class)
		x.tails[last] = max(x.tails[last], int32(n))
	}
	x.classes |= 1 << top
	var key [8]byte
	copy(key[:], p.text)
	x.mark(slot(binary.LittleEndian.Uint64(key[:]) & sixBytes))
	x.size += n
	x.longest = max(x.longest, n)
	if cap(x.sums) > readSize {
		x.sums = nil
	}
}

// end notes the length of a pattern.
func (h *head) end(n int) {
	if n < long {
		h.short |= 1 << n
		return
	}
	is := int32(n)
	for i, other := range h.ends {
		switch {
		case is == other:
			return
		case is > other && h.alike:
			h.ends[0] = max(h.ends[0], is)
			return
		case is > other:
			h.ends[i], is = is, other
		}
	}
	h.alike = h.alike || is > 0
}

// sixBytes masks the six bytes of a little-endian number that index.maybe uses.
const sixBytes = 1<<48 - 1

// mark sets the bit of a slot.
func (x *index) mark(slots ...uint64) {
	if x.coarse > 0 {
		x.slots = append(x.slots, slots...)
		if len(x.slots)*sparse > len(x.maybe)*64 {
			x.maybe, x.coarse = make([]uint64, 4*len(x.maybe)), x.coarse-2
			if slots = x.slots; x.coarse == 0 {
				x.slots = nil
			}
		}
	}
	for _, s := range slots {
		bit := s >> x.coarse
		x.maybe[bit/64] |= 1 << (bit % 64)
	}
}

// slot returns the number of the bit for six bytes in the largest index.maybe.
func slot(key uint64) uint64 {
	const mix = 0x9E3779B97F4A7C15 // the golden ratio (Knuth, TAOCP 6.4)
	return key * mix >> (64 - maybeLog)
}
