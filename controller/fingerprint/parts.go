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

// Part is one input of a run.
type Part struct {
	Group Group
	// Name distinguishes the inputs of a group; it is empty if a group has only one.
	Name string
	// Value is the input or its digest.
	Value string
}

// Group is a kind of inputs. Its value is the word that a status has for it.
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

// OfWatch is the group of the watch that made a run. A change of it is not one of the inputs, so [Since] does not name it.
const OfWatch Group = "watch"

func groups() []Group {
	return []Group{OfObject, OfContent, OfFiles, OfConfiguration, OfSettings, OfAnsible, OfEnvironment, OfReferences, OfTriggers}
}

// Variable returns the part for an environment variable. It has only 16 bits of the digest of the value, as for passwords,
// so that a fingerprint, or what is packed, cannot be used to test guesses of a secret value. One change in 65536 goes
// unnoticed.
func Variable(name, value string) Part {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", name, value))
	return Part{Group: OfEnvironment, Name: name, Value: hex.EncodeToString(sum[:2])}
}

// Of returns the fingerprint of a run with these inputs. Their order matters.
func Of(parts []Part) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%s %q %q\n", p.Group, p.Name, p.Value)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// maxPacked is how many parts are packed one by one, since a status may have 1000 characters
// of them. With more parts, only the groups that have changed can be named.
const maxPacked = 175

// entry is the packed form of a part: 16 bits of the digest of its name, and 16 bits of the
// digest of its name and value.
type entry [4]byte

func entryOf(p Part) (e entry) {
	name := sha256.Sum256(fmt.Appendf(nil, "%s %q", p.Group, p.Name))
	value := sha256.Sum256(fmt.Appendf(nil, "%s %q %q", p.Group, p.Name, p.Value))
	copy(e[:2], name[:])
	copy(e[2:], value[:])
	return e
}

// of returns the parts of a group.
func of(group Group, parts []Part) []Part {
	return slices.DeleteFunc(slices.Clone(parts), func(p Part) bool { return p.Group != group })
}

// whole returns a group as one part.
func whole(group Group, parts []Part) Part { return Part{Group: group, Value: Of(of(group, parts))} }

// Pack returns parts in packed form, to name later those that have changed: an [entry] for each
// group and each part with a name, in base64. If there are too many parts, it keeps, of the parts
// with a name, only the triggers and the watch.
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
		if p.Name != "" && (len(parts) <= maxPacked || p.Group == OfTriggers || p.Group == OfWatch) {
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

// Had returns a function that reports whether a part with a name was one of those in packed.
func Had(packed string) func(p Part) bool {
	was := unpack(packed)
	return func(p Part) bool { return was[entryOf(p)] }
}

// Change is a group in which something has changed.
type Change struct {
	Group Group
	// Names are the names of the parts that were added or have another value. It is empty if
	// the group has no names, if parts were only removed, or if there are too many parts.
	Names []string
	// More is the number of changed parts that are not in Names.
	More int
}

// Since returns the changes from packed to parts; nil if packed is not a result of
// [Pack].
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
