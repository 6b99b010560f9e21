package fingerprint

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rolewright/rolewright/internal/text"
)

// Part is one thing that a run depends on.
type Part struct {
	Group Group
	// Name tells the things of a group apart; it is empty for a group of one thing.
	Name string
	// Value is the thing, or a digest of it.
	Value string
}

// Group is a kind of inputs, in the word that a status has for it.
type Group string

// The groups of inputs.
const (
	OfObject        Group = "object"
	OfContent       Group = "content"
	OfFiles         Group = "files"
	OfConfiguration Group = "configuration"
	OfSettings      Group = "settings"
	OfAnsible       Group = "ansible"
	OfEnvironment   Group = "environment"
	OfReferences    Group = "references"
	OfTriggers      Group = "triggers"
)

func groups() []Group {
	return []Group{OfObject, OfContent, OfFiles, OfConfiguration, OfSettings, OfAnsible, OfEnvironment, OfReferences, OfTriggers}
}

// Variable is a variable of the environment, with 16 bits of a digest of its value, as passwords count: the rest of a secret
// value cannot be tried by a fingerprint, or by what is packed. One change in 65536 goes unnoticed.
func Variable(name, value string) Part {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", name, value))
	return Part{Group: OfEnvironment, Name: name, Value: hex.EncodeToString(sum[:2])}
}

// Of is the fingerprint of a run that depends on parts, in their order.
func Of(parts []Part) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%s %q %q\n", p.Group, p.Name, p.Value)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// maxPacked is how many parts are packed one by one: a status takes 1000 characters. An
// operator with more can say what kind of inputs has changed, and not which of them.
const maxPacked = 175

// entry is what is kept of a part: 16 bits of a digest of its name, and 16 of one of its
// name and value.
type entry [4]byte

func entryOf(p Part) (e entry) {
	name := sha256.Sum256(fmt.Appendf(nil, "%s %q", p.Group, p.Name))
	value := sha256.Sum256(fmt.Appendf(nil, "%s %q %q", p.Group, p.Name, p.Value))
	copy(e[:2], name[:])
	copy(e[2:], value[:])
	return e
}

// of are the parts of a group.
func of(group Group, parts []Part) []Part {
	return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.Group != group })
}

// whole is a group as one part.
func whole(group Group, parts []Part) Part { return Part{Group: group, Value: Of(of(group, parts))} }

// Pack is what is kept of parts, to name those that have changed later: an [entry] for
// each group and each part with a name, in base64. Of too many parts it keeps the triggers.
func Pack(parts []Part) string {
	var packed []byte
	add := func(p Part) {
		e := entryOf(p)
		packed = append(packed, e[:]...)
	}
	for _, group := range groups() {
		add(whole(group, parts))
	}
	for _, p := range parts {
		if p.Name != "" && (len(parts) <= maxPacked || p.Group == OfTriggers) {
			add(p)
		}
	}
	return base64.RawStdEncoding.EncodeToString(packed)
}

func unpack(packed string) map[entry]bool {
	data, err := base64.RawStdEncoding.DecodeString(packed)
	if err != nil {
		return nil
	}
	was := map[entry]bool{}
	for entries := range slices.Chunk(data, len(entry{})) {
		if len(entries) == len(entry{}) {
			was[entry(entries)] = true
		}
	}
	return was
}

// Had tells of a part, which has a name, whether it was one of those of which packed was made.
func Had(packed string) func(p Part) bool {
	was := unpack(packed)
	return func(p Part) bool { return was[entryOf(p)] }
}

// Change is a group of which something has changed.
type Change struct {
	Group Group
	// Names are the parts that were added or have another value. It is empty if the
	// group has no names, if parts have only been removed, and if there were too many.
	Names []string
	// More is how many parts there are besides.
	More int
}

// Since are the changes of parts since packed was made; none if packed is not what
// [Pack] returns.
func Since(packed string, parts []Part) []Change {
	was := unpack(packed)
	if len(was) < len(groups()) {
		return nil
	}
	var changes []Change
	for _, group := range groups() {
		if was[entryOf(whole(group, parts))] {
			continue
		}
		c := Change{Group: group}
		for _, p := range of(group, parts) {
			if p.Name != "" && len(parts) <= maxPacked && !was[entryOf(p)] {
				c.Names = append(c.Names, p.Name)
			}
		}
		changes = append(changes, c)
	}
	return changes
}

// String names the group and the first few parts, in printable characters.
func (c Change) String() string {
	const most, longest = 5, 120
	if len(c.Names) == 0 {
		return string(c.Group)
	}
	var names []string
	for _, name := range c.Names[:min(len(c.Names), most)] {
		if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
			name = strconv.QuoteToASCII(name)
		}
		names = append(names, text.Clip(name, longest))
	}
	if more := max(len(c.Names)-most, 0) + c.More; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return string(c.Group) + ": " + strings.Join(names, ", ")
}
